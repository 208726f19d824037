// The list of requests: running and recently ended ones.

import { ask } from "./api.js";
import { byId, clock, h, legible, number, seconds, setText } from "./dom.js";
import { idBelow, showRows } from "./rows.js";
import { Sorting } from "./sorting.js";
import { faults, isKind, turnOf } from "./turns.js";

const KEPT = 500;
const KEPT_ASIDE = 100; // of each other kind: refused before a response began, only relayed
// Seconds over which the pace of a running request is measured.
const PACE = 2;
const SHORT = { reasoning: "think", message: "text", function_call: "call", custom_tool_call: "call", local_shell_call: "call", mcp_call: "tool", mcp_list_tools: "tools", mcp_approval_request: "ask", web_search_call: "search", file_search_call: "files", code_interpreter_call: "code" };

// What each column is sorted by.
const VALUES = [(summary) => summary.started, (summary) => summary.outcome, (summary) => summary.model ?? summary.path, (summary) => summary.backend, (summary) => summary.key, (summary) => summary.first_token, (summary) => paceOf(summary) || null, (summary) => tokensOf(summary), cachedPart, (summary) => summary.seconds, turnOf, (summary) => summary.code ?? summary.items.length, apiOf, (summary) => summary.client];

export class Requests {
  constructor(open) {
    this.open = open;
    this.all = new Map(); // id -> summary
    this.rows = new Map(); // id -> elements
    this.paces = new Map(); // id -> [time, chunks] of a moment ago
    this.selected = null;
    this.found = null; // the ids of those whose contents match; null without a search
    this.ended = 0; // in all workers, including those that are not in the list any more
    this.body = byId("rows");
    this.sorting = new Sorting(document.querySelectorAll(".requests th"), VALUES, 0, true, () => this.drawRows());
    byId("filter").addEventListener("input", () => this.drawRows());
    byId("search").addEventListener("keydown", (event) => event.key === "Enter" && this.search());
    byId("search").addEventListener("input", () => byId("search").value || this.search());
    byId("turns").addEventListener("change", () => this.drawRows());
    byId("pause").addEventListener("change", () => this.draw());
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a")) this.open(row.dataset.id); // a link leads where it says
    });
  }

  // Takes an update: the running requests of each worker, and those that ended there since the previous update.
  take(views) {
    this.ended = views.reduce((sum, view) => sum + view.last, 0);
    const running = new Set();
    for (const view of views) {
      for (const summary of view.running) {
        running.add(summary.id);
        this.measure(summary);
        this.all.set(summary.id, summary);
      }
      for (const summary of view.ended) {
        this.all.set(summary.id, summary);
        this.paces.delete(summary.id);
      }
    }
    for (const [id, summary] of this.all) {
      if (summary.outcome === "running" && !running.has(id) && summary.kept_as === "relayed") {
        this.all.delete(id); // its error is a row of its own
      } else if (summary.outcome === "running" && !running.has(id)) {
        this.all.set(id, { ...summary, outcome: "lost" }); // its worker has ended
        this.paces.delete(id);
      }
    }
    this.forget();
    this.draw();
  }

  // Keeps only the recorded requests that contain the text: all, if there is none.
  async search() {
    const text = byId("search").value.trim();
    const say = (message) => setText(byId("search-result"), message);
    this.found = null;
    say(text && "searching…");
    this.drawRows();
    if (!text) return;
    try {
      const { found, searched, recorded, busy } = await ask("api/search", { method: "POST", body: JSON.stringify({ text }) });
      if (byId("search").value.trim() !== text) return; // the answer to what was typed before
      this.found = new Set(found);
      const rest = searched < recorded ? ` of ${number(recorded)}: the latest` : "";
      const late = busy ? "; not all processes have answered in time: search again" : "";
      say((recorded ? `${number(found.length)} found in ${number(searched)}${rest} recorded` : "no request of this list is recorded") + late);
    } catch (error) {
      say(error.message);
    }
    this.drawRows();
  }

  select(id) {
    this.selected = id;
    for (const [known, row] of this.rows) row.row.setAttribute("aria-selected", String(known === id));
    this.rows.get(id)?.row.scrollIntoView({ block: "nearest" });
  }

  focus(id) {
    this.rows.get(id)?.link.focus();
  }

  // Gives the focus to the selected request or, without one, to the list.
  focusSelected() {
    (this.rows.get(this.selected)?.link ?? this.body.closest(".list")).focus();
  }

  // Selects the next request (or the previous one), and returns its id.
  step(by) {
    const id = idBelow(this.body, this.selected, by);
    this.focus(id);
    return id;
  }

  measure(summary) {
    const now = performance.now() / 1000;
    const before = this.paces.get(summary.id) ?? [];
    before.push([now, summary.chunks ?? 0]);
    while (before.length > 2 && now - before[1][0] >= PACE) before.shift();
    this.paces.set(summary.id, before);
    const [time, chunks] = before[0];
    summary.pace = now > time ? ((summary.chunks ?? 0) - chunks) / (now - time) : 0;
  }

  forget() {
    const ended = [...this.all.values()].filter((summary) => summary.outcome !== "running");
    ended.sort((a, b) => b.started - a.started);
    const kinds = Map.groupBy(ended, (summary) => summary.kept_as);
    const forgotten = [...kinds].flatMap(([kind, kept]) => kept.slice(kind === "response" ? KEPT : KEPT_ASIDE));
    for (const summary of forgotten) this.all.delete(summary.id);
  }

  draw() {
    const running = [...this.all.values()].filter((summary) => summary.outcome === "running");
    const pace = running.reduce((sum, summary) => sum + summary.pace, 0);
    setText(byId("totals"), `${number(running.length)} running, ${number(Math.round(pace))} tokens/s; ${number(this.ended)} ended`);
    if (!byId("pause").checked) this.drawRows();
  }

  drawRows() {
    const wanted = byId("filter").value.trim().toLowerCase();
    const kind = byId("turns").value;
    const matching = [...this.all.values()].filter((summary) => isKind(summary, kind) && matches(summary, wanted) && (this.found?.has(summary.id) ?? true));
    matching.sort((a, b) => b.started - a.started || (a.id < b.id ? 1 : -1));
    const shown = this.sorting.sorted(matching);
    showRows(this.body, this.rows, shown, (summary) => this.newRow(summary), update);
    byId("empty").hidden = this.all.size > 0;
    setText(byId("unmatched"), `No request matches the ${this.found ? "search" : "filter"}.`);
    byId("unmatched").hidden = this.all.size === 0 || shown.length > 0;
  }

  newRow(summary) {
    const link = h("a", { href: `#/requests/${summary.id}` });
    const cells = Array.from({ length: 14 }, (_, at) => h("td", at >= 5 && at <= 9 ? { class: "number" } : {}));
    cells[0].append(link);
    cells[1].append(h("span", { class: "state" }));
    cells[10].append(h("span", { class: "turn" }));
    cells[11].append(h("div", { class: "items" }));
    cells[13].append(h("a"));
    const row = h("tr", { "data-id": summary.id, "aria-selected": String(summary.id === this.selected) }, cells);
    return { row, link, cells, value: null };
  }
}

