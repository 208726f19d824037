// What a user of Anthropic's SDK for Node.js does. Prints one JSON object: the name of each deed, and what the user got of it.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2].replace(/\/v1$/, ""), apiKey: "sk-test", maxRetries: 0 });
const weather = {
  name: "get_weather",
  description: "The weather in a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const asked = (text, fields = {}) => ({ model: "qwen3", max_tokens: 2048, messages: [{ role: "user", content: text }], ...fields });
const thinking = { type: "adaptive" };

const deeds = {
  async whole() {
    const message = await client.messages.create(asked("scenario: plain"));
    return { text: message.content[0].text, reason: message.stop_reason, output: message.usage.output_tokens };
  },

  async stream() {
    let thought = "";
    const stream = client.messages.stream(asked("scenario: reasoning", { thinking }));
    stream.on("thinking", (delta) => (thought += delta));
    const message = await stream.finalMessage();
    return { kinds: message.content.map((block) => block.type), thought, whole: message.content[0].thinking, text: message.content[1].text };
  },

  async tools() {
    const request = asked("scenario: tool", { tools: [weather], thinking });
    const first = await client.messages.stream(request).finalMessage();
    const call = first.content.find((block) => block.type === "tool_use");
    const results = [{ type: "tool_result", tool_use_id: call.id, content: "22 degrees" }];
    const messages = [...request.messages, { role: "assistant", content: first.content }, { role: "user", content: results }];
    const second = await client.messages.create({ ...request, messages });
    return { reason: first.stop_reason, input: call.input, text: second.content.at(-1).text };
  },

  async broken() {
    return await client.messages.stream(asked("scenario: plain fault: drop")).finalMessage();
  },

  async busy() {
    return await client.messages.create(asked("hello fault: status=503"));
  },
};

const results = {};
for (const [name, deed] of Object.entries(deeds)) {
  try {
    results[name] = await deed();
  } catch (error) {
    results[name] = { raised: error.constructor.name, type: error.type };
  }
}
console.log(JSON.stringify(results));
