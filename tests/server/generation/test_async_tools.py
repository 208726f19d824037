"""Tools with `async: true`, as OpenAI's exchanges show them: the model goes on behind a call, whose output may come later.

Each conversation below is one that was recorded there, with the requests, items and events in their order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from responses_gateway.request.input.call_matching import PENDING_OUTPUT
from responses_gateway.request.tools.declarations import RESULTS_COME_LATER
from tests.request.chat_rules import complaints
from tests.server.fleet_of_simulators import WEATHER as SIMULATED
from tests.server.fleet_of_simulators import fleet, said
from tests.server.hosted.model import DOCS, MCP, Model, calls, model, says
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, ask, post, run
from tests.server.scripted_backend import chunk

Item = dict[str, Any]

CITY: Item = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
WEATHER: Item = {
    "type": "function", "name": "get_weather", "description": "Read a weather snapshot.", "parameters": CITY, "strict": True,
    "async": True,
}  # fmt: skip
CLOCK: Item = {"type": "function", "name": "get_local_time", "parameters": CITY}
PARIS = ("get_weather", {"city": "Paris"})
TOKYO = ("get_local_time", {"city": "Tokyo"})
CLEAR = '{"temperature_c":22}'
RAIN = '{"temperature_c":9}'
ESSENTIALS = says("Shoes, a phone, water.")


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def output(call: Item, text: str = CLEAR) -> Item:
    return {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": text}


def kinds(response: Item) -> list[str]:
    return [item["type"] for item in response["output"]]


def told(messages: list[Item]) -> list[Item | str | tuple[str, str]]:
    """Return chat messages in short form: the names of calls, the texts of results, and of anything else role and text."""
    found: list[Any] = []
    for message in messages:
        if message["content"] and message["role"] != "tool":
            found.append((message["role"], message["content"]))
        found += [call["function"]["name"] for call in message.get("tool_calls", ())]
        if message["role"] == "tool":
            found.append({"result": message["content"]})
    return found


def result(text: str) -> Item:
    return {"result": text}


def asked(talking: Model) -> list[Any]:
    """Return what the model was told in its last request."""
    body = talking.requests[-1]
    assert complaints(body) == []
    return told(body["messages"])


def test_the_events_come_in_the_recorded_order() -> None:
    async def test() -> None:
        async with model(calls(PARIS), ESSENTIALS) as (served, talking):
            answer = await post(served, tools=[WEATHER], input="Weather?")
            seen = [event["type"].removeprefix("response.") for event in answer.events]
            assert [kind for kind, _ in itertools.groupby(seen)] == [
                "created", "in_progress",
                "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
                "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
                "output_item.done", "completed",
            ]  # fmt: skip
            added, done = (event["item"] for event in answer.events if "item" in event and event["output_index"] == 0)
            assert added == {**done, "status": "in_progress", "arguments": ""}
            assert (done["async"], done["status"]) == (True, "completed")
            assert (answer.final["status"], kinds(answer.final)) == ("completed", ["function_call", "message"])
            assert answer.final["tools"][0].items() >= WEATHER.items()  # no hint is shown to the client
            assert answer.final["usage"]["output_tokens"] == 10  # of both turns
            assert asked(talking) == [("user", "Weather?"), "get_weather", result(PENDING_OUTPUT.text)]
            [offered] = talking.requests[0]["tools"]
            assert offered["function"]["description"] == f"Read a weather snapshot.\n\n{RESULTS_COME_LATER}"
            assert "async" not in offered["function"] | offered

    run(test())


class Conversation:
    """A client that goes on with what it got: by id, with all items, or over one connection."""

    def __init__(self, served: Served, way: str, socket: Any = None, **fields: Any) -> None:
        self._served = served
        self._way = way
        self._socket = socket
        self._fields = fields
        self._items: list[Item] = []
        self._last: Item | None = None

    async def ask(self, *items: Item, **fields: Any) -> Item:
        fields = {**self._fields, **fields}
        if self._way == "items":
            self._items += items
            response = (await post(self._served, input=self._items, store=False, **fields)).final
            self._items += response["output"]
        elif self._way == "socket":
            previous = {} if self._last is None else {"previous_response_id": self._last["id"]}
            await self._socket.send("", input=list(items), **previous, **fields)
            response = (await self._socket.rest())[-1]["response"]
        else:
            previous = {} if self._last is None else {"previous_response_id": self._last["id"]}
            answer = await post(self._served, input=list(items), stream=self._way == "stream", **previous, **fields)
            response = answer.final if self._way == "stream" else answer.json
        self._last = response
        return dict(response)


def test_what_is_said_beside_a_pending_call_is_commentary() -> None:
    async def test() -> None:
        first = [chunk({"content": "I look."}), *calls(PARIS)]
        async with model(first, ESSENTIALS, says("Paris is clear.")) as (served, _):
            answer = await post(served, tools=[WEATHER], input="Weather?")
            texts = [item for item in answer.final["output"] if item["type"] == "message"]
            assert [item.get("phase", "none") for item in texts] == ["none", "commentary"]
            added = [event["item"] for event in answer.events if event["type"] == "response.output_item.added"]
            assert [item.get("phase", "none") for item in added if item["type"] == "message"] == ["none", "commentary"]
            made = next(item for item in answer.final["output"] if item["type"] == "function_call")
            history = [user("Weather?"), *answer.final["output"], output(made)]
            later = await post(served, tools=[WEATHER], input=history)
            assert "phase" not in later.final["output"][0]
        async with model(calls(PARIS, TOKYO)) as (served, _):
            answer = await post(served, tools=[WEATHER, CLOCK], input="Weather?")
            assert all("phase" not in item for item in answer.final["output"])

    run(test())


@pytest.mark.parametrize("way", ["stream", "json", "items", "socket"])
def test_a_result_comes_two_requests_later(way: str) -> None:
    async def test() -> None:
        turns = calls(PARIS), ESSENTIALS, says("A small one."), says("The Louvre."), says("Clear, 22 degrees.")
        async with model(*turns, store="memory") as (served, talking), connect(served) as socket:
            client = Conversation(served, way, socket, tools=[WEATHER])
            first = await client.ask(user("Weather?"))
            assert kinds(first) == ["function_call", "message"]
            begun = [("user", "Weather?"), "get_weather", result(PENDING_OUTPUT.text), ("assistant", "Shoes, a phone, water.")]
            assert kinds(await client.ask(user("Umbrella?"))) == ["message"]
            assert asked(talking) == [*begun, ("user", "Umbrella?")]
            await client.ask(user("Museum?"))
            before = talking.requests[-1]["messages"]
            last = await client.ask(output(first["output"][0]), user("So?"))
            assert last["output"][0]["content"][0]["text"] == "Clear, 22 degrees."
            assert asked(talking)[-4:] == [("assistant", "The Louvre."), "get_weather", result(CLEAR), ("user", "So?")]
            assert talking.requests[-1]["messages"][: len(before)] == before  # the backend has read them

    run(test())


def test_a_call_that_the_client_has_to_answer_ends_the_response() -> None:
    async def test() -> None:
        turns = calls(PARIS, TOKYO), says("18:30; Paris comes."), says("Clear.")
        async with model(*turns, store="memory") as (served, talking):
            client = Conversation(served, "stream", tools=[WEATHER, CLOCK])
            first = await client.ask(user("Both?"))
            weather, clock = first["output"]
            assert (weather["async"], "async" in clock, first["status"], len(talking.requests)) == (True, False, "completed", 1)
            await client.ask(output(clock, "18:30"))
            assert asked(talking)[1:] == ["get_weather", "get_local_time", result(PENDING_OUTPUT.text), result("18:30")]
            await client.ask(output(weather), user("Paris?"))
            assert asked(talking)[5:] == [
                ("assistant", "18:30; Paris comes."),
                "get_weather",
                result(CLEAR),
                ("user", "Paris?"),
            ]

    run(test())


def test_results_that_come_before_the_model_went_on_are_ordinary_results() -> None:
    async def test() -> None:
        wait = {"type": "function", "name": "wait_for_tasks", "parameters": {"type": "object", "properties": {}}}
        turns = calls(PARIS, ("get_weather", {"city": "Rome"}), ("wait_for_tasks", {})), says("Paris.")
        async with model(*turns, store="memory") as (served, talking):
            client = Conversation(served, "stream", tools=[WEATHER, wait])
            paris, rome, waiting = (await client.ask(user("Which?")))["output"]
            await client.ask(output(paris), output(rome, RAIN), output(waiting, "done"))
            assert asked(talking)[1:] == [
                "get_weather", "get_weather", "wait_for_tasks", result(CLEAR), result(RAIN), result("done")
            ]  # fmt: skip

    run(test())


def test_outputs_are_accepted_as_recorded() -> None:
    async def test() -> None:
        async with model(calls(PARIS), ESSENTIALS, says("Well."), store="memory") as (served, talking):
            first = (await post(served, tools=[WEATHER])).final
            call = first["output"][0]
            after = {"previous_response_id": first["id"]}
            unknown = await post(served, **after, input=[output({**call, "call_id": "call_other"})], stream=False)
            assert (unknown.status, unknown.json["error"]["code"]) == (400, "tool_call_not_found")
            assert unknown.json["error"]["message"] == "No tool call found for function call output with call_id call_other."
            # The same one twice, and two that differ: the model reads all of them.
            for second in (CLEAR, RAIN):
                answer = (await post(served, **after, tools=[WEATHER], input=[output(call), output(call, second)])).final
                assert answer["status"] == "completed"
                assert asked(talking)[4:] == ["get_weather", result(CLEAR), "get_weather", result(second)]
            # A second one in a later request.
            again = {"previous_response_id": answer["id"], "tools": [WEATHER], "input": [output(call, "later")]}
            assert (await post(served, **again)).final["status"] == "completed"
            assert asked(talking)[-2:] == ["get_weather", result("later")]
            # Declared again without `async`: the call says what it is.
            plain = {key: value for key, value in WEATHER.items() if key != "async"}
            assert (await post(served, **after, tools=[plain], input="Still?")).final["status"] == "completed"
            assert asked(talking)[1:3] == ["get_weather", result(PENDING_OUTPUT.text)]

    run(test())


def test_members_of_a_namespace_and_custom_tools() -> None:
    async def test() -> None:
        echo = {"type": "custom", "name": "start_echo", "async": True}
        tools = [
            {"type": "namespace", "name": "demo", "description": "Demo.", "tools": [{**WEATHER, "parameters": CITY}]},
            echo,
        ]
        made = calls(("demo__get_weather", {"city": "Paris"}), ("start_echo", {"input": "ASYNC"}))
        async with model(made, says("Begun."), says("Done."), store="memory") as (served, talking):
            client = Conversation(served, "stream", tools=tools)
            weather, echoed, _ = (await client.ask(user("Both")))["output"]
            assert (weather["async"], weather["namespace"], echoed["async"], echoed["input"]) == (True, "demo", True, "ASYNC")
            assert asked(talking)[1:] == [
                "demo__get_weather",
                "start_echo",
                result(PENDING_OUTPUT.text),
                result(PENDING_OUTPUT.text),
            ]
            await client.ask(output(echoed, "ECHO"), output(weather))
            assert asked(talking)[-4:] == ["start_echo", result("ECHO"), "demo__get_weather", result(CLEAR)]

    run(test())


def test_beside_tools_that_the_gateway_runs() -> None:
    async def test() -> None:
        turns = calls(PARIS, ("docs__add", {"a": 1, "b": 2})), calls(("docs__add", {"a": 3, "b": 4})), says("3 and 7.")
        async with model(*turns, mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[WEATHER, MCP], input="Both")).final
            assert kinds(answer) == ["mcp_list_tools", "function_call", "mcp_call", "mcp_call", "message"]
            assert asked(talking)[1:] == [
                "get_weather", "docs__add", result(PENDING_OUTPUT.text), result("3"), "docs__add", result("7")
            ]  # fmt: skip

    run(test())


def test_a_model_that_calls_for_ever_is_stopped() -> None:
    async def test() -> None:
        async with model(calls(PARIS), hosted_turns=3) as (served, talking):
            answer = (await post(served, tools=[WEATHER])).final
            assert kinds(answer) == ["function_call", "function_call"]  # the last turn may call none
            assert [body.get("tool_choice") for body in talking.requests] == [None, None, "none"]
            assert len({item["call_id"] for item in answer["output"]}) == 2

    run(test())


def test_a_model_that_has_made_all_its_calls_has_to_answer() -> None:
    async def test() -> None:
        async with model(calls(PARIS), calls(PARIS)[:-3] + ESSENTIALS) as (served, talking):
            answer = (await post(served, tools=[WEATHER], max_tool_calls=1)).final
            assert kinds(answer) == ["function_call", "message"]
            assert talking.requests[1]["tool_choice"] == "none"

    run(test())


def test_a_model_that_goes_on_by_itself_is_not_asked_again() -> None:
    async def test() -> None:
        begun = calls(PARIS)[:-3]
        async with model([*begun, chunk({"content": "Under way."}), *ESSENTIALS]) as (served, talking):
            answer = (await post(served, tools=[WEATHER])).final
            assert (kinds(answer), len(talking.requests)) == (["function_call", "message"], 1)

    run(test())


def test_a_tool_that_was_forced_is_forced_once() -> None:
    async def test() -> None:
        async with model(calls(PARIS), ESSENTIALS) as (served, talking):
            choice = {"type": "function", "name": "get_weather"}
            answer = (await post(served, tools=[WEATHER], tool_choice=choice)).final
            assert kinds(answer) == ["function_call", "message"]
            assert talking.requests[1]["tool_choice"] == "auto"

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_backend_that_fails_in_the_second_turn_ends_the_response(stream: bool) -> None:
    async def test() -> None:
        async with model(calls(PARIS), 500) as (served, _):
            answer = await post(served, tools=[WEATHER], stream=stream)
            if stream:
                assert (answer.final["status"], kinds(answer.final)) == ("failed", ["function_call"])
            else:  # the client knows of no call: it may ask again
                assert answer.status >= 500

    run(test())


@pytest.mark.parametrize("turn", [0, 1])
def test_another_backend_continues_either_turn(turn: int) -> None:
    async def test() -> None:
        async with fleet("vllm-raw") as served:

            async def weather(fault: str) -> Item:
                tools = [{**SIMULATED, "async": True}]
                return said(await post(served, tools=tools, input=f"scenario: tool fault: {fault} Weather?"))

            whole = await weather("drop=000,times=0,step=0")
            assert kinds(whole) == ["reasoning", "function_call", "reasoning", "message"]
            for position in (3, 17):
                assert await weather(f"drop={position:03},times=1,step={turn}") == whole
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 2

    run(test())


def test_in_the_background() -> None:
    async def test() -> None:
        async with model(calls(PARIS), ESSENTIALS, store="memory") as (served, _):
            begun = (await post(served, tools=[WEATHER], background=True)).final
            response = (await ask(served, "GET", f"/v1/responses/{begun['id']}")).json
            assert (response["status"], kinds(response)) == ("completed", ["function_call", "message"])
            again = (await ask(served, "GET", f"/v1/responses/{begun['id']}?stream=true")).events
            assert [event["item"]["async"] for event in again if "item" in event and event["output_index"] == 0] == [True, True]

    run(test())


@pytest.mark.parametrize("stored", [True, False])
def test_a_pending_call_outlives_a_summary(stored: bool) -> None:
    async def test() -> None:
        settings: Any = {"store": "memory"} if stored else {}
        turns = calls(PARIS), ESSENTIALS, says("It was long."), says("Well."), says("Clear.")
        async with model(*turns, **settings) as (served, talking):
            client = Conversation(served, "stream" if stored else "items", tools=[WEATHER])
            call = (await client.ask(user("Rivers?")))["output"][0]
            limit = [{"type": "compaction", "compact_threshold": 500}]
            assert kinds(await client.ask(user("And? " * 600), context_management=limit)) == ["compaction", "message"]
            assert asked(talking)[:2] == ["get_weather", result(PENDING_OUTPUT.text)]
            last = await client.ask(output(call), context_management=[{**limit[0], "compact_threshold": 100_000}])
            assert (last["status"], asked(talking)[-2:]) == ("completed", ["get_weather", result(CLEAR)])

    run(test())


def test_the_request_that_asks_for_a_summary_has_one_turn() -> None:
    async def test() -> None:
        async with model(calls(PARIS), says("More.")) as (served, talking):
            answer = await post(served, tools=[WEATHER], input=[user("Hi"), {"type": "compaction_trigger"}])
            assert (answer.final["status"], len(talking.requests)) == ("failed", 1)  # a call is no summary

    run(test())
