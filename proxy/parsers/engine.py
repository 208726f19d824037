"""The engine that turns a model's raw text into deltas, for every format.

    TEXT, REASONING --opening of a call--> choose -> [block ->] [header ->] arguments -> after arguments --> TEXT
    TEXT, REASONING --opening of a channel--> channel header --> TEXT, REASONING or arguments

Two rules hold everywhere. What begins like a call is given out only when it is one, and is text if it is none. And every
character is looked at a bounded number of times, however the text is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from proxy.parsers.arguments.reader import skip_spaces
from proxy.parsers.call_reader import CallReader, Progress
from proxy.parsers.format import Block, Call, Channels, Format, JsonArguments, Reasoning, Tools
from proxy.parsers.lexer import Hit, Lexer, TokenGate
from proxy.parsers.output import Output
from proxy.parsers.source import Source
from proxy.parsers.text_output import Speech
from proxy.parsers.transitions import Act, State, pattern, transitions
from proxy.wire.deltas import Delta, FinishReason

_QUOTES = "`'\""
_SHOWN = (Act.THINK, Act.CALL, Act.STRAY, Act.LATE)  # what prose about markup shows; the rest are control tokens
_REREAD_LIMIT = 4096  # characters of a rejected call that are read again for markers
_BLANK_LIMIT = 64  # white space at the start of an answer after which no bare call can follow


class MarkupParser:
    """Raw model text in, deltas out. One parser serves one choice of one response.

    `feed` takes a piece of the text and, where the server tells them, the ids of its tokens; `finish` is called once, at the
    end. Both give `Reasoning`, `Text`, `ToolCall` and `ToolArguments`, nothing else. `repairs` counts what had to be forgiven,
    by the slugs of `formats.REPAIRS`. A call whose arguments are no complete JSON at the end was cut.
    """

    def __init__(
        self,
        form: Format,
        *,
        schemas: Mapping[str, Mapping[str, Any]],
        thinking_open: bool | None = None,
        marker_ids: Mapping[str, int] | None = None,
    ) -> None:
        self._reasoning, self._tools = form.reasoning or Reasoning(), form.tools or Tools()
        self._channels = form.channels
        self._out = Output(schemas)
        self._gate = TokenGate(marker_ids)
        self._source = Source(self._gate)
        self._acts = transitions(form)
        self._lexers = {state: Lexer(acts, self._gate) for state, acts in self._acts.items()}
        opened = self._reasoning.implicit if thinking_open is None else thinking_open
        able = bool(self._reasoning.closes or self._reasoning.channels)
        self._speech = Speech(self._out, State.REASONING if opened and able else State.TEXT)
        self._wrapping = ""  # the end of the answer's wrapping
        self._opener = ""  # the marker that opened a channel's header
        self._call: CallReader | None = None
        self._owed: tuple[str, ...] = ()  # end markers that may still come for a call that is over
        self._mode: Callable[[], bool] = self._free
        self._finished = False
        ends = [marker for block in self._tools.blocks for marker in block.closes]
        opens = [marker for marker, act in self._acts[State.TEXT].items() if act in (Act.CALL, Act.CHANNEL)]
        self._call_ends = (*ends, *opens)

    @property
    def repairs(self) -> dict[str, int]:
        return self._out.repairs

    def feed(self, text: str, token_ids: Sequence[int] | None = None) -> list[Delta]:
        """The deltas that a piece of text brings. `token_ids`: the ids of its tokens, if known."""
        markers = self._gate.see(token_ids)
        if token_ids is not None:
            self._out.count(len(token_ids) - markers)
        self._source.extend(text)
        self._run()
        return self._out.take()

    def finish(self, reason: FinishReason) -> list[Delta]:
        """The deltas that were held back. Nothing is completed on the model's behalf unless it stopped by itself."""
        if self._finished:
            return []
        self._finished = self._out.final = True
        self._run()
        while self._call is not None and self._call.tentative:
            self._out.repair("cut_markup")
            self._let_go()
            self._run()
        if self._call is not None:
            self._call.finish(cut=reason != "stop")
        elif self._mode == self._free:
            self._speech.say(self._source.rest)
        else:  # the header of a channel holds no text of the model's
            self._out.repair("cut_markup")
        return self._out.take()

    @property
    def speaking(self) -> Literal["text", "reasoning"]:
        """What free text belongs to at this point."""
        return "reasoning" if self._speech.state is State.REASONING else "text"

    def plain(self, text: str, token_ids: Sequence[int] | None = None) -> bool:
        """A short cut for `feed`: whether all that this piece (not empty) brings is itself, with its tokens, as more of the
        text or reasoning given out last. It has been fed if so, and has not if not."""
        return (
            self._source.at >= len(self._source.text)
            and self._mode == self._free
            and not self._out.owing
            and self._gate.passes(token_ids)
            and self._lexers[self._speech.state].absent(text)
            and self._speech.goes_on(text)
        )

    def _run(self) -> None:
        while self._mode():
            pass

    # Free text

    def _free(self) -> bool:
        source, speech = self._source, self._speech
        if self._tools.bare and not speech.spoken and speech.state is State.TEXT:
            bare = self._bare_call()
            if bare is not None:
                return bare
        lexer = self._lexers[speech.state]
        hit = lexer.find(source.text, source.at)
        if hit is None:
            speech.say(source.advance(lexer.held(source.text, source.at)))
            return False
        speech.say(source.advance(hit.start))
        act = self._acts[speech.state][hit.marker]
        quoted = self._quoted(hit, act)
        if quoted is None:
            return False
        lexer.take(hit.marker)
        source.advance(hit.end)
        if quoted or (speech.in_code and act in _SHOWN and not self._vouched(hit.marker)):
            self._out.repair("quoted_marker")
            speech.say(hit.marker)
        else:
            self._perform(act, hit.marker)
        return True

    def _vouched(self, marker: str) -> bool:
        """The token ids have told that this is a marker."""
        return self._gate.strict and self._gate.special(marker)

    def _quoted(self, hit: Hit, act: Act) -> bool | None:
        """Does the marker stand between a pair of quotes? None: the character after it has not come yet.

        To miss the end of reasoning is worse than to end it early: it is quoted by backticks alone, and never against the ids.
        """
        before = self._speech.last
        quotes = _QUOTES if act in _SHOWN else ""
        if act is Act.ANSWER and not self._vouched(hit.marker):
            quotes = "`"
        if not before or before not in quotes:
            return False
        if hit.end == len(self._source.text):
            # At the end of the output, an opening after a quote was about to be quoted; an end was meant.
            return act in (Act.THINK, Act.CALL) if self._out.final else None
        return self._source.text[hit.end] == before

    def _bare_call(self) -> bool | None:
        """Open a call that has no marker, where the answer begins with one; None if it does not."""
        source = self._source
        place = skip_spaces(source.text, source.at)
        if place == len(source.text):
            return None if self._out.final or place - source.at > _BLANK_LIMIT else False
        candidates = [call for call in self._tools.bare if pattern(call.first).match(source.text[place])]
        if not candidates:
            return None
        self._call = CallReader.after_marker(source, self._out, self._call_ends, "", candidates)
        self._mode = self._calling
        return True

    def _perform(self, act: Act, marker: str) -> None:
        speech = self._speech
        match act:
            case Act.CALL:
                parts: tuple[Call | Block, ...] = (*self._tools.blocks, *self._tools.calls)
                candidates = [part for part in parts if marker in part.opens]
                self._call = CallReader.after_marker(self._source, self._out, self._call_ends, marker, candidates)
                self._mode = self._calling
            case Act.THINK:
                self._think(marker)
            case Act.ANSWER | Act.MESSAGE_END:
                speech.enter(State.TEXT)
            case Act.CHANNEL:
                self._opener = marker
                self._mode = self._channel_header
            case Act.WRAP if not speech.spoken:
                self._wrapping = dict(self._reasoning.wrappers)[marker]
                speech.leading = True
            case Act.UNWRAP if marker == self._wrapping:
                self._wrapping = ""
                speech.enter(State.TEXT)
            case Act.STRAY:
                self._out.repair("stray_end")
                speech.leading = True
            case Act.LATE if marker in self._owed or (self._out.calls and not speech.spoken):  # after a call
                self._owed = ()
                self._out.repair("stray_end")
                speech.leading = True
            case _:  # in the middle of an answer it is no markup
                speech.say(marker)

    def _think(self, marker: str) -> None:
        speech = self._speech
        if speech.state is State.REASONING:
            if speech.spoken:
                speech.say(marker)
            elif speech.anything:
                self._out.repair("duplicate_start")
        elif self._reasoning.at_start and speech.spoken:
            speech.say(marker)
        else:
            speech.enter(State.REASONING)

    # Calls

    def _calling(self) -> bool:
        assert self._call is not None
        progress = self._call.step()
        if self._call.begun and self._speech.state is State.REASONING:
            if self._call.opener:
                self._out.repair("call_in_reasoning")
            self._speech.enter(State.TEXT)
        match progress:
            case Progress.OVER:
                self._owed = self._call.owed
                self._call = None
                self._speech.enter(State.TEXT)
                self._mode = self._free
            case Progress.REJECTED:
                if self._call.opener:  # an answer that merely begins with a bracket is nothing to forgive
                    self._out.repair("rejected_call")
                self._let_go()
        return progress is not Progress.WAIT

    def _let_go(self) -> None:
        """What began like a call is text. Behind its opening there may be a real one, so the rest is read again."""
        opener, raw = self._opener, self._opener
        if self._call is not None:
            opener, raw = self._call.opener, "".join(self._call.raw)
        shown = len(opener) if len(raw) < _REREAD_LIMIT else len(raw)
        self._source.put_back(raw[shown:])
        self._call = None
        self._mode = self._free
        self._speech.say(raw[:shown])
        self._speech.spoken = True

    # Channels

    def _channel_header(self) -> bool:
        channels, source = self._channels, self._source
        assert channels is not None
        lexer = source.markers(channels.message, *channels.ends)
        hit = lexer.find(source.text, source.at)
        so_far = source.text[source.at : hit.start if hit else len(source.text)]
        if not pattern(channels.header).fullmatch(so_far) or (hit is not None and hit.marker != channels.message):
            self._let_go()
            return True
        if hit is None:
            return False
        header = self._opener + so_far
        lexer.take(hit.marker)
        source.advance(hit.end)
        self._begin_message(channels, header)
        return True

    def _begin_message(self, channels: Channels, header: str) -> None:
        """Decide by the header what the body of the message is."""
        channel = pattern(channels.channel).search(header)
        recipient = pattern(channels.recipient).search(header)
        thinking = channel is not None and channel[1] in channels.reasoning and self._reasoning.channels is not None
        self._speech.enter(State.REASONING if thinking else State.TEXT)
        self._mode = self._free
        if recipient is not None and self._tools.channels is not None:
            call = Call(opens=(), arguments=JsonArguments(), closes=channels.ends)
            self._call = CallReader.with_name(self._source, self._out, self._call_ends, call, recipient[1])
            self._mode = self._calling
