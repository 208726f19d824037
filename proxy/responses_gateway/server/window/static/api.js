// Requests of the page to the gateway. The admin key, where there is one, goes into a header, never into a cookie or a URL.

const STORED = "responses-gateway-admin-key";
// Without an update for so long, the gateway is away: it sends two in a second, and one in five where a worker hangs.
const SILENCE = 12000;
let askForKey = async () => "";

// What a browser says of a server that it cannot reach ("Failed to fetch") differs from browser to browser.
async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The gateway cannot be reached.");
  }
}

// A browser refuses a header with other characters than those of bytes, so a key is sent as its bytes in UTF-8, as programs do.
const bearer = (key) => (key ? { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}` } : {});

export class Refused extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function onKeyNeeded(ask) {
  askForKey = ask;
}

export async function ask(path, options = {}) {
  const response = await send(path, options);
  return response.json();
}

export async function download(path, name) {
  const response = await send(path);
  save(await response.blob(), name);
}

// Has the browser save a file.
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Calls `take` with each update of the live list, until the connection ends, or nothing comes: after a change of networks, say,
// nobody tells a browser that its connection is gone.
export async function watch(take, opened) {
  const leaving = new AbortController();
  let timer = null;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => leaving.abort(), SILENCE);
  };
  const response = await send("api/live", { signal: leaving.signal });
  opened();
  wait();
  try {
    await readEvents(response, (update) => {
      wait();
      take(update);
    });
  } finally {
    clearTimeout(timer);
  }
}

// Sends a request as a client does: with a client's key, if there is one, and never with the admin key. Calls `take` with each
// event of the answer.
export async function respond(body, key, signal, take) {
  const headers = { "Content-Type": "application/json", ...bearer(key) };
  const response = await reach("../v1/responses", { method: "POST", body: JSON.stringify(body), headers, signal, credentials: "omit", cache: "no-store" });
  if (!response.ok) throw await refusalOf(response);
  await readEvents(response, take);
}

// Calls `take` with the data of each event of a stream, except of its end mark.
async function readEvents(response, take) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data && data !== "data: [DONE]") take(JSON.parse(data.slice("data: ".length)));
    }
  }
}

async function send(path, options = {}) {
  for (let wrong = false; ; wrong = true) {
    const key = options.anonymous ? null : sessionStorage.getItem(STORED);
    const headers = bearer(key);
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    const response = await reach(path, { ...options, headers, credentials: "omit", cache: "no-store" });
    if (response.ok) return response;
    const error = await refusalOf(response);
    if (error.status !== 401 || options.anonymous) throw error;
    if (sessionStorage.getItem(STORED) === key) sessionStorage.setItem(STORED, await askForKey(wrong || key !== null));
  }
}

async function refusalOf(response) {
  try {
    const { error } = await response.json();
    return new Refused(response.status, error.message, error.code);
  } catch {
    return new Refused(response.status, `The gateway answered ${response.status}.`, "");
  }
}
