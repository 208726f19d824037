"""Read the `file_search` tool of a request."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from responses_gateway.request.fields import Object, missing, quote, wrong_type
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted import DEFAULT_RESULTS, FileSearchRequest
from responses_gateway.wire.requests import Open, Probability, TypedPart

_MOST_STORES = 10
_MOST_RESULTS = 50
_COMPARISONS = frozenset({"eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"})
_COMPOUNDS = frozenset({"and", "or"})
_DEEPEST = 8


class _Ranking(TypedPart):
    ranker: str | None = None
    hybrid_search: Open | None = None
    score_threshold: Probability | None = None


class _FileSearch(TypedPart):
    vector_store_ids: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=_MOST_STORES)]
    max_num_results: Annotated[int, Field(ge=1, le=_MOST_RESULTS)] | None = None
    filters: Open | None = None
    ranking_options: _Ranking | None = None


def read_file_search(tool: Object, path: str) -> FileSearchRequest:
    """Read a `file_search` tool. Raises `ApiError` 400."""
    declared = _FileSearch.read(tool, path)
    if declared.filters is not None:
        _check_filter(declared.filters, f"{path}.filters", 0)
    ranking = declared.ranking_options or _Ranking()
    return FileSearchRequest(
        stores=tuple(dict.fromkeys(declared.vector_store_ids)),
        max_num_results=declared.max_num_results or DEFAULT_RESULTS,
        filters=declared.filters,
        ranker=ranking.ranker,
        hybrid=ranking.hybrid_search,
        score_threshold=ranking.score_threshold,
    )


def _check_filter(value: Any, param: str, depth: int) -> None:
    if not isinstance(value, dict):
        raise wrong_type(param, "an object")
    if depth == _DEEPEST:
        raise invalid_request(f"'{param}' is nested too deeply.", param, "invalid_value")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _COMPARISONS | _COMPOUNDS:
        message = f"Invalid value: {quote(kind)}. A filter compares, or is 'and' or 'or'."
        raise invalid_request(message, f"{param}.type", "invalid_value")
    if kind in _COMPARISONS:
        if not isinstance(value.get("key"), str):
            raise wrong_type(f"{param}.key", "a string")
        if "value" not in value:
            raise missing(f"{param}.value")
        return
    members = value.get("filters")
    if not isinstance(members, list) or not members:
        raise wrong_type(f"{param}.filters", "a list of filters")
    for index, member in enumerate(members):
        _check_filter(member, f"{param}.filters[{index}]", depth + 1)
