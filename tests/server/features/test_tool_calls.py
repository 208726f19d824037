"""Calls of tools are checked and counted, and repaired for the clients that wait for whole calls: through the front door."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.replay import replay
from tests.log_lines import log_lines
from tests.server.features.agent_cases import CASES, CODEX, answer_of, calling, pieces, request_of
from tests.server.hosted.model import model
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Answer, Served, ask, events_of, post, run
from tests.waiting import until

Json = dict[str, Any]
CALLS = [case for case in CASES.values() if case["topic"] in (3, 4)]
CLAUDE = {"User-Agent": "claude-cli/2.1.332 (external, cli)", "anthropic-version": "2023-06-01"}
SHELL: Json = {
    "type": "object",
    "properties": {"cmd": {"type": "string"}, "timeout": {"type": "integer"}, "tty": {"type": "boolean"}},
    "required": ["cmd"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "name": "shell_run", "parameters": SHELL}]
BAD = '{"cmd": "ls", "timeout": "5",}'
GOOD = {"cmd": "ls", "timeout": 5}
LOSS = "x-responses-gateway-losses"


def validities(served: Served) -> Mapping[str, int]:
    """Return what was counted, of all models."""
    served.parts.metrics.flush()
    found: Counter[str] = Counter()
    for family in served.parts.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "responses_gateway_calls_total":
                found[sample.labels["validity"]] += int(sample.value)
    return found


def calls_of(response: Json) -> list[tuple[str, str]]:
    return [(item["name"], item["arguments"]) for item in response["output"] if item["type"] == "function_call"]


def uses_of(answer: Answer, *, streamed: bool) -> list[tuple[str, Any]]:
    """Return name and input of the calls in an answer of the Messages API, as its client reads them."""
    if not streamed:
        return [(block["name"], block["input"]) for block in answer.json["content"] if block["type"] == "tool_use"]
    uses: list[tuple[str, str]] = []
    for event in events_of(answer.body):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            uses.append((event["content_block"]["name"], ""))
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            uses[-1] = (uses[-1][0], uses[-1][1] + event["delta"]["partial_json"])
    return [(name, json.loads(text or "{}")) for name, text in uses]


def message_of(case: Json) -> Json:
    tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in case["tools"]]
    return {"model": "m", "max_tokens": 99, "messages": case["messages"], "tools": tools}


async def asked(served: Served, case: Json, *, streamed: bool) -> list[tuple[str, Any]]:
    """Ask as the client of a case does; return the calls that it gets: arguments that are JSON as their value."""
    if case["client"] == "messages":
        body = {**message_of(case), "stream": streamed}
        return uses_of(await ask(served, "POST", "/v1/messages", json=body, headers=CLAUDE), streamed=streamed)
    answer = await post(served, request_of(case), stream=streamed, headers=CODEX if case["client"] == "codex" else {})
    return calls_of(answer.final if streamed else answer.json)


def wanted(call: Json) -> tuple[str, Any]:
    return call["name"], call.get("arguments", call.get("arguments_text"))


def as_wanted(call: tuple[str, Any], want: Json) -> tuple[str, Any]:
    """Return a call in the form in which a case names it."""
    name, arguments = call
    return name, json.loads(arguments) if "arguments" in want and isinstance(arguments, str) else arguments


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("case", CALLS, ids=[case["id"] for case in CALLS])
def test_a_case_comes_out_as_it_has_to(case: Json, streamed: bool) -> None:
    async def test() -> None:
        for setting in ("off", "on"):
            want = case["want"][setting]
            settings = {"repair_calls": "off"} if setting == "off" else {}
            async with model(answer_of(case), **settings) as (served, _):
                calls = await asked(served, case, streamed=streamed)
                if case["client"] == "messages" and setting == "off":
                    assert calls == [("list_issues", {"state": "open", "labels": None, "page": None})]
                else:
                    assert [as_wanted(each, one) for each, one in zip(calls, want["calls"], strict=True)] == [
                        wanted(one) for one in want["calls"]
                    ]
                served.parts.metrics.flush()
                for kind in want.get("repairs", ()):
                    assert served.metric("repairs_total", kind=kind) == 1
                assert sum(validities(served).values()) == 1
                assert validities(served)["valid"] == (case["kind"].startswith("trap_"))

    run(test())


@pytest.mark.parametrize(
    ("headers", "setting", "repaired"),
    [
        (CODEX, None, True),
        (CODEX, "off", False),
        ({}, None, False),
        ({}, "safe", True),
        ({"User-Agent": "curl/8.5"}, None, False),
        ({"User-Agent": "opencode/1.18.33 ai-sdk/openai"}, None, True),
        ({"User-Agent": "pi/0.80.3"}, None, True),
        ({"User-Agent": "Agents/Python 0.24.1"}, None, True),
        ({"User-Agent": "AsyncOpenAI/Python 3.57.0"}, None, True),
        ({"User-Agent": "my-app/2 ai/7.0.1 ai-sdk/openai/4.0"}, None, True),
        (CLAUDE, None, True),
    ],
)
def test_calls_are_repaired_for_clients_that_wait_for_them(headers: Json, setting: str | None, repaired: bool) -> None:
    async def test() -> None:
        answer = pieces(calling("shell_run", BAD), finish="tool_calls")
        async with model(answer, repair_calls=setting) as (served, _):
            got = await post(served, tools=TOOLS, headers=headers)
            ((_, arguments),) = calls_of(got.final)
            assert arguments == ('{"cmd":"ls","timeout":5}' if repaired else BAD)
            assert validities(served) == {"invalid_json": 1}

    run(test())


def test_deltas_done_and_item_agree_and_text_is_not_held() -> None:
    deltas = [{"content": "I look."}, calling("shell_run", BAD[:9]), *(_more(each) for each in BAD[9:])]

    async def test() -> None:
        async with model(pieces(*deltas, finish="tool_calls")) as (served, _):
            answer = await post(served, tools=TOOLS, stream=True, headers=CODEX)
            events = events_of(answer.body)
            written = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
            (done,) = [event["arguments"] for event in events if event["type"] == "response.function_call_arguments.done"]
            assert written == [done] == [calls_of(answer.final)[0][1]] == ['{"cmd":"ls","timeout":5}']
            assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == ["I look."]

    run(test())


def _more(piece: str) -> Json:
    return {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def test_a_repair_is_on_the_loss_report_at_both_doors() -> None:
    async def test() -> None:
        answer = pieces(calling("shell_run", BAD), finish="tool_calls")
        async with model(answer, access_log=True) as (served, _):
            whole = await post(served, tools=TOOLS, stream=False, headers=CODEX)
            assert "item:function_call" in whole.headers[LOSS]
            tool = {"name": "shell_run", "input_schema": SHELL}
            body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "tools": [tool]}
            message = await ask(served, "POST", "/v1/messages", json=body, headers=CLAUDE)
            assert "content:tool_use" in message.headers[LOSS]
            assert uses_of(message, streamed=False) == [("shell_run", GOOD)]
            await post(served, tools=TOOLS, stream=True, headers=CODEX)
            served.parts.metrics.flush()
            labels = {"kind": "item", "name": "function_call", "outcome": "adapted"}
            assert served.parts.metrics.registry.get_sample_value("responses_gateway_losses_total", labels) == 2

    with log_lines() as written:
        run(test())
        assert [line["calls"] for line in written("response")] == [{"invalid_json": 1}] * 3


def test_calls_are_repaired_over_a_websocket_and_in_the_background() -> None:
    async def test() -> None:
        answer = pieces(calling("shell_run", BAD), finish="tool_calls")
        async with model(answer, store="memory", repair_calls="safe") as (served, _):
            async with connect(served) as socket:
                final = await socket.ask(tools=TOOLS)
            assert calls_of(final) == [("shell_run", '{"cmd":"ls","timeout":5}')]
            begun = await post(served, tools=TOOLS, background=True, stream=False)
            path = f"/v1/responses/{begun.json['id']}"
            while (response := (await ask(served, "GET", path)).json)["status"] in ("queued", "in_progress"):
                await until(lambda: not served.parts.in_flight.activities, "the response has ended")
            assert calls_of(response) == [("shell_run", '{"cmd":"ls","timeout":5}')]

    run(test())


def test_a_recorded_repair_is_repeated(tmp_path: Path) -> None:
    async def test() -> None:
        answer = pieces(calling("shell_run", BAD), finish="tool_calls")
        async with model(answer, record=str(tmp_path)) as (served, _):
            await post(served, tools=TOOLS, stream=True, headers=CODEX)

    run(test())
    (path,) = tmp_path.glob("exchange-*.jsonl")
    assert replay(path).differences == []


@pytest.mark.parametrize(
    ("arguments", "finish", "expected", "validity"),
    [
        ('{"cmd": "ls"', "tool_calls", '{"cmd":"ls"}', "invalid_json"),
        ('{"cmd": "ls", "timeout": 1000.0}', "tool_calls", '{"cmd":"ls","timeout":1000}', "schema"),
        ('{"cmd": "ls", "timeout": "007"}', "tool_calls", '{"cmd": "ls", "timeout": "007"}', "schema"),
        ('{"cmd": "ls", "timeout": 10', "tool_calls", '{"cmd": "ls", "timeout": 10', "invalid_json"),
        ('{"cmd": "ls"}{"cmd": "rm x"}', "tool_calls", '{"cmd": "ls"}{"cmd": "rm x"}', "invalid_json"),
        ('{"cmd": "grep \\d+ a"}', "stop", '{"cmd":"grep \\\\d+ a"}', "invalid_json"),
        ('{"cmd": "ls"} as you wish', "stop", '{"cmd": "ls"}', "valid"),
        ("{'cmd': '}'}", "stop", '{"cmd":"}"}', "invalid_json"),
        ("", "tool_calls", "", "invalid_json"),
        ("{}", "tool_calls", "{}", "schema"),
        ('{"cmd": "ls", "tty": null}', "tool_calls", '{"cmd": "ls", "tty": null}', "schema"),
    ],
)
def test_one_reading_is_taken_and_anything_else_is_as_written(
    arguments: str, finish: str, expected: str, validity: str
) -> None:
    async def test() -> None:
        async with model(pieces(calling("shell_run", arguments), finish=finish)) as (served, _):
            for streamed in (True, False):
                answer = await post(served, tools=TOOLS, stream=streamed, headers=CODEX)
                assert calls_of(answer.final if streamed else answer.json) == [("shell_run", expected)]
            assert validities(served) == {validity: 2}

    run(test())


def test_a_call_at_a_limit_is_not_repaired() -> None:
    async def test() -> None:
        async with model(pieces(calling("shell_run", '{"cmd": "ls"'), finish="length"), repair_calls="safe") as (served, _):
            answer = await post(served, tools=TOOLS)
            assert [(item["status"], item["arguments"]) for item in answer.final["output"]] == [("incomplete", '{"cmd": "ls"')]

    run(test())


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"cmd": {"$ref": "https://example.com/schema"}}},
        {"$defs": {"a": {"properties": {"cmd": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a"},
        {"type": "object", "properties": {"cmd": {"type": "string", "pattern": "^(a+)+$"}}},
        {"type": "object", "properties": {"cmd": {"type": "strng"}}},
        {"type": "object", "properties": {"cmd": {"anyOf": "x"}}},
        {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(6000)}},
    ],
    ids=["remote", "recursive", "backtracking", "no type", "no schema", "huge"],
)
def test_a_call_whose_schema_cannot_be_read_passes_unchecked(parameters: Json) -> None:
    async def test() -> None:
        tools = [{"type": "function", "name": "shell_run", "parameters": parameters}]
        written = json.dumps({"cmd": "a" * 60 + "!", "n": "5"})
        async with model(pieces(calling("shell_run", written), finish="tool_calls")) as (served, _):
            answer = await post(served, tools=tools, headers=CODEX)
            assert calls_of(answer.final) == [("shell_run", written)]
            assert validities(served) == {"unchecked": 1}

    run(test())


def test_an_unknown_name_is_counted() -> None:
    async def test() -> None:
        async with model(pieces(calling("delete_all", "{}"), finish="tool_calls")) as (served, _):
            answer = await post(served, tools=TOOLS, headers=CODEX)
            assert calls_of(answer.final) == [("delete_all", "{}")]
            assert validities(served) == {"unknown_name": 1}

    run(test())


SHOWN = '<tool_call>{"name": "shell_run", "arguments": {"cmd": "ls"}}</tool_call>'


@pytest.mark.parametrize("setting", [{"tool_call_parser": "hermes"}, {"rescue": True}])
@pytest.mark.parametrize(
    "said",
    [
        f"Write `{SHOWN}` for it.",
        f"Write ``{SHOWN}`` for it.",
        f"Write `a` or ` {SHOWN} ` for it.",
        f'Write "{SHOWN}".',
        f"Write «{SHOWN}».",
        f"So:\n```\n{SHOWN}\n```\n",
        f"So:\n~~~\n{SHOWN}\n~~~\n",
    ],
)
def test_a_call_that_is_quoted_is_text(said: str, setting: Json) -> None:
    async def test() -> None:
        for size in (1, 3, len(said)):
            deltas = [{"content": said[at : at + size]} for at in range(0, len(said), size)]
            async with model(pieces(*deltas), **setting) as (served, _):
                (item,) = (await post(served, tools=TOOLS)).final["output"]
                assert item["content"][0]["text"] == said

    run(test())


@pytest.mark.parametrize("before", ["I look.\n", "Of `a` and ``b``.\n", "``", "~~~\nx\n~~~\n", "```\nx\n```\n", "«a» "])
def test_a_call_behind_a_quote_is_one(before: str) -> None:
    said = (before if before != "``" else "`a``b` ") + SHOWN

    async def test() -> None:
        for size in (1, len(said)):
            deltas = [{"content": said[at : at + size]} for at in range(0, len(said), size)]
            async with model(pieces(*deltas), tool_call_parser="hermes") as (served, _):
                assert calls_of((await post(served, tools=TOOLS)).final) == [("shell_run", '{"cmd": "ls"}')]

    run(test())
