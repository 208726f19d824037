// The backends: health and load, results of probing, and the advice of `doctor`.

import { ask } from "./api.js";
import { byId, h, number, seconds, setText } from "./dom.js";
import { Polling } from "./polling.js";

const REFRESH = 2000;

export class Backends extends Polling {
  constructor(state) {
    super(REFRESH);
    this.state = state;
    this.backends = []; // as they were sent last
    this.controls = new Map(); // name -> its buttons and the result of its examination, which outlive the card
    byId("backend-filter").addEventListener("input", () => this.draw());
  }

  async refresh() {
    try {
      this.backends = await ask("api/backends");
      const focused = document.activeElement;
      // Only buttons keep the focus when the cards are drawn anew.
      if (!byId("cards").contains(focused) || focused === document.body || focused.matches("button")) this.draw();
    } catch (error) {
      byId("cards").replaceChildren(h("p", { role: "alert" }, error.message));
    }
  }

  draw() {
    const wanted = byId("backend-filter").value.trim().toLowerCase();
    const shown = this.backends.filter((backend) => matches(backend, wanted));
    const focused = document.activeElement;
    byId("cards").replaceChildren(...(shown.length || !wanted ? shown.map((backend) => this.card(backend)) : [h("p", { class: "empty" }, "No backend matches the filter.")]));
    if (focused.isConnected) focused.focus({ preventScroll: true });
  }

  card(backend) {
    const { examining, draining, advice } = this.controlsOf(backend.name);
    setText(draining, backend.draining ? "Resume" : "Drain");
    draining.title = backend.draining ? "Send new requests to it again" : "Send no new requests to it; running ones are finished there";
    const buttons = [this.state.admin && !backend.leaving ? draining : "", this.state.contents ? examining : ""];
    return h("section", { class: "card", "aria-label": backend.name },
      h("div", { class: "head" }, h("h3", {}, backend.name), ...badges(backend), h("span", { class: "close buttons" }, buttons)),
      h("dl", { class: "facts" }, facts(backend).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      advice);
  }

  controlsOf(name) {
    if (!this.controls.has(name)) {
      const advice = h("div");
      const examining = h("button", { type: "button", onclick: () => this.examine(name, examining, advice) }, "Examine");
      const draining = h("button", { type: "button", onclick: () => this.drain(name, draining, advice) }, "Drain");
      this.controls.set(name, { examining, draining, advice });
    }
    return this.controls.get(name);
  }

  // Takes a backend out of service, or back.
  async drain(name, button, advice) {
    const action = this.backends.find((backend) => backend.name === name)?.draining ? "resume" : "drain";
    button.setAttribute("aria-disabled", "true"); // `disabled` would take the focus away
    try {
      const { draining, state } = await ask(`../admin/backends/${encodeURIComponent(name)}/${action}`, { method: "POST" });
      // What the list says may be a moment older than this.
      this.backends = this.backends.map((backend) => (backend.name === name ? { ...backend, draining, state } : backend));
      this.draw();
    } catch (error) {
      advice.replaceChildren(h("p", { role: "alert", class: "state failed" }, error.message));
    }
    button.removeAttribute("aria-disabled");
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

function matches(backend, wanted) {
  const fields = [backend.name, backend.url, backend.state, backend.pool, backend.pod, backend.problem, ...(backend.models ?? []), ...Object.keys(backend.aliases ?? {})];
  const text = fields.filter(Boolean).join(" ").toLowerCase();
  return wanted.split(/\s+/).every((word) => text.includes(word));
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
    ["Adapted settings", adapted],
  ].filter(([, value]) => value);
}
