"""The one way in which a response comes to be, whoever asks for it: HTTP, a WebSocket, a compaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.request import Loss
from responses_gateway.request.who_asks import NOBODY, Asker, with_kind
from responses_gateway.request.who_asks.asker import SessionRoots
from responses_gateway.server.custom_tools.repair import InputRepair
from responses_gateway.server.generation.additions import Additions, Traced
from responses_gateway.server.generation.generation import ClientTimer, Generation, NullSink, Sink, shutting_down
from responses_gateway.server.generation.in_flight import InFlight
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.preparation.codex_sessions import SESSION_HEADER, CodexSessions
from responses_gateway.server.generation.preparation.compaction import Begun, Summary, SummarySink
from responses_gateway.server.generation.preparation.context import Caller, Context, PreviousResponse, asking, save
from responses_gateway.server.generation.preparation.encrypted_content import is_compaction
from responses_gateway.server.generation.preparation.ground import RequestScope
from responses_gateway.server.generation.preparation.kept_response import KeptResponse
from responses_gateway.server.generation.preparation.known_inputs import Growing
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.generation.preparation.prelude import Prelude
from responses_gateway.server.generation.preparation.prepare import Preparation, PreparedRequest
from responses_gateway.server.generation.request_log.facts import NO_GAPS, RequestFacts, StreamTimes
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests
from responses_gateway.server.generation.request_log.reports import RequestReports
from responses_gateway.server.generation.request_log.request_log import RequestLog, account_of, client_name, settle
from responses_gateway.server.generation.upstream.continuation import Continuation
from responses_gateway.server.generation.upstream.upstream import InputCounter, Upstream
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.server.quotas.quota import Reservation
from responses_gateway.server.recording.recorder import Recorder
from responses_gateway.server.recording.recording import Recording
from responses_gateway.settings import Settings
from responses_gateway.state import Store
from responses_gateway.stream.options import recognise
from responses_gateway.stream.tape import Call
from responses_gateway.stream.text_loops import TextLoopWatch
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.validity.call_rules import REPAIRS
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.telemetry.span_attributes import response_attributes
from responses_gateway.telemetry.tracing import Trace
from responses_gateway.wire.errors import ApiError, unknown_model
from responses_gateway.wire.requests import ResponsesRequest

# Called for a client that does not take what is there for it.
DropClient = Callable[[], object]
_T = TypeVar("_T")
_NO_LOGPROBS = Loss("parameter", "include", "ignored", "the backend sent no log probabilities")
_NO_TOKENS = Loss("parameter", "include", "ignored", "no item has the ids and log probabilities of the last tokens")
_NO_CALL = Loss("parameter", "tool_choice", "ignored", "the backend let the model answer without the call that it was to make")
_NO_IMAGES = Loss("item", "image", "ignored", "an image in the answer was left out")
STORE_LIMIT = 30  # how long the end of a response waits to be stored, in seconds, unless the gateway stops
# The seconds after which a client may ask again that would not do so by itself, because no backend has said when the limit that
# was reached is over. Codex does five times: within the time for which it asks again after other failures.
_NEXT_TRY = 5.0
# Items of an answer that are no calls.
_SAID = frozenset({"message", "reasoning", "compaction"})


@dataclass(eq=False, slots=True)
class Responses:
    """Makes responses, with the parts that all of them share."""

    preparation: Preparation
    live: LiveSettings
    reports: RequestReports
    recorder: Recorder | None
    in_flight: InFlight
    repair: InputRepair
    ledger: Ledger | None
    additions: Additions
    sessions: CodexSessions = field(default_factory=CodexSessions, init=False)
    roots: SessionRoots = field(default_factory=SessionRoots, init=False)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the process."""
        return self.reports.metrics

    @property
    def pool(self) -> Pool:
        """The backends."""
        return self.preparation.pool

    @property
    def store(self) -> Store | None:
        """The store of responses; None without one."""
        return self.preparation.store

    def reopen(self, kept: KeptResponse) -> Creation:
        """Begin again with a response that was kept. No client waits for it. Raise `UnreadableResponse`."""
        headers = self.preparation.client_keys.headers(kept)
        charged = kept.charged
        reservation = None
        if charged is not None and self.ledger is not None:
            reservation = Reservation(charged.key, charged.team, ledger=self.ledger, owners=charged.owners)
        caller = Caller(kept.tenant, kept.request_id, headers, "POST /v1/responses", reservation)
        creation = Creation(self, caller, lambda: None)
        if creation.recording is not None:
            creation.recording.received(kept.request)
            creation.recording.parsed()
        return creation

    async def summarise(
        self, request: ResponsesRequest, caller: Caller, context: Context | None = None, begun: Begun | None = None
    ) -> Summary:
        """Have the backend answer a request that ends with a `compaction_trigger`. Raise `ApiError`."""
        async with Creation(self, caller, lambda: None, for_compaction=True) as creation:
            if creation.recording is not None:
                creation.recording.received(request.model_dump_json(exclude_none=True).encode())
                creation.recording.parsed()
            await creation.prepare(request, context=context)
            generation = creation.start(NullSink() if begun is None else SummarySink(creation.translator, begun))
            await generation.open()
            await generation.run()
            await creation.settle()
        translator = creation.translator
        if translator.error is not None:
            raise translator.error.copy()
        return Summary(translator, creation.prepared.context.items)


