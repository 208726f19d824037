"""Stored responses: what was streamed can be asked for, continued and deleted, by who made it and nobody else."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from responses_gateway.conformance.checker import frames
from responses_gateway.simulator import RECEIVED, SimulatorOptions, serving
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.state import StoreUnavailable
from tests.judges import judge_stream
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, simulated
from tests.thoroughness import examples

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}
KEY = {"Authorization": "Bearer key-a"}
OTHER = {"Authorization": "Bearer key-b"}
SCENARIOS = ("plain", "reasoning", "tool", "parallel", "refusal", "unicode", "empty")


async def get(served: Served, path: str, headers: dict[str, str] | None = None) -> Answer:
    return await ask(served, "GET", f"/v1/{path}", headers=headers)


def raw_items(body: bytes) -> list[str]:
    """Return the items of a stream as text, byte for byte."""
    done = [frame.data for frame in frames(body) if '"type":"response.output_item.done"' in frame.data[:60]]
    return [data.partition('"item":')[2][:-1] for data in done]


def raw_final(body: bytes) -> str:
    last = next(frame.data for frame in frames(body) if frame.data.startswith('{"type":"response.completed"'))
    return last.partition('"response":')[2][:-1]


def chat(backend: web.Application) -> list[dict[str, Any]]:
    """Return the messages of the last chat request."""
    messages: list[dict[str, Any]] = backend[RECEIVED][-1]["body"]["messages"]
    return messages


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_was_streamed_is_what_is_stored(scenario: str) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            streamed = await post(served, input=f"scenario: {scenario}", tools=[TOOL])
            assert streamed.final["store"] is True
            stored = await get(served, f"responses/{streamed.final['id']}")
            assert stored.body.decode() == raw_final(streamed.body)
            assert all(item in stored.body.decode() for item in raw_items(streamed.body))

    run(test())


def test_the_stored_response_is_there_when_the_client_is_told(tmp_path: Path) -> None:
    """Asked for on another connection in the very moment that the terminal event is read."""

    async def test() -> None:
        async with simulated(store=str(tmp_path / "x.sqlite3")) as served:
            for stream in (True, False):
                for _ in range(5):
                    answer = await post(served, stream=stream)
                    response = answer.final if stream else answer.json
                    assert (await get(served, f"responses/{response['id']}")).json == response

    run(test())


def test_a_response_can_be_continued() -> None:
    async def test() -> None:
        backend = create_simulator()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = await post(served, input="one", instructions="Be brief.")
            second = await post(served, input="two", previous_response_id=first.final["id"], stream=False)
            assert second.json["previous_response_id"] == first.final["id"]
            said = first.final["output"][-1]["content"][0]["text"]
            told = [(message["role"], message["content"]) for message in chat(backend)]
            assert told == [("user", "one"), ("assistant", said), ("user", "two")]  # instructions are not inherited
            await post(served, input="three", previous_response_id=second.json["id"], instructions="Sing.")
            assert [message["role"] for message in chat(backend)] == ["system", *["user", "assistant"] * 2, "user"]
            await post(served, input="other branch", previous_response_id=first.final["id"])
            assert [message["content"] for message in chat(backend)][-2:] == [said, "other branch"]

    run(test())


@pytest.mark.slow
def test_a_long_conversation_takes_what_is_new() -> None:
    """Rows grow by the turn, not by the length of what came before."""
    tables = ("responses", "items", "nodes", "events")

    async def test() -> None:
        async with simulated(store="memory") as served:
            store = served.parts.store
            assert store is not None
            last = None
            counted = [0]
            for number in range(1, 41):
                last = (await post(served, input=f"scenario: plain {number}", previous_response_id=last)).final["id"]
                if number % 10 == 0:
                    counts = [f"SELECT count(*) FROM {table}" for table in tables]
                    rows = await store.database.run(lambda sql: [sql.execute(count).fetchone()[0] for count in counts])  # noqa: B023
                    counted.append(sum(rows))
            assert len({after - before for before, after in pairwise(counted)}) == 1

    run(test())


def test_a_tool_loop_sends_only_the_output() -> None:
    async def test() -> None:
        backend = create_simulator()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = await post(served, input="scenario: tool", tools=[TOOL])
            call = next(item for item in first.final["output"] if item["type"] == "function_call")
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
            second = await post(served, input=[output], tools=[TOOL], previous_response_id=first.final["id"])
            assert second.final["status"] == "completed"
            assert [message["role"] for message in chat(backend)][-2:] == ["assistant", "tool"]
            lone = await post(served, input=[output], tools=[TOOL])
            assert_error(lone, 400, "tool_call_not_found")

    run(test())


def test_item_references_are_resolved() -> None:
    async def test() -> None:
        backend = create_simulator()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = await post(served, input="one", headers=KEY)
            item = first.final["output"][-1]
            asked = [{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "two"}]
            second = await post(served, input=asked, headers=KEY)
            assert chat(backend)[-2]["content"] == item["content"][0]["text"]
            listed = (await get(served, f"responses/{second.final['id']}/input_items?order=asc", KEY)).json["data"]
            assert listed[0] == item
            assert_error(await post(served, input=asked, headers=OTHER), 400, "item_not_found")

    run(test())


@pytest.mark.parametrize("summary", [[], [{"type": "summary_text", "text": ""}]])
def test_a_thought_of_which_the_client_kept_only_the_id_reaches_the_model(summary: list[Any]) -> None:
    """LiteLLM and LangChain send such items, since OpenAI's have no text without a summary."""

    async def test() -> None:
        backend = create_simulator()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = await post(served, input="scenario: tool", tools=[TOOL], headers=KEY)
            thought, call = first.final["output"]
            kept = {"type": "reasoning", "id": thought["id"], "summary": summary}
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
            asked = [{"role": "user", "content": "scenario: tool"}, kept, call, output]
            second = await post(served, input=asked, tools=[TOOL], headers=KEY)
            assert chat(backend)[1]["reasoning"] == thought["content"][0]["text"]
            assert "reasoning" not in second.headers.get("x-responses-gateway-losses", "")
            await post(served, input=asked, tools=[TOOL], headers=OTHER)  # to whom it does not belong
            assert "reasoning" not in chat(backend)[1]

    run(test())