export function paceOf(summary) {
  if (summary.outcome === "running") return summary.pace ?? 0;
  const time = summary.seconds - (summary.first_token ?? summary.seconds);
  const tokens = summary.output_tokens ?? summary.chunks ?? 0;
  return time > 0.05 && tokens > 1 ? tokens / time : 0;
}

// The API that a request came to: its name, or the path of one that is only relayed.
export function apiOf(summary) {
  if (summary.kept_as === "refused") return "";
  return summary.path ?? { responses: "Responses", messages: "Messages" }[summary.api] ?? summary.api;
}

export function tokensOf(summary) {
  return summary.outcome === "running" ? summary.chunks : (summary.output_tokens ?? summary.chunks);
}

// Which part of its input came out of the backend's cache; null where that is not told.
function cachedPart(summary) {
  const told = summary.kept_as === "relayed" ? summary.cached_tokens > 0 : summary.cached_tokens !== undefined;
  return summary.input_tokens && told ? summary.cached_tokens / summary.input_tokens : null;
}

// The same as a text, with why some of the cache was lost.
function cachedOf(summary) {
  const part = cachedPart(summary);
  const cause = summary.cache_lost ? (summary.cache_cause ?? "").replaceAll("_", " ") : "";
  return [part === null ? "" : `${Math.round(100 * part)} %`, cause].filter(Boolean).join(", ");
}

export function itemChips(items) {
  const shown = items.length > 8 ? items.slice(-8) : items;
  const more = items.length - shown.length;
  return [
    more ? h("span", { class: "item" }, `+${more}`) : "",
    ...shown.map((item) => h("span", { class: `item ${item.type}${item.closed ? "" : " open"}`, title: item.type }, SHORT[item.type] ?? item.type)),
  ];
}

function update(row, summary) {
  row.value = summary;
  const { cells } = row;
  setText(row.link, clock(summary.started));
  const state = cells[1].firstChild;
  state.className = `state ${summary.outcome}`;
  setText(state, [summary.outcome, summary.status].filter(Boolean).join(" "));
  const pace = paceOf(summary);
  const texts = { 2: summary.model ?? summary.path, 3: summary.backend, 4: summary.key, 5: seconds(summary.first_token), 6: pace ? pace.toFixed(pace < 10 ? 1 : 0) : "", 7: number(tokensOf(summary)), 8: cachedOf(summary), 9: (summary.seconds ?? 0).toFixed(1), 12: apiOf(summary) };
  for (const [at, text] of Object.entries(texts)) {
    setText(cells[at], text ?? "");
    if (at < 5 || at === "8" || at > 11) cells[at].title = legible(text ?? "");
  }
  const client = cells[13].firstChild;
  setText(client, (summary.client ?? "").split("/")[0]);
  cells[13].title = legible([summary.client, summary.session_id && `session ${summary.session}`].filter(Boolean).join(", "));
  if (summary.session_id) client.href = `#/sessions/${summary.session_id}`;
  const turn = cells[10].firstChild;
  turn.className = faults(summary) ? "turn warn" : "turn";
  setText(turn, turnOf(summary));
  cells[10].title = turnOf(summary);
  const reason = summary.code ?? "";
  const signature = `${reason} ${summary.items.map((item) => `${item.type}${item.closed ? "" : "*"}`).join(" ")}`;
  if (row.signature !== signature) {
    row.signature = signature;
    cells[11].firstChild.replaceChildren(...itemChips(summary.items).filter(Boolean), ...(reason ? [h("span", { class: "reason", title: summary.error ?? reason }, reason)] : []));
  }
}

function matches(summary, wanted) {
  if (!wanted) return true;
  const fields = [summary.model, summary.backend, summary.key, summary.outcome, summary.id, summary.request_id, summary.response_id, summary.client, summary.code, summary.error, summary.status, summary.path, apiOf(summary), summary.session, turnOf(summary)];
  const text = fields.filter(Boolean).join(" ").toLowerCase();
  return wanted.split(/\s+/).every((word) => text.includes(word));
}