class Creation:
    """One response, from the first byte of its request, with which its log and its recording begin, to its end. `async with`
    ends it, unless it was detached."""

    __slots__ = (
        "_clock", "_detached", "_generation", "_responses", "_stopping", "abandon", "answered", "caller",
        "ended", "hand_over", "in_force", "log", "prepared", "recording", "translator",
    )  # fmt: skip

    prepared: PreparedRequest  # there once it is prepared
    translator: Translator

    def __init__(self, responses: Responses, caller: Caller, drop_client: DropClient, *, for_compaction: bool = False) -> None:
        """`for_compaction`: the response is needed to make another one."""
        loop = asyncio.get_running_loop()
        self.in_force = responses.live.current
        self.ended: asyncio.Future[None] = loop.create_future()
        self.abandon = drop_client
        self._responses = responses
        self.caller = caller
        self._clock = loop.time
        self._generation: Generation | None = None
        # Leaves the response to another gateway when this one stops. Returns False if that cannot be done.
        self.hand_over: Callable[[], bool] | None = None
        self.answered = False  # some of the response was made
        self._detached = False
        self._stopping = False
        settings = self.in_force.settings
        now = self._clock()
        trace = None
        reports = responses.reports
        if reports.tracing is not None and caller.operation is not None:
            trace = reports.tracing.begin(caller.operation, caller.headers, now)
        self.log = RequestLog(
            _new_facts(caller, settings, reports.history, now),
            reports,
            settings,
            reservation=caller.reservation,
            trace=trace,
            exchange=caller.exchange,
            for_compaction=for_compaction,
        )
        self.recording = _recording(responses.recorder, caller, settings)
        responses.in_flight.activities.add(self)

    # ---- making it ready ---------------------------------------------------------------------------------------------

    async def prepare(
        self,
        request: ResponsesRequest,
        previous: PreviousResponse | None = None,
        context: Context | None = None,
        kept: KeptResponse | None = None,
        reading: Reading | None = None,
        growing: Growing | None = None,
    ) -> None:
        """Find what the request builds on, unless `context` has it, and translate it. `kept`: the response has waited, or begun
        in another gateway. `reading`, `growing`: as in `RequestScope`. Raise `ApiError`, `StoreUnavailable`."""
        responses = self._responses
        caller = self.caller
        if SESSION_HEADER in caller.headers:
            request = responses.sessions.with_model(request, caller.tenant, caller.headers[SESSION_HEADER])
        if caller.allows is not None and not caller.allows(request.model):
            raise unknown_model(request.model)
        asker = asking(request, caller, reading) if kept is None else kept.asker
        if asker is not NOBODY or self.log.for_compaction:
            caller = _caller_for(responses.roots, caller, asker, for_compaction=self.log.for_compaction)
        self.log.facts.model = request.model
        self.log.facts.tenant = caller.tenant
        self.log.facts.streamed = bool(request.stream) or caller.over_websocket
        self.log.facts.asker = caller.asker
        scope = RequestScope(caller, self.in_force, self.recording, kept, reading, growing)
        prepared = await responses.preparation.prepare(request, scope, responses.summarise, previous, context)
        self.log.facts.asker = prepared.caller.asker
        additions = responses.additions
        for step in _due(prepared, additions.steps, additions.tool_steps, additions.session_steps):
            prepared = await step(prepared, self.in_force.settings)
        self.log.losses(prepared.losses)
        if self.log.trace is not None:
            _tell(self.log.trace, prepared, additions.traced)
        clock = time.time if prepared.tape is None else prepared.tape.clock
        self.translator = Translator(prepared.options, clock, None if kept is None else kept.created)
        self.prepared = prepared
        if self.recording is not None:
            _record(self.recording, prepared, self.translator)
        if self._stopping:
            raise shutting_down()

    def play(self, calls: Iterable[Call]) -> Iterator[bytes]:
        """Make the calls of another gateway's translator again; yield the events of each. Raise `Unplayable`."""
        assert self.prepared.tape is not None
        return self.prepared.tape.play(self.translator, calls, self.in_force.parsers.markup_of(self.prepared.call.body))

    # ---- sending it --------------------------------------------------------------------------------------------------

    def start(self, sink: Sink) -> Generation:
        """Return the generation of the answer, whose events the sink gets."""
        responses = self._responses
        prepared = self.prepared
        settings = self.in_force.settings
        translator = self.translator
        log = self.log
        tokenizer = responses.preparation.tokenizer
        counter = None if tokenizer is None else InputCounter(responses.pool, tokenizer, translator)
        upstream = Upstream(
            responses.pool,
            self.in_force.parsers.known_models,
            prepared.call,
            log,
            self.recording,
            settings.idle_timeout,
            self._continuation(),
            counter,
            prepared.answer_filter,
        )
        if prepared.call.keeper is not None:
            prepared.call.keeper.begin(log.facts)
        client = ClientTimer(sink, log, settings, translator.lifecycle, self.abandon, self._clock())
        prelude = None
        if prepared.compaction is not None or (prepared.turns is not None and prepared.hosted is not None):
            prelude = Prelude(translator, prepared.compaction, prepared.hosted, log, self.recording)
        judge = partial(responses.repair.settle, translator, settings, prepared.call.headers)
        feed = TextLoopWatch(translator).feed if settings.end_text_loops else translator.feed
        self.answered = True
        self._generation = Generation(translator, upstream, client, prelude, prepared.turns, judge, feed)
        return self._generation

    def _continuation(self) -> Continuation | None:
        """Return what has another backend continue an answer; None if none may."""
        continuable = self.prepared.continuable
        if not continuable.attempts:
            return None
        return Continuation(
            self._responses.pool,
            continuable.attempts,
            continuable.obstacle,
            self.in_force.parsers,
            on_failure=self.log.continuation_failed,
            within=self.in_force.settings.idle_timeout,
            checkpoint=continuable.checkpoint,
        )

    async def finish(self) -> bool:
        """Take the generation to its end and store the response, if it is to be stored. Return False if that failed."""
        if self._generation is not None:
            await self._generation.run()
            for conclude in self._responses.additions.conclusions:
                await conclude(self.prepared, self.translator, self.log)
            await self.settle()
        record = self.prepared.record
        store = None if record is None else self._responses.store
        # The error of one that fails has no id then: nobody could read or delete it.
        unnamed = not (self.log.facts.streamed or self.prepared.tools_ran)
        if store is None or record is None or (unnamed and self.translator.error is not None):
            return True
        limit = asyncio.timeout(STORE_LIMIT)
        drop_client = self.abandon
        self.abandon = partial(limit.reschedule, 0)  # else a store that hangs would keep the end from the client
        try:
            return await save(store.responses, record, self.translator, self.results, limit)
        finally:
            self.abandon = drop_client

    async def settle(self) -> None:
        """Charge a response that has ended to its client, and have its calls kept."""
        await settle(self.caller.reservation, self.translator)
        if self.prepared.call.keeper is not None:
            await self.prepared.call.keeper.keep(self.translator)

    @property
    def results(self) -> Mapping[str, bytes]:
        """The results of hosted calls so far, to be kept beside their items: those of the history included."""
        hosted = self.prepared.hosted
        return {**self.prepared.context.results, **({} if hosted is None else hosted.results)}

    def terminal(self, *, stored: bool) -> bytes:
        """Return the terminal event; a response that could not be `stored` does not say that it is."""
        return self.translator.terminal(stored=None if stored else False)

    def continued_by(self, *, stored: bool) -> PreviousResponse | None:
        """Return what the next request on the same connection may build on, unless the store has it."""
        failed = self.translator.status == "failed" and not self.prepared.tools_ran
        if (stored and self.prepared.record is not None) or failed:
            return None
        output = [*map(msgspec.json.decode, self.translator.response.output)]
        items = [*self.prepared.context.items, *output]
        if any(map(is_compaction, output)):  # one of the input stands only for what its client has left out there
            items = self._responses.preparation.encryption.since_compaction(items)
        facts = self.log.facts
        echo = self.prepared.options.echo if facts.asker.session is None else {}  # because it is large
        return PreviousResponse(self.translator.response_id, items, self.results, facts, echo)

    @property
    def slow(self) -> bool:
        """The client has more to read than is to be kept for it."""
        return self._generation is not None and self._generation.client.sink.slow

    def pause(self) -> None:
        """Read no more from the backend: the client is slower than the model."""
        if self._generation is not None:
            self._generation.pause()

    def resume(self) -> None:
        """Read on from the backend."""
        if self._generation is not None:
            self._generation.resume()

    # ---- ending it ---------------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """Let the response continue without the request that asked for it: whoever runs it calls `end`."""
        self._detached = True
        self.log.facts.detached = True

    async def __aenter__(self) -> Creation:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._detached:
            self.end(error)
            if self.answered and self.log.facts.client_left and self.prepared.call.keeper is not None:
                await self.prepared.call.keeper.keep(self.translator)

    def end(self, error: BaseException | None = None) -> None:
        """Leave the backend, and end log and recording; `error` came instead of a response. Only the first call counts."""
        if self.ended.done():
            return
        if error is not None:
            self._note_error(error)
        if self._generation is not None:
            self._generation.close()
            if self.prepared.options.grammars:
                self._responses.repair.count_later(self.translator, self.prepared.options)
        if self.answered:
            try:
                _learn(self.in_force.parsers, self.prepared, self.translator)
                options = self.prepared.options
                has_images = "image_left_out" in self.translator.lifecycle.repairs
                # All that an answer can lose.
                if options.logprobs or options.tools or options.recorder is not None or has_images:
                    self.log.losses(answer_losses(self.prepared, self.translator))
                additions = self._responses.additions
                for note in _due(self.prepared, [], additions.tool_notes, additions.session_notes):
                    self.log.facts.notes |= note(self.prepared, self.translator, self.log.facts)
                if self.prepared.turns is not None and self.prepared.hosted is not None:
                    self.log.ran_tools(self.prepared.hosted.calls, self.prepared.hosted.losses)
            except Exception as defect:  # else the request would never end, nor give back what it has of its client's limits
                self.translator.defect = self.translator.defect or defect
        record = None if self.recording is None else self._record
        outcome = self.log.close(self.translator if self.answered else None, self._clock(), record)
        if self.recording is not None:
            self.recording.end(outcome)
        self._responses.in_flight.activities.discard(self)
        self.ended.set_result(None)
        # The generation refers to its sink, which refers to this, as `hand_over` does: free them without the garbage collector.
        self._generation = None
        self.hand_over = None

    def _note_error(self, error: BaseException) -> None:
        """Note what came instead of a response."""
        match error:
            case ApiError():
                if self.recording is not None:
                    self.recording.failed(error)
                self.log.refused(error)
                is_limit = error.status == 429 and error.retry_after is None and not error.final
                if is_limit and recognise(self.caller.headers).needs_wait:
                    error.retry_after = _NEXT_TRY
            case asyncio.CancelledError() | ConnectionError():
                self.log.client_left()

    # ---- looking at it -----------------------------------------------------------------------------------------------

    @property
    def chunks(self) -> int:
        """How many chunks the backend sent so far."""
        return self.translator.chunks if self.answered else 0

    def snapshot(self) -> RequestFacts:
        """Return how it stands, without any of its content."""
        return self.log.running(self.translator if self.answered else None, self._clock(), self._record)

    @property
    def _record(self) -> str | None:
        """The name of the file with the recorded exchange."""
        return None if self.recording is None else self.recording.name

    # ---- an activity -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Apply time limits and send keep-alives."""
        if self._generation is not None:
            self._generation.tick(now)

    def cancel(self) -> None:
        """End the response because its client asked for that."""
        if self._generation is not None:
            self._generation.fail(ApiError(499, "The response was cancelled.", type="server_error", code="server_error"))

    def stop_after_item(self, reason: str) -> None:
        """End the response after the item that is open, as incomplete for this reason, unless the model ends it before."""
        if self._generation is not None:
            self._generation.stop_after_item(reason)

    def shut_down(self) -> None:
        """End the response truthfully, because the gateway is stopping."""
        self._stopping = True
        if self._generation is not None and not (self.hand_over is not None and self.hand_over()):
            self._generation.fail(shutting_down())


