// One request: facts, items, the timeline of chunks and events, the request as received and as sent.

import { ask, download } from "./api.js";
import { curl, originOf } from "./commands.js";
import { byId, clock, h, number, seconds, setText, svg } from "./dom.js";
import { itemBlocks } from "./items.js";
import { apiOf, paceOf } from "./requests.js";
import { refusalRows, stepRows } from "./steps.js";
import { turnOf } from "./turns.js";

const REFRESH = 1000;

export class Detail {
  constructor(state, close) {
    this.state = state;
    this.close = close;
    this.element = byId("detail");
    this.id = null;
    this.timer = null;
  }

  show(id) {
    if (id === this.id) return;
    clearTimeout(this.timer);
    this.id = id;
    this.element.hidden = id === null;
    if (id === null) return;
    this.seen = 0;
    this.running = true; // as long as nobody has said otherwise
    this.live = null;
    this.parts = null;
    this.contentsShown = false;
    this.answer = null;
    this.element.replaceChildren(h("p", {}, "Loading…"));
    this.load();
  }

  // Takes an update of the live list: the pace of a running request.
  take(all) {
    this.live = all.get(this.id) ?? null;
  }

  async load() {
    const id = this.id;
    let summary = null;
    try {
      await this.state.known; // a link may open the page with a request
      if (id !== this.id) return;
      summary = await ask(`api/requests/${encodeURIComponent(id)}`);
      if (id !== this.id) return;
      this.running = summary.outcome === "running";
      this.parts ??= this.build(summary);
      this.update({ ...summary, pace: this.live?.pace });
      const recorded = summary.record !== null && this.state.contents;
      if (recorded) await this.showAnswer(id);
      await this.addSteps(id, recorded);
      if (id !== this.id) return;
      this.explain(summary);
      if (recorded && !this.contentsShown && summary.outcome !== "running") {
        this.contentsShown = true;
        await this.addContents(summary);
      }
      setText(this.parts.problem, "");
    } catch (error) {
      if (id !== this.id) return;
      this.fail(error);
      if (summary === null && error.status === 404) this.running = false; // any other error may pass
    }
    if (id !== this.id) return;
    clearTimeout(this.timer);
    if (this.running) this.timer = setTimeout(() => this.load(), REFRESH);
  }

  fail(error) {
    if (this.parts === null) this.element.replaceChildren(h("p", { role: "alert" }, error.message), this.closeButton());
    else setText(this.parts.problem, error.message);
  }

  closeButton() {
    return h("button", { type: "button", class: "close", onclick: this.close, "aria-label": "Close" }, "Close");
  }

  build(summary) {
    const parts = {
      state: h("span", { class: "state" }),
      facts: h("dl", { class: "facts" }),
      actions: h("div", { class: "actions" }),
      problem: h("p", { role: "alert" }),
      items: h("div"),
      answer: h("div"),
      report: h("div"),
      replay: h("div"),
      command: h("div"),
      contents: h("div"),
      steps: h("tbody"),
      stepsNote: h("p", { class: "totals" }),
      timeline: h("div", { class: "panel", tabindex: "0", role: "region", "aria-label": "Timeline" }),
    };
    const more = h("button", { type: "button", hidden: true, onclick: () => this.load() }, "More");
    parts.more = more;
    const table = h("table", { class: "steps" },
      h("caption", { class: "unseen" }, "Timeline: what the backend sent, next to the resulting events"),
      h("thead", {}, h("tr", {}, ...["Time", "From the backend", "To the client"].map((name) => h("th", { scope: "col" }, name)))),
      parts.steps);
    parts.timeline.append(table);
    this.element.replaceChildren(
      h("div", { class: "head" }, h("h2", {}, summary.model ?? summary.path ?? "Request"), parts.state, this.closeButton()),
      parts.facts, parts.actions, parts.problem, parts.command, parts.replay,
      parts.answer,
      h("h3", {}, "Items"), parts.items, parts.report,
      parts.contents,
      h("h3", {}, "Timeline"), parts.stepsNote, parts.timeline, more,
    );
    this.element.focus({ preventScroll: true });
    return parts;
  }

