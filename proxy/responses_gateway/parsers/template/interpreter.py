"""Read an answer by a response template, as it arrives.

Text and reasoning are given out piece by piece, a call when its field is closed, since only then its text has a meaning. What
cannot be read as a call is given out as the text it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from responses_gateway.parsers.arguments.values import dumps, typed, types_of
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.interface import Parser
from responses_gateway.parsers.template.contents import transformed
from responses_gateway.parsers.template.definition import CALLS_FIELD, REASONING_FIELDS, Field, ResponseTemplate
from responses_gateway.parsers.template.delimiters import Delimiter, Found
from responses_gateway.parsers.text_output import TextKind, TextOutput
from responses_gateway.wire.deltas import Delta, FinishReason

_CALL_LIMIT = 4_000_000  # characters of a field of calls; more is text
_CONTEXT = 64  # characters that an expression may look back
_IDLE_LIMIT = 16  # steps in a row that read nothing: two empty expressions follow each other
_PROMPT_LIMIT = 65_536  # characters of a prompt in which the beginning of the answer is looked for


class TemplateParser(Parser):
    """Parses by a response template."""

    def __init__(
        self,
        template: ResponseTemplate,
        *,
        schemas: Mapping[str, Mapping[str, Any]],
        reasoning: bool = True,
        tools: bool = True,
        thinking_open: bool | None = None,
    ) -> None:
        """Begin an answer. `reasoning`, `tools`: whether these fields are read; they are text otherwise."""
        self._template = template
        self._tools = tools
        self._reasoning_fields = REASONING_FIELDS if reasoning else frozenset()
        self._deltas = DeltaBuffer(schemas)
        self._source = ""
        self._at = 0
        self._text = TextOutput(self._deltas, self._kind(template.outside))
        self._captures: Mapping[str, str] = {}
        self._body: list[str] = []  # of a field of calls
        self._opening = ""  # the delimiter that opened it
        self._length = 0
        self._outside: list[str] = []  # text that belongs to no field
        self._given = False  # some field was open
        self._broken = False  # an expression took too long: all that follows is text
        self._finished = False
        self._field = template.outside
        thinking = next((field for field in template.fields if field.name in REASONING_FIELDS), None)
        if thinking_open and thinking is not None:
            self._enter(thinking, {}, "")

    @property
    def repairs(self) -> dict[str, int]:
        """How often each kind of repair was made."""
        return self._deltas.repairs

    @property
    def in_reasoning(self) -> bool:
        """Tell whether a field of reasoning is open."""
        return self._field is not None and self._field.name in REASONING_FIELDS

    def feed(self, text: str, _token_ids: Sequence[int] | None = None) -> list[Delta]:
        """Return the deltas that a piece of text brings. `token_ids`: the ids of its tokens, if known."""
        dropped = max(0, self._at - _CONTEXT)
        self._source = self._source[dropped:] + text
        self._at -= dropped
        self._run()
        return self._deltas.take()

    @property
    def holds(self) -> bool:
        """Whether some of the text waits for what comes next: it may be a part of a delimiter, of a call, or of no field."""
        return self._at < len(self._source) or self._reads_calls() or (bool(self._outside) and not self._given)

    def finish(self, reason: FinishReason) -> list[Delta]:
        """Return the deltas that were held back. Calls are completed only if the model stopped by itself."""
        if self._finished:
            return []
        self._finished = self._deltas.final = True
        self._run()
        if self._reads_calls() and not self._broken:
            if reason == "stop":
                self._close("")
            else:
                self._deltas.repair("cut_markup")
                self._give_up("")
        if not self._given and self._outside:  # no field came: this is the answer
            self._deltas.repair("stray_text")
            self._text.write("".join(self._outside))
        return self._deltas.take()

    def _reads_calls(self) -> bool:
        return self._tools and self._field is not None and self._field.name == CALLS_FIELD

    def _run(self) -> None:
        try:
            idle = 0
            place = self._at
            while not self._broken and self._step():
                idle = 0 if self._at != place else idle + 1
                if idle > _IDLE_LIMIT:
                    raise TimeoutError
                place = self._at
        except TimeoutError:
            self._broken = True
            self._deltas.repair("malformed_markup")
            if self._reads_calls():
                self._give_up("")
            if self._field is None or self._field.name == CALLS_FIELD:
                self._text.enter(TextKind.ANSWER)
        if self._broken:
            self._given = True
            self._text.write(self._source[self._at :])
            self._at = len(self._source)

    def _step(self) -> bool:
        """Read up to the next delimiter; return False if none has come yet."""
        best: tuple[tuple[int, int, int], Field, Found] | None = None
        held = len(self._source)
        for order, (field, delimiter) in enumerate(self._watched()):
            match = delimiter.find(self._source, self._at, self._deltas.final)
            if match is None or (match.start == match.end and delimiter is field.closes and field.opens is None):
                continue  # the end of what stands outside of all fields is only left out
            if match.open:
                held = min(held, match.start)
                continue
            rank = (match.start, match.start - match.end, order)
            if best is None or rank < best[0]:
                best = (rank, field, match)
        if best is None or best[2].start >= held:
            self._take(held)
            return False
        _, field, match = best
        before = self._field
        self._take(match.start)
        if self._field is not before:  # it was too long for a call
            return True
        delimiter_text = self._source[self._at : match.end]
        self._at = match.end
        if field is not self._field:
            self._enter(field, match.captures, delimiter_text)
            return True
        self._close(delimiter_text)
        return True

    def _watched(self) -> list[tuple[Field, Delimiter]]:
        """List the delimiters that count here: the end of the field, or the beginnings of all fields outside of them."""
        field = self._field
        own = [(field, field.closes)] if field is not None and field.closes is not None else []
        if field is not None and field.opens is not None:
            return own
        opens = [(other, other.opens) for other in self._template.fields if other.opens is not None]
        return [*opens, *own]

    def _take(self, end: int) -> None:
        """Give out the text up to `end`, in the field that is open."""
        piece = self._source[self._at : end]
        self._at = end
        if not piece:
            return
        if self._field is None:
            self._length += len(piece)
            if not self._given and self._length <= _CALL_LIMIT:
                self._outside.append(piece)
        elif self._reads_calls():
            self._body.append(piece)
            self._length += len(piece)
            if self._length > _CALL_LIMIT:
                self._deltas.repair("rejected_call")
                self._give_up("")
        else:
            self._given = True
            self._text.write(piece)

    def _enter(self, field: Field, captures: Mapping[str, str], opening: str) -> None:
        self._begin(field)
        self._given = True
        self._captures = captures
        self._opening = opening
        if field.name == CALLS_FIELD and not self._tools:
            self._text.write(opening)

    def _begin(self, field: Field | None) -> None:
        self._field = field
        self._body = []
        self._length = 0
        self._text.enter(self._kind(field))

    def _kind(self, field: Field | None) -> TextKind:
        """Return what the text of a field is given out as."""
        return TextKind.REASONING if field is not None and field.name in self._reasoning_fields else TextKind.ANSWER

    def _close(self, closing: str) -> None:
        """End the field that is open."""
        field = self._field
        assert field is not None
        if self._reads_calls() and (field.opens is not None or "".join(self._body).strip()):
            try:
                calls = self._calls(field, "".join(self._body))
            except (ValueError, RecursionError, TimeoutError):
                self._deltas.repair("rejected_call")
                self._give_up(closing)
                return
            for name, call_id, arguments in calls:
                self._deltas.begin_call(name, call_id)
                self._deltas.arguments(arguments)
        elif field.name == CALLS_FIELD and not self._tools:
            self._text.write(closing)
        self._begin(self._template.outside)

    def _give_up(self, closing: str) -> None:
        """Give out a field of calls as text."""
        raw = self._opening + "".join(self._body) + closing
        self._begin(self._template.outside)
        self._text.write(raw)

    def _calls(self, field: Field, body: str) -> list[tuple[str, str, str]]:
        """Return name, id and arguments of the calls in a field. Raises `ValueError` if there are none, or half of one."""
        value = field.parse(body)
        if field.each:
            if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
                raise ValueError("this is not a list of objects")
            value = [transformed(field.transform, {**self._captures, **item}) for item in value]
        elif field.transform is not None:
            value = transformed(field.transform, {**self._captures, "content": value})
        values = value if isinstance(value, list) else [value]
        if not values:
            raise ValueError("this is no call")
        return [self._call(item) for item in values]

    def _call(self, value: Any) -> tuple[str, str, str]:
        function = value.get("function") if isinstance(value, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            raise ValueError("this call has no name")
        arguments = function.get("arguments")
        if arguments is None:
            raise ValueError("this call has no arguments")
        call_id = value.get("id")
        text = arguments if isinstance(arguments, str) else dumps(self._typed(name, arguments))
        return name, call_id if isinstance(call_id, str) else "", text

    def _typed(self, name: str, arguments: Any) -> Any:
        """Return the arguments with texts converted to the types of the tool's schema."""
        schema = self._deltas.schema(name) or {}
        properties = schema.get("properties")
        if not isinstance(arguments, Mapping) or not isinstance(properties, Mapping):
            return arguments
        return {
            key: json.loads(typed(value, types_of(properties[key], schema)))
            if isinstance(value, str) and key in properties
            else value
            for key, value in arguments.items()
        }


def opens_reasoning(template: ResponseTemplate, prompt: str) -> bool:
    """Tell whether a prompt ends inside a field of reasoning."""
    tail = prompt[-_PROMPT_LIMIT:]
    parser = TemplateParser(template, schemas={})
    try:
        parser.feed(tail[template.anchor.last_end(tail) :])
    except TimeoutError:
        return False
    parser.finish("length")  # what may still become a delimiter
    return parser.in_reasoning
