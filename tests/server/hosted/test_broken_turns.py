"""What goes wrong between the turns of one response: backends die, clients leave, gateways stop or are killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from tests.log_lines import Line, log_lines
from tests.server.gateway_process import program
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.hosted.test_hosted_mcp import kinds, runs_tools
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import RawClient, Served, ask, final_of, gateway, post, run, until
from tests.server.scripted_backend import HEAD, Backend, Connection, backend

ADD = ("docs__add", {"a": 1, "b": 2})
WAIT = calls(("docs__wait_for_ever", {}))
# For a gateway that sooner takes another one for dead that gives no sign of life: 15 seconds by default.
_SHORTER = "import responses_gateway.server.generation.background.runner as runner; runner.SILENCE = 2.0"


def is_question(connection: Connection) -> bool:
    """Tell whether the model is asked; whatever else the gateway wants to know of its backend is not there."""
    if connection.request.startswith(b"POST /v1/chat/completions"):
        return True
    connection.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    return False


class Pair:
    """Two backends that play the same turns, whichever is asked; one turn breaks off after some pieces."""

    def __init__(self, *turns: list[bytes], breaks: dict[int, int], repeats: bool = True) -> None:
        """`breaks`: the number of an answer, from 0, and after how many pieces its connection is reset. `repeats`: a turn that
        broke off is played once more."""
        self._turns = list(turns)
        self._breaks = breaks
        self._repeats = repeats
        self.answers = 0

    async def play(self, connection: Connection) -> None:
        if not is_question(connection):
            return
        number = self.answers
        self.answers += 1
        after = self._breaks.get(number)
        pieces = self._turns[0]
        if after is None or not self._repeats:
            self._turns.pop(0)
        connection.write(HEAD)
        for piece in pieces[:after]:
            connection.send(piece)
        if after is None:
            connection.end()
        else:
            await asyncio.sleep(0.05)  # what was sent arrives before the connection is gone
            connection.reset()

    @asynccontextmanager
    async def served(self, **settings: Any) -> AsyncIterator[tuple[Served, list[Backend]]]:
        async with (
            backend(self.play) as one,
            backend(self.play) as other,
            gateway(one.url, other.url, adapt=False, mcp_servers=DOCS, **settings) as served,
        ):
            yield served, [one, other]


def test_another_backend_is_asked_where_one_dies_before_the_first_token_of_a_later_turn() -> None:
    async def test() -> None:
        # Each turn is broken once: what failed in the first turn does not count in the second.
        pair = Pair(calls(ADD), calls(ADD), says("It is 3."), breaks={0: 0, 2: 0, 4: 0})
        async with pair.served(retries=1) as (served, _):
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
            assert answer["status"] == "completed"
            assert pair.answers == 6

    run(test())


class Unforced(Pair):
    """Backends that refuse to have a call forced."""

    async def play(self, connection: Connection) -> None:
        if b'"tool_choice":"required"' in connection.request:
            connection.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 24\r\n\r\ntool_choice is not known")
        else:
            await super().play(connection)


def test_a_turn_that_is_asked_in_another_form_and_then_of_another_backend_is_one_call_of_a_rollout() -> None:
    """Else each later turn would be known by the messages of the one before, and nothing would continue the last one."""

    async def test() -> None:
        pair = Unforced(calls(ADD), says("It is 3."), says("Yes."), breaks={0: 0})
        async with pair.served() as (served, _):
            fields: dict[str, Any] = {"tools": [MCP], "headers": {"X-Rollout-Id": "ep1"}}
            asked = {"role": "user", "content": "hi"}
            answer = (await post(served, input=[asked], tool_choice="required", **fields)).final
            await post(served, input=[asked, *answer["output"], asked], **fields)
            one, two, three = (await ask(served, "GET", "/rollouts/ep1")).json["calls"]
            assert pair.answers == 4
        assert two["id"] == answer["id"]
        assert [call["parent"] for call in (one, two, three)] == [None, one["id"], two["id"]]

    run(test())


def test_a_backend_that_dies_in_a_later_turn_fails_the_response_with_the_items_so_far() -> None:
    async def test() -> None:
        async with Pair(calls(ADD), says("It is 3."), breaks={1: 1}).served(store="memory") as (served, _):
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "message"]
            assert [item.get("status") for item in answer["output"][1:]] == ["completed", "incomplete"]
            assert (answer["status"], answer["usage"]["total_tokens"]) == ("failed", 15)
            found = (await ask(served, "GET", f"/v1/responses/{answer['id']}")).json
            assert found["output"] == answer["output"]

    run(test())


@pytest.mark.parametrize("left", [1, 2])
def test_calls_are_run_though_the_connection_broke_before_their_usage_came(left: int) -> None:
    """The model had ended its turn, so that nothing is missing but usage, or the `[DONE]` behind it."""

    async def test() -> None:
        turn = calls(ADD)
        pair = Pair(turn, says("It is 3."), breaks={0: len(turn) - left}, repeats=False)
        async with pair.served() as (served, _):
            answer = await post(served, tools=[MCP])
            assert kinds(answer.final) == ["mcp_list_tools", "mcp_call", "message"]
            assert (answer.final["status"], answer.final["output"][1]["output"]) == ("completed", "3")
            assert check_stream(answer.body) == []
            assert pair.answers == 2

    run(test())


def test_calls_are_run_though_the_backend_fell_silent_behind_them() -> None:
    answered: list[bytes] = []

    async def play(connection: Connection) -> None:
        if not is_question(connection):
            return
        answered.append(connection.request)
        connection.write(HEAD)
        if len(answered) == 1:
            connection.send(*calls(ADD)[:-2])
            await connection.lost
        else:
            connection.send(*says("It is 3."))
            connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, adapt=False, mcp_servers=DOCS, idle_timeout=3) as served:
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "message"]
            assert (answer["status"], answer["output"][1]["output"]) == ("completed", "3")
            assert len(answered) == 2

    run(test())


def test_a_refusal_of_a_later_turn_ends_the_response_with_its_items() -> None:
    async def test() -> None:
        answered: list[bytes] = []

        async def play(connection: Connection) -> None:
            if not is_question(connection):
                return
            answered.append(connection.request)
            if len(answered) == 1:
                connection.write(HEAD)
                for piece in calls(ADD):
                    connection.send(piece)
            else:
                body = json.dumps({"error": {"message": "maximum context length is 8 tokens"}}).encode()
                connection.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n")
                connection.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            connection.end()

        async with backend(play) as behind, gateway(behind.url, adapt=False, mcp_servers=DOCS) as served:
            answer = await post(served, tools=[MCP])
            assert kinds(answer.final) == ["mcp_list_tools", "mcp_call"]
            assert answer.final["status"] == "failed"
            assert answer.final["output"][1]["output"] == "3"

    run(test())


async def running_calls(served: Served) -> str:
    """Ask the tool how many calls of it still run."""
    answer = (await post(served, tools=[MCP], input="count")).final
    return str(answer["output"][1]["output"])


def wait_or_count(body: dict[str, Any]) -> list[bytes]:
    """The model waits for ever, or counts the calls that do."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return says("Ok.")
    return calls(("docs__running", {})) if "count" in str(last["content"]) else WAIT