@pytest.mark.parametrize("way", ["previous_response_id", "conversation", "websocket"])
def test_a_reference_to_an_item_of_the_history_is_not_the_item_once_more(way: str) -> None:
    """Vercel's AI SDK sends references to the items of the response that it continues."""

    async def test() -> None:
        backend = create_simulator()
        async with serving(backend) as url, gateway(url, store="memory") as served, connect(served) as socket:
            conversation = (await ask(served, "POST", "/v1/conversations", json={})).json["id"]
            place: dict[str, Any] = {"conversation": conversation} if way == "conversation" else {"store": way != "websocket"}

            async def answered(asked: Any) -> Any:
                if way != "websocket":
                    return (await post(served, input=asked, tools=[TOOL], **place)).final
                await socket.send(asked, tools=[TOOL], **place)
                return (await socket.rest())[-1]["response"]

            first = await answered("scenario: tool")
            call = first["output"][-1]
            assert call["type"] == "function_call"
            if way != "conversation":
                place["previous_response_id"] = first["id"]
            references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
            second = await answered([*references, output])
            _, said, result = chat(backend)
            assert (len(said["tool_calls"]), result["content"]) == (1, "sunny")
            if way == "conversation":
                return
            place["previous_response_id"] = second["id"]
            await answered("And now?")
            assert [message["role"] for message in chat(backend)] == ["user", "assistant", "tool", "assistant", "user"]

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_nothing_is_stored_without_leave(stream: bool) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            answer = await post(served, store=False, stream=stream)
            response = answer.final if stream else answer.json
            assert response["store"] is False
            assert_error(await get(served, f"responses/{response['id']}"), 404, "response_not_found")
            chained = await post(served, previous_response_id=response["id"])
            assert_error(chained, 400, "previous_response_not_found")
            assert chained.json["error"]["param"] == "previous_response_id"

    run(test())


@pytest.mark.parametrize("model", ["sim-status=400", "sim-drop=text"])
def test_a_response_whose_client_gets_an_error_is_not_stored(model: str) -> None:
    """Nobody is told its id, so that nobody could read or delete it."""

    async def test() -> None:
        async with simulated(store="memory") as served:
            assert (await post(served, model=model, stream=False)).status >= 400
            store = served.parts.store
            assert store is not None
            counts = [f"SELECT count(*) FROM {table}" for table in ("responses", "nodes")]
            assert await store.database.run(lambda sql: [sql.execute(count).fetchone()[0] for count in counts]) == [0, 0]

    run(test())


