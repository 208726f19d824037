// The page as a whole: views, the live connection, keyboard, dialogs.

import { ask, onKeyNeeded, watch } from "./api.js";
import { Backends } from "./backends.js";
import { Detail } from "./detail.js";
import { byId, clock, setText } from "./dom.js";
import { Plots } from "./plots.js";
import { Requests } from "./requests.js";
import { Sessions } from "./sessions.js";
import { Try } from "./try.js";
import { drawBehaviour } from "./turns.js";
import { Usage } from "./usage.js";

const VIEWS = ["requests", "backends", "plots", "usage", "try", "sessions"];
const RETRY = 1500;

const state = { contents: false, admin: false, recording: null, needsKey: false, clientPort: null };
state.known = new Promise((resolve) => (state.know = resolve)); // what the visitor may see
const detail = new Detail(state, () => (location.hash = "#/requests"));
const requests = new Requests((id) => (location.hash = `#/requests/${id}`));
const sessions = new Sessions((id) => (location.hash = id === null ? "#/sessions" : `#/sessions/${id}`));
const views = { backends: new Backends(state), plots: new Plots(), usage: new Usage(), try: new Try(state), sessions };

function route() {
  const [, view = "requests", id] = location.hash.split("/");
  const shown = VIEWS.includes(view) ? view : "requests";
  if (shown === "plots") drawBehaviour(requests.all);
  for (const name of VIEWS) {
    byId(name).hidden = name !== shown;
    const link = document.querySelector(`[data-view="${name}"]`);
    if (name === shown) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (name === shown) views[name]?.show();
    else views[name]?.hide();
  }
  const opened = shown === "requests" && id ? decoded(id) : null;
  sessions.select(shown === "sessions" && id ? decoded(id) : null);
  const closed = opened === null ? detail.id : null;
  byId("requests").classList.toggle("opened", opened !== null);
  byId("requests").classList.toggle("narrowed", opened !== null);
  requests.select(opened ?? closed);
  detail.show(opened);
  if (closed !== null && shown === "requests") requests.focus(closed); // what had the focus is hidden now
  else if (!document.activeElement.checkVisibility()) byId("main").focus();
}

// Returns null for an address that is not encoded correctly: it opens no request.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

async function connect() {
  for (;;) {
    try {
      const found = await ask("api/state");
      setText(byId("version"), found.version);
      state.contents = found.contents;
      byId("search-label").hidden = !found.contents;
      state.admin = found.admin;
      state.needsKey = found.needs_key;
      state.clientPort = found.client_port;
      state.know();
      if (!byId("try").hidden) views.try.show();
      showRecording(found.recording);
      await watch((update) => {
        requests.take(update.views);
        detail.take(requests.all);
        if (!byId("plots").hidden) drawBehaviour(requests.all);
        showRecording(update.recording);
        if (update.busy) showConnection(`live, processes that do not answer: ${update.busy}`, "warn");
        else showConnection("live", "good");
      }, () => showConnection("live", "good"));
    } catch (error) {
      notice(error.status ? error.message : "");
    }
    showConnection("not connected", "bad");
    await new Promise((resolve) => setTimeout(resolve, RETRY));
  }
}

function showConnection(text, look) {
  const badge = byId("connection");
  if (look === "good") notice("");
  badge.className = `badge ${look}`;
  setText(badge, text);
}

function notice(text) {
  byId("notice").hidden = !text;
  setText(byId("notice"), text);
}

function showRecording(recording) {
  state.recording = recording;
  const badge = byId("recording");
  badge.hidden = !recording.on;
  badge.className = "badge warn";
  setText(badge, recording.always ? "recording" : `recording until ${clock(recording.until ?? 0)}`);
  byId("record").hidden = recording.always;
}

// Those who ask while the dialog is open wait for the same answer, and leave what is typed.
function askForKey(wrong) {
  const dialog = byId("key-dialog");
  const input = byId("key");
  if (!dialog.open) {
    input.value = "";
    dialog.returnValue = "";
    if (wrong) setText(byId("key-reason"), "That is not the admin key of this gateway. Please try again.");
    dialog.showModal();
    input.focus();
  }
  return new Promise((resolve) => {
    const submit = () => resolve(input.value.trim());
    dialog.querySelector("form").addEventListener("submit", submit, { once: true });
  });
}

async function record(minutes) {
  const refused = byId("record-refused");
  try {
    showRecording(await ask("api/recording", { method: "POST", body: JSON.stringify({ minutes }) }));
    byId("record-dialog").close();
  } catch (error) {
    refused.hidden = false;
    setText(refused, error.message);
  }
}

// Goes on in the list that is shown. Returns the id of a request; nothing of a session, which its link opens.
function step(by) {
  if (byId("sessions").hidden) return requests.step(by);
  sessions.step(by);
  return undefined;
}

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  "/": () => document.querySelector("section:not([hidden]) > .bar .filter input")?.focus(),
  c: () => byId("requests").hidden || byId("search").focus(),
  h: () => byId("requests").hidden || byId("pause").click(),
  "?": () => byId("help-dialog").showModal(),
  1: () => (location.hash = "#/requests"),
  2: () => (location.hash = "#/backends"),
  3: () => (location.hash = "#/plots"),
  4: () => (location.hash = "#/usage"),
  5: () => (location.hash = "#/try"),
  6: () => (location.hash = "#/sessions"),
  Escape: () => (sessions.id !== null ? sessions.open(null) : detail.id !== null && detail.close()),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (typing && event.key === "Escape") byId("requests").hidden ? byId("main").focus() : requests.focusSelected();
  if (typing || !(event.key in KEYS)) return;
  const inList = event.target.matches("body, main, .list, .list *");
  if (event.key.startsWith("Arrow") && !inList) return; // scrolls
  const id = KEYS[event.key]();
  if (typeof id === "string" && ["j", "k", "ArrowDown", "ArrowUp"].includes(event.key)) {
    requests.select(id);
    if (!byId("detail").hidden) location.hash = `#/requests/${id}`;
  }
  event.preventDefault();
});

byId("help").addEventListener("click", () => byId("help-dialog").showModal());
byId("record").addEventListener("click", () => {
  byId("record-stop").hidden = !state.recording?.on;
  byId("record-refused").hidden = true;
  byId("record-dialog").showModal();
});
byId("record-cancel").addEventListener("click", () => byId("record-dialog").close());
byId("record-stop").addEventListener("click", () => record(0));
byId("record-dialog").firstElementChild.addEventListener("submit", (event) => {
  event.preventDefault(); // it closes once the gateway records
  record(byId("minutes").valueAsNumber);
});
byId("key-dialog").addEventListener("cancel", (event) => event.preventDefault());
// Browsers close a dialog nevertheless at the second Escape, and nothing else would ask for the key again.
byId("key-dialog").addEventListener("close", (event) => event.target.returnValue || event.target.open || event.target.showModal());
onKeyNeeded(askForKey);
window.addEventListener("hashchange", route);
route();
connect();
