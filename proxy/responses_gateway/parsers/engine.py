"""The engine that turns a model's raw text into deltas, for every format.

    ANSWER, REASONING --opening of a call--> choose -> [block ->] [header ->] arguments -> after arguments --> ANSWER
    ANSWER, REASONING --opening of a channel--> channel header --> ANSWER, REASONING or arguments

Two rules hold everywhere. Text that begins like a call is given out as a call only if it is one, and as text otherwise. And
every character is looked at a bounded number of times, however the text is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Literal

from responses_gateway.parsers.arguments import OuterMarkers
from responses_gateway.parsers.call_parser import CallParser, Progress
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import CallBlock, CallFormat, ChannelFormat, Format
from responses_gateway.parsers.interface import FirstMarker, Parser
from responses_gateway.parsers.lexer import Hit, Lexer, SourceText, TokenGate, compiled, skip_spaces
from responses_gateway.parsers.text_output import TextKind, TextOutput
from responses_gateway.wire.deltas import Delta, FinishReason


class MarkerEffect(Enum):
    """What a marker does in free text."""

    OPEN_REASONING = auto()
    CLOSE_REASONING = auto()
    OPEN_CALL = auto()  # a call, or a block of calls, may begin
    OPEN_CHANNEL = auto()  # the header of a message begins
    CLOSE_MESSAGE = auto()
    OPEN_WRAPPER = auto()  # the wrapper of the answer begins
    CLOSE_WRAPPER = auto()
    STRAY_CLOSE_REASONING = auto()  # reasoning ends that had not begun
    STRAY_CLOSE_CALL = auto()  # a call ends that is over already, or never began


# Prose about markup shows these; the others are control tokens.
_SHOWN = (
    MarkerEffect.OPEN_REASONING,
    MarkerEffect.OPEN_CALL,
    MarkerEffect.STRAY_CLOSE_REASONING,
    MarkerEffect.STRAY_CLOSE_CALL,
)

# Repairs that left markup in the text.
_SHOWN_MARKUP = ("rejected_call", "cut_markup", "quoted_marker")
_QUOTES = "`'\""
_SURE_MARKER = 3  # characters of a marker that text hardly ends with
_REREAD_LIMIT = 4096  # characters of a rejected call that are read again for markers
_BLANK_LIMIT = 64  # white space at the start of an answer after which no bare call can follow


def marker_effects(form: Format) -> dict[TextKind, dict[str, MarkerEffect]]:
    """Build the table of a format: what each marker does in each kind of text."""
    reasoning = form.reasoning
    tools = form.tools
    inner = tuple(call for block in tools.blocks for call in block.calls)
    parts: tuple[CallFormat | CallBlock, ...] = (*tools.calls, *tools.blocks, *inner)
    ends = {marker for part in parts for marker in part.closes}
    openings = tools.openings
    answer = {
        **dict.fromkeys(ends, MarkerEffect.STRAY_CLOSE_CALL),
        **({} if reasoning.at_start else dict.fromkeys(reasoning.closes, MarkerEffect.STRAY_CLOSE_REASONING)),
        **{opening: MarkerEffect.OPEN_WRAPPER for opening, _ in reasoning.wrappers},
        **{closing: MarkerEffect.CLOSE_WRAPPER for _, closing in reasoning.wrappers},
        **dict.fromkeys(openings, MarkerEffect.OPEN_CALL),
        **dict.fromkeys(reasoning.opens, MarkerEffect.OPEN_REASONING),
    }
    thinking = {
        **dict.fromkeys(reasoning.opens, MarkerEffect.OPEN_REASONING),
        **dict.fromkeys(openings, MarkerEffect.OPEN_CALL),
        **dict.fromkeys(reasoning.closes, MarkerEffect.CLOSE_REASONING),
    }
    if form.channels is not None:
        for table in (answer, thinking):
            table.update(dict.fromkeys(form.channels.ends, MarkerEffect.CLOSE_MESSAGE))
            table.update(dict.fromkeys(form.channels.opens, MarkerEffect.OPEN_CHANNEL))
    return {TextKind.ANSWER: answer, TextKind.REASONING: thinking}


class MarkupParser(Parser):
    """Parses by the format of a model family. `feed` and `finish` return `Reasoning`, `Text`, `ToolCall` and
    `ToolArguments`, nothing else. `repairs` counts what had to be mended, by the kinds of `REPAIRS`. A call whose arguments are
    not complete JSON at the end was cut."""

    def __init__(
        self,
        form: Format,
        *,
        schemas: Mapping[str, Mapping[str, Any]],
        thinking_open: bool | None = None,
        marker_ids: Mapping[str, int] | None = None,
    ) -> None:
        self._reasoning = form.reasoning
        self._tools = form.tools
        self._channels = form.channels
        self._deltas = DeltaBuffer(schemas)
        self._gate = TokenGate(marker_ids)
        self._source = SourceText(self._gate)
        self._effects = marker_effects(form)
        self._lexers = {kind: Lexer(effects, self._gate) for kind, effects in self._effects.items()}
        opened = form.reasoning.implicit if thinking_open is None else thinking_open
        can_close = bool(form.reasoning.closes or form.reasoning.channels)
        self._text = TextOutput(self._deltas, TextKind.REASONING if opened and can_close else TextKind.ANSWER)
        self._wrapper_end = ""  # the marker that ends the open wrapper of the answer
        self._channel_opener = ""  # the marker that opened a channel's header
        self._calls_count = True  # markers of calls count in the open message
        self._call: CallParser | None = None
        self._missing_ends: tuple[str, ...] = ()  # end markers that may still come for a call that is over
        self._step: Callable[[], bool] = self._free_text
        if self._channels is not None and self._channels.begins and self._text.kind is TextKind.ANSWER:
            self._step = self._channel_header
        self._finished = False
        ends = [marker for block in self._tools.blocks for marker in block.closes]
        opening = (MarkerEffect.OPEN_CALL, MarkerEffect.OPEN_CHANNEL)
        opens = [marker for marker, effect in self._effects[TextKind.ANSWER].items() if effect in opening]
        self._call_ends = OuterMarkers(tuple(ends), tuple(opens), tuple(form.reasoning.markers()))

    @property
    def repairs(self) -> dict[str, int]:
        """How often each kind of repair was made."""
        return self._deltas.repairs

    @property
    def holds(self) -> bool:
        """Whether some of the text waits for what comes next: it may be a part of a marker, or of a call."""
        return not self._source.empty

    def feed(self, text: str, token_ids: Sequence[int] | None = None) -> list[Delta]:
        """Return the deltas that a piece of text brings. `token_ids`: the ids of its tokens, if known."""
        self._gate.observe(token_ids)
        self._source.extend(text)
        self._run()
        return self._deltas.take()

    def rewind(self, token_ids: Sequence[int]) -> None:
        """Forget the last ids, whose text has not come: they will come again."""
        self._gate.rewind(token_ids)

    def finish(self, reason: FinishReason) -> list[Delta]:
        """Return the deltas that were held back. Calls are completed only if the model stopped by itself. Where its text was
        cut behind the name of a declared tool, that is a call, too. What had only begun to be a call when the stream broke is
        left out: nobody can read it."""
        if self._finished:
            return []
        self._finished = True
        self._deltas.final = True
        self._deltas.cut = reason != "stop"
        self._run()
        while self._call is not None and self._call.tentative:
            cut = reason != "stop" or self._call.parameter == "begun"
            if cut and self._call.opener and self._call.begin_cut():
                self._leave_reasoning(self._call)
                break
            self._deltas.repair("cut_markup")
            if reason == "error" and self._call.opener:
                return self._deltas.take()
            self._reread_as_text()
            self._run()
        if self._step == self._channel_header and not self._channel_opener:  # it began like a header, and is the answer
            self._step = self._free_text
            self._run()
        rest = self._source.text[self._source.at :]
        if self._call is not None:
            self._call.finish(cut=reason != "stop")
        elif self._step == self._free_text and not (reason == "error" and _begins_call(self._effects[self._text.kind], rest)):
            self._text.write(rest)
        else:  # half a marker, or the header of a channel: markup, without text of the model
            self._deltas.repair("cut_markup")
        return self._deltas.take()

    @property
    def text_kind(self) -> Literal["text", "reasoning"]:
        """The kind of free text at this point."""
        return "reasoning" if self._text.kind is TextKind.REASONING else "text"

    def plain(self, text: str, token_ids: Sequence[int] | None = None) -> bool:
        """Take a piece that merely continues the text or reasoning given out last, without a call of `feed`: see `Parser`."""
        return (
            self._source.at >= len(self._source.text)
            and self._step == self._free_text
            and self._gate.passes(token_ids)
            and self._lexers[self._text.kind].absent(text)
            and self._text.follow(text)
        )

    def _run(self) -> None:
        while self._step():
            pass

    # Free text

    def _free_text(self) -> bool:
        source = self._source
        text = self._text
        if self._tools.bare and not text.visible and text.kind is TextKind.ANSWER:
            progress = self._open_bare_call()
            if progress is not None:
                return progress
        lexer = self._lexers[text.kind]
        hit = lexer.find(source.text, source.at)
        if hit is None:
            text.write(source.advance(lexer.held(source.text, source.at)))
            return False
        text.write(source.advance(hit.start))
        effect = self._effects[text.kind][hit.marker]
        quoted = self._quoted(hit, effect)
        ends_answer = effect is MarkerEffect.STRAY_CLOSE_CALL and _is_last(hit, source, text, self._deltas)
        if quoted is None or (ends_answer and not self._deltas.final):
            return False
        lexer.take(hit.marker)
        source.advance(hit.end)
        if quoted or (text.code.fence and effect in _SHOWN and not self._confirmed(hit.marker)):
            self._deltas.repair("quoted_marker")
            text.write(hit.marker)
            text.beside_shown = text.shown and effect is MarkerEffect.OPEN_CALL
        elif effect is MarkerEffect.STRAY_CLOSE_CALL and ends_answer:
            self._deltas.repair("stray_end")
        elif text.shown and effect is MarkerEffect.STRAY_CLOSE_CALL:
            text.write(hit.marker)
            text.beside_shown = True
        else:
            self._apply(effect, hit.marker)
        return True

    def _confirmed(self, marker: str) -> bool:
        """Tell whether the token ids confirm that this is a marker."""
        return self._gate.strict and marker in self._gate.special

    def _quoted(self, hit: Hit, effect: MarkerEffect) -> bool | None:
        """Tell whether the marker stands between a pair of quotes; None if the character after it has not come yet. To miss the
        end of reasoning is worse than to end it early: it is quoted by backticks alone, and never against the ids. A call is
        quoted where a quote begins, because its end may be far: to miss one is better than to run one that was only shown. So
        is what stands beside its markers: a block has calls in it, and several may be shown."""
        text = self._text
        before = text.last
        if effect is MarkerEffect.OPEN_CALL:
            text.shown = text.beside_shown or (before != "\n" and text.code.begins_quote)
            if text.shown or (before != "\n" and text.code.in_quoted_line):
                return True
        quotes = _QUOTES if effect in _SHOWN else ""
        if effect is MarkerEffect.CLOSE_REASONING and not self._confirmed(hit.marker):
            quotes = "`"
        if not before or before not in quotes:
            return False
        if hit.end == len(self._source.text):
            # At the end of the output, an opening after a quote was about to be quoted; an end was meant.
            opening = effect in (MarkerEffect.OPEN_REASONING, MarkerEffect.OPEN_CALL)
            return opening if self._deltas.final else None
        return self._source.text[hit.end] == before

    def _open_bare_call(self) -> bool | None:
        """Open a call that has no marker, where the answer begins with one; None if it does not."""
        source = self._source
        place = skip_spaces(source.text, source.at)
        if place == len(source.text):
            return None if self._deltas.final or place - source.at > _BLANK_LIMIT else False
        candidates = [call for call in self._tools.bare if compiled(call.first).match(source.text[place])]
        if not candidates:
            return None
        self._call = CallParser(source, self._deltas, self._call_ends, "", candidates)
        self._step = self._parse_call
        return True

    def _apply(self, effect: MarkerEffect, marker: str) -> None:
        text = self._text
        match effect:
            case MarkerEffect.OPEN_CALL if self._calls_count:
                parts: tuple[CallFormat | CallBlock, ...] = (*self._tools.blocks, *self._tools.calls)
                candidates = [part for part in parts if marker in part.opens]
                self._call = CallParser(self._source, self._deltas, self._call_ends, marker, candidates)
                self._step = self._parse_call
            case MarkerEffect.OPEN_REASONING:
                self._note("late" if text.visible else "again" if text.kind is TextKind.REASONING else "open")
                self._open_reasoning(marker)
            case MarkerEffect.CLOSE_REASONING:
                self._note("close")
                text.enter(TextKind.ANSWER)
            case MarkerEffect.CLOSE_MESSAGE:
                text.enter(TextKind.ANSWER)
            case MarkerEffect.OPEN_CHANNEL:
                self._open_channel(marker)
            case MarkerEffect.OPEN_WRAPPER if not text.visible:
                self._wrapper_end = dict(self._reasoning.wrappers)[marker]
                text.leading = True
            case MarkerEffect.CLOSE_WRAPPER if marker == self._wrapper_end:
                self._wrapper_end = ""
                text.enter(TextKind.ANSWER)
            case MarkerEffect.STRAY_CLOSE_REASONING:
                self._note("close")
                self._deltas.repair("stray_end")
                text.leading = True
            case MarkerEffect.STRAY_CLOSE_CALL if marker in self._missing_ends or (self._deltas.calls and not text.visible):
                self._missing_ends = ()
                self._deltas.repair("stray_end")
                text.leading = True
            case _:  # in the middle of an answer it is no markup
                text.write(marker)

    def _note(self, marker: FirstMarker) -> None:
        if self.first_marker == "none":
            self.first_marker = marker

    def _open_reasoning(self, marker: str) -> None:
        text = self._text
        if text.kind is TextKind.REASONING:
            if text.visible:
                text.write(marker)
            elif text.anything:
                self._deltas.repair("duplicate_start")
        elif self._reasoning.at_start and text.visible:
            text.write(marker)
        else:
            text.enter(TextKind.REASONING)

    # Calls

    def _parse_call(self) -> bool:
        assert self._call is not None
        progress = self._call.step()
        self._leave_reasoning(self._call)
        match progress:
            case Progress.OVER:
                self._missing_ends = self._call.missing_ends
                self._call = None
                self._text.enter(TextKind.ANSWER)
                self._step = self._free_text
            case Progress.REJECTED:
                if self._call.opener:  # an answer that merely begins with a bracket is no repair
                    self._deltas.repair("rejected_call")
                self._reread_as_text()
            case Progress.UNREADABLE:
                self._deltas.repair("rejected_call")
                self._text.write("".join(self._call.raw))
                self._text.visible = True
                self._call.raw.clear()
        return progress is not Progress.WAIT

    def _leave_reasoning(self, call: CallParser) -> None:
        """End the reasoning in which a call has begun."""
        if call.begun and self._text.kind is TextKind.REASONING:
            if call.opener:
                self._deltas.repair("call_in_reasoning")
            self._text.enter(TextKind.ANSWER)

    def _reread_as_text(self) -> None:
        """Give out the opening of what is no call as text, and read the rest again: a real call may follow. A call that cannot
        be read is not read again: what stands in its values is none."""
        opener = self._channel_opener
        raw = self._channel_opener
        if self._call is not None:
            opener = self._call.opener
            raw = "".join(self._call.raw)
        read_again = len(raw) < _REREAD_LIMIT and not (self._call is not None and self._call.parameter == "unreadable")
        length = len(opener) if read_again else len(raw)
        self._source.put_back(raw[length:])
        self._call = None
        self._step = self._free_text
        self._text.write(raw[:length])
        self._text.visible = True

    # Channels

    def _open_channel(self, marker: str) -> None:
        assert self._channels is not None
        if marker in self._channels.messages:  # without a header
            self._begin_message(self._channels, marker)
        else:
            self._channel_opener = marker
            self._step = self._channel_header

    def _channel_header(self) -> bool:
        channels = self._channels
        source = self._source
        assert channels is not None
        others = channels.ends if self._channel_opener else (*channels.ends, *channels.opens)
        lexer = source.markers(*channels.messages, *others)
        hit = lexer.find(source.text, source.at)
        so_far = source.text[source.at : hit.start if hit else lexer.held(source.text, source.at)]
        if not compiled(channels.header).fullmatch(so_far) or (hit is not None and hit.marker not in channels.messages):
            if self._channel_opener:
                self._reread_as_text()
            else:
                self._step = self._free_text
            return True
        if hit is None:
            return False
        header = self._channel_opener + so_far + hit.marker
        lexer.take(hit.marker)
        source.advance(hit.end)
        self._begin_message(channels, header)
        return True

    def _begin_message(self, channels: ChannelFormat, header: str) -> None:
        """Decide by the header what the body of the message is."""
        channel = compiled(channels.channel).search(header)
        recipient = compiled(channels.recipient).search(header)
        thinking = channel is not None and channel[1] in channels.reasoning and self._reasoning.channels is not None
        if thinking:
            self._note("open")
        self._text.enter(TextKind.REASONING if thinking else TextKind.ANSWER)
        self._step = self._free_text
        self._calls_count = channels.arguments is not None or recipient is not None
        if recipient is not None and self._tools.channels is not None and channels.arguments is not None:
            call = CallFormat(opens=(), arguments=channels.arguments, closes=channels.ends)
            self._call = CallParser.with_name(self._source, self._deltas, self._call_ends, call, recipient[1])
            self._step = self._parse_call


def _is_last(hit: Hit, source: SourceText, text: TextOutput, deltas: DeltaBuffer) -> bool:
    """Tell whether nothing has come behind a marker, and the text shows no other markup, whose end it would be."""
    alone = not deltas.cut and not text.shown and not text.code.fence and deltas.repairs.keys().isdisjoint(_SHOWN_MARKUP)
    return alone and skip_spaces(source.text, hit.end) == len(source.text)


def _begins_call(effects: Mapping[str, MarkerEffect], rest: str) -> bool:
    """Tell whether text that is held back is the beginning of a marker of a call, and hardly anything else."""
    opens = any(marker.startswith(rest) for marker, effect in effects.items() if effect is MarkerEffect.OPEN_CALL)
    return opens and len(rest) >= _SURE_MARKER
