"""`context_management`: a context that is too long is compacted before it is answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.simulator import COUNTERS, RECEIVED, create_app, serving
from tests.hosted.websites import searched_web
from tests.judges import judge_stream
from tests.server.resources.test_input_tokens import TEMPLATE
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import ask, assert_error, gateway, post, run, simulated, until
from tests.stream.vocabularies import vocabulary

LONG = "Tell me about rivers. " * 200
LIMIT = [{"type": "compaction", "compact_threshold": 500}]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def history(*texts: str) -> list[dict[str, Any]]:
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rivers flow."}]}
    return [item for text in texts for item in (user(text), answer)]


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("stream", [True, False])
def test_a_long_context_is_compacted_and_answered(stream: bool) -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            asked = [{"type": "message", "role": "developer", "content": "Be brief."}, *history(LONG), user("scenario: plain")]
            tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
            answer = await post(
                served, input=asked, context_management=LIMIT, stream=stream, tools=tools, max_output_tokens=500
            )
            response = answer.final if stream else answer.json
            assert (response["status"], kinds(response)) == ("completed", ["compaction", "message"])
            summary, chat = (backend[RECEIVED][at]["body"] for at in (-2, -1))
            assert "summary" in summary["messages"][-1]["content"]
            assert ("tools" in summary, "max_completion_tokens" in summary) == (False, False)
            assert (len(chat["tools"]), chat["max_completion_tokens"]) == (1, 500)
            first, second = chat["messages"]
            assert (first["role"], first["content"]) == ("system", "Be brief.")
            assert "replaced by this summary" in second["content"]
            assert second["content"].endswith("scenario: plain")
            assert "Tell me about rivers" not in second["content"]
            assert "x-responses-gateway-losses" not in answer.headers
            follow_up = [*response["output"], user("scenario: plain again")]
            again = await post(served, input=follow_up, context_management=LIMIT)
            assert kinds(again.final) == ["message"]

    run(test())


@pytest.mark.parametrize("limit", [[{"type": "compaction", "compact_threshold": 100_000}], [], None])
def test_a_short_context_is_left_as_it_is(limit: Any) -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            answer = await post(served, input=[*history(LONG), user("scenario: plain")], context_management=limit)
            assert kinds(answer.final) == ["message"]
            assert len(backend[RECEIVED]) == 1

    run(test())


def test_a_single_message_is_not_compacted() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            answer = await post(served, input=LONG + " scenario: plain", context_management=LIMIT)
            assert (kinds(answer.final), len(backend[RECEIVED])) == (["message"], 1)

    run(test())


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        (1, "context_management[0]"),
        ({"type": "clearing"}, "context_management[0].type"),
        ({"type": "compaction", "compact_threshold": "1"}, "context_management[0].compact_threshold"),
        ({"type": "compaction", "compact_threshold": 0}, "context_management[0].compact_threshold"),
    ],
)
def test_what_it_cannot_be(entry: Any, param: str) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:
            answer = await post(served, context_management=[entry])
            assert_error(answer, 400)
            assert answer.json["error"]["param"] == param

    run(test())


@pytest.mark.parametrize(
    "given", [[{"type": [], "encrypted_content": "x"}], [1], ["x"], [{"type": []}], [{"type": "compaction"}], [[]], [None]]
)
def test_an_input_that_is_none(given: Any) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:
            answer = await post(served, input=[*given, user("hi")], context_management=LIMIT)
            assert answer.status in (200, 400), answer.body

    run(test())


def test_a_chain_is_compacted_by_the_usage_of_its_last_response() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = (await post(served, input="scenario: plain")).final
            tokens = first["usage"]["total_tokens"]
            fits = [{"type": "compaction", "compact_threshold": tokens + 1000}]
            tight = [{"type": "compaction", "compact_threshold": tokens}]
            asked = {"input": "scenario: plain", "previous_response_id": first["id"]}
            assert kinds((await post(served, **asked, context_management=fits)).final) == ["message"]
            second = (await post(served, **asked, context_management=tight)).final
            assert kinds(second) == ["compaction", "message"]
            stored = await ask(served, "GET", f"/v1/responses/{second['id']}")
            assert stored.json == second
            await post(served, input="scenario: plain", previous_response_id=second["id"])
            messages = backend[RECEIVED][-1]["body"]["messages"]
            assert [message["role"] for message in messages] == ["user", "assistant", "user"]
            assert "replaced by this summary" in messages[0]["content"]

    run(test())


def test_the_tokenizer_counts_where_there_is_one(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "tokenizer.json").write_text(vocabulary("llama3").to_str(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")

    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, tokenizer=str(folder)) as served:
            asked = {"model": "simulator", "input": [*history("hello"), user("scenario: plain")]}
            assert served.parts.responses.preparation.tokenizer is not None
            counted = served.parts.responses.preparation.tokenizer.count_input
            seen: list[int] = []

            def watched(body: Any) -> int:
                seen.append(counted(body))
                return seen[-1]

            served.parts.responses.preparation.tokenizer.count_input = watched  # type: ignore[method-assign]
            limit = [{"type": "compaction", "compact_threshold": 1}]
            assert kinds((await post(served, **asked, context_management=limit)).final) == ["compaction", "message"]
            limit = [{"type": "compaction", "compact_threshold": seen[0]}]
            assert kinds((await post(served, **asked, context_management=limit)).final) == ["message"]

    run(test())


def test_the_summary_counts_against_the_limits_of_its_client() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, tokens_per_minute=5000) as served:
            said = [*history(LONG), user("scenario: plain")]
            seen = [int((await post(served, input=said)).headers["x-ratelimit-remaining-tokens"])]
            for limit in (None, LIMIT, None):
                answer = await post(served, input=said if limit else "hi", context_management=limit)
                seen.append(int(answer.headers["x-ratelimit-remaining-tokens"]))
            plain = seen[1]
            compacted = seen[3]
            assert compacted < plain - 900  # the history was read once for the summary

    run(test())


def test_a_summary_that_fails_fails_the_response() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:
            asked = {"model": "sim-status=429", "input": [*history(LONG), user("hi")]}
            message = assert_error(await post(served, **asked, context_management=LIMIT), 429)
            assert message.startswith("The context could not be compacted: ")

    run(test())


def test_the_stream_begins_before_the_summary_is_written() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, header_grace=0.01, keepalive_event=0.05) as served:
            asked = {"model": "sim-long+tokens=30+tps=60", "input": [*history(LONG), user("hi")]}
            answer = await post(served, **asked, context_management=LIMIT)
            names = [event["type"].removeprefix("response.") for event in answer.events]
            done = names.index("output_item.done")
            assert names[:2] == ["created", "in_progress"]
            begun = [name for name in names[2:done] if name != "in_progress"]
            assert begun == ["output_item.added", "compaction.compacting"]
            assert names[done - 1] == "in_progress"  # the client hears something while the summary is written
            assert kinds(answer.final) == ["compaction", "message"]
            assert judge_stream(answer.body) == []

    run(test())


def test_a_summary_that_breaks_off_is_no_item() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, header_grace=0.0, continue_answers=0) as served:
            asked = {"model": "sim-long+drop-5", "input": [*history(LONG), user("hi")]}
            answer = await post(served, **asked, context_management=LIMIT)
            names = [event["type"].removeprefix("response.") for event in answer.events]
            assert names == ["created", "in_progress", "output_item.added", "compaction.compacting", "failed"]
            assert answer.final["output"] == []

    run(test())


def test_in_the_background() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store="memory") as served:
            asked = [*history(LONG), user("scenario: plain")]
            answer = await post(served, input=asked, context_management=LIMIT, background=True)
            assert kinds(answer.final) == ["compaction", "message"]
            assert judge_stream(answer.body) == []

    run(test())


def test_for_a_client_that_may_leave() -> None:
    async def test() -> None:
        settings = {"store": "memory", "on_disconnect": "continue", "header_grace": 0.01}
        async with serving(create_app()) as url, gateway(url, **settings) as served:
            for model in ("simulator", "sim-long+tokens=30+tps=100"):
                asked = {"model": model, "input": [*history(LONG), user("hi")]}
                answer = await post(served, **asked, context_management=LIMIT)
                assert kinds(answer.final)[0] == "compaction"
                assert judge_stream(answer.body) == []
                assert (await ask(served, "GET", f"/v1/responses/{answer.final['id']}")).json == answer.final

    run(test())


def test_what_was_compacted_need_not_be_left_out() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            said = [*history(LONG), user("scenario: plain")]
            first = await post(served, input=said, context_management=LIMIT)
            second = await post(
                served, input=[*said, *first.final["output"], user("scenario: plain")], context_management=LIMIT
            )
            assert kinds(second.final) == ["message"]
            messages = backend[RECEIVED][-1]["body"]["messages"]
            assert [message["role"] for message in messages] == ["user", "assistant", "user"]

    run(test())


def test_what_was_compacted_is_checked_all_the_same_and_named_by_its_place() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            first = await post(served, input=[*history(LONG), user("scenario: plain")], context_management=LIMIT)
            compaction = first.final["output"][0]
            for wrong, param in (
                ({"type": ["message"]}, "input[1].type"),
                (7, "input[1]"),
                ({**user("a"), "id": {}}, "input[1].id"),
            ):
                items = [user("before"), wrong, compaction, user("scenario: plain")]
                answer = await post(served, input=items, context_management=LIMIT)
                assert_error(answer, 400)
                assert answer.json["error"]["param"] == param
            answer = await post(
                served, input=[user("before"), compaction, {**user("a"), "content": 7}], context_management=LIMIT
            )
            assert answer.json["error"]["param"] == "input[2].content"

    run(test())


@pytest.mark.parametrize("chained", [True, False])
def test_a_compaction_of_another_server_replaces_nothing(chained: bool) -> None:
    """Refuse it, because it cannot be decrypted here and what it stands for would be lost."""

    async def test() -> None:
        backend = create_app()
        foreign = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABof2lY"}
        said = [user("I am Ada."), foreign]
        async with serving(backend) as url, gateway(url, store="memory") as served:
            if chained:
                first = await post(served, input=said)
                await post(served, input="scenario: plain", previous_response_id=first.final["id"])
            else:
                answer = await post(served, input=[*said, user("scenario: plain")], context_management=LIMIT)
                assert "compaction" in answer.headers["x-responses-gateway-losses"]
            assert "I am Ada." in json.dumps(backend[RECEIVED][-1]["body"]["messages"])

    run(test())


def test_over_a_websocket() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served, connect(served) as socket:
            first = await socket.ask("scenario: plain", input=[*history(LONG), user("scenario: plain")])
            assert kinds(first) == ["message"]
            tight = [{"type": "compaction", "compact_threshold": 100}]
            second = await socket.ask("scenario: plain", previous_response_id=first["id"], context_management=tight)
            assert kinds(second) == ["compaction", "message"]

    run(test())


def test_what_a_client_keeps_before_a_compaction_stays_in_a_chain_over_a_websocket() -> None:
    """Codex begins anew after a compaction, with the task, the compaction and what comes next, and continues that."""

    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, connect(served) as socket:
            long = await socket.ask(input=[*history(LONG), user("scenario: plain")])
            summary = await socket.ask(input=[{"type": "compaction_trigger"}], previous_response_id=long["id"])
            await socket.ask("scenario: plain", previous_response_id=summary["id"])
            assert "Tell me about rivers" not in json.dumps(backend[RECEIVED][-1]["body"]["messages"])
            kept = [user("The task is to be brief."), *summary["output"], user("scenario: plain")]
            response = await socket.ask(input=kept)
            for _ in range(3):
                before = backend[RECEIVED][-1]["body"]["messages"]
                assert before[0]["content"] == "The task is to be brief."
                response = await socket.ask("scenario: plain", previous_response_id=response["id"])
                assert backend[RECEIVED][-1]["body"]["messages"][: len(before)] == before

    run(test())


@pytest.mark.parametrize("store", ["sqlite", "connection"])
def test_what_a_client_keeps_before_a_compaction_is_part_of_the_next_summary(store: str, tmp_path: Path) -> None:
    """Neither a chain in the store nor one over a WebSocket is without it, before the next compaction and in it."""

    async def test() -> None:
        backend = create_app()
        path = str(tmp_path / "x.sqlite3") if store == "sqlite" else "none"
        async with serving(backend) as url, gateway(url, store=path) as served, connect(served) as socket:

            async def turn(*items: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
                if store == "sqlite":
                    response = (await post(served, input=[*items], **fields)).final
                else:
                    response = await socket.ask(input=[*items], **fields)
                return response, backend[RECEIVED][-1]["body"]["messages"]

            summary, _ = await turn(*history(LONG), {"type": "compaction_trigger"})
            kept = user("The task is to be brief.")
            response, before = await turn(kept, *summary["output"], user("scenario: plain"))
            for _ in range(2):
                response, messages = await turn(user("scenario: plain"), previous_response_id=response["id"])
                assert messages[: len(before)] == before
                before = messages
            last, messages = await turn(user(LONG), previous_response_id=response["id"], context_management=LIMIT)
            assert kinds(last)[0] == "compaction"
            asked = backend[RECEIVED][-2]["body"]["messages"]
            assert asked[: len(before)] == before
            assert "The task is to be brief." not in json.dumps(messages)
            again, messages = await turn(user("scenario: plain"), previous_response_id=last["id"])
            assert "The task is to be brief." not in json.dumps(messages), again

    run(test())


@pytest.mark.slow
def test_several_calls_of_the_model_in_one_response_do_not_count_as_the_context(tmp_path: Path) -> None:
    """The usage of a response with searches is the sum of its calls, each of which has nearly the same prompt."""

    async def test() -> None:
        async with searched_web() as searched, simulated(store=str(tmp_path / "x.sqlite3"), **searched.settings) as served:
            tools = [{"type": "web_search"}]
            asked = user(f"scenario: research How high is the tower? {LONG}")
            first = (await post(served, input=[asked], tools=tools)).final
            limit = [{"type": "compaction", "compact_threshold": first["usage"]["total_tokens"]}]
            fields: dict[str, Any] = {"previous_response_id": first["id"], "context_management": limit}
            response = (await post(served, input=[user("scenario: plain")], tools=tools, **fields)).final
            assert kinds(response) == ["message"]

    run(test())


def test_a_question_outlives_the_next_summary_though_its_message_is_gone() -> None:
    """A client that leaves out what was replaced has it in the summary alone."""

    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}]
            fields: dict[str, Any] = {"tools": tools, "context_management": LIMIT}
            first = (await post(served, input=[*history(LONG), user("scenario: tool")], **fields)).final
            assert kinds(first)[0] == "compaction"
            call = next(item for item in first["output"] if item["type"] == "function_call")
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": LONG}
            second = (await post(served, input=[*first["output"], result], **fields)).final
            assert kinds(second)[0] == "compaction"
            (summary,) = backend[RECEIVED][-1]["body"]["messages"]
            assert summary["content"].endswith("word for word:\n\nscenario: tool")

    run(test())


def test_a_client_that_leaves_ends_the_summary() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            asked = {"model": "sim-long+tokens=5000+tps=50", "input": [*history(LONG), user("hi")]}
            asking = asyncio.create_task(post(served, **asked, context_management=LIMIT))
            await until(lambda: backend[COUNTERS].running, "the summary is being written")
            asking.cancel()
            await until(lambda: not backend[COUNTERS].running, "the backend is free")

    run(test())
