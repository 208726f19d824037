"""What a request asks of a search in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_RESULTS = 20


@dataclass(frozen=True, slots=True)
class FileSearchRequest:
    """A `file_search` tool. `stores`: the ids of the vector stores; `filters`: conditions for the attributes of files, as the
    request has them; `ranker`: a name, where one is asked for; `hybrid`: weights of a hybrid search; `score_threshold`: the
    least score of a result."""

    stores: tuple[str, ...]
    max_num_results: int = DEFAULT_RESULTS
    filters: Mapping[str, Any] | None = None
    ranker: str | None = None
    hybrid: Mapping[str, Any] | None = None
    score_threshold: float | None = None
