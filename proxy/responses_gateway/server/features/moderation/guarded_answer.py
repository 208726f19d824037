"""A moderated response: nothing of an answer passes that was not judged."""

from __future__ import annotations

import asyncio

import msgspec

from responses_gateway.request.parameters.moderation import read_modes
from responses_gateway.server.features.moderation.guard import Guard
from responses_gateway.server.features.moderation.held_answer import MOST_HELD, HeldAnswer, HeldEnd
from responses_gateway.server.features.moderation.moderation import Moderation
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.upstream.chat_call import AnswerSource, ChatCall, Receive
from responses_gateway.settings import Settings
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.tools import ToolTable

# What takes the place of the rest of an answer that is held back.
_FILTERED = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}\n\ndata: [DONE]\n\n'
_LONGEST_WAIT = 1.0  # how long a text may wait for the end of its sentence, in seconds


async def moderate(guard: Guard, prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
    """Return a request with what judges it, if it asks to be moderated. An input that is to be held back was judged by then.
    Raise `ApiError`."""
    member = prepared.context.request.moderation
    if member is None or "moderation" in settings.forward:
        return prepared
    moderation = Moderation(guard, read_modes(member, may_block=True), prepared.call.body, prepared.call.headers)
    await moderation.admit()
    # The correction of an input would not pass the guard.
    judged = prepared.options.judged and moderation.modes.output != "block"
    prepared = prepared.with_end(moderation.at_end)
    options = msgspec.structs.replace(prepared.options, judged=judged)
    prepared = msgspec.structs.replace(
        prepared,
        options=options,
        continuable=prepared.continuable._replace(journal=None),
        answer_filter=GuardedAnswer(moderation, options.tools),
    )
    return msgspec.structs.replace(prepared, turns=None, compaction=None) if moderation.refused else prepared


class GuardedAnswer:
    """Holds an answer back until the guard has judged it: by sentences, and calls as a whole; or only its end, where what is
    flagged is only reported. One question at a time: while the guard thinks, more text comes together. An `AnswerFilter`."""

    __slots__ = (
        "_blocked", "_crowded", "_failure", "_held", "_judging", "_moderation", "_pass_on", "_source", "_timer", "_tools",
    )  # fmt: skip

    def __init__(self, moderation: Moderation, tools: ToolTable) -> None:
        """`tools` are those that may be called."""
        self._moderation = moderation
        self._tools = tools
        self._blocked = False  # the rest of the answer was flagged
        self._failure: ApiError | None = None  # of the guard, where nothing may pass without it
        self._held: HeldAnswer | None = None  # of the answer that is read
        self._source: AnswerSource | None = None
        self._pass_on: Receive | None = None
        self._judging: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._crowded = False  # so much is held that no more is read

    @property
    def busy(self) -> bool:
        """Whether the guard is waited for."""
        return self._judging is not None

    @property
    def closed(self) -> bool:
        """Whether nothing more passes: the rest was flagged, or the guard failed."""
        return self._blocked or self._failure is not None

    async def admit(self, call: ChatCall) -> bytes | None:
        """Have the input judged; return what takes the place of the answer if it is to be held back. Raise `ApiError`."""
        await self._moderation.admit_turn(call.body["messages"])
        return _FILTERED if self._moderation.refused else None

    def begin(self, source: AnswerSource, pass_on: Receive | None) -> None:
        """Hold back an answer that begins."""
        kind = HeldAnswer if self._moderation.modes.output == "block" else HeldEnd
        self._held = kind(self._tools)
        self._source = source
        self._pass_on = pass_on

    def feed(self, data: bytes) -> None:
        """Take what one read brought."""
        if self._held is not None and not self.closed:
            self._held.feed(data)
            self._advance()

    async def end(self, completion: bytes | None, broken: ApiError | None) -> bytes | None:
        """Wait until all of the answer was judged. Raise `ApiError` if it broke off, or if the guard failed."""
        await self._judge_rest()
        if self._failure is not None:
            raise self._failure.copy()
        if self._blocked:
            return None if completion is None else _FILTERED
        if broken is not None:
            raise broken.copy()
        return completion

    def stop(self) -> None:
        """Judge nothing more of this answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task = self._judging
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            self._judging = None

    def forget(self) -> None:
        """Leave the answer."""
        self._held = None

    def close(self) -> None:
        """Leave the guard for good."""
        self._moderation.end()
        self._pass_on = None  # what these refer to refers to this
        self._source = None

    # ---- holding -----------------------------------------------------------------------------------------------------

    def _advance(self, *, now: bool = False) -> None:
        """Pass on what may pass, and have judged what is due."""
        held = self._held
        assert held is not None
        self._pass_judged(held)
        if self._judging is not None:
            return
        if held.due(now=now) is not None:
            self._judging = asyncio.create_task(self._judge(held, now=now))
        else:
            self._wait_for_sentence(held)

    def _pass_judged(self, held: HeldAnswer) -> None:
        """Pass on what may pass, and read no more while too much is held."""
        passed = held.take()
        if passed and self._pass_on is not None:
            self._pass_on(passed)
        crowded = held.size > 2 * MOST_HELD
        if crowded != self._crowded and self._source is not None:
            self._crowded = crowded
            if crowded:
                self._source.hold()
            else:
                self._source.release()

    def _wait_for_sentence(self, held: HeldAnswer) -> None:
        """Have a text that waits for the end of its sentence judged in a moment, as it is by then."""
        if held.waits and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LONGEST_WAIT, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        self._timer = None
        if self._held is not None and not self.closed:
            self._advance(now=True)

    async def _judge(self, held: HeldAnswer, *, now: bool) -> None:
        while (length := held.due(now=now)) is not None:
            now = False
            start = held.length
            try:
                flagged = await self._moderation.judge_answer(held.text[:length], start)
            except ApiError as error:
                self._failure = error.copy()
                self._leave_backend()
                return
            if flagged and self._moderation.modes.output == "block":
                self._block()
                return
            if held.ended:
                await self._moderation.input_judged()
            held.judged(length)
            self._pass_judged(held)
        self._judging = None
        self._wait_for_sentence(held)

    def _block(self) -> None:
        """End the answer in the place of what was flagged; the backend stops generating."""
        self._blocked = True
        self._leave_backend()
        if self._pass_on is not None:
            self._pass_on(_FILTERED)

    def _leave_backend(self) -> None:
        if self._source is not None:
            self._source.disconnect()

    async def _judge_rest(self) -> None:
        """Have the end of the body judged, unless nothing of it passes."""
        held = self._held
        if held is None:
            return
        if not self.closed:
            held.end()
            self._advance()
        while self._judging is not None and not self.closed:
            task = self._judging
            await asyncio.wait({task})
            if task.cancelled():
                return
            task.result()  # a defect ends the response
