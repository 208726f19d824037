"""`file_search` by the tools of MCP servers: how they are asked, what is understood of their answers, what the model reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from responses_gateway.hosted.files.search import FileSearch, matches, read_passages, searchable
from responses_gateway.hosted.files.tool_arguments import tool_arguments
from responses_gateway.hosted.interface import HostedResult, Source, ToolFailure
from responses_gateway.hosted.mcp.servers import McpServers, ToolCaller, ToolResult
from responses_gateway.wire.hosted import FileSearchRequest
from responses_gateway.wire.mcp import ListedTool, McpServer
from tests.hosted.mcp_peers import connections, failure_of, sdk_program
from tests.server.running_gateway import run

REQUEST = FileSearchRequest(("vs_1",))
QUERY_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


class Numbers:
    """Numbers sources as a response does: the same source, the same number."""

    def __init__(self) -> None:
        self.sources: list[Source] = []

    def __call__(self, source: Source) -> int:
        if source not in self.sources:
            self.sources.append(source)
        return self.sources.index(source) + 1


class Files:
    """MCP servers whose tool `search` answers with what a test gives, and notes its arguments."""

    def __init__(self, answer: Any, schema: Mapping[str, Any] = QUERY_SCHEMA) -> None:
        self.answer = answer
        self.schema = schema
        self.asked: list[Mapping[str, Any]] = []

    async def list_tools(self, tenant: str, server: McpServer) -> Sequence[ListedTool]:
        if server.label == "broken":
            raise ToolFailure("The MCP server 'broken' cannot be reached.")
        return [ListedTool("search", None, self.schema)]

    async def call_tool(self, tenant: str, server: McpServer, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        raise NotImplementedError

    def caller(self, tenant: str, name: str) -> ToolCaller:
        async def call(arguments: Mapping[str, Any]) -> tuple[str, Any]:
            self.asked.append(arguments)
            return "", self.answer

        return call

    async def close(self) -> None:
        pass


def search(
    servers: McpServers,
    request: FileSearchRequest = REQUEST,
    queries: Any = ("gear",),
    tools: Mapping[str, str] | None = None,
    result_bytes: int = 10_000,
) -> HostedResult:
    """Search, and return the result."""
    results: list[HostedResult] = []

    async def test() -> None:
        given = tools or {"*": "docs/search"}
        files = FileSearch(request, given, servers, "alice", Numbers(), result_bytes)
        results.append(await files.run({"queries": list(queries)}))

    run(test())
    return results[0]


# What the model reads


@pytest.mark.slow
def test_files_are_found_by_a_real_server() -> None:
    async def test() -> None:
        async with connections({"docs": sdk_program()}) as servers:
            number = Numbers()
            number(Source("A page", "https://example.com"))
            request = FileSearchRequest(("vs_1",), max_num_results=2)
            files = FileSearch(request, {"vs_1": "docs/search"}, servers, "alice", number, 10_000)
            result = await files.run({"queries": ["gear"]})
        assert result.item == {
            "queries": ["gear"],
            "results": [
                {"score": 1.0, "attributes": {}, "file_id": "doc-0", "filename": "Manual 0", "text": "gear 0"},
                {"score": 0.5, "attributes": {}, "file_id": "doc-1", "filename": "Manual 1", "text": "gear 1"},
            ],
        }
        assert result.sources == (Source("Manual 0", None, "doc-0"), Source("Manual 1", None, "doc-1"))
        assert result.text == (
            "【2】 Manual 0\ngear 0\n\n【3】 Manual 1\ngear 1\n\n"
            "Cite what you use from these files: write the mark of the source, such as 【2】, right after it."
        )
        assert result.losses == []

    run(test())


def test_the_best_results_come_first_and_each_once() -> None:
    results = [
        {"id": "a", "text": "one", "score": 0.2},
        {"id": "b", "text": "two", "score": 0.9},
        {"id": "a", "text": "one", "score": 0.2},
        {"id": "c", "text": "three", "score": 0.05},
    ]
    found = search(Files({"results": results}), FileSearchRequest(("vs",), score_threshold=0.1))
    assert [(entry["file_id"], entry["score"]) for entry in found.item["results"]] == [("b", 0.9), ("a", 0.2)]


def test_results_without_a_score_are_scored_by_their_rank() -> None:
    results = [{"id": name, "text": f"text {name}"} for name in "abc"]
    results[1]["score"] = 0.9  # type: ignore[assignment]
    found = search(Files({"results": results}))
    assert [(entry["file_id"], entry["score"]) for entry in found.item["results"]] == [("a", 1.0), ("b", 0.9), ("c", 0.3333)]


def test_nothing_found_is_said() -> None:
    found = search(Files({"results": []}))
    assert (found.text, found.item["results"], found.sources) == ("Nothing was found.", [], ())


def test_what_exceeds_the_size_of_a_result_is_left_out_on_record() -> None:
    results = [{"id": str(number), "text": "x" * 400} for number in range(5)]
    found = search(Files({"results": results}), result_bytes=1000)
    assert len(found.item["results"]) == len(found.sources) == 2
    assert found.losses == ["file_search: the results were cut to 1000 bytes"]
    found = search(Files({"results": [{"id": "a", "text": "x" * 5000}]}), result_bytes=1000)
    assert len(found.text.encode()) < 1200
    assert found.losses == ["file_search: the results were cut to 1000 bytes"]


def test_a_server_that_fails_is_on_record_if_another_one_answers() -> None:
    tools = {"vs_1": "docs/search", "vs_2": "broken/search"}
    files = Files({"results": [{"id": "a", "text": "one"}]})
    found = search(files, FileSearchRequest(("vs_1", "vs_2")), tools=tools)
    assert len(found.item["results"]) == 1
    assert found.losses == ["file_search: a vector store could not be searched"]
    with pytest.raises(ToolFailure, match="'broken' cannot be reached"):
        search(files, FileSearchRequest(("vs_2",)), tools=tools)


def test_a_tool_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(ToolFailure, match="not there at the moment"):
        search(Files({}), tools={"*": "docs/other"})


@pytest.mark.parametrize("queries", [[], [1], ["", " "]])
def test_queries_that_cannot_be_searched_for_are_a_failure(queries: list[Any]) -> None:
    with pytest.raises(ToolFailure, match="queries"):
        search(Files({}), queries=queries)


@pytest.mark.slow
def test_a_failure_of_the_tool_itself_is_told() -> None:
    async def test() -> None:
        async with connections({"docs": sdk_program()}) as servers:
            failure = await failure_of(servers.caller("alice", "docs/fail")({}))
            assert str(failure) == "Error executing tool fail"
            with pytest.raises(ValueError, match="'nowhere/fail' is no tool of a configured MCP server"):
                servers.caller("alice", "nowhere/fail")

    run(test())


def test_stores_are_searched_by_their_tools() -> None:
    tools = {"a": "docs/search", "*": "wiki/search"}
    assert searchable(["a", "b", "c"], tools) == {"docs/search": ["a"], "wiki/search": ["b", "c"]}
    assert searchable(["b"], {"a": "docs/search"}) == {}


# How tools are asked


def schema(*required: str, **types: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}, "required": list(required)}


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (schema(query="string"), [{"query": "a"}, {"query": "b"}]),
        (schema(queries="array"), [{"queries": ["a", "b"]}]),
        (schema(q=["string", "null"], lang="string"), [{"q": "a"}, {"q": "b"}]),
        (schema("needle", needle="string", lang="string"), [{"needle": "a"}, {"needle": "b"}]),
        (schema(words="string"), [{"words": "a"}, {"words": "b"}]),
        (schema(query="string", top_k="integer"), [{"query": "a", "top_k": 20}, {"query": "b", "top_k": 20}]),
        (schema(queries="array", vector_store_ids="array"), [{"queries": ["a", "b"], "vector_store_ids": ["vs"]}]),
        (schema(queries="array", store_id="string"), [{"queries": ["a", "b"], "store_id": "vs"}]),
    ],
)
def test_a_search_fits_the_schema_of_the_tool(given: dict[str, Any], arguments: list[dict[str, Any]]) -> None:
    assert tool_arguments(given, ["a", "b"], ["vs"], FileSearchRequest(("vs",))).arguments == arguments


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"properties": []},
        schema(limit="integer"),
        schema(one="string", two="string"),
        schema("lang", query="string", lang="string"),
    ],
)
def test_a_tool_that_cannot_search_is_a_failure(given: dict[str, Any]) -> None:
    with pytest.raises(ToolFailure):
        tool_arguments(given, ["a"], ["vs"], REQUEST)


def test_filters_and_thresholds_are_carried_where_the_tool_takes_them() -> None:
    filters = {"type": "eq", "key": "year", "value": 2026}
    request = FileSearchRequest(("vs",), 5, filters, "default-2024-11-15", {"text_weight": 1}, 0.5)
    optional = {"anyOf": [{"type": "object"}, {"type": "null"}]}
    given = schema(query="string", score_threshold="number")
    given["properties"]["filters"] = optional
    calls = tool_arguments(given, ["a"], ["vs"], request)
    assert calls.arguments == [{"query": "a", "score_threshold": 0.5, "filters": filters}]
    assert calls.filtered
    assert [loss.split(": ")[1] for loss in calls.losses] == [
        "ranking_options.hybrid_search is not supported",
        "ranking_options.ranker is not supported",
    ]


def test_filters_hold_where_the_tool_does_not_know_them() -> None:
    results = [
        {"id": "a", "text": "one", "attributes": {"year": 2026}},
        {"id": "b", "text": "two", "attributes": {"year": 2020}},
        {"id": "c", "text": "three"},
    ]
    request = FileSearchRequest(("vs",), filters={"type": "gte", "key": "year", "value": 2025})
    found = search(Files({"results": results}), request)
    assert [entry["file_id"] for entry in found.item["results"]] == ["a"]
    assert found.losses == ["file_search: results without attributes do not pass the filters"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("eq", "a", 1), True),
        (("eq", "a", True), False),
        (("ne", "a", 2), True),
        (("ne", "missing", 2), False),
        (("gt", "a", 0), True),
        (("gt", "a", "0"), False),
        (("lt", "a", 1), False),
        (("lte", "a", 1), True),
        (("in", "b", ["x", "y"]), True),
        (("in", "b", "xyz"), False),
        (("nin", "b", ["y"]), True),
        (("nin", "b", ["x"]), False),
    ],
)
def test_a_comparison(condition: tuple[str, str, Any], expected: bool) -> None:
    kind, key, value = condition
    compared = {"type": kind, "key": key, "value": value}
    assert matches({"a": 1, "b": "x"}, compared) is expected
    assert matches({"a": 1, "b": "x"}, {"type": "and", "filters": [compared]}) is expected
    assert (
        matches({"a": 1, "b": "x"}, {"type": "or", "filters": [compared, {"type": "eq", "key": "c", "value": 0}]}) is expected
    )


# What is understood of their answers

EXPECTED = ("file-1", "a.md", "the text", 0.5, {"team": "blue", "old": False})


@pytest.mark.parametrize(
    "answer",
    [
        {
            "data": [
                {
                    "file_id": "file-1",
                    "filename": "a.md",
                    "score": 0.5,
                    "attributes": {"team": "blue", "old": False},
                    "content": [{"type": "text", "text": "the text"}],
                }
            ]
        },
        {
            "results": [
                {
                    "id": "file-1",
                    "title": "a.md",
                    "text": "the text",
                    "similarity": 0.5,
                    "metadata": {"team": "blue", "old": False, "nested": {}, "nan": float("nan")},
                }
            ]
        },
        {
            "result": [
                {
                    "id": "file-1",
                    "name": "a.md",
                    "snippet": "the text",
                    "score": 0.5,
                    "metadata": {"team": "blue", "old": False},
                }
            ]
        },
    ],
    ids=["vector store", "search", "list"],
)
def test_the_usual_forms(answer: Any) -> None:
    for found in (read_passages("", answer, "search"), read_passages(json.dumps(answer), None, "search")):
        assert [result[:5] for result in found] == [EXPECTED]


def test_other_forms_are_texts() -> None:
    assert [result.text for result in read_passages("Just a text.", None, "search")] == ["Just a text."]
    assert [result.text for result in read_passages("{not json", None, "search")] == ["{not json"]
    assert [result.text for result in read_passages("[" * 100_000, None, "search")] == ["[" * 100_000]
    assert read_passages(" ", None, "search") == []
    assert read_passages("", {"results": [1, None, ""]}, "search") == []
    found = read_passages("", ["one", "two"], "search")
    assert [(result.file_id, result.text) for result in found] == [("search#1", "one"), ("search#2", "two")]


def test_odd_values_are_left_out() -> None:
    entry = {"id": True, "title": "a\n" * 600, "text": 5, "score": "high", "attributes": [], "url": 7}
    (found,) = read_passages("", {"results": [entry]}, "search")
    assert len(found.filename) == 512
    assert found[2:] == ("", None, {}, None)
    many = {"results": [{"id": 1, "attributes": {str(n): "x" * 1000 for n in range(50)} | {"k" * 65: 1}}]}
    (found,) = read_passages("", many, "search")
    assert (found.file_id, len(found.attributes), len(str(found.attributes["0"]))) == ("1", 16, 512)


@pytest.mark.parametrize("levels", [1500, 100_000])
@pytest.mark.parametrize("nested", [lambda inner: {"data": inner}, lambda inner: [inner]], ids=["objects", "lists"])
def test_an_answer_of_any_depth_is_read(levels: int, nested: Callable[[Any], Any]) -> None:
    answer: Any = [{"id": "a", "text": "one"}]
    for _ in range(levels):
        answer = nested(answer)
    assert search(Files(answer)).text == "Nothing was found."
    entry = {"id": "a", "text": answer, "content": answer, "metadata": answer, "url": answer}
    (found,) = read_passages("", {"data": {"results": [entry]}}, "search")
    assert (found.file_id, found.text, found.attributes) == ("a", "", {})


def test_a_number_of_hundreds_of_digits_is_left_out() -> None:
    entry = {"id": "a", "text": "one", "score": 10**400, "metadata": {"size": 10**400, "year": 2026}}
    (found,) = read_passages("", [entry], "search")
    assert (found.score, found.attributes) == (None, {"year": 2026})


def test_passages_have_no_marks_of_citations_and_no_control_characters() -> None:
    entry = {"id": "a", "title": "a 【2】\x1b[2J", "text": "as 【1】 says\0"}
    found = search(Files({"results": [entry]}))
    assert found.text.startswith("【1】 a [2] [2J\nas [1] says\n")
    assert [passage.text for passage in read_passages("as 【1】 says", None, "search")] == ["as [1] says"]