def _new_facts(caller: Caller, settings: Settings, history: RecentRequests | None, now: float) -> RequestFacts:
    """Return what is known of a request that comes `now`."""
    return RequestFacts(
        request_id=caller.request_id,
        id="" if history is None else history.new_id(),
        client="" if history is None else client_name(caller.headers),
        account=account_of(caller.reservation),
        quotes_backends=settings.log_backend_errors,
        began=now,
        started=time.time(),
        times=StreamTimes(now, [*NO_GAPS]),
        protocol=caller.protocol,
    )


def _recording(recorder: Recorder | None, caller: Caller, settings: Settings) -> Recording | None:
    """Begin to record, if it is time."""
    if recorder is None or not recorder.until:
        return None
    return recorder.begin(caller.headers, settings, websocket=caller.over_websocket, api=caller.protocol.name)


def _caller_for(roots: SessionRoots, caller: Caller, asker: Asker, *, for_compaction: bool) -> Caller:
    """Return the caller who asks for an agent, whose session is that of its parent if the client did not name one."""
    if asker.parent is not None:
        asker = roots.placed(caller.tenant, asker)
    if for_compaction:
        asker = with_kind(asker, "compaction")
    return msgspec.structs.replace(caller, asker=asker)


def _record(recording: Recording, prepared: PreparedRequest, translator: Translator) -> None:
    """Have the calls of a translator recorded."""
    assert prepared.tape is not None
    prepared.tape.attach(translator, recording.note)
    recording.translated(translator, prepared.call.data, prepared.start)