  update(summary) {
    const { parts } = this;
    parts.state.className = `state ${summary.outcome}`;
    setText(parts.state, summary.outcome);
    parts.facts.replaceChildren(...facts(summary).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    if (parts.actions.childElementCount === 0 && summary.record !== null && summary.outcome !== "running") this.addActions(summary);
    parts.items.replaceChildren(bars(summary), itemTable(summary));
    parts.report.replaceChildren(...report(summary));
  }

  // Says why the timeline has no contents, or nothing at all.
  explain(summary) {
    const nothing = this.seen === 0 && summary.outcome !== "running";
    const refused = nothing && summary.status !== undefined;
    this.parts.timeline.hidden = nothing && !refused;
    if (refused) this.parts.steps.replaceChildren(...refusalRows(summary));
    let text = "";
    if (refused) text = "The request was refused before a response began.";
    else if (summary.record !== null) text = this.state.contents ? "" : "Recorded. Contents are shown on this machine only, unless the gateway has an admin key.";
    else if (summary.kept_as === "relayed") text = "No timeline: the request was relayed to the backend as it came.";
    else if (nothing) text = "No timeline: while the request ran, it was neither recorded nor open here. Record requests to see their timeline and contents.";
    else text = "Not recorded: only sizes and times are shown, from the moment the request is opened here. Record requests to see contents.";
    setText(this.parts.stepsNote, text);
  }

  addActions(summary) {
    if (!this.state.contents) return;
    const path = `api/requests/${encodeURIComponent(summary.id)}`;
    const copy = h("button", { type: "button", disabled: true }, "Copy as curl");
    this.copy = copy;
    const replay = h("button", { type: "button", onclick: () => this.replay(path, replay) }, "Replay with this version");
    this.parts.actions.append(copy, h("button", { type: "button", onclick: () => download(`${path}/record`, summary.record).catch((error) => this.fail(error)) }, "Download recording"), replay);
  }

  async replay(path, button) {
    button.disabled = true;
    try {
      const done = await ask(`${path}/replay`, { method: "POST" });
      const text = done.identical ? `Identical: ${done.events} events, ${done.ending}.` : `Different: ${done.differences.map((found) => found.place).join(", ")}.`;
      const lines = done.differences.flatMap((found) => [`${found.place}: - recorded, + replayed`, ...found.diff]);
      this.parts.replay.replaceChildren(
        h("h3", {}, "Replay"), h("p", { role: "status", class: done.identical ? "state completed" : "state failed" }, text),
        ...done.notes.map((note) => h("p", {}, note)),
        lines.length ? h("div", { class: "panel diff mono" }, lines.slice(0, 400).map((line) => h("div", { class: line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "" }, line))) : "",
      );
    } catch (error) {
      this.fail(error);
    }
    button.disabled = false;
  }

  async showAnswer(id) {
    const { items, error } = await ask(`api/requests/${encodeURIComponent(id)}/answer`);
    if (id !== this.id) return;
    const shown = JSON.stringify([items, error]);
    if (shown === this.answer) return; // what a visitor has selected stays selected
    this.answer = shown;
    this.parts.answer.replaceChildren(
      h("h3", {}, "Answer"), ...itemBlocks(items),
      error ? h("p", { class: "state failed" }, [error.code, error.message].filter(Boolean).join(": ")) : "",
    );
  }

  async addSteps(id, recorded) {
    const path = `api/requests/${encodeURIComponent(id)}/${recorded ? "steps" : "live-steps"}?after=${this.seen}`;
    const { steps: found, total } = await ask(path);
    const steps = found.filter((step) => step.number > this.seen); // "More" may have brought some meanwhile
    if (id !== this.id || steps.length === 0) return;
    if (this.seen === 0) this.began = steps[0].time;
    this.seen = steps.at(-1).number;
    this.parts.steps.append(...stepRows(steps, this.began));
    this.parts.more.hidden = this.seen >= total;
    setText(this.parts.more, `${number(total - this.seen)} more`);
  }

  // Shows the command as well: without HTTPS a browser on another machine lets no page copy.
  async copyCommand(command) {
    const text = h("pre", { class: "command", tabindex: "0" }, command);
    this.parts.command.replaceChildren(h("div", { class: "panel" }, text));
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(command);
      setText(this.copy, "Copied");
    } catch {
      setText(this.copy, "Selected: copy it with the keyboard");
    }
  }

  async addContents({ id, api }) {
    const found = await ask(`api/requests/${encodeURIComponent(id)}/contents`);
    if (id !== this.id) return;
    if (this.copy && found.request && !found.request.cut && !found.websocket) {
      this.copy.disabled = false;
      this.copy.addEventListener("click", () => this.copyCommand(curl(originOf(this.state.clientPort), found.request.text, this.state.needsKey, api)));
    }
    this.parts.contents.append(body("Request as received", found.request), body("Request as sent to the backend", found.chat), body("Error from the backend", found.refusal && { text: JSON.stringify(found.refusal, null, 2) }));
  }
}

function body(title, shown) {
  if (!shown) return "";
  const note = shown.cut ? h("p", { class: "totals" }, "Only the beginning is shown; the recording contains all of it.") : "";
  return h("details", {}, h("summary", {}, title), note, h("div", { class: "panel" }, h("pre", { tabindex: "0" }, shown.text)));
}

