// The sessions of agents: a row each, and the tree of threads of the one that is open, with a time line of their requests.

import { ask } from "./api.js";
import { byId, clock, h, legible, number, seconds, setText, svg } from "./dom.js";
import { Polling } from "./polling.js";
import { idBelow, showRows } from "./rows.js";
import { Sorting } from "./sorting.js";

const REFRESH = 2000;
// Rows that are kept, as many as the gateway sends.
const KEPT = 1000;
// Units of a time line from its beginning to its end.
const WIDTH = 1000;
// The parts of a request's time, in their order, each with the class that colours it.
const PARTS = [["tools", "call"], ["waiting", "other"], ["prefill", "reasoning"], ["generation", "message"]];

export class Sessions extends Polling {
  constructor(open) {
    super(REFRESH);
    this.open = open;
    this.id = null;
    this.opened = null; // the session whose tree is shown, as it was sent last
    this.all = new Map(); // id -> row as it was sent
    this.rows = new Map(); // id -> elements
    this.since = 0;
    this.body = byId("session-rows");
    this.detail = byId("session-detail");
    this.sorting = new Sorting(document.querySelectorAll("table.sessions th"), VALUES, 0, true, () => this.draw());
    byId("session-filter").addEventListener("input", () => this.draw());
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) this.open(row.dataset.id);
    });
  }

  // Opens the tree of a session; null closes it, and gives the focus back to its row.
  select(id) {
    const before = this.id;
    if (id === before) return;
    this.id = id;
    this.opened = null;
    byId("sessions").classList.toggle("opened", id !== null);
    byId("sessions").classList.toggle("narrowed", id !== null);
    for (const [known, row] of this.rows) row.row.setAttribute("aria-selected", String(known === id));
    this.detail.hidden = id === null;
    if (id === null) {
      this.detail.replaceChildren();
      this.rows.get(before)?.link.focus();
      return;
    }
    this.detail.replaceChildren(h("p", {}, "Loading…"));
    this.loadTree();
  }

  // Gives the focus to the next row (or the previous one), and returns its id.
  step(by) {
    const id = idBelow(this.body, document.activeElement.closest?.("tr")?.dataset.id ?? this.id, by);
    this.rows.get(id)?.link.focus();
    return id;
  }

  async refresh() {
    try {
      const found = await ask(`api/sessions?since=${this.since}`);
      const fresh = new Set(found.data.map((session) => session.id));
      for (const [id, session] of this.all) {
        if (session.running && !fresh.has(id)) this.all.set(id, { ...session, running: false });
      }
      for (const session of found.data) this.all.set(session.id, session);
      this.since = Math.max(0, found.now - 10); // what ended just now may be reported a little later
      setText(byId("sessions-problem"), "");
      this.draw();
      if (this.id !== null && (this.opened === null || fresh.has(this.id))) await this.loadTree();
    } catch (error) {
      setText(byId("sessions-problem"), error.message);
    }
  }

  draw() {
    const sorted = [...this.all.values()].sort((a, b) => b.last - a.last || (a.id < b.id ? 1 : -1));
    for (const session of sorted.splice(KEPT)) this.all.delete(session.id);
    const wanted = byId("session-filter").value.trim().toLowerCase();
    const shown = this.sorting.sorted(sorted.filter((session) => matches(session, wanted)));
    const running = sorted.filter((session) => session.running).length;
    setText(byId("session-totals"), `${number(running)} running, ${number(sorted.length)} in all`);
    showRows(this.body, this.rows, shown, (session) => this.newRow(session), update);
    byId("no-sessions").hidden = sorted.length > 0;
  }

  newRow(session) {
    const link = h("a", { href: `#/sessions/${session.id}` });
    const cells = Array.from({ length: 14 }, (_, at) => h("td", at >= 4 ? { class: "number" } : {}));
    cells[0].append(link);
    cells[1].append(h("span", { class: "state" }));
    const row = h("tr", { "data-id": session.id, "aria-selected": String(session.id === this.id) }, cells);
    return { row, link, cells, value: null };
  }

  async loadTree() {
    const id = this.id;
    try {
      const session = await ask(`api/sessions/${encodeURIComponent(id)}`);
      if (id === this.id) this.drawTree(session);
    } catch (error) {
      if (id === this.id && this.opened === null) this.detail.replaceChildren(h("p", { role: "alert" }, error.message), this.closeButton());
    }
  }

  closeButton() {
    return h("button", { type: "button", class: "close", onclick: () => this.open(null) }, "Close");
  }

  drawTree(session) {
    const first = this.opened === null;
    // Who stands on a link of the tree is to stand on it afterwards, too.
    const focused = this.detail.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    if (!first && JSON.stringify({ ...session, now: 0, age: 0, last: 0 }) === this.shown) return;
    this.opened = session;
    this.shown = JSON.stringify({ ...session, now: 0, age: 0, last: 0 });
    const span = spanOf(session);
    const scrolled = this.detail.scrollTop;
    this.detail.replaceChildren(
      h("div", { class: "head" }, h("h2", {}, session.session), h("span", { class: `state ${session.running ? "running" : ""}` }, stateOf(session)), this.closeButton()),
      h("dl", { class: "facts" }, facts(session).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      h("h3", {}, "Threads"),
      h("p", { class: "legend" }, PARTS.map(([name, look]) => h("span", { class: `item ${look}` }, name))),
      session.earlier_requests ? h("p", { class: "totals" }, `${number(session.earlier_requests)} earlier requests are only in the sums.`) : "",
      h("ul", { class: "threads" }, session.threads.map((thread) => threadItem(thread, span))),
    );
    this.detail.scrollTop = scrolled;
    if (first) this.detail.focus({ preventScroll: true });
    else if (focused) this.detail.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }
}

