"""What the request and the client say about the items of a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.wire.tools import ToolTable


@dataclass(frozen=True, slots=True)
class ItemOptions:
    """What the request and the client say about the items."""

    token: str  #: makes the ids of this response's items unique; letters and digits
    tools: ToolTable = field(default_factory=dict)
    allowed: frozenset[str] | None = None  #: chat names that may be called; None: any
    max_calls: int | None = None
    call_ids: frozenset[str] = frozenset()  #: call ids of the history, never given again
    mirror_summary: bool = False
    reasoning_event: str = "response.reasoning_text"
    seal: Callable[[str], str] | None = None  #: makes the encrypted content of reasoning
    judged: frozenset[str] = frozenset()  #: chat names of custom tools whose input waits for a verdict (see judged.py)
    omit_cut_calls: bool = False  #: a cut call gets no done
    omit_broken_text: bool = False  #: nor does a text, when the client will repeat the request
