"""The options of a translation: what it needs to know about its request, its client and the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from proxy.stream.clients import STANDARD, Client
from proxy.stream.markup import Markup
from proxy.stream.tokens.meter import Encode
from proxy.wire.tools import Grammar, ToolTable

# Returns the Unix time in seconds.
Clock: TypeAlias = Callable[[], float]
# Takes a text, returns what stands in `encrypted_content` for it.
SealText: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All that a translation needs to know about its request."""

    response_id: str  # `resp_` and letters or digits, unique
    model: str
    echo: Mapping[str, Any] = field(default_factory=dict)  # response fields that repeat the request
    tools: ToolTable = field(default_factory=dict)
    allowed: frozenset[str] | None = None  # chat names that may be called; None: any
    max_calls: int | None = None
    grammars: Mapping[str, Grammar] = field(default_factory=dict)  # of custom tools, by chat name
    judged: bool = False  # the inputs of the tools with a grammar wait for a verdict, see `deferred_calls.py`
    call_ids: frozenset[str] = frozenset()  # call ids of the history, never given again
    summary: bool = False  # mirror reasoning into a summary
    seal: SealText | None = None  # makes the encrypted content of reasoning
    compaction: SealText | None = None  # the answer becomes one sealed `compaction` item, see `compaction.py`
    logprobs: bool = False
    reasoning_event: str = "response.reasoning_text"
    stream_id: str | None = None  # the last member of every event (WebSocket)
    client: Client = STANDARD
    markup: Markup | None = None  # reads the markup in the text; one for each stream
    encode: Encode | None = None  # the model's tokenizer, to count where the backend does not

    def grammar_of(self, name: str, namespace: str | None) -> Grammar | None:
        """Return the grammar of the client's custom tool of this name."""
        for chat_name, grammar in self.grammars.items():
            target = self.tools[chat_name]
            if (target.name, target.namespace) == (name, namespace):
                return grammar
        return None