def test_a_response_can_be_deleted() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            first = (await post(served)).final["id"]
            second = (await post(served, previous_response_id=first)).final["id"]
            deleted = await ask(served, "DELETE", f"/v1/responses/{first}")
            assert deleted.json == {"id": first, "object": "response", "deleted": True}
            assert_error(await ask(served, "DELETE", f"/v1/responses/{first}"), 404)
            assert_error(await get(served, f"responses/{first}"), 404)
            assert (await post(served, previous_response_id=second)).final["status"] == "completed"

    run(test())


def test_one_key_does_not_see_what_another_stored() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await post(served, headers=KEY)).final["id"]
            for headers in (OTHER, None):
                assert_error(await get(served, f"responses/{name}", headers), 404)
                assert_error(await get(served, f"responses/{name}/input_items", headers), 404)
                assert_error(await ask(served, "DELETE", f"/v1/responses/{name}", headers=headers), 404)
                assert_error(await post(served, previous_response_id=name, headers=headers), 400)
            assert (await get(served, f"responses/{name}", KEY)).status == 200

    run(test())


def test_input_items_are_paged() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            asked = [{"role": "user", "content": str(number)} for number in range(5)]
            path = f"responses/{(await post(served, input=asked)).final['id']}/input_items"
            told = []
            after = ""
            while True:
                page = (await get(served, f"{path}?order=asc&limit=2{after}")).json
                told += [item["content"][0]["text"] for item in page["data"]]
                assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
                if not page["has_more"]:
                    break
                after = f"&after={page['last_id']}"
            assert told == ["0", "1", "2", "3", "4"]
            assert (await get(served, path)).json["data"][0]["content"][0]["text"] == "4"
            second = (await get(served, f"{path}?order=asc&limit=2")).json["last_id"]
            before = (await get(served, f"{path}?order=asc&before={second}&include[]=file_search_call.results")).json
            assert ([item["content"][0]["text"] for item in before["data"]], before["has_more"]) == (["0"], False)
            for query in (
                "limit=0",
                "limit=101",
                "limit=0000000000101",
                "limit=x",
                "order=up",
                "after=nobody",
                "before=nobody",
                "include=thoughts",
            ):
                assert_error(await get(served, f"{path}?{query}"), 400)

    run(test())


def test_input_items_are_those_of_the_request_alone() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            first = (await post(served, input="one")).final["id"]
            second = (await post(served, input="two", previous_response_id=first)).final["id"]
            only = (await post(served, input=[], previous_response_id=second)).final["id"]
            for name, texts in ((first, ["one"]), (second, ["two"]), (only, [])):
                listed = (await get(served, f"responses/{name}/input_items")).json
                assert [item["content"][0]["text"] for item in listed["data"]] == texts
                assert listed["has_more"] is False

    run(test())


def test_a_history_with_an_empty_message_is_kept_and_shown() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            made = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
            asked = ["one", {"role": "assistant", "content": None}, made, {"type": "function_call_output", "call_id": "c"}]
            items = [{"role": "user", "content": item} if isinstance(item, str) else item for item in asked]
            first = (await post(served, input=items)).final["id"]
            listed = (await get(served, f"responses/{first}/input_items?order=asc")).json["data"]
            assert [item.get("content") for item in listed[1:3]] == [[], None]
            assert listed[3]["output"] == ""
            assert (await post(served, input="two", previous_response_id=first)).status == 200

    run(test())


def test_a_message_whose_type_is_null_is_listed_as_a_message() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            items = [{"type": None, "role": "user", "content": "one"}, {"type": None, "role": "assistant", "content": "two"}]
            response = (await post(served, input=items)).final["id"]
            conversation = (await ask(served, "POST", "/v1/conversations", json={"items": items})).json["id"]
            for path in (f"responses/{response}/input_items", f"conversations/{conversation}/items"):
                listed = (await get(served, f"{path}?order=asc")).json["data"]
                assert [(item["type"], item["status"]) for item in listed] == [("message", "completed")] * 2
                assert all(item["id"].startswith("msg_") for item in listed)

    run(test())


