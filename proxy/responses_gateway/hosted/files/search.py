"""`file_search`: the vector stores of a request are searched by the MCP tools that the operator assigned to them."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from responses_gateway.hosted.files.tool_arguments import tool_arguments
from responses_gateway.hosted.interface import HostedResult, Source, ToolFailure
from responses_gateway.hosted.mcp.search_results import read_results
from responses_gateway.hosted.mcp.servers import McpServers
from responses_gateway.hosted.result_text import clean_line, truncate, untrusted_text
from responses_gateway.wire.hosted import FileSearchRequest
from responses_gateway.wire.mcp import McpServer

ALL_STORES = "*"
_MOST_QUERIES = 8
_LONGEST_QUERY = 2000
# The filters of a request that compare an attribute by its order.
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


class FilePassage(NamedTuple):
    """One result: a passage of a file."""

    file_id: str
    filename: str
    text: str
    score: float | None
    attributes: Mapping[str, str | float | bool]
    url: str | None = None

    def as_item(self, rank: int) -> dict[str, Any]:
        """Return the result as an entry of a `file_search_call` item. Without a score it gets the reciprocal of its rank,
        because a client requires one."""
        return {
            "score": round(1 / rank, 4) if self.score is None else self.score,
            "attributes": dict(self.attributes),
            "file_id": self.file_id,
            "filename": self.filename,
            "text": self.text,
        }


def read_passages(text: str, structured: Any, source: str) -> list[FilePassage]:
    """Return the passages in the answer of a tool; a text without a list of results is one passage. `source` names what has no
    name: the tool."""
    results = next(read_results(text, structured), None)
    if results is None:
        return [FilePassage(source, source, untrusted_text(text.strip()), None, {})] if text.strip() else []
    passages: list[FilePassage] = []
    for number, result in enumerate(results, 1):
        file_id = result.id or result.title or f"{source}#{number}"
        filename = clean_line(result.title or result.id or source)
        passages.append(
            FilePassage(file_id, filename, untrusted_text(result.text), result.score, result.attributes, result.url or None)
        )
    return passages


def searchable(stores: Iterable[str], tools: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the stores that can be searched, by the tool that does so (`label/tool`). `tools` are those of the settings."""
    by_tool: dict[str, list[str]] = {}
    for store in stores:
        tool = tools.get(store) or tools.get(ALL_STORES)
        if tool is not None:
            by_tool.setdefault(tool, []).append(store)
    return by_tool


