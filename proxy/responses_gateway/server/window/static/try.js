// A request, made in the page as a client makes it, and its answer while it comes.

import { ask, respond } from "./api.js";
import { claude, codex, curl, originOf, python } from "./commands.js";
import { byId, h, number, seconds, setText } from "./dom.js";
import { itemBlocks, LiveItems } from "./items.js";

const TOOL = { type: "function", name: "get_weather", description: "The weather in a city.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } };
const RESULT = { weather: "sunny", degrees: 21, note: "made up by this page" };
// How often the model may call the tool before the page stops.
const TURNS = 4;

export class Try {
  constructor(state) {
    this.state = state;
    this.running = null; // what aborts the request
    byId("try-form").addEventListener("input", () => this.describe());
    byId("try-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("try-stop").addEventListener("click", () => this.running?.abort());
    for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button, byId(button.dataset.copy)));
  }

  async show() {
    const elsewhere = this.state.clientPort !== null;
    byId("try-key-label").hidden = !this.state.needsKey || elsewhere;
    byId("try-send").disabled = elsewhere;
    if (elsewhere) setText(byId("try-status"), "This is the port for operators. Send requests to the port for clients, as shown below.");
    this.describe();
    try {
      const names = await this.models();
      byId("try-models").replaceChildren(...names.map((name) => h("option", { value: name })));
      if (!byId("try-model").value && names.length) byId("try-model").value = names[0];
      this.describe();
    } catch (error) {
      setText(byId("try-status"), error.message);
    }
  }

  hide() {}

  // The names that a client may use, or, where that takes a client's key, those that the backends list.
  async models() {
    if (!this.state.needsKey && this.state.clientPort === null) return (await ask("../v1/models", { anonymous: true })).data.map((model) => model.id);
    const backends = await ask("api/backends");
    return [...new Set(backends.flatMap((backend) => [...(backend.models ?? []), ...Object.keys(backend.aliases ?? {})]))].sort();
  }

  body() {
    const effort = byId("try-effort").value;
    return {
      model: byId("try-model").value,
      input: byId("try-text").value,
      ...(effort ? { reasoning: { effort, summary: "auto" } } : {}),
      ...(byId("try-tools").checked ? { tools: [TOOL] } : {}),
      store: false,
      stream: true,
    };
  }

  // Shows the same request as others would send it.
  describe() {
    const { clientPort, needsKey } = this.state;
    const origin = originOf(clientPort);
    const body = this.body();
    setText(byId("try-curl"), curl(origin, JSON.stringify(body), needsKey));
    setText(byId("try-python"), python(origin, body, needsKey));
    setText(byId("try-codex"), codex(origin, body, needsKey));
    setText(byId("try-claude"), claude(origin, body, needsKey));
  }

  async send() {
    this.running = new AbortController();
    byId("try-send").disabled = true;
    byId("try-stop").disabled = false;
    byId("try-answer").replaceChildren();
    const began = performance.now();
    const said = (text) => setText(byId("try-status"), `${text} after ${seconds((performance.now() - began) / 1000)}`);
    setText(byId("try-status"), "Sent…");
    try {
      const response = await this.converse(() => said("Answering"));
      const tokens = response.usage ? `, ${number(response.usage.input_tokens)} + ${number(response.usage.output_tokens)} tokens` : "";
      said(`${response.error?.message ?? response.status}${tokens},`);
    } catch (error) {
      said(error.name === "AbortError" ? "Stopped" : `${error.status ?? ""} ${error.message}`.trim());
    }
    this.running = null;
    byId("try-send").disabled = false;
    byId("try-stop").disabled = true;
  }

  // Sends the request, and again with the result of the tool as long as the model calls it. Returns the last response.
  async converse(answering) {
    const body = this.body();
    for (let turn = 1; ; turn += 1) {
      const element = h("div");
      byId("try-answer").append(element);
      const items = new LiveItems(element);
      let response = null;
      await respond(body, byId("try-key").value.trim(), this.running.signal, (event) => {
        items.take(event);
        if (event.type === "response.created") answering();
        if (["response.completed", "response.incomplete", "response.failed"].includes(event.type)) response = event.response;
      });
      if (response === null) throw new Error("The stream ended before the response did.");
      const calls = response.output.filter((item) => item.type === "function_call" && item.name === TOOL.name);
      if (response.status !== "completed" || calls.length === 0 || turn === TURNS) return response;
      const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: JSON.stringify(RESULT) }));
      byId("try-answer").append(...itemBlocks(results));
      const before = typeof body.input === "string" ? [{ role: "user", content: body.input }] : body.input;
      body.input = [...before, ...response.output, ...results];
    }
  }
}

async function copy(button, text) {
  getSelection().selectAllChildren(text);
  try {
    await navigator.clipboard.writeText(text.textContent);
    setText(button, "Copied");
  } catch {
    setText(button, "Selected: copy it with the keyboard");
  }
}