function update(row, session) {
  row.value = session;
  const { cells } = row;
  setText(row.link, clock(session.last));
  const state = cells[1].firstChild;
  state.className = `state ${session.running ? "running" : "completed"}`;
  setText(state, stateOf(session));
  const texts = [session.session, clientOf(session), seconds(session.last - session.started), number(session.turns), number(session.agents), number(session.input_tokens), number(session.output_tokens), cachedOf(session), seconds(session.prefill), seconds(session.generation), seconds(session.tools), seconds(session.waiting)];
  texts.forEach((text, at) => {
    setText(cells[at + 2], text);
    if (at < 2) cells[at + 2].title = legible(text);
  });
}

const stateOf = (session) => (session.running ? "running" : session.final ? "final" : "idle");

const clientOf = (session) => [session.client.split(/[ /]/)[0], session.key].filter(Boolean).join(", ");

const cachedOf = (session) => (session.cached_tokens === null ? "not told" : session.input_tokens ? `${Math.round((100 * session.cached_tokens) / session.input_tokens)} %` : "");

function facts(session) {
  return [
    ["Client", session.client],
    ["Key", session.key],
    ["Began", clock(session.started)],
    ["Lasts", seconds(session.last - session.started)],
    ["Turns", `${number(session.turns)} (${number(session.requests)} requests)`],
    ["Agents", number(session.agents)],
    ["Input tokens", number(session.input_tokens)],
    ["Cached", cachedOf(session)],
    ["Output tokens", number(session.output_tokens)],
    ["Waiting", seconds(session.waiting)],
    ["Prefill", seconds(session.prefill)],
    ["Generation", seconds(session.generation)],
    ["Tools", seconds(session.tools)],
    ["Models", session.models.join(", ")],
  ].filter(([, value]) => value !== null && value !== "");
}

function threadItem(thread, span) {
  const below = new Map(); // of the request that began them -> threads
  const known = new Set(thread.requests.map((request) => request.id || request.request_id));
  for (const child of thread.threads) {
    const place = known.has(child.began_by) ? child.began_by : null;
    below.set(place, [...(below.get(place) ?? []), child]);
  }
  const children = (place) => (below.has(place) ? h("ul", { class: "threads" }, below.get(place).map((child) => threadItem(child, span))) : "");
  const name = thread.agent ?? (thread.parent ? "sub-agent" : "main");
  return h("li", {},
    h("h4", {}, name, " ", h("small", { class: "mono" }, thread.thread)),
    h("ol", { class: "requests-of" }, thread.requests.map((request) => h("li", {}, requestLine(request, span), children(request.id || request.request_id)))),
    children(null));
}

function requestLine(request, span) {
  const told = [request.kind && request.kind !== "main" && request.kind !== "subagent" ? request.kind : "", request.outcome === "completed" ? "" : request.outcome].filter(Boolean).join(", ");
  const time = clock(request.started);
  return h("div", { class: "line" },
    request.id ? h("a", { href: `#/requests/${encodeURIComponent(request.id)}` }, time) : h("span", {}, time),
    timeLine(request, span),
    h("span", { class: "number" }, `${number(request.input_tokens ?? 0)} → ${number(request.output_tokens ?? 0)}`),
    h("span", { class: "told" }, told));
}

// Shows where in the time of the session a request stands, and what its time was used for.
function timeLine(request, span) {
  const at = (time) => (WIDTH * (time - span.begin)) / span.length;
  let x = at(request.started - (request.tools ?? 0));
  const bars = [];
  for (const [name, look] of PARTS) {
    const width = (WIDTH * (request[name] ?? 0)) / span.length;
    if (width > 0) bars.push(svg("rect", { class: look, fill: "currentColor", x, y: 0, width: Math.max(width, 2), height: 10 }));
    x += width;
  }
  const said = PARTS.filter(([name]) => request[name]).map(([name]) => `${name} ${seconds(request[name])}`).join(", ");
  return svg("svg", { class: "time-line", viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", "aria-label": said || "no time" }, bars);
}

function spanOf(session) {
  let begin = session.started;
  let end = session.running ? session.now : session.last;
  const look = (thread) => {
    for (const request of thread.requests) {
      begin = Math.min(begin, request.started - (request.tools ?? 0));
      end = Math.max(end, request.ended ?? session.now);
    }
    thread.threads.forEach(look);
  };
  session.threads.forEach(look);
  return { begin, length: Math.max(end - begin, 0.001) };
}

function matches(session, wanted) {
  if (!wanted) return true;
  const text = [session.session, session.id, session.client, session.key, stateOf(session), ...session.models].filter(Boolean).join(" ").toLowerCase();
  return wanted.split(/\s+/).every((word) => text.includes(word));
}

// What each column is sorted by.
const VALUES = [(session) => session.last, stateOf, (session) => session.session, clientOf, (session) => session.last - session.started, (session) => session.turns, (session) => session.agents, (session) => session.input_tokens, (session) => session.output_tokens, (session) => (session.cached_tokens === null ? null : session.cached_tokens / (session.input_tokens || 1)), (session) => session.prefill, (session) => session.generation, (session) => session.tools, (session) => session.waiting];
