"""Read tagged parameters: `<parameter=K>V</parameter>` and its many relatives.

Values are typed by the JSON schema of the tool. A value that can only be a string is given out as it arrives; any other
when it is complete. An end tag counts only where the markup continues after it, so that a value may contain tags.

Models write tags twice, leave them open or out. What can mean only one thing is read so. A parameter that cannot be read ends
the call as incomplete, or as text if nothing of it was given out: never as complete without it. So does a value without its
own end that ends in another end tag, because that may be its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from responses_gateway.parsers.arguments import Begun, NamedCallReader, OuterMarkers, ReadStatus
from responses_gateway.parsers.arguments.parameter_headers import HEADER_LIMIT, Headers, Places, key_of
from responses_gateway.parsers.arguments.parameter_value import DoubledValue, InnerMarkup, ParameterValue
from responses_gateway.parsers.arguments.values import ParameterTypes, dumps, given
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallFormat, TaggedParameters
from responses_gateway.parsers.lexer import UNDECIDED, Hit, Lexer, skip_spaces

_LOOKED_AT = 1024  # text behind the end of a call in which the end of a value tells that it has not ended
_SIGN = re.compile(r"[=:>]\s{0,8}")  # between a key and the tag of its value
_WORD = re.compile(r"[^\s=]+")
_GAP_LIMIT = 64  # more white space than this after an end tag decides nothing


class ParametersReader(NamedCallReader):
    """Reads the parameters of one call."""

    def __init__(
        self,
        syntax: TaggedParameters,
        call: CallFormat,
        name: str,
        call_id: str,
        deltas: DeltaBuffer,
        markers: Callable[..., Lexer],
        outer: OuterMarkers,
    ) -> None:
        super().__init__(name, call_id, deltas)
        self._syntax = syntax
        self._call = call
        self._outer = outer
        self._places = Places(syntax, call, markers, outer)
        self._types = ParameterTypes(deltas.schema(name) or {})
        self._headers = Headers(syntax, call, name, self._places, deltas, self._types.properties)
        self._keys: set[str] = set()
        self._key: Mapping[str, str | None] = {}  # the groups of the header of the parameter that has begun
        self._value: ParameterValue | None = None
        self._inner = InnerMarkup(syntax, call, outer)
        self._wrapper = ""  # the parameter that may hold all arguments
        self._step: Callable[[str, int], int] = self._between

    def read(self, text: str, at: int) -> int:
        while self.status is ReadStatus.READING:
            step = self._step
            before = at
            at = step(text, at)
            if at == before and self._step == step:
                break
        return at

    @property
    def parameter(self) -> Begun:
        """How far a parameter can be read that has begun while nothing was given out, or whether one is missing at the end."""
        if self._step == self._unread:
            return "unreadable"
        if self.status is ReadStatus.DONE:
            return "none" if self._types.expected <= self._keys else "missing"
        return "begun" if self._step in (self._head, self._gap) else "none"

    def begin_cut(self) -> bool:
        """Begin the call if its tool is declared and a parameter has begun."""
        cut = self.parameter == "begun" and self._deltas.declared(self._name)
        if cut:
            self._begin()
        return cut

    def finish(self, cut: bool, rest: str) -> None:
        # The beginning of a marker stands between two parameters: only that of an end is no part of a parameter.
        between = self._step in (self._between, self._stray_text)
        if between and not cut and (not rest or any(marker.startswith(rest) for marker in self._call.closes)):
            self._deltas.repair("missing_end")
            self._end()
        elif self._step != self._unread:
            self._deltas.cut_call()

    # Between parameters

    def _between(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        marker = self._places.between.at(text, at)
        if marker == UNDECIDED:
            return at
        if marker is None:
            self._step = self._stray_text
            return at
        if marker in (*self._outer.closes, *self._outer.opens) and marker not in self._call.closes:
            return self._end_without_marker(marker, text, at)
        self._places.between.take(marker)
        if marker in self._syntax.opens:
            self._step = self._head
        elif marker in self._call.closes:
            self._end()
        elif marker in self._syntax.values:  # without a key
            return self._give_up(at)
        else:
            self._deltas.repair("stray_end")
        return at + len(marker)

    def _end_without_marker(self, marker: str, text: str, at: int) -> int:
        """End the call before a marker that stands behind calls. Without a parameter it is one only if its tool takes none, or
        a block of calls ends here: the opening of another call may be that of this one, written twice."""
        if not self._begun and marker in self._outer.opens and (self._types.properties or marker in self._call.opens):
            return self._opened_twice(marker, text, at)
        again = self._begun and self._types.properties
        behind = self._headers.named_behind(marker, text, at) if again else at + len(marker)
        if behind is None:
            return at
        place = skip_spaces(text, behind)
        following = self._places.between.at(text, place) if self._begun and marker in self._outer.opens else None
        if following == UNDECIDED and not self._deltas.final and place - behind <= _GAP_LIMIT:
            return at
        named = behind > at + len(marker)
        if following in ((*self._call.closes, *self._outer.closes) if named else self._syntax.opens):  # this call goes on
            self._deltas.repair("duplicate_start")
            return place
        if marker in self._call.opens and not self._types.expected <= self._keys:  # what this call has not may be in that one
            return self._give_up(at)
        self._types.doubted |= self._types.expected
        self._deltas.repair("missing_end")
        self._end()
        return at

    def _opened_twice(self, marker: str, text: str, at: int) -> int:
        start = at + len(marker)
        end = self._headers.named_behind(marker, text, at)
        if end is None:
            return at
        if end == start and self._types.properties:
            self.status = ReadStatus.REJECTED
            return at
        if end == start:
            self._deltas.repair("missing_end")
            self._end()
            return at
        self._deltas.repair("duplicate_start")
        self._places.between.take(marker)
        return end

    def _stray_text(self, text: str, at: int) -> int:
        """Keep text where only tags belong. Before an end tag it is a parameter without its beginning."""
        if not self._begun:
            self.status = ReadStatus.REJECTED
            return at
        hit = self._places.between.find(text, at)
        if hit is not None and hit.marker in (*self._syntax.between, *self._syntax.values):
            return self._give_up(at)
        end = hit.start if hit else self._places.between.held(text, at)
        self._deltas.stray(text[at:end])
        self._step = self._between if hit else self._stray_text
        return end

    def _end(self) -> None:
        self._begin()
        self._deltas.arguments("}" if self._keys else "{}")
        if self._types.doubted - self._keys:  # the value before it may have been left open
            self._deltas.repair("malformed_arguments")
            self._deltas.cut_call()
        self.status = ReadStatus.DONE

    # What cannot be read

    def _give_up(self, at: int, marker: str = "") -> int:
        """Read no more of the call: a parameter of it cannot be read. `marker`: what stands there instead."""
        self._deltas.repair("malformed_arguments")
        if self._begun:
            self._deltas.cut_call()
            self._deltas.drop_stray()
        if marker in self._outer.opens:
            self.status = ReadStatus.DONE if self._begun else ReadStatus.UNREADABLE
        self._step = self._unread
        return at

    def _unread(self, text: str, at: int) -> int:
        """Pass over the rest of the call. What looks like another one may stand in a value of it."""
        hit = self._places.ends.find(text, at)
        if hit is None:
            return self._places.ends.held(text, at)
        self.status = ReadStatus.DONE if self._begun else ReadStatus.UNREADABLE
        if hit.marker not in self._call.closes:
            return hit.start
        self._places.ends.take(hit.marker)
        return hit.end

    # Keys

    def _head(self, text: str, at: int) -> int:
        hit = self._places.head.find(text, at)
        if hit is None and len(text) - at <= HEADER_LIMIT:
            return at
        if hit is None or hit.start - at > HEADER_LIMIT:
            return self._give_up(at)
        written = text[at : hit.start].strip()
        if hit.marker in self._syntax.opens:
            self._deltas.repair("malformed_arguments" if written else "duplicate_start")
            self._places.head.take(hit.marker)
            return hit.end
        header = self._headers.pattern.fullmatch(written)
        closed = hit.marker in self._syntax.heads
        empty = closed and not written.strip("\"'") and not self._types.properties and self._deltas.declared(self._name)
        if not (header or empty) or not (closed or hit.marker in self._syntax.values):
            return self._give_up(at)
        key = header.groupdict() if header else {"key": ""}
        if self._key and self._key != key:  # the key before it has no value
            return self._give_up(at)
        self._key = key
        if closed:
            self._places.head.take(hit.marker)
            at = hit.end
        else:
            self._deltas.repair("missing_end")
            at = hit.start
        if not self._syntax.values:
            self._open_value()
            return at
        self._step = self._gap
        return at

    def _gap(self, text: str, at: int) -> int:
        """Read from a key to its value, where both have tags of their own."""
        at = skip_spaces(text, at)
        sign = _SIGN.match(text, at)
        place = sign.end() if sign else at
        marker = self._places.gap.at(text, place)
        if marker == UNDECIDED:
            return at
        half = self._headers.half_opening(text, place) if marker is None else False
        if half is None:
            return at
        if marker is None and (half or text[place] == "<"):  # a tag that is none
            return self._give_up(at)
        if marker is None:  # the opening of the value is missing
            self._open_value()
            if self._value is not None:
                self._value.opened = False
            return at
        end = place + len(marker)
        if marker in self._syntax.values:
            self._places.gap.take(marker)
            self._open_value()
        elif marker in self._syntax.heads:
            self._places.gap.take(marker)
            self._deltas.repair("stray_end")
        elif marker in self._syntax.opens:
            self._places.gap.take(marker)
            self._deltas.repair("duplicate_start")
            self._step = self._head
        else:
            return self._give_up(at, marker)
        return end

    def _open_value(self) -> None:
        groups = self._key
        key = key_of(groups, self._syntax, self._types.properties)
        emit: Callable[[str], None] = _discard
        convert: Callable[[str], str] | None = None
        if key:  # a tool without parameters may have an empty one with an empty value
            self._begin()
            known = key in self._types.properties or not self._types.properties or self._syntax.escaped
            if key in self._keys or not (known or _WORD.fullmatch(key)):
                self._give_up(0)  # one of the two stands in the value of another parameter, or the header names none
                return
            wraps = not self._keys and key in self._syntax.wrappers and key not in self._types.properties
            self._wrapper = key if wraps else ""
            convert = given if wraps else self._types.conversion(key, groups)
            if not wraps:
                emit = self._deltas.arguments
                self._deltas.arguments(f"{', ' if self._keys else '{'}{dumps(key)}: ")
                self._keys.add(key)
        self._value = ParameterValue(emit, convert, self._syntax.trim)
        self._inner = InnerMarkup(self._syntax, self._call, self._outer)
        self._step = self._inside

    # Values

    def _inside(self, text: str, at: int) -> int:
        assert self._value is not None
        while True:
            hit = self._places.inside.find(text, at)
            if hit is None:
                end = self._places.inside.held(text, at)
                self._inner.add(text[at:end])
                self._value.add(text[at:end])
                return end
            self._inner.add(text[at : hit.start])
            self._value.add(text[at : hit.start])
            whole = self._headers.whole_end(text, hit, self._key)
            if whole is None:
                return hit.start
            hit = whole
            if hit.marker in self._syntax.values and not self._value.opened:  # text stands between a key and its value
                return self._give_up(hit.start)
            twice = self._opened_again(text, hit)
            if twice is not None and twice > hit.start:
                at = twice
                continue
            ended = None if twice is not None else self._ends(hit.marker, text, hit.end)
            if ended is None:
                return hit.start
            if ended:
                return self._close_value(hit)
            if hit.marker in self._places.keyed_ends or (hit.marker in self._syntax.heads and not self._syntax.values):
                self._inner.add(hit.marker)
            else:
                self._inner.tag(hit.marker, self._value, text[hit.end : hit.end + 1])
            self._value.add(hit.marker)
            at = hit.end

    def _opened_again(self, text: str, hit: Hit) -> int | None:
        """Return where the value goes on if its own opening stands there once more, before anything else, alone or behind that
        of the call: the start of the tag if more text is needed to tell. None if it does not."""
        assert self._value is not None
        if not self._value.blank:
            return None
        if hit.marker in self._syntax.value_opens:
            end: int | None = hit.end
        elif hit.marker in self._syntax.opens:
            end = self._headers.key_again(text, hit.end, self._key)
        elif hit.marker in self._call.opens:
            end = self._headers.call_again(text, hit.end, self._key)
        else:
            return None
        if end is None:
            return hit.start
        if end == hit.end and hit.marker not in self._syntax.value_opens:
            return None
        self._deltas.repair("duplicate_start")
        self._value = self._value.opened_again(text[hit.start : end], self._syntax.closes)
        self._inner.openings += 1
        return end

    def _ends(self, marker: str, text: str, end: int) -> bool | None:
        """Tell whether the value ends at this marker; None if more text is needed to tell."""
        if marker in self._syntax.opens:
            return self._opens_next(text, end)
        if marker in self._syntax.closes:
            following = self._places.behind_value
        elif marker in self._call.closes and not self._inner.in_call:
            following = self._places.behind_call
        else:
            return False
        place = skip_spaces(text, end)
        if place - end > _GAP_LIMIT or (self._deltas.final and place == len(text)):
            return True
        second = following.at(text, place)
        if second == UNDECIDED:
            return True if self._deltas.final else None
        if second is None or (marker in self._syntax.closes and self._inner.takes(second, self._syntax.closes)):
            return False
        if marker in self._syntax.closes and second in self._syntax.opens and self._inner.opened:
            key = self._headers.key_behind(text, place + len(second))
            return None if key is None else key in self._types.properties or not self._types.properties
        return second not in self._call.closes or self._ends_call(text, place + len(second))

    def _ends_call(self, text: str, at: int) -> bool | None:
        """Tell whether a call ends at its end tag, behind that of a value: not where text follows, and then the end of a value
        that did not begin, because a value may hold both tags. One that ends on a line of its own, where the family writes it,
        is not doubted. None if more text is needed to tell."""
        assert self._value is not None
        if not self._outer.closes or self._deltas.final or self._value.at_line_start:
            return True
        place = skip_spaces(text, at)
        hit = self._places.behind_end.find(text, place)
        if hit is not None and hit.start == place:
            return True
        if hit is None or hit.start - place > _LOOKED_AT:
            return True if len(text) - place > _LOOKED_AT else None
        return hit.marker not in self._syntax.closes

    def _opens_next(self, text: str, at: int) -> bool | None:
        """Tell whether a parameter that opens inside a value ends it: if the tool declares it and it is new; in families that
        write each on lines of their own only at the beginning of a line."""
        assert self._value is not None
        if self._inner.in_call:
            return False
        key = self._headers.key_behind(text, at)
        if key is None:
            return None
        self._inner.declared = key in self._types.properties
        new = self._inner.declared and key not in self._keys
        if new and self._syntax.trim and not self._value.at_line_start:
            self._inner.keys.add(key)
            return False
        return new

    def _close_value(self, hit: Hit) -> int:
        assert self._value is not None
        closed = hit.marker in self._syntax.closes
        key = key_of(self._key, self._syntax, self._types.properties)
        doubted = self._value.blank or self._inner.ended or self._value.ends_in_tag
        if self._inner.values > 0:
            self._types.doubted |= self._inner.keys
        if self._inner.swallows:
            self._types.doubted |= set(self._types.properties)
        torn = self._inner.torn and not isinstance(self._value, DoubledValue)
        torn = torn or self._value.ends_in(self._places.tokens)
        unclear = (doubted and not closed) or torn or not (key or self._value.blank)
        value = self._value.close()
        self._value = None
        self._key = {}
        self._step = self._between
        if closed:
            self._places.inside.take(hit.marker)
        else:
            self._deltas.repair("missing_end")
        at = hit.end if closed else hit.start
        if unclear:
            return self._give_up(at)
        if self._wrapper:
            self._unwrap(value)
        return at

    def _unwrap(self, value: str) -> None:
        """Give out the members of the object that the one parameter holds."""
        inner = json.loads(value)
        if not isinstance(inner, dict):
            inner = {self._wrapper: inner}
        else:
            self._deltas.repair("wrapped_arguments")
        for key, item in inner.items():
            self._deltas.arguments(f"{', ' if self._keys else '{'}{dumps(key)}: {dumps(item)}")
            self._keys.add(key)


def _discard(piece: str) -> None:
    """Ignore a wrapper's own text: its content is given out when it is complete."""
