"""What a moderated response asks of backends: as any other, but nothing of an answer passes that was not judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from responses_gateway.request.parameters.moderation import read_modes
from responses_gateway.server.features.moderation.guard import Guard
from responses_gateway.server.features.moderation.held_answer import MOST_HELD, HeldAnswer, HeldEnd
from responses_gateway.server.features.moderation.moderation import Moderation
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.server.generation.upstream.continuation import Cause
from responses_gateway.server.generation.upstream.upstream import Upstream
from responses_gateway.settings import Settings
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.sse import as_stream

Receive = Callable[[bytes], None]

# What takes the place of the rest of an answer that is held back.
_FILTERED = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}\n\ndata: [DONE]\n\n'
# How long a text may wait for the end of its sentence, in seconds.
_LONGEST_WAIT = 1.0


async def moderate(guard: Guard, prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
    """Return a request with what judges it, if it asks to be moderated. An input that is to be held back was judged by then.
    Raise `ApiError`."""
    asked = prepared.context.request.moderation
    if asked is None or "moderation" in settings.forward:
        return prepared
    moderation = Moderation(guard, read_modes(asked, may_block=True), prepared.call.body, prepared.call.headers)
    await moderation.admit()
    # The correction of an input would not pass the guard.
    judged = prepared.options.judged and moderation.modes.output != "block"
    prepared = prepared.with_end(moderation.at_end)
    options = msgspec.structs.replace(prepared.options, judged=judged)
    prepared = msgspec.structs.replace(
        prepared,
        options=options,
        continuable=prepared.continuable._replace(journal=None),
        ask=partial(GuardedUpstream, moderation, frozenset(options.tools)),
    )
    return msgspec.structs.replace(prepared, turns=None, compaction=None) if moderation.refused else prepared


class GuardedUpstream(Upstream):
    """Holds an answer back until the guard has judged it: by sentences, and calls as a whole; or only its end, where what is
    flagged is only reported. One question at a time: while the guard thinks, more text comes together."""

    __slots__ = (
        "_blocked",
        "_counts",
        "_crowded",
        "_failure",
        "_held",
        "_judging",
        "_moderation",
        "_pass_on",
        "_slow",
        "_timer",
        "_tools",
    )

    def __init__(self, moderation: Moderation, tools: frozenset[str], *parts: Any) -> None:
        """`tools` are the names that calls may have, `parts` those of an upstream."""
        self._moderation = moderation
        self._tools = tools
        self._counts = False  # the tokens of the request are to be counted
        self._blocked = False  # the rest of the answer was flagged
        self._failure: ApiError | None = None  # of the guard, where nothing may pass without it
        self._held: HeldAnswer | None = None  # of the answer that is read
        self._pass_on: Receive | None = None
        self._judging: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow = False  # the client takes no more
        self._crowded = False  # so much is held that no more is read
        super().__init__(*parts)

    @property
    def opened(self) -> bool:
        """Whether the answer has begun: what is held back ends before it begins."""
        return self._moderation.refused or super().opened

    def count_input(self) -> None:
        """Count it once it is sent."""
        self._counts = True

    async def open(self) -> None:
        """Have the input judged, and do as every upstream unless it is held back."""
        await self._moderation.admit_turn(self.call.body["messages"])
        if self._moderation.refused:
            return
        if self._counts:
            self._counts = False
            super().count_input()
        await super().open()

    def attach(self, receive: Receive, *, paused: bool) -> None:
        """Hold back what an event stream brings, and have `receive` take what passes."""
        if self._moderation.refused:
            receive(_FILTERED)
            return
        if self._chat is None or not self._chat.is_event_stream or self._attached:
            return
        self._begin(receive)
        self._slow = paused
        super().attach(self._take, paused=paused)

    async def finish(self) -> bytes | None:
        """Wait for the end of the body, and until all of it was judged. Raise `ApiError` if it breaks off, or if the guard
        failed."""
        broken: ApiError | None = None
        completion: bytes | None = None
        try:
            completion = await super().finish()
        except ApiError as error:
            broken = error.copy()  # one that was raised would keep this frame, and be kept by it
        if completion is not None:
            self._begin(None)
            assert self._held is not None
            self._held.feed(as_stream(completion))
        await self._judge_rest()
        if self._failure is not None:
            raise self._failure.copy()
        if self._blocked:
            return None if completion is None else _FILTERED
        if broken is not None:
            raise broken.copy()
        return completion

    def redirect(self) -> bool:
        """Leave a backend whose answer broke off; not for a failure of the guard."""
        return self._failure is None and super().redirect()

    async def continue_elsewhere(self, translator: Translator, cause: Cause) -> bytes | None:
        """Have another backend continue what was passed on; not for a failure of the guard."""
        return None if self._failure is not None or self._blocked else await super().continue_elsewhere(translator, cause)

    def ask(self, call: ChatCall) -> None:
        """Have `open` send another request."""
        self._stop_judging()
        super().ask(call)

    def is_silent(self, now: float) -> bool:
        """Tell whether the backend has sent nothing for too long; while the guard thinks, nobody waits for the backend."""
        return self._judging is None and super().is_silent(now)

    def pause(self) -> None:
        """Read no more: the client is slower than the model."""
        self._slow = True
        super().pause()

    def resume(self) -> None:
        """Read again, unless too much waits for the guard."""
        self._slow = False
        if not self._crowded:
            super().resume()

    def disconnect(self) -> None:
        """End the connection, and the judgement of what came."""
        self._stop_judging()
        super().disconnect()

    def close(self, translator: Translator) -> None:
        """Leave backend and guard for good."""
        self._moderation.end()
        self._pass_on = None  # it refers to this
        super().close(translator)

    # ---- holding -----------------------------------------------------------------------------------------------------

    def _begin(self, receive: Receive | None) -> None:
        kind = HeldAnswer if self._moderation.modes.output == "block" else HeldEnd
        self._held = kind(self._tools)
        self._pass_on = receive

    def _take(self, data: bytes) -> None:
        self.last_read = self.clock()
        if self._held is not None and not self._blocked and self._failure is None:
            self._held.feed(data)
            self._advance()

    def _advance(self, *, now: bool = False) -> None:
        """Pass on what may pass, and have judged what is due."""
        held = self._held
        assert held is not None
        passed = held.take()
        if passed and self._pass_on is not None:
            self._pass_on(passed)
        self._limit(held)
        if self._judging is not None:
            return
        if held.due(now=now) is not None:
            self._judging = asyncio.create_task(self._judge(held, now=now))
        else:
            self._wait_for_sentence(held)

    def _limit(self, held: HeldAnswer) -> None:
        """Read no more while too much is held."""
        crowded = held.size > 2 * MOST_HELD
        if crowded != self._crowded:
            self._crowded = crowded
            if crowded:
                super().pause()
            elif not self._slow:
                super().resume()

    def _wait_for_sentence(self, held: HeldAnswer) -> None:
        """Have a text that waits for the end of its sentence judged in a moment, as it is by then."""
        if held.waits and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LONGEST_WAIT, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        self._timer = None
        if self._held is not None and not self._blocked and self._failure is None:
            self._advance(now=True)

    async def _judge(self, held: HeldAnswer, *, now: bool) -> None:
        while (length := held.due(now=now)) is not None:
            now = False
            start = held.length
            try:
                flagged = await self._moderation.judge_answer(held.text[:length], start)
            except ApiError as error:
                self._failure = error.copy()
                super().disconnect()
                return
            if flagged and self._moderation.modes.output == "block":
                self._block()
                return
            if held.ended:
                await self._moderation.input_judged()
            held.judged(length)
            passed = held.take()
            if passed and self._pass_on is not None:
                self._pass_on(passed)
            self._limit(held)
        self._judging = None
        self._wait_for_sentence(held)

    def _block(self) -> None:
        """End the answer in the place of what was flagged; the backend stops generating."""
        self._blocked = True
        super().disconnect()
        if self._pass_on is not None:
            self._pass_on(_FILTERED)

    async def _judge_rest(self) -> None:
        """Have the end of the body judged, unless nothing of it passes."""
        held = self._held
        if held is None:
            return
        self._read = True
        if not self._blocked and self._failure is None:
            held.end()
            self._advance()
        while self._judging is not None and not self._blocked and self._failure is None:
            task = self._judging
            await asyncio.wait({task})
            if task.cancelled():
                return
            task.result()  # a defect ends the response

    def _stop_judging(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task = self._judging
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            self._judging = None

    def _forget_answer(self) -> None:
        self._held = None
        super()._forget_answer()
