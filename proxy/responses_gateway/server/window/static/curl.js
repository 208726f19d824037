// A request as a command for a shell. The key is not in it: it is not recorded.

import { escaped } from "./dom.js";

export function curl(origin, body) {
  const url = `${origin}/v1/responses`;
  const headers = ["-H 'Content-Type: application/json'", "-H \"Authorization: Bearer $OPENAI_API_KEY\""];
  return `curl -N ${quoted(url)} ${headers.join(" ")} --data-raw ${quoted(escaped(body))}`;
}

// Within single quotes a shell reads everything as it stands but the quote itself.
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