def _tell(trace: Trace, prepared: PreparedRequest, traced: Iterable[Traced]) -> None:
    """Have a trace tell what the client asked for."""
    request = prepared.context.request
    attributes = response_attributes(
        conversation=prepared.context.conversation,
        previous=request.previous_response_id,
        effort=request.reasoning.effort if request.reasoning is not None else None,
        service_tier=request.service_tier,
    )
    trace.asked(attributes)
    for tell in traced:
        tell(prepared, trace)


def _due(prepared: PreparedRequest, always: list[_T], with_tools: list[_T], in_sessions: list[_T]) -> list[_T]:
    """Return what features do to a request, or note of its answer: what is for requests with tools first, for sessions last."""
    due = always
    if prepared.options.tools:
        due = [*with_tools, *due]
    if prepared.caller.asker.session is not None:
        due = [*due, *in_sessions]
    return due


def _learn(parsers: ParserChoice, prepared: PreparedRequest, translator: Translator) -> None:
    """Note what an answer has shown of its model."""
    markup = prepared.options.markup
    completed = translator.status == "completed"
    if markup is not None:
        parsers.learn(prepared.call.body, prepared.start, markup.evidence, completed=completed)
    if completed and len(translator.lifecycle.turns) == 1 and "tools" in prepared.call.body:
        parsers.learn_calls(prepared.call.body, prepared.start, translator.response.output)


