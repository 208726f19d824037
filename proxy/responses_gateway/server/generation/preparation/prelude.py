"""What comes before the model's first turn: a summary of a context that is too long, the tools of MCP servers, and calls that
the client has approved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from responses_gateway.server.generation.hosted_tools.turns import HostedTurns
from responses_gateway.server.generation.preparation.compaction import AutomaticCompaction
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.server.recording.recording import Recording
from responses_gateway.stream.translator import Translator


class Prelude:
    """`run` it before a backend is asked, and `take` its events once the response is started."""

    __slots__ = ("_begun", "_compaction", "_events", "_hosted", "_log", "_recording", "_summary", "_translator")

    def __init__(
        self,
        translator: Translator,
        compaction: AutomaticCompaction | None,
        hosted: HostedTurns | None,
        log: RequestLog,
        recording: Recording | None,
    ) -> None:
        self._translator = translator
        self._compaction = compaction
        self._hosted = hosted
        self._log = log
        self._recording = recording
        # Make the events that are due; those of a summary come before all others.
        self._summary: list[Callable[[], bytes]] = []
        self._begun = False  # the model writes a summary
        self._events: list[Callable[[], bytes]] = []
        if hosted is not None:
            self._events += [partial(translator.list_tools, listing) for listing in hosted.listings]

    @property
    def pending(self) -> bool:
        """Whether something has to be done that changes the chat request."""
        return self._compaction is not None or (self._hosted is not None and bool(self._hosted.approved))

    async def compact(self, call: ChatCall, send: Callable[[], None]) -> ChatCall:
        """Summarise a context that is too long; return the chat request that continues from the summary. `send` is called when
        events are due meanwhile. Raise `ApiError`."""
        compaction = self._compaction
        if compaction is None:
            return call
        self._log.facts.phase = "backend"

        def begun(item_id: str) -> None:
            self._begun = True
            self._summary.append(partial(self._translator.begin_summary, item_id))
            send()

        item, body = await compaction.run(self._log, begun)
        self._compaction = None
        self._summary.append(partial(self._translator.insert, "compaction", item))
        call = call.with_body(body)
        if self._recording is not None:
            self._recording.compacted(call.data)
        return call

    async def run_approved(self, call: ChatCall) -> ChatCall:
        """Run the calls that the client has approved; return the chat request with their results."""
        hosted = self._hosted
        if hosted is None or not hosted.approved:
            return call
        self._log.facts.phase = "tools"
        body = await hosted.run_approved(call.body, self._translator.options.tools)
        self.show_approved()
        return call.with_body(body)

    def show_approved(self) -> None:
        """Make the events of the approved calls due; those that still run are interrupted."""
        if self._hosted is not None:
            self._events += [partial(self._translator.approved_call, done) for done in self._hosted.approved_calls()]

    def give_up(self) -> None:
        """Make all due that can still be shown, of a response that fails: nothing behind a summary that has begun."""
        if not self._begun:
            self._compaction = None
        self.show_approved()

    def take(self) -> list[Callable[[], bytes]]:
        """Return what makes the events that are due, in order: while there is no summary yet, none of what comes behind it."""
        events = self._summary
        self._summary = []
        if self._compaction is None:
            events += self._events
            self._events = []
        return events
