"""What is kept of one request of an agent for its session: whose it is, how long each part of it took, and what it used.

Times are Unix times and durations, in seconds."""

from __future__ import annotations

from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec

from responses_gateway.request.who_asks import Kind, session_id
from responses_gateway.server.generation.preparation.context import Context
from responses_gateway.server.generation.request_log.facts import NO_CALLS, ClientCalls, RequestFacts, outcome_of
from responses_gateway.server.generation.request_log.usage import UNKNOWN
from responses_gateway.state import Stored
from responses_gateway.stream.lifecycle.turn import output_of
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.hosted_kinds import HOSTED_CALLS

# What is kept as the client says it.
_SAID = ("parent", "forked_from", "turn", "kind", "agent", "final")
# The tools with which Codex, Claude Code and OpenCode begin sub-agents.
_SPAWNING = frozenset({"spawn_agent", "Agent", "Task", "task"})


class _Item(msgspec.Struct):
    """The part of an item that tells whether it is a call, and which one."""

    type: str = ""
    name: str = ""
    call_id: str | None = None


class _Response(msgspec.Struct):
    """What is read of a stored response."""

    created_at: float
    model: str
    output: list[_Item] = []
    usage: dict[str, Any] | None = None
    completed_at: float | None = None


class SessionOwner(msgspec.Struct, frozen=True):
    """Whose session it is: the tenant, of which nothing is shown, the name of its key, and the client's name of itself."""

    tenant: str
    session: str
    key: str | None
    client: str

    @property
    def id(self) -> str:
        """The opaque id of the session, the same in every process."""
        return session_id(self.tenant, self.session)


class AgentRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request. `id` is that of the window. `waiting`: until a backend was asked, `prefill`: until its first token,
    `generation`: until the end, without the tools that the gateway ran meanwhile. `tools`: how long those ran, and before that
    the client's, as it says or as the pause between the two requests shows; None if no tool ran, or if that is not known.
    `calls`: of the client's tools that the answer ended with; `spawned` of them began sub-agents. `last_call` names the last
    one, `answered` the one of another answer whose result came with the request: digests, with the thread. `told`: the client
    has told how long its tools ran.
    `cached_tokens`: None if the backend does not tell."""

    id: str
    request_id: str
    started: float
    thread: str
    ended: float | None = None
    response_id: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    turn: str | None = None
    kind: Kind | None = None
    agent: str | None = None
    final: bool = False
    model: str = ""
    backend: str | None = None
    outcome: str = "running"
    calls: int = 0
    spawned: int = 0
    waiting: float = 0.0
    prefill: float = 0.0
    generation: float = 0.0
    tools: float | None = None
    input_tokens: int = 0
    cached_tokens: int | None = None
    output_tokens: int = 0
    reasoning_tokens: int = 0
    last_call: str | None = None
    answered: str | None = None
    told: bool = False


def owner_of(facts: RequestFacts) -> SessionOwner:
    """Return whose session a request belongs to, which is one."""
    return SessionOwner(facts.tenant, facts.asker.session or "", facts.account.key, facts.client)


def agent_request(facts: RequestFacts, *, running: bool = False) -> AgentRequest:
    """Return what is kept of a request: of its session, or of one that becomes the first of a chain."""
    answer = facts.answer
    times = facts.times
    usage = _usage(facts)
    kinds = facts.tokens_by_kind
    called = facts.backend_called
    if called is None:
        called = facts.ended_at
    elif times.first is not None and called > times.first:  # the backend was called again, for another turn
        called = facts.began
    first = facts.ended_at if times.first is None else times.first
    hosted = min(facts.ended_at - first, sum(call.seconds or 0.0 for call in facts.calls))
    seconds = facts.asker.tool_seconds
    thread = facts.asker.thread or (answer.response_id if answer is not None else facts.request_id)
    return AgentRequest(
        facts.id,
        facts.request_id,
        facts.started,
        thread,
        ended=None if running else facts.started + facts.ended_at - facts.began,
        response_id=None if answer is None else answer.response_id,
        **{name: getattr(facts.asker, name) for name in _SAID},
        model=facts.model[:200],
        backend=facts.backend,
        outcome="running" if running else outcome_of(facts),
        calls=0 if answer is None else sum(number for kind, number in answer.items.items() if _is_for_client(kind)),
        spawned=facts.client_calls.spawned,
        waiting=called - facts.began,
        prefill=max(0.0, first - called),
        generation=facts.ended_at - first - hosted,
        tools=hosted + (seconds or 0.0) if hosted or seconds is not None else None,
        input_tokens=usage.input or 0,
        cached_tokens=usage.cached,
        output_tokens=(usage.output or 0) if answer is None else output_of(answer.turns, usage, answer.chunks, kinds),
        reasoning_tokens=usage.reasoning or kinds.get("reasoning", 0),
        last_call=call_in(thread, facts.client_calls.last),
        answered=call_in(thread, facts.client_calls.answered),
        told=seconds is not None,
    )


def stored_request(stored: Stored) -> AgentRequest:
    """Return what is known of a request by its response, which another process may have made."""
    response = msgspec.json.decode(stored.json, type=_Response)
    usage = response.usage or {}
    ended = response.completed_at or response.created_at
    return AgentRequest(
        "",
        "",
        response.created_at,
        stored.id,
        ended=ended,
        response_id=stored.id,
        model=response.model[:200],
        outcome=stored.status,
        calls=sum(_is_for_client(item.type) for item in response.output),
        spawned=sum(map(_begins_agent, response.output)),
        generation=ended - response.created_at,
        input_tokens=usage.get("input_tokens", 0),
        cached_tokens=usage.get("input_tokens_details", {}).get("cached_tokens") or None,  # 0 may mean that it was not told
        output_tokens=usage.get("output_tokens", 0),
        reasoning_tokens=usage.get("output_tokens_details", {}).get("reasoning_tokens", 0),
    )


def client_calls(context: Context, translator: Translator) -> ClientCalls:
    """Return what is known of the client's calls, of a request whose answer has ended."""
    answered = _answered(context)
    if not any(map(_is_for_client, translator.writer.items)):
        return ClientCalls(answered=answered) if answered is not None else NO_CALLS
    items = [msgspec.json.decode(item, type=_Item) for item in translator.response.output]
    made = [item.call_id for item in items if _is_for_client(item.type)]
    return ClientCalls(made[-1] if made else None, sum(map(_begins_agent, items)), answered)


def call_in(thread: str, call_id: str | None) -> str | None:
    """Return the name of a call in a session, where threads may have calls of the same id."""
    if call_id is None:
        return None
    return blake2b(f"{thread}\0{call_id}".encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _answered(context: Context) -> str | None:
    """Return the last call of the last answer, if its result is new."""
    request_input = context.request.input
    results = set()
    for item in chain(reversed(request_input if isinstance(request_input, list) else ()), reversed(context.history)):
        if not isinstance(item, dict):
            return None  # it was refused
        kind = item.get("type")
        call_id = item.get("call_id")
        if isinstance(kind, str) and isinstance(call_id, str):
            if kind.endswith("_output"):
                results.add(call_id)
            elif _is_for_client(kind):
                return call_id if call_id in results else None
        if not results and (kind == "reasoning" or item.get("role") == "assistant"):
            return None
    return None


def _usage(facts: RequestFacts) -> Usage:
    answer = facts.answer
    return answer.usage if answer is not None and answer.usage is not None else facts.relayed or UNKNOWN


def _begins_agent(item: _Item) -> bool:
    return item.type == "function_call" and item.name in _SPAWNING


def _is_for_client(kind: str) -> bool:
    """Tell whether items of a kind are calls that the client runs."""
    return kind.endswith("_call") and kind not in HOSTED_CALLS