def test_reasoning_can_be_had_in_sealed_form_later() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            first = (await post(served, input="scenario: reasoning")).final
            path = f"responses/{first['id']}"
            assert (await get(served, f"{path}?include[]=message.output_text.logprobs")).json == first
            sealed = (await get(served, f"{path}?include=reasoning.encrypted_content")).json
            reasoning, *rest = sealed["output"]
            assert (rest, bool(reasoning.pop("encrypted_content"))) == (first["output"][1:], True)
            first["output"][0].pop("encrypted_content", None)
            assert reasoning == first["output"][0]
            assert_error(await get(served, f"{path}?include=thoughts"), 400)
            streamed = await get(served, f"{path}?stream=true&include=reasoning.encrypted_content")
            assert streamed.final["output"][0].pop("encrypted_content")
            told = [event["item"] for event in streamed.events if event["type"] == "response.output_item.done"]
            assert told[0]["encrypted_content"]

    run(test())


def test_a_cut_answer_is_stored_as_it_was() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            failed = await post(served, input="scenario: plain fault: drop=text")
            assert failed.final["status"] == "failed"
            assert (await get(served, f"responses/{failed.final['id']}")).json == failed.final

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_is_not_told_that_something_is_stored_when_it_is_not(stream: bool, monkeypatch: Any) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            store = served.parts.store
            assert store is not None

            async def full(*_: Any) -> bool:
                raise StoreUnavailable("disk full")

            with monkeypatch.context() as patch:
                patch.setattr(store.responses, "save", full)
                patch.setattr("responses_gateway.server.generation.preparation.context.logs.logger", _silent)
                answer = await post(served, stream=stream)
            response = answer.final if stream else answer.json
            assert (response["status"], response["store"]) == ("completed", False)

    run(test())


class _silent:  # noqa: N801
    handlers = ()  # flushed once a second

    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: None


def test_the_store_outlives_the_gateway(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(create_simulator()) as url:
            async with gateway(url, store=str(tmp_path / "deep" / "x.sqlite3")) as served:
                first = (await post(served)).final
            async with gateway(url, store=str(tmp_path / "deep" / "x.sqlite3")) as served:
                assert (await get(served, f"responses/{first['id']}")).json == first
                assert (await post(served, previous_response_id=first["id"])).final["status"] == "completed"

    run(test())


def test_many_at_once() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(), store="memory") as served:
            answers = await asyncio.gather(*(post(served, input=f"scenario: plain {n}") for n in range(30)))
            stored = await asyncio.gather(*(get(served, f"responses/{answer.final['id']}") for answer in answers))
            assert [one.json for one in stored] == [answer.final for answer in answers]

    run(test())


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, max_size=3), TEXTS)
@example(said=["one\u2028two", "\\\u2029\x85"], thought=["\x85"], asked="\u2028")
def test_any_text_is_stored_as_it_was_streamed(said: list[str], thought: list[str], asked: str) -> None:
    """Whatever the model says and the client asks: every item byte for byte."""
    deltas = [{"reasoning": text} for text in thought] + [{"content": text} for text in said]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/event-stream")

    async def test() -> None:
        backend = web.Application()
        backend.router.add_post("/v1/chat/completions", answer)
        async with serving(backend) as url, gateway(url, store="memory") as served:
            streamed = await post(served, input=asked, metadata={"x": asked}, instructions=asked)
            stored = await get(served, f"responses/{streamed.final['id']}")
            assert stored.body.decode() == raw_final(streamed.body)
            assert ",".join(raw_items(streamed.body)) in stored.body.decode()
            again = await get(served, f"responses/{streamed.final['id']}?stream=true")
            assert raw_items(again.body) == raw_items(streamed.body)

    run(test())


@pytest.mark.parametrize("scenario", [*SCENARIOS, "plain fault: drop=text"])
@pytest.mark.parametrize("names", ["openai", "spec"])
def test_a_stored_response_can_be_streamed_again(scenario: str, names: str) -> None:
    async def test() -> None:
        async with simulated(store="memory", reasoning_events=names) as served:
            asked = {"tools": [TOOL], "reasoning": {"summary": "auto"}, "include": ["message.output_text.logprobs"]}
            first = await post(served, input=f"scenario: {scenario}", **asked)
            again = await get(served, f"responses/{first.events[-1]['response']['id']}?stream=true")
            assert judge(again.body) == judge(first.body)
            assert again.events[-1]["response"] == first.events[-1]["response"]
            assert raw_items(again.body) == raw_items(first.body)
            rest = await get(served, f"responses/{first.events[-1]['response']['id']}?stream=True&starting_after=7")
            (only,) = rest.events
            assert (only["sequence_number"], only["response"]) == (8, first.events[-1]["response"])

    run(test())


def judge(body: bytes) -> list[str]:
    return judge_stream(body, unfinished_allowed=True)
