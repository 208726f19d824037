// The rows of a timeline: what the backend sent on the left, the resulting events on the right, and why anything is held.

import { h, legible, number } from "./dom.js";

const HELD = {
  partial_chunk: "held: the read ended within a chunk",
  partial_delta: "held: part of a character, or a call without its name",
  markup: "held: it may be part of markup",
  white_space: "held: white space at the end of a text",
  open_call: "held: the open call must be completed first",
  verdict: "held: the input of the call must be checked first",
};
const CALLS = { start: "the response begins", queue: "the response is queued", finish: "the body ended", fail: "the stream broke", keep_alive: "keep-alive", insert: "an item added by the gateway", judge: "the input was checked", refuse: "the call was refused", feed_completion: "one JSON object", restart: "another backend answers instead", resume: "another backend continues the answer", list_tools: "the tools of an MCP server", approved_call: "an approved call was run", finish_call: "a tool has answered", next_turn: "the model is asked again" };
// Characters of a value that are shown at first.
const SHOWN = 160;

export function stepRows(steps, began) {
  return steps.map((step) => row(step.time - began, received(step), sent(step)));
}

// The rows of a request that was answered with an HTTP error: no response began, so there are no steps.
export function refusalRows(summary) {
  const asked = summary.backend_called !== undefined;
  const reason = [summary.code, summary.error].filter(Boolean).join(": ");
  return [
    row(0, what("the gateway received the request"), []),
    asked ? row(summary.backend_called, what(`the request was sent to ${summary.backend ?? "the backend"}`), []) : "",
    row(summary.seconds, asked || summary.kept_as === "refused" ? [] : what("no backend was asked"), [h("div", { class: "event-name" }, `${summary.outcome} ${summary.status}`), h("div", { class: "note" }, reason)]),
  ].filter(Boolean);
}

function row(time, fromBackend, toClient) {
  return h("tr", {}, h("td", { class: "number when" }, `${time.toFixed(3)} s`), h("td", {}, fromBackend), h("td", {}, toClient));
}

const what = (text) => h("div", { class: "what" }, text);

function received(step) {
  const call = CALLS[step.call] ? what(CALLS[step.call]) : "";
  if (typeof step.chunks === "number") return [call, step.bytes ? h("div", {}, `${number(step.chunks)} ${step.chunks === 1 ? "chunk" : "chunks"}, ${number(step.bytes)} bytes`) : ""];
  return [call, ...step.chunks.map((chunk) => value(summaryOf(chunk), chunk))];
}

function sent(step) {
  const notes = [...(step.held ?? []).map((reason) => HELD[reason] ?? reason)];
  for (const [kind, count] of Object.entries(step.repairs ?? {})) notes.push(`repaired: ${kind}${count > 1 ? ` × ${count}` : ""}`);
  if (step.call === "feed" && step.events.length + notes.length === 0) notes.push("nothing to send to the client");
  if (step.differs) notes.push("this version produces different events");
  const events = step.events.map((event) => (event.data === undefined ? h("div", { class: "event-name" }, event.type) : value(textOf(event.data), event.data, event.type)));
  return [...events, ...notes.map((note) => h("div", { class: "note" }, note))];
}

// What matters in a chunk of a chat stream.
function summaryOf(chunk) {
  if (typeof chunk !== "object" || chunk === null) return String(chunk);
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? choice?.message ?? {};
  const found = [];
  for (const name of ["reasoning", "reasoning_content", "content", "refusal"]) if (delta[name]) found.push(`${name} ${JSON.stringify(delta[name])}`);
  for (const call of delta.tool_calls ?? []) found.push(`call ${call.index ?? ""} ${call.function?.name ?? ""} ${JSON.stringify(call.function?.arguments ?? "")}`);
  if (choice?.finish_reason) found.push(`finish_reason ${choice.finish_reason}`);
  if (chunk.usage) found.push(`usage ${chunk.usage.prompt_tokens} + ${chunk.usage.completion_tokens}`);
  if (chunk.error) found.push(`error ${JSON.stringify(chunk.error)}`);
  if (found.length === 0 && delta.role) found.push(`role ${delta.role}`);
  return found.join(", ") || JSON.stringify(chunk);
}

function textOf(event) {
  if (typeof event !== "object" || event === null) return String(event);
  if (typeof event.delta === "string") return JSON.stringify(event.delta);
  if (event.item) return `${event.item.type} ${event.item.status ?? ""}`;
  if (event.response) return event.response.status ?? "";
  return "";
}

function value(text, whole, name) {
  const short = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
  const all = h("pre", {});
  const details = h("details", { ontoggle: () => all.firstChild || all.append(legible(typeof whole === "string" ? whole : JSON.stringify(whole, null, 1))) });
  details.append(h("summary", {}, name ? h("span", { class: "event-name" }, `${name} `) : "", short), all);
  return details;
}
