"""What clients say and the keys they say it with are in no log, no metric and no error, at any level of logging."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from responses_gateway.telemetry import logs
from tests.server.running_gateway import Answer, Served, ask, gateway, post, run
from tests.server.scripted_backend import backend, chunk, refusing, streaming

KEY = "rp_SECRET-key-0123456789"
BACKEND_KEY = "sk-SECRET-of-the-backend"
# What a client says: each has SECRET in it, and so have all keys.
PROMPT = "my SECRET prompt"
HEADERS = {
    "Cookie": "session=SECRET-cookie",
    "X-Api-Key": KEY,
    "Proxy-Authorization": "Basic SECRET-basic",
    "X-Custom": "SECRET-header",
    "User-Agent": "SECRET-agent/1",
}
BODY: dict[str, Any] = {
    "model": "simulator",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": PROMPT}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "SECRET-argument"}'},
        {"type": "function_call_output", "call_id": "c", "output": "SECRET-output"},
    ],
    "instructions": "SECRET-instructions",
    "metadata": {"who": "SECRET-metadata"},
    "safety_identifier": "SECRET-person",
    "user": "SECRET-user",
    "tools": [
        {"type": "function", "name": "f", "description": "SECRET-description", "parameters": {"type": "object"}},
        {"type": "mcp", "server_label": "x", "server_url": "https://x.example/SECRET", "headers": {"Authorization": "SECRET"}},
    ],
    "unknown_parameter": "SECRET-parameter",
}  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"input": [{"role": "user", "content": [{"type": "input_text", "txt": PROMPT}]}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/?SECRET"}]}]},
    {"input": [{"type": "function_call_output", "call_id": "no", "output": PROMPT}]},
    {"temperature": "SECRET"},
    {"metadata": {"a": {"b": PROMPT}}},
    {"previous_response_id": "resp_0"},
]


@contextmanager
def everything_logged(style: str) -> Iterator[io.StringIO]:
    """Collect what any logger writes at debug level, as text; that of ours in its own format as well."""
    seen = io.StringIO()
    root = logging.getLogger()
    ours = logs.logger()
    before = root.level, list(ours.handlers), ours.propagate, ours.level
    libraries = {name: logging.getLogger(name).level for name in ("aiohttp.server", "aiohttp.websocket")}
    handler = logging.StreamHandler(seen)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    logs.configure("json" if style == "json" else "text", "debug")
    ours.handlers[0].setStream(seen)  # type: ignore[attr-defined]
    ours.propagate = True
    try:
        yield seen
    finally:
        logs.flush()
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.handlers = before[1]
        ours.propagate = before[2]
        ours.setLevel(before[3])
        for name, level in libraries.items():
            logging.getLogger(name).setLevel(level)


async def sweep(served: Served, headers: dict[str, str]) -> list[Answer]:
    """Requests of all kinds, right ones and wrong ones."""
    query = f"?api_key={KEY}&q=SECRET-query"
    answers = []
    for stream in (True, False):
        answers.append(await post(served, BODY, stream=stream, headers=headers))
        answers.extend([await post(served, {**BODY, **wrong}, stream=stream, headers=headers) for wrong in WRONG])
    for method, path in (
        ("GET", "/v1/models"), ("GET", "/v1/responses/resp_1"), ("PUT", "/v1/responses"),
        ("POST", "/v1/responses/input_tokens"),
        ("POST", "/v1/responses/compact"), ("POST", "/v1/conversations"), ("POST", "/v1/chat/completions"), ("GET", "/none"),
        ("POST", "/v1/responses"),
    ):  # fmt: skip
        answers.append(await ask(served, method, path + query, json=BODY, headers=headers))
        answers.append(await ask(served, method, path + query, data=b'{"model": "SECRET', headers=headers))
    async with aiohttp.ClientSession() as session:
        with suppress(aiohttp.WSServerHandshakeError):  # of a wrong key
            address = served.url + "/v1/responses" + query
            async with session.ws_connect(address, headers=headers, protocols=["realtime", "SECRET-in-a-page"]) as socket:
                for body in (BODY, {**BODY, **WRONG[0]}):
                    await socket.send_json({"type": "response.create", **body})
                    while json.loads(await socket.receive_str())["type"] not in (
                        "response.completed",
                        "response.failed",
                        "error",
                    ):
                        pass
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("keys", [{}, {"alice": hash_of(KEY)}])
def test_logs_metrics_and_errors_tell_no_secrets(style: str, keys: dict[str, str], tmp_path: Path) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {
            "api_keys": keys,
            "backend_api_key": BACKEND_KEY,
            "access_log": True,
            "invariant_sampling": 1.0,
            "store": "memory",
            "requests_per_minute": 100_000,
            "url_inputs": "public",
            "record": tmp_path / "records",
        }
        quoted = {"error": {"message": f"I do not like: {PROMPT}", "param": PROMPT}}
        quoting = [refusing(status, json.dumps(quoted).encode()) for status in (400, 429, 500, 503)]
        quoting.append(streaming(chunk({"content": "Well,"}), b"data: " + json.dumps(quoted).encode() + b"\n\n"))
        errors: list[Answer] = []
        with everything_logged(style) as seen:
            async with serving(create_app()) as url, gateway(url, **settings) as served:
                for headers in (
                    {**HEADERS, "Authorization": f"Bearer {KEY}"},
                    HEADERS,
                    {"Authorization": "Bearer SECRET-wrong-key"},
                ):
                    errors += [answer for answer in await sweep(served, headers) if answer.status >= 400]
                served.parts.metrics.flush()
                exposed = served.parts.metrics.text().decode()
            for play in quoting:
                async with backend(play) as behind, gateway(behind.url, **settings) as served:
                    for stream in (True, False):
                        told = await post(served, BODY, stream=stream, headers={"Authorization": f"Bearer {KEY}"})
                        assert PROMPT.encode() in told.body  # who asked may know
                    served.parts.metrics.flush()
                    exposed += served.parts.metrics.text().decode()
        assert "response" in seen.getvalue()  # something was logged, so there was something to look at
        assert len(errors) > 20
        lines = [line for line in seen.getvalue().splitlines() if "SECRET" in line]
        assert lines == []
        assert "SECRET" not in exposed
        for answer in errors:
            told = answer.body.decode() + repr(answer.headers)
            assert KEY not in told
            assert BACKEND_KEY not in told
            assert PROMPT not in told
        for file in (tmp_path / "records").iterdir():  # the conversation is there, that is what a record is for; keys are not
            text = file.read_text()
            assert not [
                secret for secret in (KEY, BACKEND_KEY, "SECRET-cookie", "SECRET-wrong-key", hash_of(KEY)) if secret in text
            ]

    run(test())