def test_a_client_that_leaves_stops_the_tool() -> None:
    async def test() -> None:
        async with model(wait_or_count, mcp_servers=DOCS) as (served, _):
            client = await RawClient.connect(served)
            await client.post(tools=[MCP])
            await client.read_until(b"mcp_call_arguments.done")
            await until(lambda: runs_tools(served))
            client.reset()
            await until(lambda: not served.parts.in_flight.activities)
            await until(lambda: served.metric("hosted_calls_total", tool="mcp", outcome="cancelled") == 1)
            assert await running_calls(served) == "0"

    run(test())


def test_a_websocket_that_is_closed_and_a_response_that_is_deleted_stop_their_tools(tmp_path: Path) -> None:
    async def test() -> None:
        async with model(wait_or_count, mcp_servers=DOCS, store=str(tmp_path / "s.db")) as (served, _):
            async with connect(served) as socket:
                await socket.send("Hi", tools=[MCP])
                await until(lambda: runs_tools(served))
            await until(lambda: served.metric("hosted_calls_total", tool="mcp", outcome="cancelled") == 1)
            begun = (await post(served, tools=[MCP], background=True, stream=False)).json
            await until(lambda: runs_tools(served))
            assert (await ask(served, "DELETE", f"/v1/responses/{begun['id']}")).status == 200
            await until(lambda: served.metric("hosted_calls_total", tool="mcp", outcome="cancelled") == 2)
            assert await running_calls(served) == "0"

    run(test())


def test_a_gateway_that_stops_ends_the_response_and_the_tool() -> None:
    async def test() -> None:
        async with model(WAIT, mcp_servers=DOCS, store="memory") as (served, _):
            asked = asyncio.create_task(post(served, tools=[MCP]))
            await until(lambda: runs_tools(served))
            await served.parts.in_flight.drain(asyncio.Event(), 0.0)
            answer = (await asked).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call"]
            assert (answer["status"], answer["output"][1]["status"]) == ("failed", "incomplete")
            await until(lambda: served.metric("hosted_calls_total", tool="mcp", outcome="cancelled") == 1)

    run(test())


