// What openai-node and the AI SDK make of streams, which are in a file: name -> body. Prints name -> client -> what its user got.
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { createOpenAI } from "@ai-sdk/openai";
import { streamText, tool } from "ai";
import { z } from "zod";

const options = { baseURL: "http://gateway/v1", apiKey: "sk-test" };
const answering = (body) => async () => new Response(body, { headers: { "content-type": "text/event-stream" } });
const weather = tool({ description: "The weather.", inputSchema: z.any() });
process.on("unhandledRejection", () => {}); // promises of a result that nobody asks for

async function openaiNode(body) {
  const client = new OpenAI({ ...options, maxRetries: 0, fetch: answering(body) });
  const { output, status } = await client.responses.stream({ model: "m", input: "hi" }).finalResponse();
  return { output, status };
}

async function aiSdk(body) {
  const openai = createOpenAI({ ...options, fetch: answering(body) });
  const result = streamText({ model: openai("m"), prompt: "hi", maxRetries: 0, tools: { weather }, onError() {} });
  const texts = new Map();
  const calls = [];
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") texts.set(part.id, (texts.get(part.id) ?? "") + part.text);
    if (part.type === "tool-call" && part.toolName === "weather") calls.push([part.toolCallId, part.input]);
  }
  return { texts: [...texts.values()], calls, reason: await result.finishReason };
}

const got = {};
for (const [name, body] of Object.entries(JSON.parse(readFileSync(process.argv[2], "utf8")))) {
  got[name] = {};
  for (const [client, read] of Object.entries({ "openai-node": openaiNode, "AI SDK": aiSdk })) {
    try {
      got[name][client] = await read(body);
    } catch (error) {
      got[name][client] = { error: String(error.message ?? error) };
    }
  }
}
console.log(JSON.stringify(got));
