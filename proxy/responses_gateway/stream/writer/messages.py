"""The events of the Messages API: what an answer consists of, as content blocks, and the message around them.

An event is `event: TYPE`, `data: {"type": TYPE, ...}` and a blank line. Those of a block: `content_block_start` with its text
or input empty, deltas, `content_block_stop`. One block is open at a time; clients read its text in the deltas alone.

A block that is cut is not stopped at once: its stop, and all that would follow, is kept back until it is known how the message
ends. In one that failed the block stays open and nothing follows it, so that no client runs half a call or takes half a text
for a whole one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.stream.writer.interface import (
    AnswerStream,
    CallKind,
    EndedText,
    EventWriter,
    ItemStatus,
    Outcome,
    Phase,
    Place,
    Status,
    StreamStart,
    TextKind,
    call_begun,
    extra_member,
    logprobs_json,
    message,
    message_part,
    no_clock,
    reasoning,
)
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.json_text import json_text, member_json, quote, read_object, sendable
from responses_gateway.wire.messages import SIGNATURE, Thinking, error_body, for_client, signed
from responses_gateway.wire.search_results import SERVER_TOOL, as_input, cited, fetched_page, search_error, search_results
from responses_gateway.wire.tools import ToolTarget

_TOOL = "toolu_"
# The operation of a web search -> the server tool that clients know it as.
_WEB_TOOLS = {"open_page": "web_fetch", "find_in_page": "web_fetch"}

# All of a delta event up to its text: the number of its block, its type, and the name of the text.
_DELTA_HEAD = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
# An event that may stand anywhere.
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_NOTHING_USED = Usage(0, 0)
_WINDOW_MARGIN = 2  # tokens of the context that servers leave empty


class MessagesWriter(EventWriter):
    """The content blocks of a message that is being written. `calls` counts those of the client's tools, `web_requests` those
    of the gateway's, by the name of the tool."""

    __slots__ = ("_block_open", "_blocks", "_excerpts", "_kept", "_results", "_thinking", "calls", "refused", "web_requests")

    def __init__(self, clock: Callable[[], float] = no_clock, *, thinking: Thinking) -> None:
        """Begin a message."""
        super().__init__(clock)
        self._thinking = thinking
        self._blocks = 0  # how many have begun
        self._block_open = False
        self._kept: list[bytes] | None = None  # events behind a block that was cut
        self._excerpts: dict[str, str] = {}  # of the pages that may be cited, by their URLs
        self._results: dict[str, list[str]] = {}  # the blocks of hosted calls, by the id of the item
        self.calls = 0
        self.web_requests: dict[str, int] = {}
        self.refused = False

    def blank(self) -> MessagesWriter:
        """Return a writer that makes the same items, for a stream that nobody gets."""
        return MessagesWriter(thinking=self._thinking)

    # ---- events --------------------------------------------------------------------------------------------------------

    def write(self, kind: str, fields: str = "") -> None:
        """Append the next event; `fields` are its JSON members, each with a leading comma."""
        event = f'event: {kind}\ndata: {{"type":"{kind}"{fields}}}\n\n'.encode("utf-8", "replace")
        (self.events if self._kept is None else self._kept).append(event)
        self.next_number += 1

    def _start_block(self, block: str) -> None:
        """Append the start of the next block, given as JSON."""
        self.write("content_block_start", f',"index":{self._blocks},"content_block":{block}')
        self._blocks += 1
        self._block_open = True

    def _stop_block(self) -> None:
        if self._block_open:
            self.write("content_block_stop", f',"index":{self._blocks - 1}')
            self._block_open = False

    def _write_block_delta(self, kind: str, member: str, value: str) -> None:
        self.write("content_block_delta", f',"index":{self._blocks - 1},"delta":{{"type":"{kind}","{member}":{value}}}')

    def _end_block(self, status: ItemStatus) -> None:
        """Stop the open block. If it is cut, that and what follows waits until it is known how the message ends."""
        if status == "incomplete" and self._kept is None:
            self._kept = []
        self._stop_block()

    def end(self, *, failed: bool) -> None:
        """Write what was kept back, unless the message has failed. A hidden thought is the text of an answer that has none."""
        kept = self._kept
        self._kept = None
        if failed:
            return
        self.events += kept or ()
        if not self._blocks and (thought := self._hidden_thought()):
            self.repairs["thought_as_text"] += 1
            self._start_block('{"type":"text","text":""}')
            self._write_block_delta("text_delta", "text", quote(thought))
            self._stop_block()

    def _hidden_thought(self) -> str:
        """Return the thought of an answer of which nothing else came."""
        items = map(_decoded, self.done) if self._thinking == "hidden" else ()
        return "\n\n".join([_text_of(item) for item in items if item["type"] == "reasoning"])

    # ---- thoughts and text ---------------------------------------------------------------------------------------------

    def open_text(self, kind: TextKind, item_id: str, phase: Phase = "") -> Place:
        """Start the block; there is none for a thought that is hidden."""
        place = Place(kind, item_id, self._begin(), phase=phase)
        if kind != "reasoning":
            self.refused = self.refused or kind == "refusal"
            self._start_block('{"type":"text","text":""}')
            place.head = _DELTA_HEAD % (self._blocks - 1, b"text_delta", b"text")
        elif self._thinking == "hidden":
            self.repairs["thought_hidden"] += 1
        else:
            self._start_block('{"type":"thinking","thinking":"","signature":""}')
            if self._thinking == "shown":
                place.head = _DELTA_HEAD % (self._blocks - 1, b"thinking_delta", b"thinking")
        return place

    def delta(self, place: Place, quoted: bytes) -> bytes:
        """Return the delta event; none for what is not shown, or kept back."""
        event = b"%b%b}}\n\n" % (place.head, quoted) if place.head else b""
        if self._kept is None:
            return event
        self._kept.append(event)
        return b""

    def write_logprobs_delta(self, place: Place, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """Write the text alone: the protocol has no log probabilities."""
        self.write_delta(place, text)

    def annotate(self, place: Place, number: int, annotation: Mapping[str, Any]) -> None:
        """Write the source of what stands before in the block."""
        if annotation["type"] == "url_citation":
            self._write_block_delta("citations_delta", "citation", json_text(self._cited(annotation)))

    def close_text(self, place: Place, ended: EndedText) -> None:
        """Stop the block; a thought has its signature before that, with the details that the server wants back."""
        if place.kind == "reasoning":
            self._count_deltas("thinking_delta", ended.deltas)
            self.characters["reasoning"] += len(ended.text)
            in_json = quote(ended.text)
            record = reasoning(place.item_id, ended.status, in_json, ended.sealed, ended.details)
            if ended.status == "incomplete" and self._kept is None:
                self._kept = []
            if self._block_open:
                self._write_block_delta("signature_delta", "signature", quote(signed(SIGNATURE, ended.details)))
        else:
            refused = place.kind == "refusal"
            self._count_deltas("text_delta", ended.deltas)
            self.characters["refusal" if refused else "text"] += len(ended.text)
            kind: TextKind = "refusal" if refused else "output_text"
            entries = logprobs_json(ended.logprobs) if ended.logprobs else "[]"
            part = message_part(kind, quote(ended.text), entries, ended.annotations)
            record = message(place.item_id, ended.status, part, place.phase)
        self._end_block(ended.status)
        self._count("reasoning" if place.kind == "reasoning" else "message", place.index, record)

    def write_details(self, item_id: str, details: str, sealed: str | None) -> None:
        """Write the block of a thought without a text: the details are in its signature."""
        place = self.open_text("reasoning", item_id)
        if self._block_open:
            self._write_block_delta("signature_delta", "signature", quote(signed(SIGNATURE, details)))
        self._end_block("completed")
        record = reasoning(item_id, "completed", "", sealed, details)
        self._count("reasoning", place.index, record)

    # ---- calls of the client's tools -----------------------------------------------------------------------------------

    def open_call(self, kind: CallKind, item_id: str, call_id: str, target: ToolTarget, extra: str = "") -> Place:
        """Start the block. Its id is made of that of the item, since clients lose calls whose id was used in any earlier answer
        and backends count theirs from 0 in each."""
        tool_id = _own_id(_TOOL, item_id)
        place = Place(kind, item_id, self._begin(), begun=call_begun(kind, item_id, tool_id, target), extra=extra)
        self._start_block(
            f'{{"type":"tool_use","id":"{tool_id}","name":{quote(target.name)},"input":{{}}{extra_member(extra)}}}'
        )
        if kind == "function_call":  # the input of the others is no JSON: it is written when it is whole
            place.head = _DELTA_HEAD % (self._blocks - 1, b"input_json_delta", b"partial_json")
        self.calls += 1
        return place

    def close_call(
        self, place: Place, status: ItemStatus, text: str, *, deltas: int, plain: bool = False, extra: str = ""
    ) -> None:
        """Stop the block."""
        self._count_deltas("input_json_delta", deltas)
        if place.kind == "custom_tool_call" and status == "completed":
            self._write_block_delta("input_json_delta", "partial_json", quote(json_text({"input": text})))
        self._end_block(status)
        late = extra if extra != place.extra and self._thinking != "hidden" else ""
        if extra != place.extra and not late:
            self.repairs["extra_content_dropped"] += 1
        member = "arguments" if place.kind == "function_call" else "input"
        member_json = extra_member(place.extra)
        self._count(place.kind, place.index, f'{place.begun}{member_json},"{member}":{quote(text)},"status":"{status}"}}')
        if late:  # an item of its own, whose block has it in its signature
            by_call = f'{{"{_own_id(_TOOL, place.item_id)}":{late}}}'
            self._start_block('{"type":"thinking","thinking":"","signature":""}')
            self._write_block_delta("signature_delta", "signature", quote(signed(SIGNATURE, by_call)))
            self._stop_block()
            begun = f'{{"type":"reasoning","id":"{_own_id("rs_", place.item_id)}","status":"completed"'
            self._count("reasoning", self._begin(), f'{begun},"summary":[],"content":[],"extra_content":{by_call}}}')

    # ---- calls that the gateway runs -----------------------------------------------------------------------------------

    def open_hosted(self, kind: str, item_id: str, members: Mapping[str, Any]) -> Place:
        """Write nothing yet: a block of a call that the gateway runs begins with its whole input."""
        return Place(kind, item_id, self._begin())

    def run_hosted(self, place: Place, text: str, *, deltas: int, members: Mapping[str, Any]) -> None:
        """Write the block of a web search, or of a page that is fetched. Other calls are not shown."""
        if place.kind != "web_search_call":
            return
        action = members["action"]
        name = _WEB_TOOLS.get(action["type"], "web_search")
        visible = {"url": action.get("url", "")} if name == "web_fetch" else {"query": action.get("query", "")}
        arguments = as_input(visible, read_object(text) or {})
        head = f'{{"type":"server_tool_use","id":"{_own_id(SERVER_TOOL, place.item_id)}","name":"{name}","input":'
        place.begun = name
        self.web_requests[name] = self.web_requests.get(name, 0) + 1
        self._start_block(f"{head}{{}}}}")
        self._write_block_delta("input_json_delta", "partial_json", quote(json_text(arguments)))
        self._stop_block()
        self._results[place.item_id] = [f"{head}{json_text(arguments)}}}"]

    def close_hosted(
        self, place: Place, members: Mapping[str, Any], *, end: str, sources: Sequence[CitedSource] = (), text: str = ""
    ) -> None:
        """Write the block with the results, whole in its start."""
        for source in sources:
            if source.url and source.excerpt:
                self._excerpts.setdefault(source.url, source.excerpt)
        if place.begun:
            tool_id = _own_id(SERVER_TOOL, place.item_id)
            if end != "completed":
                content: object = search_error(place.begun, text)
            elif place.begun == "web_fetch":
                content = fetched_page(sources, text)
            else:
                content = search_results(sources, text)
            carried = "" if content else f',"text":{quote(text)}'  # no result can carry it where there is none
            block = f'{{"type":"{place.begun}_tool_result","tool_use_id":"{tool_id}","content":{json_text(content)}{carried}}}'
            self._start_block(block)
            self._stop_block()
            self._results[place.item_id].append(block)
        self._count(place.kind, place.index, json_text({"type": place.kind, "id": place.item_id, **members}))

    # ---- items that are whole ------------------------------------------------------------------------------------------

    def write_item(self, kind: str, item_id: str, members: Mapping[str, Any], status: ItemStatus | None = None) -> None:
        """Take the item; the protocol has no block for it."""
        ending = {} if status is None else {"status": status}
        self.write_record(kind, json_text({"type": kind, "id": item_id, **members, **ending}))

    def write_record(self, kind: str, record: str) -> None:
        """Take the item; the protocol has no block for it."""
        self._count(kind, self._begin(), record)

    # ---- the whole message ---------------------------------------------------------------------------------------------

    def blocks(self) -> list[str]:
        """Return the JSON of all blocks, for a message that is not streamed: those that the events tell of."""
        blocks = [block for item in map(_decoded, self.done) for block in self._blocks_of(item)]
        if not blocks and (thought := self._hidden_thought()):
            blocks.append(f'{{"type":"text","text":{quote(thought)}}}')
        return blocks

    def _blocks_of(self, item: dict[str, Any]) -> Iterator[str]:
        match item["type"]:
            case "reasoning":
                if self._thinking != "hidden":
                    text = _text_of(item) if self._thinking == "shown" else ""
                    signature = signed(SIGNATURE, member_json(item, "extra_content") or member_json(item, "reasoning_details"))
                    yield f'{{"type":"thinking","thinking":{quote(text)},"signature":{quote(signature)}}}'
            case "message":
                yield json_text(self._text_block(item))
            case "function_call" | "custom_tool_call":
                input_json = json_text(_input_of(item))
                extra = extra_member(member_json(item, "extra_content"))
                yield f'{{"type":"tool_use","id":"{item["call_id"]}","name":{quote(item["name"])},"input":{input_json}{extra}}}'
            case _:
                yield from self._results.get(item["id"], ())

    def _text_block(self, item: Mapping[str, Any]) -> dict[str, Any]:
        notes = [note for part in item["content"] for note in part.get("annotations", ()) if note["type"] == "url_citation"]
        block: dict[str, Any] = {"type": "text", "text": _text_of(item)}
        return {**block, "citations": list(map(self._cited, notes))} if notes else block

    def _cited(self, annotation: Mapping[str, Any]) -> dict[str, Any]:
        return cited(annotation, self._excerpts.get(annotation["url"], ""))


def _own_id(prefix: str, item_id: str) -> str:
    """Return an id with the unique part of an item's id."""
    return prefix + item_id.partition("_")[2]


def _decoded(record: str) -> dict[str, Any]:
    item: dict[str, Any] = msgspec.json.decode(record)
    return item


def _text_of(item: Mapping[str, Any]) -> str:
    return "".join(part.get("text", part.get("refusal", "")) for part in item["content"])


def _input_of(item: Mapping[str, Any]) -> object:
    """Return the input of a call. Arguments that are no JSON object are shown as Claude Code keeps them in its history: the
    client refuses them, and tells the model."""
    if item["type"] == "custom_tool_call":
        return {"input": item["input"]} if item["status"] == "completed" else {}
    text = item["arguments"]
    value = read_object(text or "{}")
    return {"__unparsedToolInput": {"raw": text, "len": len(text)}} if value is None else value


class Safeguards(NamedTuple):
    """What was said of the tool calls of an answer (`safeguard_results`), and what saying it has cost."""

    results: list[dict[str, Any]]
    usage: Usage


class MessageOptions(msgspec.Struct, frozen=True):
    """What a request of the Messages API says about its stream. `context_window`: in tokens, where it is known; `max_tokens`:
    what the client asked for. `safeguards`: what the client says of how tool calls are to be judged; None if they are not."""

    thinking: Thinking = "shown"
    stop_sequences: frozenset[str] = frozenset()
    max_tokens: int | None = None
    context_window: int | None = None
    request_id: str | None = None
    safeguards: str | None = None

    def stream(self, start: StreamStart) -> MessageStream:
        """Return the stream of one message."""
        return MessageStream(start, self)


class MessageStream(AnswerStream):
    """One message: `message_start` and a ping, blocks, then `message_delta` and `message_stop`. One that fails ends with an
    `error` event alone, which leaves the open block open."""

    __slots__ = ("_head", "_options", "_outcome", "_safeguards")

    writer: MessagesWriter

    def __init__(self, start: StreamStart, options: MessageOptions) -> None:
        super().__init__(MessagesWriter(start.clock, thinking=options.thinking))
        self._options = options
        self._outcome = Outcome()
        self._safeguards: Safeguards | None = None
        message_id = start.response_id.removeprefix("resp_")
        self._head = f'"id":"msg_{message_id}","type":"message","role":"assistant","model":{quote(start.model)}'

    def queue(self) -> None:
        """Write nothing: no message waits in the background."""

    def start(self) -> None:
        """Write `message_start` and a ping."""
        rest = f'"content":[],"stop_reason":null,"stop_sequence":null,"usage":{_NO_USAGE}'
        self.writer.write("message_start", f',"message":{{{self._head},{rest}}}')
        self.writer.events.append(PING)

    def keep_alive(self) -> None:
        """Write a ping."""
        self.writer.events.append(PING)

    def end(self, outcome: Outcome) -> None:
        """Take the end, and write what was kept back for it."""
        self._outcome = outcome
        self.writer.end(failed=outcome.status == "failed")

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the last events."""
        if self._outcome.status == "failed":
            error = self._outcome.error or server_error("The message failed.")
            return _event("error", json_text(error_body(for_client(error), self._options.request_id)))
        delta = f'"delta":{{{self._ending()}}},"usage":{self._usage()}'
        return _event("message_delta", f'{{"type":"message_delta",{delta}}}') + _STOP

    def json(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the message as it stands."""
        blocks, stopped_at = self._up_to_stop(self.writer.blocks())
        return sendable(f'{{{self._head},"content":[{",".join(blocks)}],{self._ending(stopped_at)},"usage":{self._usage()}}}')

    def _up_to_stop(self, blocks: list[str]) -> tuple[list[str], str | None]:
        """Return blocks up to the first stop sequence, which only a server has left in the text that was not told of it, and
        this sequence; all of them, and None, if there is none."""
        stops = self._options.stop_sequences - {""}
        for place, block in enumerate(blocks if stops else ()):
            if block.startswith('{"type":"text"'):
                text = msgspec.json.decode(block)["text"]
                places = [(text.index(stop), stop) for stop in stops if stop in text]
                if places:
                    end, stop = min(places)
                    return [*blocks[:place], *([f'{{"type":"text","text":{quote(text[:end])}}}'] if end else [])], stop
        return blocks, None

    def judged(self, safeguards: Safeguards) -> None:
        """Take what was said of the tool calls, for the end."""
        self._safeguards = safeguards

    def _usage(self) -> str:
        """Return the usage object, with the requests of the gateway's tools if there were any."""
        usage = usage_json(self._outcome.usage, self._safeguards)
        web = self.writer.web_requests
        if not web:
            return usage
        counts = ",".join(f'"{name}_requests":{web.get(name, 0)}' for name in ("web_search", "web_fetch"))
        return f'{usage[:-1]},"server_tool_use":{{{counts}}}}}'

    def _ending(self, stopped_at: str | None = None) -> str:
        """Return the members that tell why the message ended, and what was said of its tool calls. `stopped_at`: the stop
        sequence at which the text was cut here."""
        reason, matched = self._stop_reason(stopped_at)
        ending = f'"stop_reason":"{reason}","stop_sequence":{"null" if matched is None else quote(matched)}'
        if self._safeguards is None:
            return ending
        return f'{ending},"safeguard_results":{json_text(self._safeguards.results)}'

    def _stop_reason(self, stopped_at: str | None) -> tuple[str, str | None]:
        """Return why the message ended, and the stop sequence if it was one."""
        outcome = self._outcome
        if outcome.incomplete_reason == "content_filter":
            return "refusal", None
        if stopped_at is not None:
            return "stop_sequence", stopped_at
        if outcome.incomplete_reason is not None:
            return ("model_context_window_exceeded" if self._window_is_full() else "max_tokens"), None
        if self.writer.calls:
            return "tool_use", None
        if self.writer.refused:
            return "refusal", None
        if outcome.stop_string in self._options.stop_sequences:
            return "stop_sequence", outcome.stop_string
        return "max_tokens" if self._options.max_tokens == 0 else "end_turn", None

    def _window_is_full(self) -> bool:
        """Tell whether it was the context window that ended the last turn, not `max_tokens`."""
        usage = self._outcome.last_turn
        window = self._options.context_window
        limit = self._options.max_tokens
        if not self._outcome.reached_limit or window is None or usage is None or usage.input is None or usage.output is None:
            return False  # where the window is not known, a limit of the server's own is as likely
        return usage.input + usage.output >= window - _WINDOW_MARGIN and (limit is None or usage.output < limit)


def usage_json(usage: Usage | None, safeguards: Safeguards | None = None) -> str:
    """Return the usage object: `input_tokens` are those of the prompt that no cache had, `output_tokens` contain the thought.
    What is not known counts 0, since the SDKs raise where a number is missing. The tokens of who judged calls stand apart,
    because clients take the others for the size of their context."""
    if usage is None:
        usage = _NOTHING_USED
    judged = ""
    if safeguards is not None:
        judge = safeguards.usage
        judged = f',"safeguards":{{"input_tokens":{judge.input or 0},"output_tokens":{judge.output or 0}}}'
    prompt = usage.input or 0
    output = usage.output or 0
    cached = min(usage.cached, prompt) if usage.cached else 0
    written = min(usage.cache_write, prompt - cached) if usage.cache_write else 0
    thought = min(usage.reasoning, output) if usage.reasoning else 0
    return (
        f'{{"input_tokens":{prompt - cached - written},"cache_creation_input_tokens":{written}'
        f',"cache_read_input_tokens":{cached},"output_tokens":{output}'
        f',"output_tokens_details":{{"thinking_tokens":{thought}}}{judged}}}'
    )


_NO_USAGE = usage_json(_NOTHING_USED)


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


_STOP = _event("message_stop", '{"type":"message_stop"}')
