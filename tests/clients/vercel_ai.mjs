// What a user of the Vercel AI SDK does. Prints one JSON object: the name of each deed, and what the user got of it.
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.argv[2], apiKey: "sk-test" });
const model = openai("qwen3");
// The SDK knows OpenAI's models by name; of others it must be told that they reason.
const thinking = { openai: { forceReasoning: true, reasoningSummary: "auto" } };
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `22 degrees in ${city}`,
  }),
};
const City = z.object({ name: z.string(), population: z.number() });

const deeds = {
  async whole() {
    const result = await generateText({ model, prompt: "scenario: plain" });
    return { text: result.text, reason: result.finishReason, total: result.usage.totalTokens, warnings: result.warnings };
  },

  async stream() {
    const result = streamText({ model, prompt: "scenario: demo", tools: { get_weather: { ...tools.get_weather, execute: undefined } } });
    const kinds = [];
    for await (const part of result.fullStream) if (kinds.at(-1) !== part.type) kinds.push(part.type);
    return { kinds, text: await result.text, reason: await result.finishReason, warnings: await result.warnings };
  },

  async reasoning() {
    const result = await generateText({ model, prompt: "scenario: reasoning", providerOptions: thinking });
    return { reasoning: result.reasoningText, text: result.text, warnings: result.warnings };
  },

  async streamed_reasoning() {
    const result = streamText({ model, prompt: "scenario: reasoning", providerOptions: thinking });
    let reasoning = "";
    for await (const part of result.fullStream) if (part.type === "reasoning-delta") reasoning += part.text;
    return { reasoning, text: await result.text };
  },

  async tool() {
    const result = await generateText({ model, prompt: "scenario: tool", tools, stopWhen: stepCountIs(3) });
    return { steps: result.steps.length, text: result.text, called: result.steps[0].toolCalls.map((call) => call.toolName) };
  },

  async tool_with_reasoning() {
    const result = streamText({ model, prompt: "scenario: tool", tools, stopWhen: stepCountIs(3), providerOptions: thinking });
    return { text: await result.text, steps: (await result.steps).length };
  },

  async stateless_tool() {
    const providerOptions = { openai: { ...thinking.openai, store: false, include: ["reasoning.encrypted_content"] } };
    const result = await generateText({ model, prompt: "scenario: tool", tools, stopWhen: stepCountIs(3), providerOptions });
    return { text: result.text, steps: result.steps.length, warnings: result.warnings };
  },

  async previous_response() {
    const first = await generateText({ model, prompt: "My name is Ada." });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const second = await generateText({ model, prompt: "scenario: plain", providerOptions: { openai: { previousResponseId } } });
    return { text: second.text };
  },

  async structured() {
    const result = await generateText({ model, prompt: "Which city?", output: Output.object({ schema: City }) });
    return { parsed: result.output };
  },

  async refused() {
    try {
      await generateText({ model, prompt: "fault: overflow=vllm", maxRetries: 0 });
    } catch (error) {
      return { ours: APICallError.isInstance(error), status: error.statusCode, message: error.message };
    }
  },

  async failed_stream() {
    const errors = [];
    const result = streamText({ model, prompt: "fault: drop=text", maxRetries: 0, onError: ({ error }) => errors.push(error) });
    const kinds = [];
    for await (const part of result.fullStream) kinds.push(part.type);
    return { kinds: [...new Set(kinds)], errors: errors.map((error) => JSON.stringify(error)), reason: await result.finishReason };
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
