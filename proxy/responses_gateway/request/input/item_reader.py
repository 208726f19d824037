"""Read the items of an input in order and turn them into chat messages.

What the model said at once (reasoning, texts, calls, in any order) becomes one assistant message, followed at once by the tool
messages of its calls. The messages of a history depend on its own items alone and not on what follows, so that a growing
conversation keeps its beginning byte for byte and the backend's prefix cache hits."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.fields import Entry, Object, optional_text, quote
from responses_gateway.request.input.call_matching import NO_OUTPUT, PENDING_OUTPUT, MatchedCall, MatchedCalls, is_other_turn
from responses_gateway.request.input.calls import CALL_TYPES, OUTPUT_TYPES, is_unpaired
from responses_gateway.request.input.items import assistant_text, reasoning_text, system_text, tool_output, user_content
from responses_gateway.request.input.template_forms import APPROVAL, in_forms, losses_of, nine_characters, rows_joined
from responses_gateway.request.loss_report import Loss, LossReport, reported
from responses_gateway.request.policy import Policy
from responses_gateway.wire.chat import OPAQUE
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.item_ids import TurnKey, turn_of

# Items of hosted tools and of other servers that contain nothing a chat model could read.
SILENT_ITEMS = {
    "mcp_list_tools": "no tools of this server are offered now",
    "mcp_approval_response": "the client's decision is not part of the conversation",
    **dict.fromkeys(("compaction", "compaction_summary", "context_compaction"), "its content was encrypted by another server"),
}

_PRECEDENCE = "takes precedence over reasoning.effort and text.format of the request"
# Items that were read before: tools are declared, and values merged into the parameters of the request.
READ_ELSEWHERE = {
    "additional_tools": Loss("item", "additional_tools", "adapted", "its tools are declared for the whole request"),
    "configuration_update": Loss("item", "configuration_update", "preserved", _PRECEDENCE),
}

HONOURED_ITEMS = frozenset({"mcp_list_tools", "mcp_approval_response"})  # elsewhere, so that strict mode lets them pass

_MESSAGE = Loss("item", "message", "preserved")
_REASONING = Loss("item", "reasoning", "preserved")
_SIGNATURES = frozenset({"provider_specific_fields", "thought_signature"})  # in `extra_content`, but members of the call
_CIPHERTEXT = re.compile(r"[A-Za-z0-9+/_=-]{64,}")  # base64, far longer than any word


class TurnEnd(NamedTuple):
    """The end of a turn of the model: how many `items` came before the one that ended it, and how many `messages`, `calls` and
    texts of the system message (`leading`) they have become. `reported`: how many losses there are that are kept with it."""

    items: int
    messages: int
    calls: int
    leading: int
    reported: int


class ItemReader:
    """Reads items and passes their content to a `MessageBuilder`. `mcp_labels`: the MCP servers whose tools are offered.
    `compacting`: the input asked for a compaction."""

    def __init__(
        self,
        policy: Policy,
        calls: MatchedCalls,
        report: LossReport,
        mcp_labels: Collection[str | None] = (),
        *,
        calls_before: int = 0,
    ) -> None:
        """`calls_before` are in messages that precede the items."""
        self._policy = policy
        self._calls = calls.by_path
        self._report = report
        self._mcp_labels = mcp_labels
        self._builder = MessageBuilder(policy, report, calls_before)
        self._leading: list[str] = []
        self._begun = False
        self.compacting = False

    def messages(self, instructions: str | None, entries: Iterable[Entry]) -> list[Object]:
        """Return the messages of the chat request. Raises `ApiError` 400."""
        if instructions:
            self.lead(instructions)
        self.read(entries)
        return self.arranged()

    def lead(self, instructions: str) -> None:
        """Begin with the instructions of the request."""
        self._leading.append(instructions)

    def arranged(self) -> list[Object]:
        """Return the messages for what was read. Raises `ApiError` 400."""
        messages = self._builder.finish()
        if self._leading:
            messages = self._system_messages() + messages
        if not messages:
            raise invalid_request("The input contains nothing that could be sent to a model.", "input", "invalid_value")
        forms = self._policy.forms
        if not forms:
            return messages
        continued = self._policy.continues_last_message and messages[-1]["role"] == "assistant"
        formed = in_forms(messages, forms, continued=continued)
        self._report.repeat(losses_of(messages, formed))
        return formed

    def later_messages(self, entries: Iterable[Entry]) -> list[Object]:
        """Return the messages for items after those of a request. Raises `ApiError` 400."""
        self.read(entries)
        return self._builder.finish()

    def read(self, entries: Iterable[Entry]) -> None:
        """Read items. Raises `ApiError` 400."""
        for entry in entries:
            _READERS.get(entry.kind, ItemReader._unread)(self, entry)

    def resume(self, leading: Sequence[str], messages: Sequence[Object]) -> None:
        """Begin where a conversation has got to: with the texts of its system message, and its other messages."""
        self._leading = list(leading)
        self._begun = True
        self._builder.resume(messages)

    def read_noting_ends(self, entries: Iterable[Entry]) -> TurnEnd | None:
        """Read items, all of which the next request has again; return where the last turn of the model ended that is over,
        whatever follows. Raises `ApiError` 400."""
        builder = self._builder
        end = None
        closed = builder.closed
        for index, entry in enumerate(entries):
            _READERS.get(entry.kind, ItemReader._unread)(self, entry)
            if builder.closed is not closed:
                closed = builder.closed
                end = TurnEnd(index, *closed, len(self._leading), 0)
        return None if end is None else end._replace(reported=self._report.size)

    def read_with_end(self, entries: Sequence[Entry], kept: int) -> TurnEnd | None:
        """Read items; return the end of those that may be `kept`, behind which the model speaks, whatever it says. None if its
        turn goes on there. Raises `ApiError` 400."""
        self.read(entries[:kept])
        counts = self._builder.counts_between_turns()
        end = None if counts is None else TurnEnd(kept, *counts, len(self._leading), self._report.size)
        self.read(entries[kept:])
        return end

    @property
    def length(self) -> int:
        """How many messages the items have become."""
        return self._builder.length

    def state_at(self, end: TurnEnd) -> tuple[list[str], list[Object]]:
        """Return the texts of the system message and the other messages at the end of a turn."""
        return self._leading[: end.leading], self._builder.first(end.messages)

    def _unread(self, entry: Entry) -> None:
        kind = entry.kind
        if kind in READ_ELSEWHERE:
            self._report.add(reported(READ_ELSEWHERE[kind]))
        elif self._is_honoured(entry):
            self._report.preserved("item", kind)
        elif kind in SILENT_ITEMS:
            self._report.ignored("item", kind, SILENT_ITEMS[kind], entry.path, matters=kind not in HONOURED_ITEMS)
        else:
            self._report.ignored("item", "unknown", "unknown item type", entry.path)

    def _is_honoured(self, entry: Entry) -> bool:
        """Tell whether the meaning of an item that the model does not read is honoured elsewhere: the tools of a list are
        offered, an approval is carried out."""
        if entry.kind == "mcp_list_tools":
            label = entry.item.get("server_label")
            return isinstance(label, str) and label in self._mcp_labels
        return entry.kind == "mcp_approval_response" and bool(self._mcp_labels)

    def _message(self, entry: Entry) -> None:
        item = entry.item
        role = optional_text(item, "role", entry.path) or "user"
        content = item.get("content")
        if role == "user":
            self._user(user_content(content, entry.path, self._report))
        elif role == "assistant":
            self._begun = True
            if item.get("phase") is not None:
                self._report.ignored("content", "phase", "chat messages have none", f"{entry.path}.phase", matters=False)
            self._builder.add_text(assistant_text(content, entry.path, self._report), turn_of(item.get("id")))
        elif role in ("system", "developer"):
            self._system(role, system_text(content, f"{entry.path}.content", self._report))
        else:
            message = f"Invalid value: {quote(role)}. Supported values are: 'user', 'assistant', 'system', 'developer'."
            raise invalid_request(message, f"{entry.path}.role", "invalid_value")
        self._report.add(_MESSAGE)

    def _user(self, content: str | list[Object]) -> None:
        self._begun = True
        self._builder.add_user(content)

    def _system(self, role: str, text: str) -> None:
        if not text:
            return
        if not self._begun or self._policy.late_developer == "merge":
            self._leading.append(text)
        elif self._policy.late_developer == "system":
            self._builder.add_system(text)
        else:
            self._report.adapted("item", "late_system_message", "sent as a user message marked with tags")
            self._builder.add_user(f"<{role}_message>\n{text}\n</{role}_message>")

    def _system_messages(self) -> list[Object]:
        texts = ["\n\n".join(self._leading)] if self._policy.system_messages == "merge" else self._leading
        return [{"role": "system", "content": text} for text in texts]

    def _call(self, entry: Entry) -> None:
        self._begun = True
        matched = self._calls.get(entry.path)
        if matched is not None:
            self._builder.add_call(matched, turn_of(entry.item.get("id")))

    def _output(self, entry: Entry) -> None:
        self._begun = True
        matched = self._calls.get(entry.path)
        if matched is not None:
            if matched.repeated:
                self._builder.repeat_call(matched)
            self._builder.add_output(matched)
        elif is_unpaired(entry):
            self._unpaired(entry)

    def _unpaired(self, entry: Entry) -> None:
        if entry.kind == "tool_search_output":
            self._report.adapted("item", "tool_search_output", "the tools are declared")
            return
        self._report.adapted("item", "unpaired_output", "sent as a user message marked with tags")
        output = tool_output(entry.item.get("output"), entry.path, self._report)
        text = f"<tool_output{_attributes(entry, 'namespace', 'name')}>\n{output.text}\n</tool_output>"
        self._user([{"type": "text", "text": text}, *output.media] if output.media else text)

    def _reasoning(self, entry: Entry) -> None:
        self._begun = True
        item = entry.item
        text = reasoning_text(item, entry.path)
        wanted = item.get("reasoning_details") or item.get("extra_content")
        if wanted:
            self._builder.add_details(item, turn_of(item.get("id")))
        if wanted and not text:
            self._report.preserved("item", "reasoning")
        elif not text:
            # Empty, or encrypted by another server: a model here loses nothing by its absence.
            self._report.ignored("item", "reasoning", "it contains no readable text", entry.path, matters=False)
        elif self._policy.reasoning_field == "none":
            self._report.ignored("item", "reasoning", "reasoning is not sent back", entry.path, matters=False)
        else:
            self._report.add(_REASONING)
            self._builder.add_reasoning(text, turn_of(item.get("id")))

    def _agent_message(self, entry: Entry) -> None:
        """Read a message from another agent of the client."""
        param = f"{entry.path}.content"
        content = entry.item.get("content")
        if isinstance(content, list):
            content = [part for part in (self._readable(part, param) for part in content) if part is not None]
        text = system_text(content, param, self._report)
        self._report.adapted("item", "agent_message", "sent as a user message marked with tags")
        if text:
            self._user(f"<agent_message{_attributes(entry, 'author', 'recipient')}>\n{text}\n</agent_message>")

    def _readable(self, part: Any, param: str) -> Any:
        """Return the part as text, or None if its `encrypted_content` looks like ciphertext. In Codex's messages between agents
        this field carries what the model wrote for the other agent. OpenAI encrypts it, no other server does."""
        if not isinstance(part, dict) or part.get("type") != "encrypted_content":
            return part
        text = part.get("encrypted_content")
        if not isinstance(text, str) or _CIPHERTEXT.fullmatch(text):
            self._report.ignored("content", "encrypted_content", "it was encrypted by another server", param)
            return None
        self._report.adapted("content", "encrypted_content", "it is plain text")
        return {"type": "input_text", "text": text}

    def _compaction_trigger(self, entry: Entry) -> None:
        prompt = self._policy.compaction_trigger_prompt
        if prompt is None:
            message = "Compaction is not supported by this gateway configuration."
            raise invalid_request(message, entry.path, "unsupported_value")
        self._report.adapted("item", "compaction_trigger", "sent as a user message that asks for a summary")
        self.compacting = True
        self._user(prompt)


def _attributes(entry: Entry, *keys: str) -> str:
    """Return the members of an item that have a text as the attributes of a tag."""
    members = [(key, optional_text(entry.item, key, entry.path)) for key in keys]
    return "".join(f' {key}="{value}"' for key, value in members if value)


_READERS: dict[str, Callable[[ItemReader, Entry], None]] = {
    "message": ItemReader._message,
    **dict.fromkeys(CALL_TYPES, ItemReader._call),
    **dict.fromkeys(OUTPUT_TYPES, ItemReader._output),
    "reasoning": ItemReader._reasoning,
    "agent_message": ItemReader._agent_message,
    "compaction_trigger": ItemReader._compaction_trigger,
}


SEE_BELOW = "(the output follows in the next message)"  # the text of a tool message whose output has no text

_REASONING_FIELDS = {
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
    "both": ("reasoning", "reasoning_content"),
    "none": (),
}


class MessageBuilder(msgspec.Struct):
    """Accepts the content of a conversation in order and arranges it as the strictest chat backend requires. An assistant
    message stays open while the model speaks, and until all of its calls that have an output later in the input have been
    answered; then `finish` or the next speaker closes it."""

    _policy: Policy
    _report: LossReport
    _number: int  # of the next call
    _messages: list[Object] = msgspec.field(default_factory=list)
    _turn: _Turn | None = None
    closed: tuple[int, int] = (0, 0)  # the messages and calls that there were when a turn was closed last

    def resume(self, messages: Sequence[Object]) -> None:
        """Begin with messages that there are."""
        self._messages = list(messages)

    @property
    def length(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    def counts_between_turns(self) -> tuple[int, int] | None:
        """Return how many messages and calls there are, if what the model says next begins another turn. None if it does not,
        or if that cannot be told yet: pictures are reported behind what follows them."""
        turn = self._turn
        if turn is not None:
            if turn.waiting or not turn.answered or any(call.output is not None and call.output.media for call in turn.calls):
                return None
            self._close_turn()
        return len(self._messages), self._number

    def first(self, number: int) -> list[Object]:
        """Return so many of the messages."""
        return self._messages[:number]

    def add_user(self, content: str | list[Object]) -> None:
        """Add a user message. One that is repeated before the output of a call is left out: it would ask for the call again."""
        if self._turn is not None:
            questions = (message["content"] for message in reversed(self._messages) if message["role"] == "user")
            if self._turn.waiting and content == next(questions, None):
                self._report.adapted("content", "order", "a message that was repeated before the output of a call was left out")
                return
            self._close_turn()
        self._messages.append({"role": "user", "content": content})

    def add_system(self, content: str) -> None:
        """Add a system message in the middle of the conversation."""
        self._close_turn()
        self._messages.append({"role": "system", "content": content})

    def add_reasoning(self, text: str, key: TurnKey | None) -> None:
        """Add reasoning to the model's turn; `key` tells which one, if that is known."""
        self._open_turn(key).reasoning.append(text)

    def add_details(self, item: Object, key: TurnKey | None) -> None:
        """Add what the server wants back of the model's turn, and of its calls by their ids."""
        turn = self._open_turn(key)
        details = item.get("reasoning_details")
        extra = item.get("extra_content")
        for detail in details if isinstance(details, list) else ():
            if not isinstance(detail, dict) or detail.get("type") != OPAQUE:
                turn.details.append(detail)
            elif isinstance(detail.get("data"), str):
                turn.opaque += detail["data"]
        turn.extra.update(extra if isinstance(extra, dict) else {})

    def add_text(self, text: str, key: TurnKey | None) -> None:
        """Add text to the model's turn, unless the client repeats it, without its id, before the output of a call."""
        turn = self._turn
        if turn is not None and turn.waiting and key is None and turn.key is not None and text in turn.texts:
            self._report.adapted("content", "order", "a text that was repeated before the output of a call was left out")
        elif text:
            self._open_turn(key).texts.append(text)

    def add_call(self, matched: MatchedCall, key: TurnKey | None) -> None:
        """Add a call to the model's turn."""
        turn = self._open_turn(key, is_call=True)
        turn.calls.append(matched)
        if matched.call.output is not None:
            turn.answered = True
        elif matched.output is PENDING_OUTPUT:
            turn.pending = True
        elif matched.output is not NO_OUTPUT:
            turn.waiting.add(matched.id)

    def repeat_call(self, matched: MatchedCall) -> None:
        """Add a call that the model has made earlier, for an output that follows."""
        if self._turn is not None and self._turn.calls:
            self._close_turn()
        self.add_call(matched, None)

    def add_output(self, matched: MatchedCall) -> None:
        """Note where the output of a call stands; it is sent directly after its call in any case."""
        turn = self._turn
        if turn is not None and matched.id in turn.waiting:
            turn.waiting.discard(matched.id)
            turn.answered = True
        else:
            self._report.adapted("content", "order", "an output that did not follow its call was moved to it")

    def finish(self) -> list[Object]:
        """Return all messages."""
        if self._turn is not None:
            self._close_turn()
        return list(rows_joined(self._messages, "user")) if self._policy.user_messages == "merge" else self._messages

    def _open_turn(self, key: TurnKey | None, *, is_call: bool = False) -> _Turn:
        turn = self._turn
        if turn is not None and not turn.waiting:
            ended = turn.answered and (key is None or key != turn.key)
            if ended or (turn.pending and is_other_turn(turn.key, key, is_call=is_call)):
                self._close_turn()
        if self._turn is None:
            self._turn = _Turn()
        self._turn.key = key
        return self._turn

    def _close_turn(self) -> None:
        turn = self._turn
        if turn is None:
            return
        self._turn = None
        if not turn.texts and not turn.calls:
            if turn.reasoning:
                reason = "no message or call of the same turn follows it"
                self._report.ignored("item", "reasoning", reason, "input", matters=False)
            return
        if self._policy.call_ids != "keep":
            self._name_calls(turn.calls)
        self._messages.append(self._assistant(turn))
        media: list[Object] = []
        for matched in turn.calls:
            output = matched.output or NO_OUTPUT
            text = "\n".join([output.text, *matched.notes]) or (SEE_BELOW if output.media else "")
            self._messages.append({"role": "tool", "tool_call_id": matched.id, "content": text})
            if output.media:
                label = f"Output of the call {matched.id} ({matched.call.name}):"
                media += [{"type": "text", "text": label}, *output.media]
        if media:
            self._report.adapted("content", "tool_output_media", "moved into a user message after the tool messages")
            self._messages.append({"role": "user", "content": media})
        self.closed = (len(self._messages), self._number)

    def _name_calls(self, calls: list[MatchedCall]) -> None:
        """Give calls the ids that the template wants; one that waits for the client's approval is found by its own."""
        for matched in calls:
            if not matched.id.startswith(APPROVAL):
                numbered = self._policy.call_ids == "numbered"
                matched.id = f"functions.{matched.call.name}:{self._number}" if numbered else nine_characters(matched.id)
            self._number += 1

    def _assistant(self, turn: _Turn) -> Object:
        # An empty string, not null: templates print null as "None" or fail on it.
        message: Object = {"role": "assistant", "content": "\n\n".join(turn.texts)}
        if turn.reasoning:
            for name in ("reasoning_text",) if turn.opaque else _REASONING_FIELDS[self._policy.reasoning_field]:
                message[name] = "\n".join(turn.reasoning)
        if turn.opaque:
            message[OPAQUE] = turn.opaque
        if turn.details:
            message["reasoning_details"] = sorted(turn.details, key=_place_of)  # as they came: a signature may have come late
        if turn.calls:
            message["tool_calls"] = [_tool_call(matched, turn.extra) for matched in turn.calls]
        return message


class _Turn(msgspec.Struct):
    """What the model said at once. `waiting`: ids of calls whose output is still to come; `answered`: some output came, so that
    more of the model begins another turn, unless its `key` is the same; `pending`: it goes on without the output of a call."""

    reasoning: list[str] = []
    details: list[Any] = []
    opaque: str = ""
    extra: Object = {}
    texts: list[str] = []
    calls: list[MatchedCall] = []
    waiting: set[str] = set()
    answered: bool = False
    pending: bool = False
    key: TurnKey | None = None


def _place_of(detail: Any) -> int:
    index = detail.get("index") if isinstance(detail, dict) else None
    return index if type(index) is int else 0


def _tool_call(matched: MatchedCall, extra: Object) -> Object:
    function = {"name": matched.call.name, "arguments": matched.call.arguments}
    call: Object = {"id": matched.id, "type": "function", "function": function}
    wanted = extra.get(matched.call.call_id) if matched.call.extra is None else matched.call.extra
    if isinstance(wanted, dict):  # a client may have put anything into an item of reasoning
        call |= wanted if wanted and _SIGNATURES.issuperset(wanted) else {"extra_content": wanted}
    return call
