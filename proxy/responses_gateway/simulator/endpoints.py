"""Everything but chat and completions: models, tokenizer, health, metrics, identity, embeddings."""

from __future__ import annotations

import base64
import secrets
import struct
import time
from typing import Any

from aiohttp import web

from responses_gateway.simulator import tokenizer
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.dialect import Server
from responses_gateway.simulator.errors import vllm_error
from responses_gateway.simulator.state import COUNTERS, OPTIONS, RECEIVED
from responses_gateway.simulator.validation import parsed_body

_DIMENSIONS = 8


def add_model_routes(app: web.Application) -> None:
    """Register the routes; the one that identifies the server depends on the server that is simulated."""
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    server = app[OPTIONS].dialect.shape.server
    if server == "llamacpp":
        app.router.add_post("/apply-template", apply_template)
        app.router.add_post("/tokenize", tokenize_content)
    elif server != "transformers":
        app.router.add_post("/tokenize", tokenize)
        app.router.add_post("/detokenize", detokenize)
    app.router.add_post("/v1/embeddings", embeddings)
    app.router.add_get("/simulator/requests", requests)
    path, answer = _identity(server, app[OPTIONS].max_model_len)
    app.router.add_get(path, _constant(answer))


def _identity(server: Server, context: int) -> tuple[str, dict[str, Any]]:
    """Return the endpoint that identifies a server of this kind, with its answer."""
    known: dict[Server, tuple[str, dict[str, Any]]] = {
        "vllm": ("/version", {"version": "0.32.0"}),
        "sglang": ("/get_server_info", {"version": "0.5.6", "context_length": context}),
        "llamacpp": ("/props", {"default_generation_settings": {"n_ctx": context}, "build_info": "b6900-simulator"}),
        "ollama": ("/api/version", {"version": "0.13.0"}),
        "openai": ("/v1/engines", {"object": "list", "data": []}),
        "transformers": ("/openapi.json", {"info": {"title": "FastAPI"}, "paths": {"/load_model": {}}}),
    }
    return known[server]


def _constant(answer: dict[str, Any]) -> Any:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response(answer)

    return handler


async def models(request: web.Request) -> web.Response:
    """Handle `GET /v1/models`; vLLM and SGLang report `max_model_len`."""
    options = request.app[OPTIONS]
    created = int(time.time())
    shape = options.dialect.shape
    entries: list[dict[str, Any]] = []
    for name in options.models:
        entry: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": shape.owner}
        if shape.server in ("vllm", "sglang"):
            entry |= {"root": name, "parent": None, "max_model_len": options.max_model_len}
        if shape.server == "llamacpp":
            entry["meta"] = {"n_ctx_train": options.max_model_len}
        entries.append(entry)
    return web.json_response({"object": "list", "data": entries})


async def health(_request: web.Request) -> web.Response:
    """Handle `GET /health`: 200 without a body."""
    return web.Response()


async def metrics(request: web.Request) -> web.Response:
    """Handle `GET /metrics`."""
    text = request.app[COUNTERS].exposition(request.app[OPTIONS].models[0])
    return web.Response(text=text, content_type="text/plain")


async def requests(request: web.Request) -> web.Response:
    """Handle `GET /simulator/requests`: the last chat requests received, oldest first, so that tests can see them."""
    return web.json_response([entry["body"] for entry in request.app[RECEIVED]])


async def tokenize(request: web.Request) -> web.Response:
    """Handle `POST /tokenize`, of a `prompt` or of `messages` in their template."""
    body = parsed_body(await request.read(), request.content_type)
    text = body.get("prompt")
    if not isinstance(text, str):
        if not isinstance(body.get("messages"), list):
            raise vllm_error("1 validation error:\n  Field required", type="Bad Request", param="body.prompt")
        text = ChatRequest(body).prompt_text(opens_thought=request.app[OPTIONS].dialect.opens_thought)
    pieces = tokenizer.split(text)
    answer = {
        "count": len(pieces),
        "max_model_len": request.app[OPTIONS].max_model_len,
        "tokens": [tokenizer.token_id(piece) for piece in pieces],
        "token_strs": pieces if body.get("return_token_strs") else None,
    }
    return web.json_response(answer)


async def apply_template(request: web.Request) -> web.Response:
    """Handle llama.cpp's `POST /apply-template`: return the prompt of messages."""
    body = parsed_body(await request.read(), request.content_type)
    return web.json_response({"prompt": ChatRequest(body).prompt_text()})


async def tokenize_content(request: web.Request) -> web.Response:
    """Handle llama.cpp's `POST /tokenize`, which knows `content` alone."""
    body = parsed_body(await request.read(), request.content_type)
    return web.json_response({"tokens": tokenizer.encode(str(body.get("content") or ""))})


async def detokenize(request: web.Request) -> web.Response:
    """Handle `POST /detokenize`."""
    body = parsed_body(await request.read(), request.content_type)
    try:
        return web.json_response({"prompt": tokenizer.decode(list(body.get("tokens") or ()))})
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise vllm_error(str(error), param="tokens") from None


async def embeddings(request: web.Request) -> web.Response:
    """Handle `POST /v1/embeddings`: a small vector per input, the same for the same text."""
    body = parsed_body(await request.read(), request.content_type)
    value = body.get("input")
    inputs = [value] if isinstance(value, str) else list(value or ())
    data = [
        {"object": "embedding", "index": index, "embedding": _embedding(str(text), body.get("encoding_format"))}
        for index, text in enumerate(inputs)
    ]
    count = sum(tokenizer.count(str(text)) for text in inputs)
    answer = {
        "id": f"embd-{secrets.token_hex(8)}",
        "object": "list",
        "created": int(time.time()),
        "model": body.get("model") or request.app[OPTIONS].models[0],
        "data": data,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    return web.json_response(answer)


def _embedding(text: str, encoding: object) -> list[float] | str:
    data = text.encode("utf-8", "replace")
    vector = [sum(data[place::_DIMENSIONS]) % 256 / 256 for place in range(_DIMENSIONS)]
    return base64.b64encode(struct.pack(f"<{_DIMENSIONS}f", *vector)).decode() if encoding == "base64" else vector