@pytest.mark.slow
def test_a_gateway_that_is_killed_leaves_the_truth_in_the_store(tmp_path: Path) -> None:
    async def test() -> None:
        async with model(WAIT, says("Ok.")) as (_, talking):
            flags = "--no-adapt", "--backend", talking.url, "--store", str(tmp_path / "s.db")
            known = {"RESPONSES_GATEWAY_MCP_SERVERS": json.dumps(DOCS)}
            async with program(*flags, first=_SHORTER, **known) as running:
                begun = (await post(running, tools=[MCP], background=True, stream=False)).json
                path = f"/v1/responses/{begun['id']}"
                client = await RawClient.connect(running)
                await client.send(f"GET {path}?stream=true HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                await client.read_until(b"mcp_call_arguments.done")
                running.process.kill()
                await running.process.wait()
                client.close()
            async with program(*flags, first=_SHORTER, **known) as running:
                answer = (await ask(running, "GET", f"{path}?stream=true")).body
                final = final_of(answer)
                assert kinds(final) == ["mcp_list_tools", "mcp_call"]
                assert (final["status"], final["output"][1]["status"]) == ("failed", "incomplete")
                assert final["output"][1]["output"] is None
                assert check_stream(answer) == []
                found = (await ask(running, "GET", path)).json
                assert (found["status"], found["output"]) == ("failed", final["output"])
                # The conversation goes on.
                again = await post(running, tools=[MCP], input="Go on", previous_response_id=begun["id"], stream=False)
                assert kinds(again.json) == ["message"]
                assert talking.requests[-1]["messages"][-1]["content"] == "Go on"

    run(test())


# ---- what the operator reads ---------------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[Callable[[str], list[Line]]]:
    """Return the lines with a message that were written so far."""
    with log_lines("debug") as written:
        yield written


def losses(served: Served, tool: str, outcome: str) -> float | None:
    served.parts.metrics.flush()
    labels = {"kind": "tool", "name": tool, "outcome": outcome}
    return served.parts.metrics.registry.get_sample_value("responses_gateway_losses_total", labels)


def test_the_log_line_has_the_turns_and_the_calls(log: Any) -> None:
    async def test() -> None:
        turns = calls(ADD, ("docs__fail", {})), calls(("docs__shout", {"size": 5000})), says("Ok.")
        settings: dict[str, Any] = {"file_search_tools": {"vs_1": "docs/search"}, "hosted_result_bytes": 1024}
        async with model(*turns, mcp_servers=DOCS, access_log=True, **settings) as (served, _):
            search = {"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]}
            answer = await post(served, tools=[MCP, search])
            assert answer.final["status"] == "completed"
            assert "file_search" in answer.headers["x-responses-gateway-losses"]
            await until(lambda: not served.parts.in_flight.activities)
            assert (losses(served, "mcp", "adapted"), losses(served, "file_search", "ignored")) == (1, 1)
            assert served.metric("tokens_total", model="simulator", kind="input") == 30

    run(test())
    (line,) = log("response")
    assert (line["turns"], line["hosted_calls"], line["hosted_failures"]) == (3, {"mcp": 3}, 1)
    assert line["usage_by_turn"] == [{"input_tokens": 10, "output_tokens": 5}] * 3
    assert (line["input_tokens"], line["output_tokens"]) == (30, 15)
    reasons = [found["reason"] for found in log("loss")]
    assert any("vs_2" in reason for reason in reasons)
    assert any("1024 bytes" in reason for reason in reasons)


def test_a_response_without_hosted_calls_says_nothing_of_them(log: Any) -> None:
    async def test() -> None:
        async with model(says("Hi."), mcp_servers=DOCS, access_log=True) as (served, _):
            await post(served, tools=[MCP])

    run(test())
    (line,) = log("response")
    assert not {"turns", "hosted_calls", "usage_by_turn"} & set(line)


def test_a_strict_gateway_refuses_a_vector_store_that_nobody_searches() -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"file_search_tools": {"vs_1": "docs/search"}, "strict": True}
        async with model(says("Hi."), mcp_servers=DOCS, **settings) as (served, _):
            search = {"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]}
            answer = await post(served, tools=[search])
            assert (answer.status, answer.json["error"]["param"]) == (400, "tools")
            assert "vs_2" in answer.json["error"]["message"]

    run(test())
