// What each key, each team and each model used over some days, and how much of the quotas is left.

import { ask, save } from "./api.js";
import { byId, clock, h, number, setText, svg } from "./dom.js";
import { Sorting } from "./sorting.js";

const WIDTH = 900;
const HEIGHT = 120;
const AMOUNTS = [["requests", "Requests"], ["input_tokens", "Input tokens"], ["cached_tokens", "Cached"], ["output_tokens", "Output tokens"], ["reasoning_tokens", "Reasoning"]];

const tokensOf = (amounts) => amounts.input_tokens + amounts.output_tokens;

// How a formula begins, which a spreadsheet would run: anybody may name a model so.
const FORMULA = /^[=+\-@\t\r\n]/;

export class Usage {
  constructor() {
    this.rows = [];
    byId("usage-csv").addEventListener("click", () => save(new Blob([csv(this.rows)], { type: "text/csv" }), "usage.csv"));
    byId("usage-days").addEventListener("change", () => this.load());
  }

  show() {
    this.load();
  }

  hide() {}

  async load() {
    const days = byId("usage-days").value;
    try {
      const found = await ask(`api/usage?days=${days}`);
      if (days !== byId("usage-days").value) return;
      this.rows = found.rows;
      byId("usage-csv").disabled = found.rows.length === 0;
      setText(byId("usage-time"), `As of ${clock(Date.now() / 1000)}.`);
      draw(found);
    } catch (error) {
      byId("usage-report").replaceChildren(h("p", { role: "alert", class: "card" }, error.message));
    }
  }
}

// The table by key and model, as a file for spreadsheets.
export function csv(rows) {
  const names = ["key", "team", "model", ...AMOUNTS.map(([name]) => name)];
  const cell = (value) => `"${String(value ?? "").replace(FORMULA, "'$&").replaceAll('"', '""')}"`;
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\r\n");
}

function draw({ days, rows, more_rows: moreRows, quotas }) {
  const total = Object.fromEntries(AMOUNTS.map(([name]) => [name, days.reduce((sum, day) => sum + day[name], 0)]));
  const most = Math.max(1, ...rows.map(tokensOf));
  const teams = rows.some((row) => row.team);
  byId("usage-report").replaceChildren(
    quotas.length ? h("section", { class: "card", "aria-label": "Quotas" }, h("h3", {}, "Quotas"), quotaTable(quotas)) : "",
    h("section", { class: "card", "aria-label": "Tokens by day" },
      h("h3", {}, "Tokens by day"), chart(days),
      h("div", { class: "legend" }, h("span", { class: "c0" }, "input ", h("b", {}, number(total.input_tokens))), h("span", { class: "c1" }, "output ", h("b", {}, number(total.output_tokens)))),
      h("details", {}, h("summary", {}, "The same as a table"),
        table(["Day"], days.filter((day) => day.requests).reverse().map((day) => [[day.day], day]), "Usage by day"))),
    h("section", { class: "card", "aria-label": "By key and model" },
      h("h3", {}, "By key and model"),
      rows.length ? table(teams ? ["Key", "Team", "Model"] : ["Key", "Model"], rows.map((row) => [[row.key || "no key", ...(teams ? [row.team] : []), row.model], row, bar(tokensOf(row) / most)]), "Usage by key and model") : h("p", { class: "totals" }, "Nothing was used on these days."),
      moreRows ? h("p", { class: "totals" }, `${number(moreRows)} more, which used less.`) : ""));
}

// Each row: its labels, its amounts and, if there is one, a bar.
function table(labels, rows, caption) {
  const heads = [...labels.map((label) => h("th", { scope: "col" }, label)), ...AMOUNTS.map(([name, title]) => h("th", { scope: "col", class: `number ${name}` }, title))];
  const shown = rows.map(([names, amounts, share]) => ({ names, amounts, element: h("tr", {},
    names.map((name, at) => h(at ? "td" : "th", at ? {} : { scope: "row" }, name, at === names.length - 1 && share ? share : "")),
    AMOUNTS.map(([name, title]) => h("td", { class: `number ${name}`, "data-title": title }, number(amounts[name])))) }));
  const body = h("tbody", {}, shown.map((row) => row.element));
  const values = [...labels.map((_, at) => (row) => row.names[at]), ...AMOUNTS.map(([name]) => (row) => row.amounts[name])];
  const sorting = new Sorting(heads, values, null, false, () => body.append(...sorting.sorted(shown).map((row) => row.element)));
  return h("div", { class: "panel wide", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "plain usage" }, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body));
}

// A row for each quota: what is used of it, and what it is.
function quotaTable(quotas) {
  const heads = ["Key or team", "Period (UTC)", "Used", "Quota", "Warning from"].map((title, at) => h("th", { scope: "col", class: at > 1 ? "number" : "" }, title));
  const rows = quotas.map(({ kind, name, period, used, most, warning }) => {
    const share = used / (most || warning);
    const state = most && used >= most ? "bad" : warning && used >= warning ? "warn" : "";
    return h("tr", {}, h("th", { scope: "row" }, `${kind} ${name}`, bar(Math.min(1, share))), h("td", {}, period === "day" ? "today" : "this month"),
      h("td", { class: `number ${state}`, "data-title": "Used" }, `${number(used)} (${Math.floor(100 * share)} %)${state === "bad" ? ", used up" : ""}`),
      h("td", { class: "number", "data-title": "Quota" }, most ? number(most) : "none"), h("td", { class: "number", "data-title": "Warning from" }, warning ? number(warning) : "none"));
  });
  return h("div", { class: "panel wide", tabindex: "0", role: "region", "aria-label": "Quotas of keys and teams" },
    h("table", { class: "plain usage" }, h("caption", { class: "unseen" }, "Quotas of keys and teams"), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}

function bar(share) {
  return svg("svg", { class: "share", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: Math.max(0.5, share * 100), height: 4, rx: 1, fill: "currentColor" }));
}

// A bar for each day: input below, output above.
function chart(days) {
  const most = Math.max(1, ...days.map(tokensOf));
  const step = WIDTH / days.length;
  const height = (tokens) => (tokens / most) * HEIGHT;
  const bars = days.flatMap((day, at) => {
    const [input, output] = [height(day.input_tokens), height(day.output_tokens)];
    const place = { x: at * step + step * 0.1, width: step * 0.8 };
    return [
      svg("rect", { class: "c0", ...place, y: HEIGHT - input, height: input, fill: "currentColor" }),
      svg("rect", { class: "c1", ...place, y: HEIGHT - input - output, height: output, fill: "currentColor" }),
    ];
  });
  const busiest = days.reduce((one, other) => (tokensOf(other) > tokensOf(one) ? other : one));
  const label = `Tokens by day, from ${days[0].day} to ${days.at(-1).day}; most on ${busiest.day}: ${number(tokensOf(busiest))}`;
  return [
    svg("svg", { class: "chart days", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, bars),
    h("p", { class: "totals ends" }, h("span", {}, days[0].day), tokensOf(busiest) ? h("span", {}, `most: ${number(tokensOf(busiest))} on ${busiest.day}`) : "", h("span", {}, "today")),
  ];
}
