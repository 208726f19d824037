// What a user of the Vercel AI SDK does at the Messages API. Prints one JSON object: the name of each deed, and what the user got
// of it.
import { createAnthropic } from "@ai-sdk/anthropic";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const anthropic = createAnthropic({ baseURL: process.argv[2], apiKey: "sk-test" });
// The SDK knows Anthropic's models by name; of others it must be told how long an answer may be.
const asked = { model: anthropic("qwen3"), maxOutputTokens: 4096 };
const thinking = { anthropic: { thinking: { type: "enabled", budgetTokens: 2048 } } };
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
    const result = await generateText({ ...asked, prompt: "scenario: plain" });
    return { text: result.text, reason: result.finishReason, total: result.usage.totalTokens, warnings: result.warnings };
  },

  async stream() {
    const result = streamText({ ...asked, prompt: "scenario: reasoning", providerOptions: thinking });
    const kinds = [];
    for await (const part of result.fullStream) if (kinds.at(-1) !== part.type) kinds.push(part.type);
    return { kinds, reasoning: await result.reasoningText, text: await result.text, warnings: await result.warnings };
  },

  async tool() {
    const request = { ...asked, prompt: "scenario: parallel", tools, stopWhen: stepCountIs(3), providerOptions: thinking };
    const result = streamText(request);
    const steps = await result.steps;
    return { steps: steps.length, inputs: steps[0].toolCalls.map((call) => call.input), text: await result.text };
  },

  async structured() {
    const result = await generateText({ ...asked, prompt: "Which city?", output: Output.object({ schema: City }) });
    return { parsed: result.output };
  },

  async refused() {
    try {
      await generateText({ ...asked, prompt: "fault: overflow=vllm", maxRetries: 0 });
    } catch (error) {
      return { ours: APICallError.isInstance(error), status: error.statusCode, message: error.message };
    }
  },

  async failed_stream() {
    const errors = [];
    const result = streamText({ ...asked, prompt: "fault: drop=text", maxRetries: 0, onError: ({ error }) => errors.push(error) });
    const kinds = [];
    for await (const part of result.fullStream) kinds.push(part.type);
    return { kinds: [...new Set(kinds)], errors: errors.map((error) => `${error.message} ${JSON.stringify(error)}`), reason: await result.finishReason };
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