function facts(summary) {
  const pace = paceOf(summary);
  return [
    ["Started", clock(summary.started)],
    ["API", summary.path ? "" : apiOf(summary)],
    ["Path", summary.path],
    ["Duration", seconds(summary.seconds)],
    ["Sent to backend after", seconds(summary.backend_called)],
    ["First token after", seconds(summary.first_token)],
    ["First visible token after", seconds(summary.first_visible)],
    ["Tokens per second", pace ? pace.toFixed(1) : ""],
    ["Between tokens", gap(summary)],
    ["Backend", summary.backend],
    ["Key", summary.key],
    ["Client", summary.client],
    ["Input tokens", number(summary.input_tokens) + (summary.cached_tokens ? ` (${number(summary.cached_tokens)} cached)` : "")],
    ["Output tokens", number(summary.output_tokens) + (summary.reasoning_tokens ? ` (${number(summary.reasoning_tokens)} reasoning)` : "")],
    ["Chunks", number(summary.chunks)],
    ["Model turns", summary.turns > 1 ? number(summary.turns) : ""],
    ["Hosted calls", Object.entries(summary.hosted_calls ?? {}).map(([kind, count]) => `${kind} × ${count}`).join(", ")],
    ["Finish reason", summary.finish_reason],
    ["Turn", turnOf(summary)],
    ["Delivery", summary.outcome === "running" ? "" : summary.delivery],
    ["Status", summary.status],
    ["Error", [summary.code, summary.error].filter(Boolean).join(": ")],
    ["Session", summary.session_id && h("a", { href: `#/sessions/${summary.session_id}` }, summary.session)],
    ["Thread", summary.thread === summary.session ? "" : summary.thread],
    ["Kind", summary.kind],
    ["Request id", summary.request_id],
    ["Response id", summary.response_id],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [name, value instanceof Node ? value : String(value)]);
}

function gap(summary) {
  const counted = (summary.gaps ?? []).reduce((sum, count) => sum + count, 0);
  return counted ? `${seconds(summary.gap_sum / counted)} on average` : "";
}

// Says why there are no items.
function withoutItems(summary) {
  if (summary.kept_as === "relayed") return "None: the answer was relayed as it came, and not examined.";
  if (summary.outcome === "running") return "None yet.";
  return `None: ${summary.error ?? summary.code ?? "the request ended before the first one"}.`.replace(/\.\.$/, ".");
}

// When each item was open, below the time from the request to its end.
function bars(summary) {
  const items = summary.items;
  if (items.length === 0) return h("p", { class: "totals" }, withoutItems(summary));
  const begin = summary.started;
  const end = Math.max(begin + (summary.seconds ?? 0), ...items.map((item) => item.closed ?? begin));
  const x = (time) => ((time - begin) / Math.max(end - begin, 0.001)) * 1000;
  const height = 12;
  const rows = items.slice(-40).map((item, at) => {
    const left = x(item.opened);
    return svg("rect", { class: item.type, x: left, y: at * height + 2, width: Math.max(3, x(item.closed ?? end) - left), height: height - 4, rx: 2, fill: "currentColor" });
  });
  const label = `When the items were open, within ${seconds(end - begin)}`;
  return svg("svg", { class: "bars", viewBox: `0 0 1000 ${rows.length * height}`, height: rows.length * height, preserveAspectRatio: "none", role: "img", "aria-label": label }, rows);
}

function itemTable(summary) {
  if (summary.items.length === 0) return "";
  const tokens = usageByItem(summary);
  const rows = summary.items.map((item, at) => h("tr", {},
    h("td", {}, String(at)), h("td", { class: item.type }, item.type), h("td", {}, item.closed ? "closed" : "open"),
    h("td", { class: "number" }, seconds(Math.max(0, item.opened - summary.started)) || "0 ms"),
    h("td", { class: "number" }, item.closed ? seconds(Math.max(0, item.closed - item.opened)) : ""),
    h("td", { class: "number" }, item.closed ? `${number(item.size)} B` : ""),
    h("td", { class: "number" }, tokens[at] === undefined ? "" : number(tokens[at]))));
  const names = ["#", "Type", "State", "Opened after", "Open for", "Size", "Tokens"];
  return h("table", { class: "plain items-table" }, h("thead", {}, h("tr", {}, names.map((name, at) => h("th", { scope: "col", class: at > 2 ? "number" : "" }, name)))), h("tbody", {}, rows));
}

// The tokens are counted by kind; several items of one kind share them by their size.
function usageByItem(summary) {
  const kinds = { reasoning: "reasoning", message: "text", function_call: "tool_arguments", custom_tool_call: "tool_arguments", local_shell_call: "tool_arguments" };
  const sizes = {};
  for (const item of summary.items) sizes[kinds[item.type]] = (sizes[kinds[item.type]] ?? 0) + item.size;
  return summary.items.map((item) => {
    const kind = kinds[item.type];
    const counted = summary.tokens?.[kind];
    return counted && sizes[kind] ? Math.round((counted * item.size) / sizes[kind]) : undefined;
  });
}

function report(summary) {
  const losses = (summary.losses ?? []).map((loss) => h("tr", {}, h("td", {}, loss.outcome), h("td", {}, `${loss.kind} ${loss.name}`), h("td", {}, loss.reason)));
  const repairs = Object.entries(summary.repairs ?? {});
  return [
    losses.length ? h("h3", {}, "Loss report") : "",
    losses.length ? h("table", { class: "plain" }, h("tbody", {}, losses)) : "",
    repairs.length ? h("h3", {}, "Repairs") : "",
    repairs.length ? h("p", {}, repairs.map(([kind, count]) => `${kind} × ${count}`).join(", ")) : "",
  ].filter(Boolean);
}
