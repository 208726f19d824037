"""Backends that a gateway cannot probe, or not yet; and what the program logs."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.probing import autoconfiguration
from responses_gateway.simulator import serving
from tests.probing.simulated_backend import SimulatedBackend, adapted, settings_of
from tests.server.process.test_shutdown import program
from tests.server.running_gateway import ask, gateway, post, run, until
from tests.server.scripted_backend import Connection, backend
from tests.waiting import PATIENCE


def test_a_server_that_starts_later_is_waited_for_while_the_gateway_serves(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoconfiguration, "RECONNECT_DELAY", 0.01)

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        async with gateway(f"http://127.0.0.1:{port}") as served:
            served.parts.autoconfiguration.begin()
            await until(lambda: lines)
            assert (await post(served)).status == 502
            runner = web.AppRunner(SimulatedBackend("llamacpp").app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await until(lambda: served.parts.autoconfiguration.task.done() if served.parts.autoconfiguration.task else False)
            assert settings_of(lines) == {"reasoning_field": "reasoning_content", "named_tool_choice": "required"}
            assert len([line for line in lines if "cannot be examined yet" in line]) == 1
            await runner.cleanup()

    run(test())


@pytest.mark.slow
def test_health_says_that_the_backend_is_being_probed() -> None:
    async def test() -> None:
        asked = asyncio.Event()
        answer = asyncio.Event()

        async def slow(connection: Connection) -> None:
            asked.set()
            await answer.wait()
            connection.end()

        async with backend(slow) as behind, gateway(behind.url) as served:
            assert (await ask(served, "GET", "/health")).json == {"status": "ok"}
            served.parts.autoconfiguration.begin()
            await asked.wait()
            assert (await ask(served, "GET", "/health")).json == {"status": "ok", "examining": True}
            answer.set()
            await served.parts.autoconfiguration.looked.wait()
            assert (await ask(served, "GET", "/health")).json == {"status": "ok"}

    run(test())


def test_a_stop_ends_the_waiting() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            served.parts.autoconfiguration.begin()
            await asyncio.sleep(0)  # the harness sees to it that no task is left

    run(test())


def test_a_missing_key_is_logged_once(lines: list[str]) -> None:
    async def test() -> None:
        async with adapted(SimulatedBackend(api_key="secret")):
            assert len(lines) == 1
            assert "backend_api_key" in lines[0]
        lines.clear()
        async with adapted(SimulatedBackend("llamacpp", api_key="secret"), backend_api_key="secret"):
            assert settings_of(lines)["reasoning_field"] == "reasoning_content"
        assert "secret" not in "".join(lines)

    run(test())


def test_one_of_several_models_says_nothing_about_the_others(lines: list[str]) -> None:
    async def test() -> None:
        backend = SimulatedBackend("openai", models=("a", "b"))
        async with adapted(backend):
            assert backend.chats == []
            assert lines == ["not adapted to the backend reason=it lists 2 models, which may differ"]
        backend = SimulatedBackend("vllm", models=("base", "adapter"))
        async with adapted(backend):
            assert {chat["model"] for chat in backend.chats} == {"base"}

    run(test())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_does_not_answer_is_given_up(status: int, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoconfiguration, "ANSWER_RETRY_DELAYS", (0.01, 0.01))

    async def test() -> None:
        backend = SimulatedBackend(change=lambda body: web.Response(status=status))
        async with adapted(backend):
            assert len(backend.refused) == 3
            assert len(lines) == 3
            assert settings_of(lines) == {}

    run(test())


def test_a_server_without_chat_is_logged_once(lines: list[str]) -> None:
    async def test() -> None:
        backend = SimulatedBackend(change=lambda body: web.json_response({"error": {"message": "no chat here"}}, status=404))
        async with adapted(backend):
            assert len(lines) == 1
            assert lines[0].startswith("not adapted to the backend")

    run(test())


def test_a_model_that_thinks_longer_is_given_more_room() -> None:
    # Its template opened the block, so nothing marks the reasoning until it ends.

    def change(body: dict[str, Any]) -> web.Response | None:
        if body.get("max_completion_tokens") != 512:
            return None
        chunk = {"choices": [{"index": 0, "delta": {"content": "The user wants"}, "finish_reason": "length"}]}
        return web.Response(text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")

    async def test() -> None:
        backend = SimulatedBackend("sglang-raw", change)
        async with adapted(backend) as served:
            assert 2048 in [chat.get("max_completion_tokens") for chat in backend.chats]
            assert served.parts.live.current.settings.tool_call_parser == "hermes"

    run(test())


# ---- the program ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_serve_listens_at_once_and_logs_what_it_found() -> None:
    async def test() -> None:
        backend = SimulatedBackend("llamacpp")
        async with serving(backend.app) as url, program(url, "--adapt") as running:
            assert running.process.stderr is not None
            said = ""
            while "examined" not in said:
                said += (await asyncio.wait_for(running.process.stderr.readline(), PATIENCE)).decode()
            assert "adapted to the backend setting=reasoning_field value=reasoning_content model=simulator" in said

    run(test())


@pytest.mark.slow
def test_a_model_cannot_write_to_the_operators_terminal() -> None:
    async def test() -> None:
        backend = SimulatedBackend(models=("\x1b[31mred",))
        async with serving(backend.app) as url, program(url, "--adapt") as running:
            assert running.process.stderr is not None
            said = b""
            while b"examined" not in said:
                said += await asyncio.wait_for(running.process.stderr.readline(), PATIENCE)
            assert b"\x1b" not in said
            assert rb'model="\u001b[31mred"' in said

    run(test())


def test_a_recording_has_the_settings_that_were_applied(tmp_path: Any) -> None:
    async def test() -> None:
        async with adapted(SimulatedBackend("llamacpp"), record=tmp_path) as served:
            await post(served)
        [path] = tmp_path.glob("*.jsonl")
        head = json.loads(path.read_text().splitlines()[0])
        assert head["settings"]["reasoning_field"] == "reasoning_content"

    run(test())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/openapi.json", '{"paths": 5}'),
        ("/v1/models", '{"data": [{"id": "m", "owned_by": "vllm", "root": "\\\\ud800", "max_model_len": 4096}]}'),
    ],
)
def test_a_server_that_answers_something_else_keeps_no_other_from_being_examined(
    path: str, text: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoconfiguration, "RECONNECT_DELAY", 0.01)
    monkeypatch.setattr(autoconfiguration, "ANSWER_RETRY_DELAYS", ())
    strange = web.Application()

    async def answer(request: web.Request) -> web.Response:
        models = '{"data": [{"id": "m"}]}' if request.path == "/v1/models" else "{}"
        return web.Response(text=text if request.path == path else models, status=200, content_type="application/json")

    strange.router.add_route("*", "/{path:.*}", answer)

    async def test() -> None:
        async with serving(strange) as one, serving(SimulatedBackend("llamacpp").app) as other:
            async with gateway(one, other) as served:
                served.parts.autoconfiguration.begin()
                await until(lambda: "http" in "".join(served.parts.autoconfiguration.profiles))
                await until(lambda: any(line.startswith("examined the backend") for line in lines))
            assert not [line for line in lines if "defect" in line]

    run(test())


def test_an_answer_that_does_not_end_is_not_read_until_the_memory_is_full(lines: list[str]) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        chunk = {"choices": [{"index": 0, "delta": {"content": "x" * 20_000}}]}
        with suppress(ConnectionError):
            while True:
                await answer.write(f"data: {json.dumps(chunk)}\n\n".encode())
        return answer

    async def test() -> None:
        backend = SimulatedBackend()
        backend.app.middlewares.insert(0, _instead_of_chats(endless))
        async with serving(backend.app) as url, gateway(url) as served:
            served.parts.autoconfiguration.begin()
            await until(lambda: any("the answer does not end" in line for line in lines))

    run(test())


def _instead_of_chats(answer: Handler) -> Any:
    @web.middleware
    async def instead(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await (answer if request.path.endswith("/chat/completions") else handler)(request)

    return instead
