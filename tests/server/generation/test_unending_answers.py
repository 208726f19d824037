"""Servers that keep the connection open behind the end of an answer: the response ends all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from responses_gateway.server.generation.generation import AnswerEnd
from responses_gateway.stream.translator import Translator
from tests.server.hosted.model import DOCS, MCP, calls, says
from tests.server.hosted.test_broken_turns import is_question
from tests.server.hosted.test_hosted_mcp import kinds
from tests.server.running_gateway import LOOPS, gateway, post, run
from tests.server.scripted_backend import HEAD, Connection, backend, chunk
from tests.stream.stream_player import finish, new_translator, text, usage

COMMENT = b": heartbeat\n\n"
DONE = b"data: [DONE]\n\n"
ANSWER = [chunk({"content": "Hello."}), chunk({}, "stop")]
COUNTS = {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10}


async def hold(connection: Connection, *pieces: bytes) -> None:
    """Send an answer, and comments until the gateway leaves."""
    connection.write(HEAD)
    connection.send(*pieces)
    while not connection.lost.done():
        connection.send(COMMENT)
        await asyncio.wait({connection.lost}, timeout=0.1)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("more", [[], [DONE], [chunk(None, usage=COUNTS)], [chunk(None, usage=COUNTS), DONE]])
def test_a_response_ends_and_the_backend_is_left(more: list[bytes], stream: bool, loop: str) -> None:
    async def play(connection: Connection) -> None:
        await hold(connection, *ANSWER, *more)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, keepalive_comment=0.4) as served:
            answer = await post(served, stream=stream)
            final = answer.final if stream else answer.json
            assert (final["status"], final["output"][0]["content"][0]["text"]) == ("completed", "Hello.")
            assert (final["usage"] or {}).get("total_tokens") == (10 if b"usage" in b"".join(more) else None)
            await behind.connections[0].lost

    run(test(), loop)


def test_a_generation_that_was_given_up_fails() -> None:
    async def play(connection: Connection) -> None:
        await hold(connection, ANSWER[0], chunk({}, "error"))

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, keepalive_comment=0.4) as served:
            final = (await post(served)).final
            assert (final["status"], final["error"]["message"]) == ("failed", "The backend aborted the generation.")

    run(test())


@pytest.mark.parametrize("kept", [0, 1, 2], ids=["without usage", "with usage", "with the marker"])
def test_tools_run_behind_a_turn_whose_body_does_not_end(kept: int) -> None:
    *answer, _ = calls(("docs__add", {"a": 1, "b": 2}))
    turns = [[*answer, *[chunk(None, usage=COUNTS), DONE][:kept]], says("It is 3.")]

    async def play(connection: Connection) -> None:
        if is_question(connection):
            await hold(connection, *turns.pop(0))

    async def test() -> None:
        async with (
            backend(play) as behind,
            gateway(behind.url, adapt=False, mcp_servers=DOCS, keepalive_comment=0.4) as served,
        ):
            final = (await post(served, tools=[MCP])).final
            assert kinds(final) == ["mcp_list_tools", "mcp_call", "message"]
            assert final["status"] == "completed"

    run(test())


def ended(*pieces: bytes) -> Translator:
    translator = new_translator()
    translator.start()
    for piece in pieces:
        translator.feed(piece)
    return translator


@pytest.mark.parametrize(
    ("pieces", "seconds"),
    [
        ([text("Hi")], None),
        ([text("Hi"), finish()], 2),
        ([text("Hi"), usage(**COUNTS), finish()], 2),  # of a server that counts in every chunk: the last count may come
        ([text("Hi"), finish("abort")], 2),
        ([text("Hi"), chunk({}, "stop", usage=COUNTS)], 0.5),
    ],
)
def test_how_long_an_ended_answer_may_go_on(pieces: list[bytes], seconds: float | None) -> None:
    end = AnswerEnd()
    translator = ended(*pieces)
    assert not end.is_over(translator, 100, 100.1)
    assert end.is_over(translator, 109, 109.5) == (seconds is not None)
    end.wait()
    assert not end.is_over(translator, 109, 109.1)
    late = [after for after in (109.3, 109.6, 110.9, 111.1, 1000) if end.is_over(translator, after, after)]
    assert late == {None: [], 2: [111.1, 1000], 0.5: [109.6, 110.9, 111.1, 1000]}[seconds]


def test_the_end_of_each_answer_is_waited_for() -> None:
    end = AnswerEnd()
    assert end.is_over(ended(text("Hi"), finish()), 100, 100) is False
    assert end.is_over(ended(text("Again"), finish()), 110, 110) is False


@pytest.mark.parametrize("behind", [[], [text("never")], [usage(prompt_tokens=0)]])
def test_usage_of_its_own_behind_the_reason_is_the_end(behind: list[bytes]) -> None:
    counted: dict[str, Any] = {"prompt_tokens": 8, "completion_tokens": 2}
    translator = ended(text("Hi"), finish(), usage(**counted), *behind)
    assert (translator.ended, translator.usage and translator.usage.input) == (True, 8)
    assert not ended(text("Hi"), usage(**counted), *[text(" there")]).ended
    assert not ended(text("Hi"), finish(), usage()).ended
