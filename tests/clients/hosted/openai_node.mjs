// What a user of openai-node does with hosted tools. Prints one JSON object: the name of each deed, and what the user got of it.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sk-test", maxRetries: 0 });
const model = "qwen3";
const SEARCH = 'call web_search {"queries": ["tower"]}';
const ADD = 'call docs__add {"a": 1, "b": 2}';
const MANUALS = 'call file_search {"queries": ["tower"]}';
const CODE = 'call python {"code": "print(6 * 7)"}';
const web = { type: "web_search" };
const files = { type: "file_search", vector_store_ids: ["vs_manuals"], max_num_results: 2 };
const code = { type: "code_interpreter", container: { type: "auto" } };
const mcp = (require_approval) => ({ type: "mcp", server_label: "docs", require_approval });
const include = ["web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs"];
const ALL = { model, tools: [web, files, code, mcp("never")], include, input: [SEARCH, MANUALS, CODE, ADD].join("\n") };

const found = (response, type) => response.output.find((item) => item.type === type);

function shown(response) {
  return {
    kinds: response.output.map((item) => item.type),
    sources: found(response, "web_search_call").action.sources.length,
    results: found(response, "file_search_call").results.length,
    logs: found(response, "code_interpreter_call").outputs[0].logs,
    output: found(response, "mcp_call").output,
    text: response.output_text,
  };
}

const deeds = {
  whole: async () => shown(await client.responses.create(ALL)),

  async stream_helper() {
    const stream = client.responses.stream(ALL);
    let arguments_ = "";
    let written = "";
    const annotations = [];
    stream.on("response.mcp_call_arguments.delta", (event) => (arguments_ += event.delta));
    stream.on("response.code_interpreter_call_code.delta", (event) => (written += event.delta));
    stream.on("response.output_text.annotation.added", (event) => annotations.push(event.annotation.type));
    return { ...shown(await stream.finalResponse()), arguments: arguments_, code: written, annotations };
  },

  async events() {
    const kinds = [];
    for await (const event of await client.responses.create({ ...ALL, stream: true })) {
      const kind = event.type.replace("response.", "");
      if (/_call\b|_call_|mcp_/.test(kind) && kinds.at(-1) !== kind) kinds.push(kind);
    }
    return kinds;
  },

  async approval() {
    const first = await client.responses.create({ model, input: ADD, tools: [mcp("always")] });
    const request = found(first, "mcp_approval_request");
    const input = [{ type: "mcp_approval_response", approval_request_id: request.id, approve: true }];
    const second = await client.responses
      .stream({ model, input, tools: [mcp("always")], previous_response_id: first.id })
      .finalResponse();
    const call = found(second, "mcp_call");
    const kept = await client.responses.retrieve(second.id);
    return {
      same: call.approval_request_id === request.id,
      output: call.output,
      text: second.output_text,
      kept: kept.output.map((item) => item.type),
    };
  },

  async history() {
    const first = await client.responses.create(ALL);
    const input = [{ role: "user", content: ALL.input }, ...first.output, { role: "user", content: "Thanks" }];
    return (await client.responses.create({ ...ALL, input, store: false })).output_text;
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
