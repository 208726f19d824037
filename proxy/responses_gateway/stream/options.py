"""What a translation needs to know about its request, its client and the settings. Here is the one table of client quirks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from responses_gateway.parsers import ThoughtTokens
from responses_gateway.stream.items.hosted import HostedOptions
from responses_gateway.stream.outcomes import EarlyEnds
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.sampling import CallRecorder
from responses_gateway.stream.tokens.meter import Encode
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.stream.writer.interface import AnswerForm, AnswerStream, ReasoningForm, StreamStart
from responses_gateway.stream.writer.responses import AtEnd, ResponseObject, ResponseStream, ResponsesWriter
from responses_gateway.wire.tools import Grammar, ToolTable


class Client(NamedTuple):
    """How a client deviates from what the specification expects of one."""

    name: str
    runs_cut_calls: bool = False  # runs every call that reaches `output_item.done`, whatever the item's status
    # Keeps every text that reaches `output_item.done`, although it repeats the request of a failed response: the user would
    # read a broken answer and then the whole one.
    keeps_broken_text: bool = False
    # Shows the message of a 400 only under the code `invalid_prompt`; under others the user reads raw JSON.
    reads_invalid_prompt: bool = False
    drops_refusals: bool = False  # drops a message that has a refusal part
    # Puts the message of the answer in the place of its session, even where there is none: it asked for a summary.
    needs_message: bool = False
    # Takes the content of a thought for text of the answer, or shows what stands in both its places twice: it gets a summary.
    misreads_thoughts: bool = False
    # Sends a thought back as text of the answer unless it came encrypted, which it does not ask for.
    needs_sealed_thoughts: bool = False
    # Asks again behind a 429 only if that says when; others do by themselves, and wait longer each time.
    needs_wait: bool = False


STANDARD = Client("standard")
CODEX = Client(
    "codex", runs_cut_calls=True, keeps_broken_text=True, reads_invalid_prompt=True, drops_refusals=True, needs_wait=True
)
SUMMARY_READER = Client("summary reader", misreads_thoughts=True)
QWEN_CODE = Client("qwen code", misreads_thoughts=True, needs_sealed_thoughts=True)
# The headers by which clients are recognised, besides the `User-Agent`.
CLIENT_HEADERS = ("originator", "x-codex-window-id", "x-initiator", "agent-framework-version", "baml-original-url")
# How other agents begin their `User-Agent`: Claude Code, opencode, pi, the Agents SDK, the SDKs that agents are made with. What
# uses the AI SDK may write its own name before.
_AGENTS = re.compile(r"(?:claude-cli|opencode|pi|Agents|(?:Async)?(?:OpenAI|Anthropic))/|.{0,200}\bai-sdk/")


def recognise(headers: Mapping[str, str]) -> Client:
    """Return the client behind a request. Codex names itself in `originator` (`codex_exec`), or the program that it is in.
    GitHub Copilot's CLI (`x-initiator`), Microsoft's Agent Framework and BAML are known by headers that they alone send.
    Beginnings are cut out and compared, because each request is looked at here, and a method costs more."""
    if "x-codex-window-id" in headers or headers.get("originator", "")[:5] == "codex":
        return CODEX
    if "x-initiator" in headers or "agent-framework-version" in headers or "baml-original-url" in headers:
        return SUMMARY_READER
    return QWEN_CODE if _agent_of(headers)[:9] == "QwenCode/" else STANDARD


def reads_whole_calls(headers: Mapping[str, str]) -> bool:
    """Tell whether a client reads the arguments of a call only when they are whole, so that they may be held back until then:
    agents do."""
    return recognise(headers) is CODEX or _AGENTS.match(_agent_of(headers)) is not None


def _agent_of(headers: Mapping[str, str]) -> str:
    """Return the `User-Agent`. A record has the names of headers in small letters."""
    name = "User-Agent" if "User-Agent" in headers else "user-agent"
    return headers.get(name, "")


# Returns the Unix time in seconds.
Clock: TypeAlias = Callable[[], float]
# Takes a text, returns what stands in `encrypted_content` for it.
SealText: TypeAlias = Callable[[str], str]


class StreamOptions(msgspec.Struct, frozen=True):
    """All that a translation needs to know about its request."""

    response_id: str  # `resp_` and letters or digits, unique
    model: str
    echo: Mapping[str, Any] = msgspec.field(default_factory=dict)  # response fields that repeat the request
    tools: ToolTable = msgspec.field(default_factory=dict)
    calls: CallRules | None = None  # how its calls are checked and repaired; None: they are not
    allowed: frozenset[str] | None = None  # chat names that may be called; None: any
    allowed_later: frozenset[str] | None = None  # the same from the model's second turn on
    max_calls: int | None = None
    parallel_calls: bool = True  # else one call in each answer of the model
    grammars: Mapping[str, Grammar] = msgspec.field(default_factory=dict)  # of custom tools, by chat name
    judged: bool = False  # the inputs of the tools with a grammar wait for a verdict, see `lifecycle/needs.py`
    call_ids: frozenset[str] = frozenset()  # call ids of the history, never given again
    summary: bool = False  # mirror reasoning into a summary
    seal: SealText | None = None  # makes the encrypted content of reasoning
    compaction: SealText | None = None  # the answer becomes one sealed `compaction` item, see `items/text_items.py`
    at_end: tuple[AtEnd, ...] = ()  # add to the response when it ends
    discarded: bool = False  # nothing of the answer is sent, the response is completed without items
    hosted: HostedOptions | None = None  # of a request that declares hosted tools which can be run
    logprobs: bool = False
    reasoning_event: str = "response.reasoning_text"
    continuable: bool = False  # another backend may continue the answer, see `ledger.py`
    holds_text: bool = False  # the backend holds text back, because it looks for stop strings
    early_ends: EarlyEnds | None = None  # how answers are judged at their ends; None: not at all
    stream_id: str | None = None  # the last member of every event (WebSocket)
    client: Client = STANDARD
    form: AnswerForm | None = None  # None: of the Responses API, as `echo`, `summary` and the names of events say
    markup: Markup | LeadingThoughtDetector | None = None  # reads the markup in the text; one for each stream
    recorder: CallRecorder | None = None  # takes what the model samples, token by token; one for each stream
    start: object = None  # how it reads the answer, as plain data, for who continues it
    encode: Encode | None = None  # the model's tokenizer, to count where the backend does not
    thoughts: ThoughtTokens | None = None  # by which the tokens of reasoning are counted in ids
    decode: Callable[[Sequence[int]], str] | None = None  # the same, for tokens of which the backend shows nothing

    @property
    def hides_answer(self) -> bool:
        """Whether the client gets nothing of what the model writes as the model wrote it."""
        return self.discarded or self.compaction is not None

    @property
    def goes_on(self) -> bool:
        """Whether the model is asked to go on where it ends early."""
        return self.early_ends is not None and self.early_ends.continued != "off"

    def new_stream(self, start: StreamStart) -> AnswerStream:
        """Return the stream of the response, of which nothing is written yet."""
        if self.form is not None:
            return self.form.stream(start)
        form: ReasoningForm = "summary" if self.client.misreads_thoughts else "both" if self.summary else "content"
        writer = ResponsesWriter(self.stream_id, start.clock, reasoning_event=self.reasoning_event, reasoning_as=form)
        response = ResponseObject(start.response_id, int(start.created), start.model, self.echo)
        return ResponseStream(response, writer, self.at_end)

    def grammar_of(self, name: str, namespace: str | None) -> Grammar | None:
        """Return the grammar of the client's custom tool of this name."""
        for chat_name, grammar in self.grammars.items():
            target = self.tools[chat_name]
            if (target.name, target.namespace) == (name, namespace):
                return grammar
        return None
