// What a user of openai-node's session helper does with lanes of a WebSocket. Prints one JSON object: the name of each deed, and
// what the user got of it.
import OpenAI from "openai";
import { ResponsesWebSocketSession } from "openai/lib/responses/responses-websocket-session";
import { ResponsesWS } from "openai/resources/responses/ws";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sk-test", maxRetries: 0 });
const connection = new ResponsesWS(client);
connection.on("error", () => {}); // those of requests come in their lanes
const session = new ResponsesWebSocketSession(connection, { maxLanes: 40, maxBufferedEvents: 20000, maxBufferedBytes: 1e8 });

async function ask(lane, input, fields = {}) {
  lane.create({ model: "qwen3", input, store: false, ...fields });
  return await lane.finalResponse();
}

async function codeOf(lane, input, fields) {
  try {
    await ask(lane, input, fields);
    return "answered";
  } catch (error) {
    return error.error?.code ?? error.error?.error?.code ?? error.code ?? String(error.stack);
  }
}

const deeds = {
  async lanes() {
    const order = [];
    const run = async (name, text) => {
      await ask(session.lane(name), text);
      order.push(name);
    };
    const plain = "scenario: plain";
    await Promise.all([run("slow", "scenario: long tokens: 1000 tps: 200"), run("fast", plain), run("other", plain)]);
    const last = await ask(session.lane(), plain);
    return { order, text: last.output_text };
  },

  async forks() {
    const source = session.lane("source");
    const first = await ask(source, "My name is Ada.");
    const fork = session.lane("fork");
    const second = await ask(fork, "scenario: plain", { previous_response_id: first.id });
    const missing = await codeOf(fork, "scenario: plain", { previous_response_id: "resp_x" });
    const third = await ask(source, "scenario: plain", { previous_response_id: first.id });
    return { text: [second.output_text, third.output_text], missing };
  },
};

const results = {};
while (connection.socket.readyState !== 1) await new Promise((resolve) => setTimeout(resolve, 5));
for (const [name, deed] of Object.entries(deeds)) {
  try {
    results[name] = await deed();
  } catch (error) {
    results[name] = { thrown: String(error?.stack ?? error) };
  }
}
session.close();
connection.close();
console.log(JSON.stringify(results));
