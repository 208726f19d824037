"""Custom tools with a grammar: what the model writes is judged, counted, and corrected once where that is wanted."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiohttp
import pytest

from responses_gateway.server.custom_tools.grammar_check import compiled_regex
from responses_gateway.simulator import DIALECTS, SimulatorOptions
from tests.request.example_grammars import PATCHES
from tests.server.running_gateway import RawClient, Served, events_of, gateway, post, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, Play, backend, call, chunk, streaming
from tests.waiting import PATIENCE

pytest.importorskip("re2", reason="the extra `grammars` is not installed")
pytest.importorskip("lark", reason="the extra `grammars` is not installed")

GOOD = "*** Begin Patch\n*** Add File: hello.txt\n+Hello from the simulator.\n*** End Patch"


def tool(definition: str = PATCHES, name: str = "apply_patch", syntax: str = "lark") -> dict[str, Any]:
    return {
        "type": "custom",
        "name": name,
        "description": "Edits files.",
        "format": {"type": "grammar", "syntax": syntax, "definition": definition},
    }


def counted(served: Served) -> dict[str, int]:
    outcomes = ("valid", "invalid", "repaired", "unrepaired", "skipped")
    values = {outcome: int(served.metric("custom_tool_inputs_total", outcome=outcome)) for outcome in outcomes}
    return {outcome: value for outcome, value in values.items() if value}


# ---- counted alone -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scenario", "outcome"), [("patch", "valid"), ("wrong_patch", "invalid")])
@pytest.mark.parametrize("stream", [True, False])
def test_inputs_are_passed_on_as_they_come_and_counted(scenario: str, outcome: str, stream: bool) -> None:
    async def test() -> None:
        async with simulated() as served:
            answer = await post(served, input=f"scenario: {scenario}", tools=[tool()], stream=stream)
            response = answer.final if stream else answer.json
            [item] = [item for item in response["output"] if item["type"] == "custom_tool_call"]
            assert GOOD.startswith(item["input"])
            if stream:
                deltas = [event for event in answer.events if event["type"] == "response.custom_tool_call_input.delta"]
                assert len(deltas) > 3
            await until(lambda: counted(served) == {outcome: 1}, "the input is counted")

    run(test())


def test_a_tool_in_a_namespace_is_found() -> None:
    async def test() -> None:
        async with simulated() as served:
            space = {"type": "namespace", "name": "edits", "description": "", "tools": [tool()]}
            final = (await post(served, input="scenario: patch", tools=[space])).final
            assert final["output"][-1]["namespace"] == "edits"
            await until(lambda: counted(served) == {"valid": 1}, "the input is counted")

    run(test())


def test_nothing_is_judged_where_grammars_are_off() -> None:
    async def test() -> None:
        async with simulated(custom_tool_grammar="off", repair_custom_tools="once") as served:
            final = (await post(served, input="scenario: wrong_patch", tools=[tool()])).final
            assert final["output"][-1]["input"] != GOOD
            assert counted(served) == {}

    run(test())


def test_without_the_extra_nothing_is_judged_and_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    monkeypatch.setattr("responses_gateway.server.custom_tools.grammar_check.compiled_regex", compiled_regex.__wrapped__)

    async def test() -> None:
        async with simulated(repair_custom_tools="once") as served:
            final = (await post(served, input="scenario: wrong_patch", tools=[tool()])).final
            assert GOOD.startswith(final["output"][-1]["input"])
            assert counted(served) == {"skipped": 1}

    run(test())


# ---- corrected ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_the_model_is_asked_once_to_correct_what_it_wrote(stream: bool) -> None:
    async def test() -> None:
        async with simulated(repair_custom_tools="once") as served:
            answer = await post(served, input="scenario: wrong_patch", tools=[tool()], stream=stream)
            final = answer.final if stream else answer.json
            assert final["status"] == "completed"
            assert final["output"][-1]["input"] == GOOD
            assert counted(served) == {"repaired": 1}

    run(test())


def test_a_backend_whose_markup_is_parsed_here() -> None:
    async def test() -> None:
        raw: dict[str, Any] = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
        options = SimulatorOptions(dialect=DIALECTS["vllm-raw"])
        async with simulated(options, repair_custom_tools="once", **raw) as served:
            final = (await post(served, input="scenario: wrong_patch", tools=[tool()])).final
            assert final["output"][-1]["input"] == GOOD
            assert counted(served) == {"repaired": 1}

    run(test())


def test_what_is_right_is_not_touched() -> None:
    async def test() -> None:
        async with simulated(repair_custom_tools="once") as served:
            final = (await post(served, input="scenario: patch", tools=[tool()])).final
            assert final["output"][-1]["input"] == GOOD
            assert counted(served) == {"valid": 1}

    run(test())


def test_over_a_websocket_and_in_the_background() -> None:
    async def test() -> None:
        async with simulated(repair_custom_tools="once", store="memory") as served:
            question = {"model": "m", "input": "scenario: wrong_patch", "tools": [tool()]}
            async with aiohttp.ClientSession() as session, session.ws_connect(f"{served.url}/v1/responses") as socket:
                await socket.send_json({"type": "response.create", **question})
                event: dict[str, Any] = {"type": ""}
                while event["type"] != "response.completed":
                    event = await socket.receive_json(timeout=PATIENCE)
            assert event["response"]["output"][-1]["input"] == GOOD
            final = (await post(served, question, background=True)).final
            assert final["output"][-1]["input"] == GOOD
            assert counted(served) == {"repaired": 2}

    run(test())


def written(text: str, argument: str = "input") -> list[bytes]:
    """Return the stream of an answer that calls the tool with this input."""
    function = {"name": "t", "arguments": json.dumps({argument: text})}
    entry = {"index": 0, "id": "call-1", "type": "function", "function": function}
    return [chunk({"role": "assistant", "content": ""}), chunk({"tool_calls": [entry]}), chunk({}, "tool_calls")]


def whole(content: str | None, finish: str = "stop") -> bytes:
    """Return a completion that is not streamed, as an HTTP answer."""
    message = {"role": "assistant", "content": content}
    body = json.dumps({"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]})
    return _http(200, body.encode())


def _http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


REFUSAL = _http(400, b'{"error": {"message": "unknown field", "type": "BadRequestError", "code": 400}}')
DONE = b"data: [DONE]\n\n"


def answering_in_turn(first: list[bytes], *corrections: bytes) -> Play:
    """Answer with the stream first, then with one of these answers for each further request."""
    left = list(corrections)
    asked = 0

    async def play(connection: Connection) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            connection.write(HEAD)
            connection.send(*first, DONE)
            connection.end()
        else:
            connection.write(left.pop(0))

    return play


@pytest.mark.parametrize(
    ("text", "corrections", "passed", "outcome"),
    [
        ("abc", [], "abc", "valid"),
        ("```\nabc\n```", [], "abc", "repaired"),
        ("```text\nabc```\n", [], "abc", "repaired"),
        ("ABC", [whole("abc")], "abc", "repaired"),
        ("ABC", [whole("<think>\nlower case\n</think>\n\nabc")], "abc", "repaired"),
        ("ABC", [whole("```\nabc\n```")], "abc", "repaired"),
        ("ABC", [REFUSAL, whole("abc")], "abc", "repaired"),
        ("ABC", [REFUSAL, REFUSAL], "ABC", "unrepaired"),
        ("ABC", [whole("Sure! Here it is: abc")], "ABC", "unrepaired"),
        ("ABC", [whole("abc", finish="length")], "ABC", "unrepaired"),
        ("ABC", [whole(None)], "ABC", "unrepaired"),
        ("ABC", [_http(500, b"Internal Server Error")], "ABC", "unrepaired"),
        ("ABC", [_http(200, b"not JSON")], "ABC", "unrepaired"),
        ("ABC", [_http(200, b'{"choices": []}')], "ABC", "unrepaired"),
    ],
)
def test_corrections(text: str, corrections: list[bytes], passed: str, outcome: str) -> None:
    async def test() -> None:
        play = answering_in_turn(written(text), *corrections)
        async with backend(play) as server, gateway(server.url, repair_custom_tools="once") as served:
            final = (await post(served, tools=[tool("[a-z]+", "t", "regex")])).final
            assert final["output"][0]["input"] == passed
            assert final["status"] == "completed"
            assert counted(served) == {outcome: 1}
            assert len(server.requests) == 1 + len(corrections)

    run(test())


def test_half_a_character_is_corrected_like_any_other() -> None:
    async def test() -> None:
        play = answering_in_turn(written("a\ud83d", "a"), whole("abc"))
        async with backend(play) as server, gateway(server.url, repair_custom_tools="once") as served:
            final = (await post(served, tools=[tool("[a-z]+", "t", "regex")])).final
            assert (final["status"], final["output"][0]["input"]) == ("completed", "abc")

    run(test())


def test_the_question_holds_all_that_is_needed_and_is_bounded() -> None:
    async def test() -> None:
        play = answering_in_turn(written("ABC"), REFUSAL, whole("abc"))
        async with backend(play) as server, gateway(server.url, repair_custom_tools="once") as served:
            headers = {"Authorization": "Bearer the-clients-own"}
            await post(served, tools=[tool("[a-z]+", "t", "regex")], headers=headers)
            _, constrained, plain = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]
            assert all(b"Bearer the-clients-own" in request for request in server.requests)
        [message] = constrained["messages"]
        assert all(part in message["content"] for part in ("`t`", "[a-z]+", "ABC", "does not match"))
        assert constrained["structured_outputs"] == {"regex": "[a-z]+"}
        assert constrained["stream"] is False
        assert 0 < constrained["max_completion_tokens"] < 10_000
        assert plain == {name: value for name, value in constrained.items() if name != "structured_outputs"}

    run(test())


def test_only_the_description_means_no_constraint_either() -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"repair_custom_tools": "once", "custom_tool_grammar": "describe"}
        async with (
            backend(answering_in_turn(written("ABC"), whole("abc"))) as server,
            gateway(server.url, **settings) as served,
        ):
            assert (await post(served, tools=[tool("[a-z]+", "t", "regex")])).final["output"][0]["input"] == "abc"
            assert b"structured_outputs" not in server.requests[1]

    run(test())


def silent_correction(first: list[bytes]) -> Play:
    """Answer with the stream first, and never again."""
    asked = 0

    async def play(connection: Connection) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            connection.write(HEAD)
            connection.send(*first, DONE)
            connection.end()

    return play


def test_a_correction_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.custom_tools.repair.SECONDS_OF_A_REPAIR", 0.2)

    async def test() -> None:
        settings: dict[str, Any] = {"repair_custom_tools": "once", "keepalive_event": 0.05}
        async with backend(silent_correction(written("ABC"))) as server, gateway(server.url, **settings) as served:
            answer = await post(served, tools=[tool("[a-z]+", "t", "regex")])
            assert answer.final["output"][0]["input"] == "ABC"
            assert counted(served) == {"unrepaired": 1}
            assert sum(event["type"] == "response.in_progress" for event in answer.events) > 1

    run(test())


def test_a_client_that_leaves_ends_the_correction() -> None:
    async def test() -> None:
        async with (
            backend(silent_correction(written("ABC"))) as server,
            gateway(server.url, repair_custom_tools="once") as served,
        ):
            client = await RawClient.connect(served)
            await client.post(tools=[tool("[a-z]+", "t", "regex")])
            await until(lambda: len(server.requests) == 2, "the correction is asked for")
            client.close()
            await asyncio.wait_for(asyncio.shield(server.connections[-1].lost), PATIENCE)

    run(test())


def test_the_end_of_the_gateway_lets_the_input_pass() -> None:
    async def test() -> None:
        async with (
            backend(silent_correction(written("ABC"))) as server,
            gateway(server.url, repair_custom_tools="once") as served,
        ):
            asking = asyncio.create_task(post(served, tools=[tool("[a-z]+", "t", "regex")]))
            await until(lambda: len(server.requests) == 2, "the correction is asked for")
            for exchange in list(served.parts.in_flight.activities):
                exchange.shut_down()
            final = (await asking).final
            assert final["status"] == "completed"
            assert final["output"][0]["input"] == "ABC"

    run(test())


def test_a_backend_that_keeps_its_connection_open_does_not_hold_up_the_verdict() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*written("```\nabc\n```"), DONE)  # and no end of the body

    async def test() -> None:
        async with backend(play) as server, gateway(server.url, repair_custom_tools="once") as served:
            final = (await post(served, tools=[tool("[a-z]+", "t", "regex")])).final
            assert final["output"][0]["input"] == "abc"

    run(test())


def test_a_call_that_is_cut_is_not_corrected() -> None:
    async def test() -> None:
        pieces = [chunk(call('{"input": "AB', id="call-1", type="function")), chunk({}, "length"), DONE]
        async with backend(streaming(*pieces)) as server, gateway(server.url, repair_custom_tools="once") as served:
            final = (await post(served, tools=[tool("[a-z]+", "get_weather", "regex")])).final
            assert final["status"] == "incomplete"
            assert final["output"][0]["input"] == "AB"
            assert len(server.requests) == 1
            assert counted(served) == {}

    run(test())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("repair", ["off", "once"])
@pytest.mark.parametrize(("written_so_far", "outcome"), [("ab", "valid"), ("AB", "invalid")])
def test_an_input_that_the_model_did_not_close_passes_only_if_it_matches(
    written_so_far: str, outcome: str, repair: str, stream: bool
) -> None:
    async def test() -> None:
        start = call(f'{{"input": "{written_so_far}', id="call-1", type="function")
        pieces = [chunk(start), chunk({"content": "Done."}), chunk({}, "tool_calls"), DONE]
        async with backend(streaming(*pieces)) as server, gateway(server.url, repair_custom_tools=repair) as served:
            answer = await post(served, tools=[tool("[a-z]+", "get_weather", "regex")], stream=stream)
            assert answer.status == 200
            response = answer.final if stream else answer.json
            status = "completed" if outcome == "valid" else "incomplete"
            assert [item["status"] for item in response["output"]] == [status, "completed"]
            assert response["output"][0]["input"] == written_so_far
            assert response["status"] == status
            assert len(server.requests) == 1  # nothing is corrected
            await until(lambda: counted(served) == {outcome: 1}, "the input is counted")

    run(test())


def test_events_stay_in_order_behind_a_corrected_call() -> None:
    async def test() -> None:
        stream = [*written("ABC")[:2], chunk({"content": "That is all."}), chunk({}, "tool_calls")]
        async with (
            backend(answering_in_turn(stream, whole("abc"))) as server,
            gateway(server.url, repair_custom_tools="once") as served,
        ):
            answer = await post(served, tools=[tool("[a-z]+", "t", "regex")])
            assert [item["type"] for item in answer.final["output"]] == ["custom_tool_call", "message"]
            assert [event["sequence_number"] for event in events_of(answer.body)] == list(range(len(answer.events)))

    run(test())
