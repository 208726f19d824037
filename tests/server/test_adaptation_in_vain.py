"""Backends that a gateway cannot examine, or not yet; and what the program says."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web

from proxy.probing import autoconfigure as examining
from proxy.simulator import serving
from tests.server.backends import Connection, backend
from tests.server.examining import Backend, adapted, lines, settings_of
from tests.server.harness import ask, gateway, post, run, until
from tests.server.test_server_shutdown import program

__all__ = ["lines"]


def test_a_server_that_comes_later_is_waited_for_while_the_gateway_serves(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "LOOK_AGAIN", 0.01)

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        async with gateway(f"http://127.0.0.1:{port}") as served:
            served.parts.autoconfiguration.begin()
            await until(lambda: lines)
            assert (await post(served)).status == 502
            runner = web.AppRunner(Backend("llamacpp").app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await until(lambda: served.parts.autoconfiguration.task.done() if served.parts.autoconfiguration.task else False)
            assert settings_of(lines) == {"reasoning_field": "reasoning_content"}
            assert len([line for line in lines if "cannot be examined yet" in line]) == 1
            await runner.cleanup()

    run(test())


def test_health_tells_that_the_backend_is_being_looked_at() -> None:
    async def test() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

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
            assert served.parts.autoconfiguration is not None
            await served.parts.autoconfiguration.looked.wait()
            assert (await ask(served, "GET", "/health")).json == {"status": "ok"}

    run(test())


def test_a_stop_ends_the_waiting() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            served.parts.autoconfiguration.begin()
            await asyncio.sleep(0)  # the harness sees to it that no task is left

    run(test())


def test_a_key_that_only_clients_have_is_asked_for_once(lines: list[str]) -> None:
    async def test() -> None:
        async with adapted(Backend(api_key="secret")):
            assert len(lines) == 1
            assert "backend_api_key" in lines[0]
        lines.clear()
        async with adapted(Backend("llamacpp", api_key="secret"), backend_api_key="secret"):
            assert settings_of(lines) == {"reasoning_field": "reasoning_content"}
        assert "secret" not in "".join(lines)

    run(test())


def test_one_of_many_models_says_nothing_about_the_others(lines: list[str]) -> None:
    async def test() -> None:
        backend = Backend("openai", models=("a", "b"))
        async with adapted(backend):
            assert backend.chats == []
            assert lines == ["not adapted to the backend reason=it lists 2 models, and one need not be like another"]
        backend = Backend("vllm", models=("base", "adapter"))
        async with adapted(backend):
            assert {chat["model"] for chat in backend.chats} == {"base"}

    run(test())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_does_not_answer_is_left_alone_in_the_end(
    status: int, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "ASK_AGAIN", (0.01, 0.01))

    async def test() -> None:
        backend = Backend(change=lambda body: web.Response(status=status))
        async with adapted(backend):
            assert len(backend.refused) == 3
            assert len(lines) == 3
            assert settings_of(lines) == {}

    run(test())


def test_a_server_without_chat_is_told_once(lines: list[str]) -> None:
    async def test() -> None:
        backend = Backend(change=lambda body: web.json_response({"error": {"message": "no chat here"}}, status=404))
        async with adapted(backend):
            assert len(lines) == 1
            assert lines[0].startswith("not adapted to the backend")

    run(test())


def test_a_model_that_thinks_longer_is_given_more_room() -> None:
    """Its template opened the block, so nothing marks the thoughts until they end."""

    def change(body: dict[str, Any]) -> web.Response | None:
        if body.get("max_completion_tokens") != 512:
            return None
        chunk = {"choices": [{"index": 0, "delta": {"content": "The user wants"}, "finish_reason": "length"}]}
        return web.Response(text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")

    async def test() -> None:
        backend = Backend("sglang-raw", change)
        async with adapted(backend) as served:
            assert 2048 in [chat.get("max_completion_tokens") for chat in backend.chats]
            assert served.parts.live.current.settings.tool_call_parser == "hermes"

    run(test())


# ---- the program ------------------------------------------------------------------------------------------------------------


def test_serve_listens_at_once_and_says_what_it_found() -> None:
    async def test() -> None:
        backend = Backend("llamacpp")
        async with serving(backend.app) as url, program(url, "--adapt") as running:
            assert running.process.stderr is not None
            said = ""
            while "examined" not in said:
                said += (await asyncio.wait_for(running.process.stderr.readline(), 30)).decode()
            assert "adapted to the backend setting=reasoning_field value=reasoning_content model=simulator" in said

    run(test())


def test_a_model_cannot_write_to_the_operators_terminal() -> None:
    async def test() -> None:
        backend = Backend(models=("\x1b[31mred",))
        async with serving(backend.app) as url, program(url, "--adapt") as running:
            assert running.process.stderr is not None
            said = b""
            while b"examined" not in said:
                said += await asyncio.wait_for(running.process.stderr.readline(), 30)
            assert b"\x1b" not in said
            assert rb'model="\u001b[31mred"' in said

    run(test())


def test_a_record_has_the_settings_that_were_taken(tmp_path: Any) -> None:
    async def test() -> None:
        async with adapted(Backend("llamacpp"), record=tmp_path) as served:
            await post(served)
        [path] = tmp_path.glob("*.jsonl")
        head = json.loads(path.read_text().splitlines()[0])
        assert head["settings"]["reasoning_field"] == "reasoning_content"

    run(test())
