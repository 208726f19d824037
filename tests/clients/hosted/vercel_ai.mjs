// What a user of the Vercel AI SDK does with tools of the provider. Prints one JSON object: the name of each deed, and what the
// user got of it. Arguments: the base URL of the gateway, and the URL of an MCP server.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText } from "ai";

const [url, serverUrl, webUrl] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: url, apiKey: "sk-test" });
const model = openai("qwen3");
const SEARCH = 'call web_search {"queries": ["tower"]}';
const ADD = 'call example__add {"a": 1, "b": 2}';
const MANUALS = 'call file_search {"queries": ["tower"]}';
const CODE = 'call python {"code": "print(6 * 7)"}';
const web = { web_search: openai.tools.webSearch({ searchContextSize: "low" }) };
const files = { file_search: openai.tools.fileSearch({ vectorStoreIds: ["vs_manuals"], maxNumResults: 2 }) };
const code = { code_interpreter: openai.tools.codeInterpreter() };
const mcp = (requireApproval) => ({ mcp: openai.tools.mcp({ serverLabel: "example", serverUrl, requireApproval }) });

// The result of `streamText`, with the same names as that of `generateText`.
async function streamed(options) {
  const errors = [];
  const result = streamText({ model, maxRetries: 0, onError: ({ error }) => errors.push(String(error)), ...options });
  await result.consumeStream();
  const [text, toolResults, sources] = await Promise.all([result.text, result.toolResults, result.sources]);
  return { errors, text, toolResults, sources, content: await result.content, response: await result.response };
}

const whole = (options) => generateText({ model, maxRetries: 0, ...options });
const outputs = (result) => result.toolResults.map((made) => made.output);

// Both ways, which must give the same.
async function both(options, shown) {
  return { whole: shown(await whole(options)), streamed: shown(await streamed(options)) };
}

async function approval(ask) {
  const messages = [{ role: "user", content: ADD }];
  const options = { tools: mcp("always") };
  const first = await ask({ ...options, messages });
  messages.push(...first.response.messages);
  const { approvalId, toolCall } = first.content.find((part) => part.type === "tool-approval-request");
  const decision = { type: "tool-approval-response", approvalId, approved: true, providerExecuted: true };
  messages.push({ role: "tool", content: [decision] });
  const second = await ask({ ...options, messages });
  messages.push(...second.response.messages, { role: "user", content: "Thanks" });
  const third = await ask({ ...options, messages });
  return { called: toolCall.toolName, outputs: outputs(second), text: second.text, last: third.text };
}

const deeds = {
  web_search: () =>
    both({ tools: web, prompt: SEARCH }, (result) => ({
      text: result.text,
      outputs: outputs(result),
      sources: result.sources.map((source) => source.url),
    })),

  web_citation: () => {
    const providerOptions = { openai: { includeWebSearchSources: false } };
    return both({ tools: web, prompt: SEARCH, providerOptions }, (result) => result.sources.map((source) => source.title));
  },

  web_pages: () => {
    const page = `${webUrl}/tower`;
    const arguments_ = { open_page: { url: page }, find_in_page: { url: page, pattern: "metres" } };
    const prompt = Object.entries(arguments_).map(([name, given]) => `call ${name} ${JSON.stringify(given)}`).join("\n");
    return both({ tools: web, prompt }, (result) => outputs(result).map((output) => output.action.type));
  },

  file_search: () => {
    const providerOptions = { openai: { include: ["file_search_call.results"] } };
    return both({ tools: files, prompt: MANUALS, providerOptions }, (result) => ({
      text: result.text,
      outputs: outputs(result),
      files: result.sources.map((source) => source.filename),
    }));
  },

  code_interpreter: () =>
    both({ tools: code, prompt: CODE }, (result) => ({
      text: result.text,
      input: result.content.find((part) => part.type === "tool-call").input.code,
      outputs: outputs(result),
    })),

  mcp: () => both({ tools: mcp("never"), prompt: ADD }, (result) => ({ text: result.text, outputs: outputs(result) })),

  mcp_failure: () => {
    const prompt = "call example__fail {}";
    return both({ tools: mcp("never"), prompt }, (result) => outputs(result).map((output) => output.error.type));
  },

  mcp_without_server: () => {
    const tools = { mcp: openai.tools.mcp({ serverLabel: "example", serverUrl: serverUrl.replace("/mcp", "/nowhere") }) };
    return both({ tools, prompt: "Hi" }, (result) => result.text);
  },

  approval: async () => ({ whole: await approval(whole), streamed: await approval(streamed) }),

  async conversation() {
    const messages = [{ role: "user", content: `${SEARCH}\n${MANUALS}\n${CODE}\n${ADD}` }];
    const options = { tools: { ...web, ...files, ...code, ...mcp("never") }, messages };
    const first = await streamed(options);
    messages.push(...first.response.messages, { role: "user", content: "Thanks" });
    const stored = await whole({ ...options, messages });
    const stateless = await whole({ ...options, messages, providerOptions: { openai: { store: false } } });
    return { errors: first.errors, calls: first.toolResults.map((made) => made.toolName), texts: [stored.text, stateless.text] };
  },
};

const results = {};
for (const [name, deed] of Object.entries(deeds)) {
  try {
    results[name] = await deed();
  } catch (error) {
    results[name] = { thrown: `${error?.stack ?? error} ${JSON.stringify(error)}` };
  }
}
console.log(JSON.stringify(results));
