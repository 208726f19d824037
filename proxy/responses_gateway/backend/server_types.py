"""What each type of chat server wants, as data: the truth about servers that no request shows by itself.

Probing comes first where it shows something; this table answers what a probe had no occasion to see. What is not known about a
type stays at the default, which suits OpenAI's API and vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Server: TypeAlias = Literal[
    "vllm", "sglang", "llamacpp", "llamacpp_python", "ollama", "tgi", "transformers", "mlx", "litellm", "lmstudio",
    "tensorrt_llm", "unknown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerType:
    """A type of server.

    `title`: its name for people. `owner`: what it writes into `owned_by` in the list of models. `identity`: an endpoint below
    the root, and a field of its answer (or a path, if that is its OpenAPI document) that proves the type. `software`: how its
    `Server` header begins, if that tells. `one_model`: what holds for the first model that it lists holds for all (other names,
    adapters). `on_demand`: it may list models that it would have to load first. `reasoning_field`: the field of a message in
    which it takes earlier reasoning; None if that is not known. `max_tokens_field`: the field that limits an answer.
    `named_tool_choice`: how a call of one function is enforced: by an object that names it, or by "required" with that function
    alone. `own_limit`: how to raise the low limit at which it ends answers for which no limit was asked; empty if it has none.
    `token_ids`: it sends the ids of its tokens if asked. `parser_flags`: it has vLLM's flags for parsers, with `parser_names`
    where its names differ; otherwise `parsing` says how to have it parse. `enforcing`: how to have it enforce all schemas of
    tools; `strict_matters`: it may enforce those of strict tools, and no others."""

    title: str
    owner: str | None = None
    identity: tuple[str, str] | None = None
    software: str | None = None
    one_model: bool = False
    on_demand: bool = False
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = None
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    named_tool_choice: Literal["object", "required"] = "object"
    own_limit: str = ""
    token_ids: bool = False
    parser_flags: bool = False
    parser_names: tuple[tuple[str, str], ...] = ()
    parsing: str = ""
    enforcing: str = ""
    strict_matters: bool = True


# SGLang's names for parsers, where they differ from vLLM's.
_SGLANG_PARSERS = (
    ("hermes", "qwen25"),
    ("deepseek_v3", "deepseekv3"),
    ("deepseek_v31", "deepseekv31"),
    ("deepseek_r1", "deepseek-r1"),
    ("llama3_json", "llama3"),
    ("openai", "gpt-oss"),
    ("openai_gptoss", "gpt-oss"),
)

# The order is that in which identities are asked for: vLLM's endpoint exists elsewhere too, so it comes last.
SERVER_TYPES: Mapping[Server, ServerType] = {
    "ollama": ServerType(
        "Ollama",
        owner="library",
        identity=("api/version", "version"),
        on_demand=True,
        max_tokens_field="max_tokens",
        strict_matters=False,
        parsing="The model's template does not support tools or thinking: use another build of the model.",
    ),
    "sglang": ServerType(
        "SGLang",
        owner="sglang",
        identity=("get_server_info", "version"),
        one_model=True,
        reasoning_field="reasoning_content",
        parser_flags=True,
        parser_names=_SGLANG_PARSERS,
        enforcing="SGLANG_TOOL_STRICT_LEVEL=2",
    ),
    # It ignores a `tool_choice` that is no string.
    "llamacpp": ServerType(
        "llama.cpp",
        owner="llamacpp",
        identity=("props", "default_generation_settings"),
        one_model=True,
        reasoning_field="reasoning_content",
        named_tool_choice="required",
        strict_matters=False,
        parsing="Start the server with --jinja --reasoning-format auto.",
    ),
    # It knows `json_object` alone as a format of the answer.
    "llamacpp_python": ServerType(
        "llama-cpp-python",
        owner="me",
        identity=("openapi.json", "/extras/tokenize/count"),
        max_tokens_field="max_tokens",
        parsing="Its formats (--chat_format) parse few models.",
    ),
    "tgi": ServerType("TGI", identity=("info", "max_total_tokens"), one_model=True, max_tokens_field="max_tokens"),
    "litellm": ServerType("LiteLLM", identity=("health/readiness", "db")),
    # It refuses fields that it does not know, and serves whatever model a request names.
    "transformers": ServerType(
        "transformers serve",
        identity=("openapi.json", "/load_model"),
        on_demand=True,
        own_limit="Set max_new_tokens in the generation_config.json of the model",
    ),
    "mlx": ServerType(
        "mlx_lm.server",
        software="BaseHTTP/",
        on_demand=True,
        reasoning_field="reasoning",
        own_limit="Start the server with --max-tokens",
        parsing="The tokenizer_config.json of the model can name a parser for calls: tool_parser_type.",
    ),
    # It refuses a `tool_choice` that is no string.
    "lmstudio": ServerType("LM Studio", owner="organization_owner", named_tool_choice="required", strict_matters=False),
    # It refuses fields that it does not know.
    "tensorrt_llm": ServerType("TensorRT-LLM", owner="tensorrt_llm", one_model=True, reasoning_field="reasoning_content"),
    "vllm": ServerType(
        "vLLM",
        owner="vllm",
        identity=("version", "version"),
        one_model=True,
        reasoning_field="reasoning",
        token_ids=True,
        parser_flags=True,
        enforcing="--tool-strict-level parameter",
    ),
    "unknown": ServerType("unknown server"),
}

_BY_OWNER = {kind.owner: server for server, kind in SERVER_TYPES.items() if kind.owner is not None}


def server_of(owner: object) -> Server:
    """Return the type that `owned_by` in a list of models tells."""
    return _BY_OWNER.get(owner, "unknown") if isinstance(owner, str) else "unknown"


def server_by_header(header: str) -> Server:
    """Return the type that a `Server` header tells."""
    named = (server for server, kind in SERVER_TYPES.items() if kind.software is not None and header.startswith(kind.software))
    return next(named, "unknown")
