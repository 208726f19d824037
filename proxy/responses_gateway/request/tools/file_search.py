"""Read the `file_search` tool of a request."""

from __future__ import annotations

from typing import Any

from responses_gateway.request.fields import Object, missing, optional_object, optional_text, quote, wrong_type
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted import DEFAULT_RESULTS, FileSearchRequest

_MOST_STORES = 10
_MOST_RESULTS = 50
_COMPARISONS = frozenset({"eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"})
_COMPOUNDS = frozenset({"and", "or"})
_DEEPEST = 8


def read_file_search(tool: Object, path: str) -> FileSearchRequest:
    """Read a `file_search` tool. Raises `ApiError` 400."""
    filters = optional_object(tool, "filters", path)
    if filters is not None:
        _check_filter(filters, f"{path}.filters", 0)
    ranking = optional_object(tool, "ranking_options", path) or {}
    return FileSearchRequest(
        stores=_stores(tool, path),
        max_num_results=_max_num_results(tool, path),
        filters=filters,
        ranker=optional_text(ranking, "ranker", f"{path}.ranking_options"),
        hybrid=optional_object(ranking, "hybrid_search", f"{path}.ranking_options"),
        score_threshold=_score_threshold(ranking, f"{path}.ranking_options.score_threshold"),
    )


def _stores(tool: Object, path: str) -> tuple[str, ...]:
    ids = tool.get("vector_store_ids")
    param = f"{path}.vector_store_ids"
    if ids is None or ids == []:
        raise missing(param)
    if not isinstance(ids, list):
        raise wrong_type(param, "a list")
    if len(ids) > _MOST_STORES:
        raise invalid_request(f"'{param}' has more than {_MOST_STORES} ids.", param, "invalid_value")
    for index, store in enumerate(ids):
        if not isinstance(store, str) or not store:
            raise wrong_type(f"{param}[{index}]", "a string")
    return tuple(dict.fromkeys(ids))


def _max_num_results(tool: Object, path: str) -> int:
    value = tool.get("max_num_results")
    param = f"{path}.max_num_results"
    if value is None:
        return DEFAULT_RESULTS
    if type(value) is not int:
        raise wrong_type(param, "an integer")
    if not 1 <= value <= _MOST_RESULTS:
        raise invalid_request(f"'{param}' has to be between 1 and {_MOST_RESULTS}.", param, "invalid_value")
    return value


def _score_threshold(ranking: Object, param: str) -> float | None:
    value = ranking.get("score_threshold")
    if value is None:
        return None
    if type(value) not in (int, float):
        raise wrong_type(param, "a number")
    if not 0 <= value <= 1:
        raise invalid_request(f"'{param}' has to be between 0 and 1.", param, "invalid_value")
    return float(value)


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
