"""The one way in which a response comes to be, whoever asks for it: HTTP, a WebSocket, a compaction."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from proxy.backend.pool import Pool
from proxy.backend.served_models import Route
from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.request import ChatRequest, Loss, Policy
from proxy.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from proxy.server.custom_tools.repair import InputRepair
from proxy.server.generation.codex_sessions import SESSION_HEADER, CodexSessions
from proxy.server.generation.compaction import AutomaticCompaction, is_due
from proxy.server.generation.context import Context, find_context, new_record, recent_results, save
from proxy.server.generation.continuable import Obstacle, longest_stop, obstacle
from proxy.server.generation.continuation import Continuation
from proxy.server.generation.encrypted_content import Encryption
from proxy.server.generation.generation import Generation, Question, Sink, Unread, shutting_down
from proxy.server.generation.history import History, Summary
from proxy.server.generation.hosted_turns import HostedTurns, OpenedTools
from proxy.server.generation.in_flight import InFlight
from proxy.server.generation.journal import Journal, ResponseStart, ResumedResponse, digest
from proxy.server.generation.live_settings import InForce, LiveSettings
from proxy.server.generation.prepare import (
    affinity_key,
    backend_headers,
    client_of,
    encryption_options,
    forwards_client_key,
    stream_options,
    translated,
)
from proxy.server.generation.request_log import RequestLog, Reservation
from proxy.server.generation.toolbox import Toolbox
from proxy.server.recording.recording import NO_RECORDING, Recorder, Recording
from proxy.state import ResponseRecord, Store
from proxy.stream.translator import Translator
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.tracing import Tracing
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.requests import ResponsesRequest

# Characters of what a client calls itself.
_LONGEST_NAME = 80
# Headers of a client's request that a gateway which goes on with the response needs.
_KEPT_HEADERS = ("originator", "User-Agent")
# Called for a client that does not take what is there for it.
DropClient = Callable[[], None]


class Caller(msgspec.Struct, frozen=True):
    """Who asks for a response, without HTTP.

    `headers` are those of the client's request. `operation` names the trace of the request; without one there is none.
    `reservation` is what the request holds of its client's limits. `over_websocket`: the request is a message."""

    tenant: str
    request_id: str
    headers: Mapping[str, str]
    operation: str | None = None
    reservation: Reservation | None = None
    over_websocket: bool = False


@dataclass(frozen=True, slots=True)
class Previous:
    """A response that was not stored, and that the next one on the same connection may continue: its id, all items up to it,
    and what hosted calls among them told the model."""

    response_id: str
    items: Sequence[dict[str, object]]
    results: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Responses:
    """Makes responses, with the parts that all of them share."""

    pool: Pool
    store: Store | None
    encryption: Encryption
    live: LiveSettings
    metrics: Metrics
    tracing: Tracing | None
    recorder: Recorder
    in_flight: InFlight
    repair: InputRepair
    tokenizer: ModelTokenizer | None
    toolbox: Toolbox | None = None
    history: History | None = None
    sessions: CodexSessions = field(default_factory=CodexSessions)

    def open(self, caller: Caller, drop_client: DropClient) -> Creation:
        """Begin with the first byte of a request: its log and its recording begin now. Use it with `with`."""
        return Creation(self, caller, drop_client)

    async def create(
        self,
        request: ResponsesRequest,
        caller: Caller,
        previous: Previous | None = None,
        *,
        recording: Recording | None = None,
        drop_client: DropClient,
    ) -> Creation:
        """Return the creation of a response that is ready to be sent; use it with `with`. `recording` has begun already. Raise
        `ApiError` and `StoreUnavailable`."""
        creation = Creation(self, caller, drop_client, recording=recording)
        try:
            await creation.prepare(request, previous)
        except BaseException as error:
            creation.end(error)
            raise
        return creation

    async def summarise(self, request: ResponsesRequest, caller: Caller, context: Context | None = None) -> Translator:
        """Have the backend answer a request that ends with a `compaction_trigger`; return the translator of the answer, which
        has one `compaction` item. Raise `ApiError`."""
        with Creation(self, caller, lambda: None, is_summary=True) as creation:
            creation.recording.received(request.model_dump_json(exclude_none=True).encode())
            creation.recording.parsed()
            await creation.prepare(request, context=context)
            generation = creation.start(Unread())
            await generation.open()
            await generation.run()
        translator = creation.translator
        if translator.error is not None:
            raise translator.error.copy()
        return translator

    async def open_tools(self, request: ResponsesRequest, context: Context, tenant: str) -> OpenedTools | None:
        """Return the hosted tools of a request; None if it declares none that are turned on. Raise `ApiError` 400."""
        if not request.tools or self.toolbox is None:
            return None
        return await self.toolbox.open(request, context, tenant)

    def chat_request(
        self,
        request: ResponsesRequest,
        context: Context,
        policy: Policy,
        in_force: InForce,
        tenant: str,
        recording: Recording = NO_RECORDING,
        hosted: HostedTools = NO_HOSTED_TOOLS,
    ) -> ChatRequest:
        """Return the chat request for a request and what it builds on. Raise `ApiError` 400."""
        served_as = self.pool.members.own_name(request.model)
        chat_request = translated(request, context, policy, self.encryption, tenant, recording, served_as, hosted)
        if self.asks_for_token_ids(request.model, in_force):
            chat_request.body["return_token_ids"] = True
        return chat_request

    def asks_for_token_ids(self, model: str, in_force: InForce) -> bool:
        """Tell whether the backend is to send the ids of its tokens: always, or where they help and it can send them."""
        wanted = in_force.settings.token_ids
        if wanted == "auto":
            return in_force.parsers.raw(model) and self.pool.members.all_vllm(model)
        return wanted == "on"


