// How the turns of models with tools end, and what a client would say to their calls, by the fields of the log.

import { byId, h, number } from "./dom.js";

const EARLY = ["announced", "reasoning_only", "empty", "finish_without_call", "malformed_call", "call_in_thought"];

const endedEarly = (summary) => EARLY.includes(summary.turn_outcome);
// Calls by validity, with the keyword of the schema that one violates: "schema:type". Of unchecked ones nobody can tell.
const refused = (summary) => Object.entries(summary.calls ?? {}).reduce((sum, [validity, count]) => sum + (validity === "valid" || validity === "unchecked" ? 0 : count), 0);
const repeated = (summary) => summary.repeated_calls ?? 0;

export const faults = (summary) => endedEarly(summary) || refused(summary) > 0;

// One line: how the turn ended, with the calls that a client would refuse, and those that were made before.
export function turnOf(summary) {
  const end = (summary.turn_outcome ?? "").replaceAll("_", " ");
  return [end, refused(summary) && `${refused(summary)} refused`, repeated(summary) && `${repeated(summary)} repeated`].filter(Boolean).join(", ");
}

export function isKind(summary, kind) {
  const wanted = { early: endedEarly(summary), refused: refused(summary) > 0, repeated: repeated(summary) > 0 };
  return wanted[kind] ?? true;
}

// A row for each model, over the requests that the page knows.
export function drawBehaviour(all) {
  const models = new Map();
  for (const summary of all.values()) {
    if (!summary.turn_outcome) continue;
    const row = models.get(summary.model) ?? { turns: 0, early: 0, refused: 0, repeated: 0 };
    row.turns += 1;
    row.early += endedEarly(summary) ? 1 : 0;
    row.refused += refused(summary);
    row.repeated += repeated(summary);
    models.set(summary.model, row);
  }
  byId("behaviour").replaceChildren(models.size === 0 ? h("p", { class: "empty" }, "No request with tools has ended yet.") : table(models));
}

function table(models) {
  const heads = ["Model", "Turns", "Ended early", "Calls refused", "Calls repeated"];
  const rows = [...models].sort(([, a], [, b]) => b.turns - a.turns).map(([model, row]) =>
    h("tr", {}, h("th", { scope: "row" }, model ?? ""), cell(heads[1], number(row.turns)), cell(heads[2], `${number(row.early)} (${Math.round((100 * row.early) / row.turns)} %)`, row.early > 0), cell(heads[3], number(row.refused), row.refused > 0), cell(heads[4], number(row.repeated), row.repeated > 0)));
  return h("table", { class: "plain usage" }, h("caption", { class: "unseen" }, "Turns of the requests that this page shows, by model"),
    h("thead", {}, h("tr", {}, heads.map((head, at) => h("th", at ? { scope: "col", class: "number" } : { scope: "col" }, head)))), h("tbody", {}, rows));
}

function cell(title, text, bad) {
  return h("td", { class: bad ? "number warn" : "number", "data-title": title }, text);
}