class _Item(msgspec.Struct):
    type: str


def answer_losses(prepared: PreparedRequest, translator: Translator) -> list[Loss]:
    """Return what an answer that has ended did not honour."""
    losses: list[Loss] = []
    if prepared.options.logprobs and _lacks_logprobs(translator.response.output):
        losses.append(_NO_LOGPROBS)
    recorder = prepared.options.recorder
    if recorder is not None and recorder.shows is not None and not recorder.shown:
        losses.append(_NO_TOKENS)
    if "tool_choice" in prepared.call.body and _lacks_call(prepared, translator):
        losses.append(_NO_CALL)
    if "image_left_out" in translator.lifecycle.repairs:
        losses.append(_NO_IMAGES)
    repairs = sorted(REPAIRS & translator.lifecycle.repairs.keys())
    if repairs:
        repaired = Loss("item", "function_call", "adapted", f"the arguments of a call were repaired: {', '.join(repairs)}")
        losses += prepared.call.words([repaired])
    return losses


def _lacks_logprobs(output: Sequence[str]) -> bool:
    """Tell whether there are texts, and no log probabilities; `output` is the JSON of the items."""
    texts = [item for item in output if '"type":"output_text"' in item and '"text":""' not in item]
    return bool(texts) and not any('"logprobs":[{' in item for item in texts)


def _lacks_call(prepared: PreparedRequest, translator: Translator) -> bool:
    """Tell whether a call was forced, and the model has ended its answer without any. Servers ignore what they cannot enforce:
    llama.cpp does with a template that has no place for tools."""
    choice = prepared.call.body["tool_choice"]
    forced = isinstance(choice, dict) or choice == "required"
    if not forced or translator.status != "completed" or prepared.options.discarded:
        return False
    return all(msgspec.json.decode(item, type=_Item).type in _SAID for item in translator.response.output)
