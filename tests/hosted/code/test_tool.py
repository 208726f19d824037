"""The hosted tool: which container a request gets, what the model reads and what stands in the item."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from openai.types.responses import ResponseCodeInterpreterToolCall

from responses_gateway.hosted.code.runner import CodeOutcome, ContainerKey, McpRunner
from responses_gateway.hosted.code.tool import CodeInterpreter, DeclaredContainer, read_container
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.result_text import plain_text
from responses_gateway.wire.errors import ApiError
from tests.hosted.code.sandboxes import KEY, run


class Runner:
    """A runner that has one container, and says what it is told to say."""

    def __init__(self, outcome: CodeOutcome | Exception | None = None) -> None:
        self.outcome = outcome or CodeOutcome("")
        self.ran: list[tuple[str, ContainerKey, Mapping[str, bytes]]] = []

    async def has(self, container: ContainerKey) -> bool:
        return container == KEY

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> CodeOutcome:
        self.ran.append((code, container, files))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


# Containers


def declared_container(
    tool: Mapping[str, Any], tenant: str, earlier: str | None = None, param: str = "tools[0]"
) -> DeclaredContainer:
    return asyncio.run(read_container(tool, tenant, Runner(), param, earlier))


@pytest.mark.parametrize("container", [None, {"type": "auto"}, {"type": "auto", "network_policy": {"type": "disabled"}}])
def test_auto_is_a_new_container_that_nobody_can_guess(container: Any) -> None:
    tool = {"type": "code_interpreter", "container": container}
    ids = {declared_container(tool, "alice").key.id for _ in range(100)}
    assert len(ids) == 100
    assert {(len(each), each[:5]) for each in ids} == {(53, "cntr_")}
    declared = declared_container(tool, "alice")
    assert (declared.key.tenant, declared.losses) == ("alice", {})


def test_auto_goes_on_with_the_container_of_the_conversation_if_it_still_exists() -> None:
    tool = {"container": {"type": "auto"}}
    assert declared_container(tool, "alice", KEY.id).key == KEY
    for tenant, earlier in (("alice", "cntr_expired"), ("bob", KEY.id), ("alice", "../x")):
        assert declared_container(tool, tenant, earlier).key.id != earlier


def test_a_container_can_be_named() -> None:
    assert declared_container({"container": KEY.id}, "alice").key == KEY


@pytest.mark.parametrize(
    ("tenant", "container"),
    [("alice", "cntr_guessed"), ("bob", KEY.id), ("alice", ""), ("alice", "x" * 10_000), ("alice", KEY.id + "\n")],
)
def test_a_container_of_another_tenant_is_not_found_like_any_that_does_not_exist(tenant: str, container: str) -> None:
    with pytest.raises(ApiError) as caught:
        declared_container({"container": container}, tenant, param="tools[2]")
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "tools[2].container", "container_not_found")
    assert "auto" in caught.value.message


@pytest.mark.parametrize("container", [5, [], {"type": "other"}, {}])
def test_what_is_no_container_is_refused(container: Any) -> None:
    with pytest.raises(ApiError) as caught:
        declared_container({"container": container}, "alice")
    assert (caught.value.status, caught.value.param) == (400, "tools[0].container")


def test_what_cannot_be_honoured_is_reported() -> None:
    container = {
        "type": "auto",
        "file_ids": ["file_1"],
        "memory_limit": "64g",
        "network_policy": {"type": "allowlist", "allowed_domains": ["example.com"]},
    }
    losses = declared_container({"container": container}, "alice").losses
    assert set(losses) == {f"tools[0].container.{name}" for name in ("file_ids", "memory_limit", "network_policy")}
    assert "code_interpreter_memory_bytes" in losses["tools[0].container.memory_limit"]


# Calls


def test_the_model_reads_what_the_code_did_and_the_item_has_its_outputs() -> None:
    outcome = CodeOutcome(
        "2\n", ["data:image/png;base64,AAAA"], ["/mnt/data/plot.png"], "The code was stopped.", ["output cut"]
    )
    runner = Runner(outcome)

    async def test() -> None:
        tool = CodeInterpreter(runner, KEY, {"in.csv": b"a"})
        result = await tool.run({"code": "1+1"})
        assert runner.ran == [("1+1", KEY, {"in.csv": b"a"})]
        assert result.text == "2\nThe code was stopped.\nFiles written: /mnt/data/plot.png\nImages shown to the user: 1"
        assert not result.failed
        assert result.losses == ["output cut"]
        fields = {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1+1", **result.item}
        item = ResponseCodeInterpreterToolCall.model_validate(fields, strict=True)
        assert item.container_id == KEY.id
        assert [output.type for output in item.outputs or []] == ["logs", "image"]

    run(test())


def test_code_that_prints_nothing_is_not_taken_for_a_failure() -> None:
    async def test() -> None:
        result = await CodeInterpreter(Runner(), KEY).run({"code": "x = 1"})
        assert result.text == "The code ran and printed nothing."
        assert result.item == {"container_id": KEY.id, "outputs": []}

    run(test())


@pytest.mark.parametrize("arguments", [{}, {"code": None}, {"code": ["x"]}, {"source": "x"}])
def test_a_call_without_code_is_explained_to_the_model(arguments: dict[str, Any]) -> None:
    async def test() -> None:
        with pytest.raises(ToolFailure, match=r'call this tool with \{"code"') as caught:
            await CodeInterpreter(Runner(), KEY).run(arguments)
        assert caught.value.item["container_id"] == KEY.id

    run(test())


def test_a_failure_of_the_runner_is_told_to_the_model() -> None:
    async def test() -> None:
        with pytest.raises(ToolFailure, match="away") as caught:
            await CodeInterpreter(Runner(ToolFailure("away", {"error": "x"})), KEY).run({"code": "1"})
        assert caught.value.item == {"container_id": KEY.id, "outputs": []}  # a code_interpreter_call has no error

    run(test())


# Code run by an MCP server


def mcp(schema: dict[str, Any], answer: str = "2\n", output_bytes: int = 1000) -> tuple[McpRunner, list[Mapping[str, Any]]]:
    called: list[Mapping[str, Any]] = []

    async def call_tool(arguments: Mapping[str, Any]) -> tuple[str, Any]:
        called.append(arguments)
        return answer, None

    return McpRunner(call_tool, schema, output_bytes), called


@pytest.mark.parametrize(
    ("schema", "argument"),
    [
        ({"properties": {"code": {}, "timeout": {}}, "required": ["code"]}, "code"),
        ({"properties": {"python_code": {}}}, "python_code"),
        ({"properties": {"program": {}, "x": {}}, "required": ["program"]}, "program"),
        ({}, "code"),
        ({"properties": None, "required": "code"}, "code"),
    ],
)
def test_the_argument_of_an_mcp_tool_is_found_in_its_schema(schema: dict[str, Any], argument: str) -> None:
    runner, called = mcp(schema)

    async def test() -> None:
        assert (await runner.run("1+1", KEY, {})).logs == "2\n"

    run(test())
    assert called == [{argument: "1+1"}]
    assert not asyncio.run(runner.has(KEY))


def test_sessions_of_an_mcp_tool_belong_to_one_tenant() -> None:
    runner, called = mcp({"properties": {"code": {}, "session_id": {}}})

    async def test() -> None:
        for key in (KEY, KEY, ContainerKey("bob", KEY.id), ContainerKey("alice", "cntr_2")):
            await runner.run("1", key, {})

    run(test())
    assert asyncio.run(runner.has(KEY))
    sessions = [arguments["session_id"] for arguments in called]
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 3
    assert "alice" not in str(sessions)


def test_output_of_an_mcp_tool_is_bounded_and_plain() -> None:
    runner, _ = mcp({}, "\x1b[31mé" + "é" * 1000, output_bytes=101)

    async def test() -> None:
        outcome = await runner.run("1", KEY, {"in.csv": b""})
        assert outcome.logs == "é" * 50
        assert len(outcome.losses) == 2

    run(test())


# Text


@pytest.mark.parametrize(
    ("printed", "plain"),
    [
        ("a\tb\n", "a\tb\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b(B\x1b7\x1b=x", "x"),
        ("10%\r20%\r\n", "10%\n20%\n"),
        ("a\x00b\x08\x7f\x9bc", "abc"),
        ("\ud83d", "?"),
        ("\x1b", ""),
        ("\x1b[", ""),
    ],
)
def test_printed_text_is_plain(printed: str, plain: str) -> None:
    assert plain_text(printed) == plain
