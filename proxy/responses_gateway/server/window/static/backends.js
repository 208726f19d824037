// The backends: health and load, results of probing, and the advice of `doctor`.

import { ask } from "./api.js";
import { byId, h, number, seconds } from "./dom.js";

const REFRESH = 2000;

export class Backends {
  constructor(state) {
    this.state = state;
    this.timer = null;
    this.examinations = new Map(); // name -> its button and its result, which outlive the card
  }

  show() {
    if (this.timer === null) this.load();
  }

  hide() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  async load() {
    this.timer = setTimeout(() => this.load(), REFRESH);
    try {
      const backends = await ask("api/backends");
      if (!byId("cards").contains(document.activeElement) || document.activeElement === document.body) this.draw(backends);
    } catch (error) {
      byId("cards").replaceChildren(h("p", { role: "alert" }, error.message));
    }
  }

  draw(backends) {
    byId("cards").replaceChildren(...backends.map((backend) => this.card(backend)));
  }

  card(backend) {
    const { button, advice } = this.examinationOf(backend.name);
    return h("section", { class: "card", "aria-label": backend.name },
      h("div", { class: "head" }, h("h3", {}, backend.name), ...badges(backend), this.state.contents ? h("span", { class: "close" }, button) : ""),
      h("dl", { class: "facts" }, facts(backend).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      advice);
  }

  examinationOf(name) {
    if (!this.examinations.has(name)) {
      const advice = h("div");
      const button = h("button", { type: "button", onclick: () => this.examine(name, button, advice) }, "Examine");
      this.examinations.set(name, { button, advice });
    }
    return this.examinations.get(name);
  }

  async examine(name, button, advice) {
    button.disabled = true;
    advice.replaceChildren(h("p", { class: "totals", role: "status" }, "Sending about twenty short requests…"));
    try {
      const found = await ask(`api/backends/${encodeURIComponent(name)}/examine`, { method: "POST" });
      const settings = Object.entries(found.settings).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("\n");
      advice.replaceChildren(
        h("h3", {}, `${found.server}, examined in ${seconds(found.seconds)}`),
        h("table", { class: "plain" }, h("tbody", {}, found.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.ability), h("td", { class: row.good === true ? "state completed" : row.good === false ? "state failed" : "" }, row.value))))),
        ...found.findings.map((finding) => h("div", { class: `finding ${finding.level}` }, h("p", {}, `${finding.level}: ${finding.text}`), h("p", { class: "totals" }, finding.advice))),
        settings ? h("h3", {}, "Recommended settings") : "",
        settings ? h("div", { class: "panel" }, h("pre", {}, settings)) : "");
    } catch (error) {
      advice.replaceChildren(h("p", { role: "alert", class: "state failed" }, error.message));
    }
    button.disabled = false;
  }
}

function badges(backend) {
  const badge = (text, look) => h("span", { class: `badge ${look}` }, text);
  return [
    badge(backend.healthy ? "healthy" : "unhealthy", backend.healthy ? "good" : "bad"),
    backend.breaker === "closed" ? "" : badge(`breaker ${backend.breaker.replace("_", "-")}`, "bad"),
    backend.leaving ? badge("leaving", "warn") : backend.draining ? badge("draining", "warn") : "",
  ].filter(Boolean);
}

function facts(backend) {
  const probed = backend.probed;
  const adapted = Object.entries(backend.adapted ?? {}).map(([name, value]) => `${name}: ${value}`).join(", ");
  return [
    ["URL", backend.url],
    ["Source", backend.pool ? `${backend.source}, pool ${backend.pool}${backend.pod ? `, pod ${backend.pod}` : ""}` : ""],
    ["Problem", backend.problem],
    ["Requests in flight", number(backend.in_flight) + (backend.max_concurrency ? ` of at most ${number(backend.max_concurrency)}` : "")],
    ["Weight", backend.weight === 1 ? "" : String(backend.weight)],
    ["Models", (backend.models ?? []).join(", ")],
    ["Aliases", Object.entries(backend.aliases ?? {}).map(([name, own]) => `${name} → ${own}`).join(", ")],
    ["Server", probed?.server],
    ["Context length", probed?.max_length ? `${number(probed.max_length)} tokens` : ""],
    ["Reasoning field", probed?.reasoning_field],
    ["Tool calls", probed?.calls],
    ["Usage", probed?.usage],
    ["Not examined", probed?.refusal],
    ["Settings adapted", adapted],
  ].filter(([, value]) => value);
}
