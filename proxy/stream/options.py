"""What a translation of a stream needs to know, and from whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.stream.clients import STANDARD, Client
from proxy.stream.markup import Markup
from proxy.stream.tokens.meter import Encode
from proxy.wire.tools import Grammar, ToolTable

#: Clock: Unix time in seconds.
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All that a translation needs to know about its request."""

    response_id: str  #: `resp_` and letters or digits, unique
    model: str
    echo: Mapping[str, Any] = field(default_factory=dict)  #: response fields that repeat the request
    tools: ToolTable = field(default_factory=dict)
    allowed: frozenset[str] | None = None  #: chat names that may be called; None: any
    max_calls: int | None = None
    grammars: Mapping[str, Grammar] = field(default_factory=dict)  #: of custom tools, by chat name
    judged: bool = False  #: the inputs of these tools wait for a verdict, see `judged.py`
    call_ids: frozenset[str] = frozenset()  #: call ids of the history, never given again
    summary: bool = False  #: mirror reasoning into a summary
    seal: Callable[[str], str] | None = None  #: makes the encrypted content of reasoning
    logprobs: bool = False
    reasoning_event: str = "response.reasoning_text"
    client: Client = STANDARD
    markup: Markup | None = None  #: reads the markup in the text; one for each stream
    compaction: Callable[[str], str] | None = None  # seals the summary that the answer is
    stream_id: str | None = None  # the last member of every event
    encode: Encode | None = None  #: the model's tokenizer, to count where the backend does not
