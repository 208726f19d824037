// A request as what a user would type: for a shell, in Python, for Codex. The key is never in it.

import { escaped } from "./dom.js";

// Where clients send requests: to another port than that of the page, if there is one for operators.
export function originOf(clientPort) {
  return clientPort === null ? new URL("..", location).href.replace(/\/$/, "") : `${location.protocol}//${location.hostname}:${clientPort}`;
}

export function curl(origin, body, needsKey, api = "responses") {
  const url = `${origin}/v1/${api}`;
  // Without keys no key is sent: a gateway would pass it on to the model server.
  const headers = ["-H 'Content-Type: application/json'", ...(needsKey ? ["-H \"Authorization: Bearer $RESPONSES_GATEWAY_KEY\""] : [])];
  return `curl -N ${quoted(url)} ${headers.join(" ")} --data-raw ${quoted(escaped(body))}`;
}

export function python(origin, body, needsKey) {
  const fields = Object.entries(body).filter(([name]) => name !== "stream").map(([name, value]) => `    ${name}=${literal(value)},`);
  return [
    ...(needsKey ? ["import os"] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(`${origin}/v1`)}, api_key=${needsKey ? 'os.environ["RESPONSES_GATEWAY_KEY"]' : '"none"'})`,
    "stream = client.responses.create(",
    ...fields,
    "    stream=True,",
    ")",
    "for event in stream:",
    "    print(event.type, getattr(event, \"delta\", \"\"))",
  ].join("\n");
}

export function codex(origin, body, needsKey) {
  const effort = body.reasoning?.effort;
  return `${wrapper("codex", origin, body, needsKey)} ${effort ? `-c model_reasoning_effort=${quoted(effort)} ` : ""}${quoted(textOf(body))}`;
}

export function claude(origin, body, needsKey) {
  return `${wrapper("claude", origin, body, needsKey)} ${quoted(textOf(body))}`;
}

// The commands leave the settings of the client's user alone.
function wrapper(program, origin, body, needsKey) {
  const key = needsKey ? " --env-key RESPONSES_GATEWAY_KEY" : "";
  return `responses-gateway ${program} --url ${quoted(origin)} --model ${quoted(body.model)}${key}`;
}

function textOf(body) {
  return typeof body.input === "string" ? body.input : (body.input.find((item) => item.role === "user")?.content ?? "");
}

// A value in Python. The strings of JSON are strings of Python, too.
function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, entry]) => `${literal(name)}: ${literal(entry)}`).join(", ")}}`;
  return escaped(JSON.stringify(value));
}

// Within single quotes a shell reads everything as it stands but the quote itself.
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
