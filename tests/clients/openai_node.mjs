// What a user of openai-node does. Prints one JSON object: the name of each deed, and what the user got of it.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sk-test", maxRetries: 0 });
const model = "qwen3";
const weather = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  strict: true,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
};
const City = z.object({ name: z.string(), population: z.number() });

const deeds = {
  async whole() {
    const response = await client.responses.create({ model, input: "scenario: plain" });
    return { text: response.output_text, status: response.status, total: response.usage.total_tokens };
  },

  async stream() {
    const kinds = [];
    let text = "";
    for await (const event of await client.responses.create({ model, input: "hello", stream: true })) {
      kinds.push(event.type);
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") return { kinds, text, final: event.response.output.at(-1).content[0].text };
    }
  },

  async stream_helper() {
    const stream = client.responses.stream({ model, input: "scenario: demo", tools: [weather] });
    let reasoning = "";
    stream.on("response.reasoning_text.delta", (event) => (reasoning += event.delta));
    const final = await stream.finalResponse();
    return { items: final.output.map((item) => item.type), text: final.output_text, reasoning };
  },

  async reasoning() {
    const response = await client.responses.create({ model, input: "scenario: reasoning", reasoning: { summary: "auto" } });
    const [thought] = response.output;
    return { content: thought.content[0].text, summary: thought.summary[0].text, text: response.output_text };
  },

  async tool() {
    const first = await client.responses.create({ model, input: "scenario: tool", tools: [weather] });
    const call = first.output.find((item) => item.type === "function_call");
    const result = { type: "function_call_output", call_id: call.call_id, output: "22 degrees" };
    const second = await client.responses.create({
      model,
      input: [{ role: "user", content: "scenario: tool" }, ...first.output, result],
      tools: [weather],
    });
    return { name: call.name, city: JSON.parse(call.arguments).city, text: second.output_text };
  },

  async previous_response() {
    const first = await client.responses.create({ model, input: "scenario: tool", tools: [weather] });
    const call = first.output.find((item) => item.type === "function_call");
    const input = [{ type: "function_call_output", call_id: call.call_id, output: "21 degrees" }];
    const second = await client.responses.create({ model, input, tools: [weather], previous_response_id: first.id });
    const kept = await client.responses.retrieve(second.id);
    return { text: second.output_text, kept: kept.output_text };
  },

  async conversation() {
    const { id } = await client.conversations.create();
    await client.responses.create({ model, input: "My name is Ada.", conversation: id });
    const response = await client.responses.create({ model, input: "scenario: plain", conversation: id });
    const items = [];
    for await (const item of client.conversations.items.list(id, { order: "asc" })) items.push(item.role ?? item.type);
    return { text: response.output_text, items };
  },

  async parse() {
    const request = { model, input: "Which city?", text: { format: zodTextFormat(City, "city") } };
    const parsed = (await client.responses.parse(request)).output_parsed;
    const streamed = (await client.responses.stream(request).finalResponse()).output_parsed;
    return { parsed, streamed };
  },

  async background() {
    let response = await client.responses.create({ model, input: "scenario: plain", background: true });
    const first = response.status;
    while (["queued", "in_progress"].includes(response.status)) response = await client.responses.retrieve(response.id);
    return { first, status: response.status, text: response.output_text };
  },

  async refused() {
    try {
      await client.responses.create({ model, input: "fault: overflow=vllm" });
    } catch (error) {
      return { bad: error instanceof OpenAI.BadRequestError, status: error.status, code: error.code, id: Boolean(error.requestID) };
    }
  },

  async failed_stream() {
    for await (const event of await client.responses.create({ model, input: "fault: drop=text", stream: true })) {
      if (event.type === "response.failed") return { code: event.response.error.code, message: event.response.error.message };
    }
  },

  async models() {
    const names = [];
    for await (const listed of client.models.list()) names.push(listed.id);
    return names;
  },
};

const results = {};
for (const [name, deed] of Object.entries(deeds)) {
  try {
    results[name] = await deed();
  } catch (error) {
    results[name] = { thrown: String(error?.stack ?? error) };
  }
}
console.log(JSON.stringify(results));