@dataclass(frozen=True, slots=True)
class FileSearch:
    """The `file_search` tool of one request. `tools` are those of the settings, by store; `number` gives a source its number in
    the response; the text has at most `result_bytes`."""

    request: FileSearchRequest
    tools: Mapping[str, str]
    servers: McpServers
    tenant: str
    number: Callable[[Source], int]
    result_bytes: int

    async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
        """Search for `queries`. Raises `ToolFailure` if no store could be searched."""
        queries = _queries(arguments)
        searches = [self._search(tool, stores, queries) for tool, stores in searchable(self.request.stores, self.tools).items()]
        answers = await asyncio.gather(*searches, return_exceptions=True)
        passages: list[FilePassage] = []
        losses: list[str] = []
        failure: ToolFailure | None = None
        for answer in answers:
            if isinstance(answer, ToolFailure):
                failure = answer
                losses.append("file_search: a vector store could not be searched")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                passages += answer[0]
                losses += answer[1]
        if failure is not None and not passages:
            raise ToolFailure(str(failure), {"queries": list(queries)})
        return self._result(queries, _best(passages, self.request), list(dict.fromkeys(losses)))

    async def _search(self, name: str, stores: Sequence[str], queries: Sequence[str]) -> tuple[list[FilePassage], list[str]]:
        """Return what one tool found, and what of the request it does not support."""
        label, _, tool_name = name.partition("/")
        listed = await self.servers.list_tools(self.tenant, McpServer(label))
        tool = next((tool for tool in listed if tool.name == tool_name), None)
        if tool is None:
            raise ToolFailure("The tool that searches these files is not there at the moment.")
        calls = tool_arguments(tool.input_schema, queries, stores, self.request)
        call = self.servers.caller(self.tenant, name)
        passages: list[FilePassage] = []
        for answer in await asyncio.gather(*(call(arguments) for arguments in calls.arguments), return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            passages += read_passages(*answer, tool_name)
        losses = list(calls.losses)
        filters = self.request.filters
        if filters is not None and not calls.filtered:
            kept = [result for result in passages if matches(result.attributes, filters)]
            if any(not result.attributes for result in passages):
                losses.append("file_search: results without attributes do not pass the filters")
            passages = kept
        return passages, losses

    def _result(self, queries: Sequence[str], passages: Sequence[FilePassage], losses: list[str]) -> HostedResult:
        sources: list[Source] = []
        blocks: list[str] = []
        room = self.result_bytes
        was_cut = False
        for result in passages:
            text = f"{result.filename}\n{result.text}"
            if blocks and len(text.encode("utf-8", "replace")) > room:
                break  # a passage is shown whole, unless it is the first one
            text, was_cut = truncate(text, room)
            source = Source(result.filename, result.url, result.file_id)
            sources.append(source)
            blocks.append(f"【{self.number(source)}】 {text}")
            room -= len(text.encode("utf-8", "replace"))
        listed = passages[: len(blocks)]
        if was_cut or len(listed) < len(passages):
            losses.append(f"file_search: the results were cut to {self.result_bytes} bytes")
        text = "\n\n".join(blocks) or "Nothing was found."
        if blocks:
            mark = blocks[0].partition(" ")[0]
            text += f"\n\nCite what you use from these files: write the mark of the source, such as {mark}, right after it."
        item = {"queries": list(queries), "results": [result.as_item(rank) for rank, result in enumerate(listed, 1)]}
        return HostedResult(text, item, tuple(sources), losses=losses)


def _queries(arguments: Mapping[str, Any]) -> list[str]:
    argument = arguments.get("queries", arguments.get("query"))
    queries = [argument] if isinstance(argument, str) else argument
    if not isinstance(queries, list) or not queries or not all(isinstance(query, str) for query in queries):
        raise ToolFailure("`queries` has to be a list of texts.", {"queries": []})
    distinct = [query for query in dict.fromkeys(query.strip()[:_LONGEST_QUERY] for query in queries) if query]
    if not distinct:
        raise ToolFailure("`queries` is empty: say what to search for.", {"queries": []})
    return distinct[:_MOST_QUERIES]


def _best(passages: Sequence[FilePassage], request: FileSearchRequest) -> list[FilePassage]:
    """Return the results to show: each passage once, good enough, the best first where scores tell."""
    once = {(result.file_id, result.text): result for result in passages}
    least = request.score_threshold or 0.0
    kept = [result for result in once.values() if result.score is None or result.score >= least]
    if all(result.score is not None for result in kept):
        kept.sort(key=lambda result: -(result.score or 0.0))
    return kept[: request.max_num_results]


def matches(attributes: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Tell whether attributes fulfil a condition that was checked when it was read. A file without the attribute does not, so
    that nothing is shown that was to be kept out."""
    kind = condition["type"]
    if kind == "and":
        return all(matches(attributes, member) for member in condition["filters"])
    if kind == "or":
        return any(matches(attributes, member) for member in condition["filters"])
    if condition["key"] not in attributes:
        return False
    return _compare(kind, attributes[condition["key"]], condition["value"])


def _compare(kind: str, value: Any, wanted: Any) -> bool:
    if kind == "eq":
        return _same(value, wanted)
    if kind == "ne":
        return not _same(value, wanted)
    if kind in ("in", "nin"):
        among = isinstance(wanted, list) and any(_same(value, entry) for entry in wanted)
        return among is (kind == "in")
    try:
        return _ORDERS[kind](value, wanted)
    except TypeError:
        return False


def _same(value: Any, wanted: Any) -> bool:
    """Compare values; true is not 1."""
    return bool(value == wanted) and isinstance(value, bool) is isinstance(wanted, bool)
