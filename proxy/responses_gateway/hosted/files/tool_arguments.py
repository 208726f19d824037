"""The arguments with which an MCP tool searches files, by the names in its input schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.wire.hosted import FileSearchRequest

# Names that tools use, the more usual first.
_QUERY = ("query", "q", "search_query", "question", "text", "search", "keywords", "input", "prompt")
_COUNT = ("max_num_results", "max_results", "num_results", "n_results", "top_k", "limit", "count", "k")
_FILTERS = ("filters", "filter")
_THRESHOLD = ("score_threshold", "min_score")
_STORE = ("vector_store_id", "store_id", "collection")


class SearchCalls(NamedTuple):
    """The arguments of each call that a search needs. `filtered`: the tool gets the filters. `losses`: what it does not get."""

    arguments: Sequence[dict[str, Any]]
    filtered: bool
    losses: Sequence[str]


def tool_arguments(
    schema: Mapping[str, Any], queries: Sequence[str], stores: Sequence[str], request: FileSearchRequest
) -> SearchCalls:
    """Return the calls of a tool with this input schema: one for all queries if it has an argument `queries`, otherwise one for
    each. Raises `ToolFailure` if it has no argument for a query, or needs others that are not known here."""
    members = schema.get("properties")
    properties: Mapping[str, Any] = members if isinstance(members, dict) else {}
    common: dict[str, Any] = {}
    _put(common, properties, _COUNT, request.max_num_results, "integer", "number")
    _put(common, properties, _THRESHOLD, request.score_threshold, "number")
    _put(common, properties, ("vector_store_ids",), list(stores), "array")
    if len(stores) == 1:
        _put(common, properties, _STORE, stores[0], "string")
    filtered = _put(common, properties, _FILTERS, request.filters, "object")
    losses = []
    if request.hybrid is not None:
        losses.append("file_search: ranking_options.hybrid_search is not supported")
    if request.ranker not in (None, "auto"):
        losses.append("file_search: ranking_options.ranker is not supported")
    if _accepts(properties.get("queries"), "array"):
        name = "queries"
        arguments = [{**common, name: list(queries)}]
    else:
        name = _query_name(schema, properties)
        arguments = [{**common, name: query} for query in queries]
    required = schema.get("required")
    if isinstance(required, list) and any(other not in arguments[0] for other in required):
        raise ToolFailure("The tool that searches these files needs other arguments than a search has.")
    return SearchCalls(arguments, filtered, losses)


def _query_name(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    texts = [name for name, property_ in properties.items() if _accepts(property_, "string")]
    for name in _QUERY:
        if name in texts:
            return name
    required = schema.get("required")
    needed = [name for name in texts if isinstance(required, list) and name in required]
    for names in (needed, texts):
        if len(names) == 1:
            return names[0]
    raise ToolFailure("The tool that searches these files has no argument for a query.")


def _put(arguments: dict[str, Any], properties: Mapping[str, Any], names: Sequence[str], value: Any, *types: str) -> bool:
    """Give a value to the first argument of one of these names that accepts it. Return whether there is one."""
    for name in names:
        if value is not None and _accepts(properties.get(name), *types):
            arguments[name] = value
            return True
    return False


def _accepts(property_: Any, *types: str) -> bool:
    """Tell whether an argument may have a type, by its own or by an alternative."""
    if not isinstance(property_, dict):
        return False
    own = property_.get("type")
    alternatives = property_.get("anyOf")
    if isinstance(alternatives, list) and any(_accepts(alternative, *types) for alternative in alternatives):
        return True
    return any(name in types for name in (own if isinstance(own, list) else [own]))