class Creation:
    """One response, from the first byte of its request to its end. `with` ends it, unless it was detached."""

    __slots__ = (
        "_attempts", "_caller", "_chat_request", "_clock", "_compaction", "_context", "_detached", "_drop_client",
        "_generation", "_hosted", "_is_summary", "_obstacle", "_options", "_question", "_responses", "_start", "_stopping",
        "answered", "ended", "hand_over", "in_force", "journal", "log", "losses", "record", "recording", "translator",
    )  # fmt: skip

    # There once it is prepared.
    translator: Translator
    record: ResponseRecord | None
    losses: Sequence[Loss]

    def __init__(
        self,
        responses: Responses,
        caller: Caller,
        drop_client: DropClient,
        *,
        recording: Recording | None = None,
        is_summary: bool = False,
    ) -> None:
        """`is_summary`: the response is needed to make another one, which reports the losses. It is never sampled."""
        loop = asyncio.get_running_loop()
        self.in_force = responses.live.current
        self.ended: asyncio.Future[None] = loop.create_future()
        self._responses = responses
        self._caller = caller
        self._drop_client = drop_client
        self._clock = loop.time
        self._generation: Generation | None = None
        self._compaction: AutomaticCompaction | None = None
        self._hosted: HostedTurns | None = None
        self._is_summary = is_summary
        self._attempts = 0  # how often another backend may go on with the answer
        self._obstacle: Obstacle | None = None
        self.journal: Journal | None = None  # of a response that another gateway may go on with
        # Leaves the response to another gateway when this one stops. Returns False if that cannot be done.
        self.hand_over: Callable[[], bool] | None = None
        self.answered = False  # some of the response was made
        self._detached = False
        self._stopping = False
        settings = self.in_force.settings
        now = self._clock()
        trace = None
        if responses.tracing is not None and caller.operation is not None:
            trace = responses.tracing.begin(caller.operation, caller.headers, now)
        self.log = RequestLog(
            responses.metrics,
            settings,
            caller.request_id,
            now,
            reservation=caller.reservation,
            trace=trace,
            sampled=not is_summary,
            history=responses.history,
            client=_client_name(caller.headers),
        )
        self.recording = recording or responses.recorder.begin(caller.headers, settings)
        responses.in_flight.activities.add(self)

    # ---- making it ready ---------------------------------------------------------------------------------------------

    async def prepare(
        self,
        request: ResponsesRequest,
        previous: Previous | None = None,
        context: Context | None = None,
        resumed: ResumedResponse | None = None,
    ) -> None:
        """Find what the request builds on, unless `context` has it, and translate it. `resumed`: the response has begun in
        another gateway. Raise `ApiError`, `StoreUnavailable`."""
        responses = self._responses
        caller = self._caller
        in_force = self.in_force
        store = responses.store
        if SESSION_HEADER in caller.headers:
            request = responses.sessions.with_model(request, caller.tenant, caller.headers[SESSION_HEADER])
        self.log.understood(request.model, streamed=bool(request.stream) or caller.over_websocket)
        policy = in_force.parsers.policy(request.model)
        most_results = in_force.settings.hosted_history_bytes
        if previous is not None and previous.response_id == request.previous_response_id:
            policy = replace(policy, stores_responses=True)  # what is continued is here
            if store is None:
                request = request.model_copy(update={"store": False})
            context = Context(request, previous.items, results=recent_results(previous.results, most_results))
        elif context is None:
            context = await find_context(store, caller.tenant, request, most_results)
        opened = await responses.open_tools(request, context, caller.tenant)
        hosted = NO_HOSTED_TOOLS if opened is None else opened.tools
        chat_request = responses.chat_request(request, context, policy, in_force, caller.tenant, self.recording, hosted)
        self._continuation_for(request, chat_request)
        begun = resumed.beginning if resumed is not None else None
        self._start = begun.start if begun is not None else await in_force.parsers.start(chat_request.body)
        chat = msgspec.json.encode(chat_request.body)
        self._options = stream_options(
            in_force,
            request,
            chat_request,
            client_of(in_force.settings, caller.headers),
            resumed.response_id if resumed is not None else _new_response_id(),
            self._start,
            encode=responses.tokenizer.encode if responses.tokenizer is not None else None,
            decode=responses.tokenizer.decode if responses.tokenizer is not None else None,
            stream_id=request.stream_id if caller.over_websocket else None,
            continuable=self._attempts > 0 and self._obstacle is None,
            holds_text=self._attempts > 0 and longest_stop(chat_request.body) > 0,
            **encryption_options(chat_request, responses.encryption, caller.tenant, request.model, self.recording),
        )
        sealing = resumed or self.journal
        if sealing is not None and self._options.seal is not None:
            self._options = msgspec.structs.replace(self._options, seal=sealing.sealing(self._options.seal))
        self.recording.translated(self._options, chat, self._start)
        clock = resumed.clock if resumed is not None else self.recording.clock
        self.translator = Translator(self._options, clock, self.recording.note)
        if opened is not None and not chat_request.compacting:
            self._hosted = HostedTurns(
                opened.run,
                in_force.parsers,
                policy,
                opened.new_listings(context),
                chat_request.approved,
                chat_request.max_calls,
            )
        self.losses = chat_request.losses if opened is None else [*chat_request.losses, *_losses_of(opened, policy)]
        if not self._is_summary:
            self.log.losses(self.losses)
        threshold = chat_request.compact_threshold
        if threshold is not None and await is_due(
            threshold, request, context, chat_request, responses.encryption, responses.tokenizer
        ):
            self._compaction = self._automatic_compaction(request, context, policy, hosted)
            self.journal = None
        self.record = None
        if store is not None and request.store is not False:
            self.record = new_record(self.translator, request, context, caller.tenant)
        headers = backend_headers(in_force.settings, caller.headers, caller.request_id)
        self._question = Question(chat, headers, self._route(request, context))
        self._chat_request = chat_request
        self._context = context
        if self._stopping:
            raise shutting_down()

    def _continuation_for(self, request: ResponsesRequest, chat_request: ChatRequest) -> None:
        """Find out whether another backend may go on with the answer; then the ids of its tokens are needed."""
        hosted = any(target.hosted for target in chat_request.tools.values())
        outlives = self._outlives_its_gateway(request) and not chat_request.compacting and not hosted
        self._attempts = self._responses.pool.continuations(request.model, alone=outlives)
        if not self._attempts:
            return
        self._obstacle = obstacle(chat_request.body)
        if self.recording.note is not None:
            self._obstacle = "recorded"
        elif self.in_force.settings.token_ids == "off":
            self._obstacle = "no_ids"
        elif self._obstacle is None:
            chat_request.body["return_token_ids"] = True
            self.journal = Journal() if outlives else None

    def _outlives_its_gateway(self, request: ResponsesRequest) -> bool:
        """Tell whether another gateway could read what this one stores of the response while it runs. A client's own key for
        the backend is not stored."""
        settings = self.in_force.settings
        caller = self._caller
        if self._responses.store is None or settings.store == "memory" or request.store is False or caller.over_websocket:
            return False
        if forwards_client_key(settings) and "Authorization" in caller.headers:
            return False
        return bool(request.background or (request.stream and settings.on_disconnect == "continue"))

    def beginning(self) -> bytes | None:
        """Return what another gateway needs to begin the response again; None if none may go on with it."""
        if self.journal is None:
            return None
        headers = {name: self._caller.headers[name] for name in _KEPT_HEADERS if name in self._caller.headers}
        try:
            request = self._context.request.model_dump_json(exclude_unset=True).encode()
        except ValueError:  # half a surrogate pair
            return None
        chat = digest(self._question.body)
        created = self.translator.created
        return msgspec.msgpack.encode(ResponseStart(request, self._caller.request_id, headers, created, self._start, chat))

    def begins_like(self, beginning: ResponseStart) -> bool:
        """Tell whether the backend is asked what it was asked before."""
        return digest(self._question.body) == beginning.chat

    def _continuation(self) -> Continuation | None:
        if not self._attempts:
            return None
        return Continuation(
            self._responses.pool,
            self._attempts,
            self._obstacle,
            self.in_force.parsers,
            on_failure=self.log.continuation_failed,
        )

    def _route(self, request: ResponsesRequest, context: Context) -> Route:
        if not self._responses.pool.chooses:  # then nothing needs to be looked at
            return Route(request.model)
        continuable = self.record is not None or self._caller.over_websocket or self._is_summary
        continuable = continuable or self._hosted is not None  # its next turn has the same beginning
        return Route(request.model, affinity_key(request, context, continuable=continuable))

    def _automatic_compaction(
        self, request: ResponsesRequest, context: Context, policy: Policy, hosted: HostedTools
    ) -> AutomaticCompaction:
        responses = self._responses
        caller = self._caller
        in_force = self.in_force
        own = Caller(caller.tenant, caller.request_id, caller.headers)

        async def summarise(question: ResponsesRequest, said: Context) -> Translator:
            return await responses.summarise(question, own, said)

        def translate(answer: ResponsesRequest, shortened: Context) -> ChatRequest:
            chat_request = responses.chat_request(answer, shortened, policy, in_force, caller.tenant, hosted=hosted)
            if self._options.continuable:
                chat_request.body["return_token_ids"] = True
            return chat_request

        said = [*context.history, *context.input]
        return AutomaticCompaction(request, said, responses.encryption, caller.tenant, summarise, translate, context.results)

    # ---- sending it --------------------------------------------------------------------------------------------------

    @property
    def compacts_first(self) -> bool:
        """The context is summarised before the backend is asked, which takes as long as an answer."""
        return self._compaction is not None

    def start(self, sink: Sink) -> Generation:
        """Return the generation of the answer, whose events the sink gets."""
        responses = self._responses
        self.answered = True
        self._generation = Generation(
            responses.pool,
            responses.repair,
            self.in_force.settings,
            self.translator,
            self._options,
            self._question,
            self.log,
            self.recording,
            sink,
            tokenizer=responses.tokenizer,
            compaction=self._compaction,
            hosted=self._hosted,
            continuation=self._continuation(),
            drop_client=self._drop_client,
        )
        self._generation.count_input(self._chat_request.body)
        return self._generation

    async def finish(self) -> bool:
        """Take the generation to its end and store the response, if it is to be stored. Return False if that failed."""
        if self._generation is not None:
            await self._generation.run()
        store = self._responses.store
        if store is None or self.record is None:
            return True
        return await save(store, self.record, self.translator, self.results)

    @property
    def results(self) -> Mapping[str, bytes]:
        """What hosted calls told the model so far, to be kept beside their items: those of the history included."""
        made = self._hosted.results if self._hosted is not None and self.in_force.settings.hosted_history_bytes else {}
        return {**self._context.results, **made}

    def terminal(self, *, stored: bool) -> bytes:
        """Return the terminal event; a response that could not be `stored` does not say that it is."""
        return self.translator.terminal(stored=None if stored else False)

    def answer_without_backend(self, sink: Sink, events: bytes) -> None:
        """Send the events of a response for which no backend is asked."""
        self.answered = True
        self.log.sent(events)
        sink.write(events)

    def continued_by(self, *, stored: bool) -> Previous | None:
        """Return what the next request on the same connection may build on, unless the store has it."""
        if (stored and self.record is not None) or self.translator.status == "failed":
            return None
        output = [msgspec.json.decode(item) for item in self.translator.output]
        items = [*self._context.history, *self._context.input, *output]
        return Previous(self.translator.response_id, items, self.results)

    @property
    def slow(self) -> bool:
        """The client has more to read than is to be kept for it."""
        return self._generation is not None and self._generation.sink.slow

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
        """Let the response go on without the request that asked for it: whoever runs it calls `end`."""
        self._detached = True
        self.log.detached = True

    def __enter__(self) -> Creation:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._detached:
            self.end(error)

    def refuse(self, error: ApiError) -> None:
        """Note the error that is the answer instead of a response."""
        self.recording.failed(error)
        self.log.refused(error)

    def end(self, error: BaseException | None = None) -> None:
        """Leave the backend, and end log and recording; `error` came instead of a response. Only the first call counts."""
        if self.ended.done():
            return
        if isinstance(error, ApiError):
            self.refuse(error)
        elif isinstance(error, asyncio.CancelledError | ConnectionError):
            self.log.client_left()
        if self._generation is not None:
            self._generation.close()
        if self.answered and self._options.markup is not None:
            completed = self.translator.status == "completed"
            evidence = self._options.markup.evidence
            self.in_force.parsers.learn(self._chat_request.body, self._start, evidence, completed=completed)
        if self._hosted is not None:
            self.log.ran_tools(self._hosted.calls, self._hosted.losses)
        outcome = self.log.close(self.translator if self.answered else None, self._clock(), self.recording.name)
        self.recording.end(outcome)
        self._responses.in_flight.activities.discard(self)
        self.ended.set_result(None)
        # The generation refers to its sink, which refers to this: free them without the garbage collector.
        self._generation = None

    # ---- looking at it -----------------------------------------------------------------------------------------------

    @property
    def chunks(self) -> int:
        """How many chunks the backend sent so far."""
        return self.translator.chunks if self.answered else 0

    def summary(self) -> Summary:
        """Return how it stands, without any of its content."""
        return self.log.running(self.translator if self.answered else None, self._clock(), self.recording.name)

    # ---- an activity -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Apply time limits and send keep-alives."""
        if self._generation is not None:
            self._generation.tick(now)

    def cancel(self) -> None:
        """End the response because its client asked for that."""
        if self._generation is not None:
            self._generation.cancel()

    def shut_down(self) -> None:
        """End the response truthfully, because the gateway is stopping."""
        self._stopping = True
        if self._generation is not None and not (self.hand_over is not None and self.hand_over()):
            self._generation.shut_down()

    def abandon(self) -> None:
        """Drop a client that does not take what is there for it."""
        self._drop_client()


def _losses_of(opened: OpenedTools, policy: Policy) -> list[Loss]:
    """Return what of the declared tools cannot be honoured. Raise `ApiError` 400 where that is to be refused."""
    for tool, reason in opened.losses:
        if policy.strict:
            raise invalid_request(f"'{tool}' cannot be honoured: {reason}.", "tools", "unsupported_value")
    return [Loss("tool", tool, "ignored", reason) for tool, reason in opened.losses]


def _client_name(headers: Mapping[str, str]) -> str:
    """Return what a client calls itself: Codex in `originator`, others in `User-Agent`."""
    return (headers.get("originator") or headers.get("User-Agent", ""))[:_LONGEST_NAME]


def _new_response_id() -> str:
    """Return an id that begins with the time, as those of `state.records.new_id` do, for the same reason."""
    return f"resp_{int(time.time()):08x}{secrets.token_hex(12)}"
