"""What one process knows of a session: bounded, merged with what others know, and shown as rows and trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from sys import getsizeof
from typing import Any

import msgspec

from responses_gateway.request.who_asks.asker import BESIDE_THE_WORK
from responses_gateway.server.features.sessions.agent_requests import AgentRequest, SessionOwner

# Requests of a session that are kept one by one, the last ones; the others are only in the sums.
MOST_REQUESTS = 200
# Threads and models of a session that are told apart.
MOST_THREADS = 200
_MOST_MODELS = 20
# How deep threads are shown below each other; deeper ones stand beside the first, because readers of JSON have such a limit.
_MOST_DEPTH = 100
# About the bytes of a session, of a thread, of a request and of the beginning of a sub-agent, without the client's words.
_SESSION = 2000
_THREAD = 300
_REQUEST = 600
_SPAWN = 200
# Calls and results of a part that wait for one another, and about the bytes of one.
_MOST_WAITING = 1_000
_WAITING = 150
# What is summed: amounts that each request has, and what is counted of them.
_AMOUNTS = ("input_tokens", "output_tokens", "reasoning_tokens", "waiting", "prefill", "generation")
_SUMS = (*_AMOUNTS, "requests", "turns", "cached_tokens", "tools")


class ThreadPart(msgspec.Struct, omit_defaults=True):
    """What is known of a thread. `spawns`: the requests whose answers began sub-agents, each with how many."""

    parent: str | None = None
    forked_from: str | None = None
    agent: str | None = None
    started: float = 0.0
    spawns: list[tuple[str, float, int]] = []


_UNTOLD = ThreadPart()


class SessionPart(msgspec.Struct):
    """A session as one process knows it, under a name of its own. `last`: when something of it happened last. `unreported`
    requests had backends that do not tell what they took from their cache. `kept` are the last requests, as they ended, and
    `written` how many requests are in the store. `size`: about its bytes in memory. `first`: the response that names a chain,
    as far as it is known here. Several processes may know it, so that it is counted only where their parts are put together.
    `calls`: when answers ended whose last call has no result here, and `results`: when requests began whose results are of
    calls that are not known here; both by the names of the calls."""

    name: str
    id: str
    owner: SessionOwner
    started: float
    last: float
    final: bool = False
    requests: int = 0
    turns: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    waiting: float = 0.0
    prefill: float = 0.0
    generation: float = 0.0
    tools: float = 0.0
    unreported: int = 0
    models: list[str] = []
    threads: dict[str, ThreadPart] = {}
    kept: list[AgentRequest] = []
    first: AgentRequest | None = None
    calls: dict[str, float] = {}
    results: dict[str, float] = {}
    written: int = 0
    size: int = _SESSION


def begin(part: SessionPart, first: AgentRequest) -> None:
    """Add the response that names a chain."""
    part.first = first
    part.started = min(part.started, first.started)
    part.size += _size(first)
    _note(part, _thread_of(part, first), first)


def take(part: SessionPart, request: AgentRequest) -> None:
    """Add a request that has ended to its session."""
    request = _with_pause(part, request)
    _note(part, _thread_of(part, request), request)
    part.started = min(part.started, request.started)
    part.last = max(part.last, request.ended or request.started)
    part.final = part.final or (request.final and request.parent is None)  # else only a sub-agent has ended
    _count(part, request)
    if request.model not in part.models and len(part.models) < _MOST_MODELS:
        part.models.append(request.model)
    part.kept.append(request)
    part.size += _size(request)
    if len(part.kept) > MOST_REQUESTS:
        part.size -= _size(part.kept.pop(0))


def _size(request: AgentRequest) -> int:
    """Return about how many bytes a request takes: the client has chosen its ids."""
    ids = (request.request_id, request.thread, request.parent, request.forked_from, request.turn, request.agent)
    return _REQUEST + sum(map(getsizeof, ids))


def _note(part: SessionPart, thread: ThreadPart | None, request: AgentRequest) -> None:
    """Note which calls of an answer wait for the client."""
    ended = request.ended or request.started
    if request.last_call is not None:
        _wait(part, part.calls, request.last_call, ended)
    if thread is not None and request.spawned and len(thread.spawns) < MOST_REQUESTS:
        thread.spawns.append((request.id or request.request_id, ended, request.spawned))
        part.size += _SPAWN


def _count(part: SessionPart, request: AgentRequest) -> None:
    for name in _AMOUNTS:
        setattr(part, name, getattr(part, name) + getattr(request, name))
    part.requests += 1
    part.turns += request.kind not in BESIDE_THE_WORK
    part.cached_tokens += request.cached_tokens or 0
    part.unreported += request.cached_tokens is None and request.input_tokens > 0  # else no backend has read it
    part.tools += request.tools or 0.0


def outline(part: SessionPart) -> SessionPart:
    """Return what its row is made of: of its threads only the names."""
    return msgspec.structs.replace(part, kept=[], threads=dict.fromkeys(part.threads, _UNTOLD))


def _thread_of(part: SessionPart, request: AgentRequest) -> ThreadPart | None:
    thread = part.threads.get(request.thread)
    if thread is None:
        if len(part.threads) >= MOST_THREADS:
            return None
        thread = ThreadPart(started=request.started)
        part.threads[request.thread] = thread
        part.size += _THREAD + getsizeof(request.thread)
    thread.parent = thread.parent or request.parent
    thread.forked_from = thread.forked_from or request.forked_from
    thread.agent = thread.agent or request.agent
    return thread


def _with_pause(part: SessionPart, request: AgentRequest) -> AgentRequest:
    """Return a request with the time that the client's tools took before it, unless the client has told that itself. Where
    another process has the call, both wait until their parts are put together."""
    call = request.answered
    if call is None or request.kind in BESIDE_THE_WORK:
        return request
    ended = part.calls.pop(call, None)
    if ended is not None:
        part.size -= _WAITING
    if request.told:
        return request
    if ended is not None:
        return _after_pause(request, request.started - ended)
    _wait(part, part.results, call, part.results.get(call, request.started))  # the first one: others may repeat it
    return request


def _after_pause(request: AgentRequest, pause: float) -> AgentRequest:
    return msgspec.structs.replace(request, tools=(request.tools or 0.0) + max(0.0, pause))


def _wait(part: SessionPart, waiting: dict[str, float], call: str, at: float) -> None:
    """Have a call wait for its result, or the reverse."""
    if call not in waiting:
        part.size += _WAITING
    waiting[call] = at
    if len(waiting) > _MOST_WAITING:
        del waiting[next(iter(waiting))]
        part.size -= _WAITING


def merged(parts: Iterable[SessionPart]) -> dict[str, SessionPart]:
    """Return the sessions of which there are parts, each once."""
    sessions: dict[str, SessionPart] = {}
    for part in parts:
        known = sessions.get(part.id)
        if known is None:
            copies = {name: copy(getattr(part, name)) for name in ("threads", "kept", "models", "calls", "results")}
            sessions[part.id] = msgspec.structs.replace(part, **copies)
            continue
        for name in (*_SUMS, "unreported"):
            setattr(known, name, getattr(known, name) + getattr(part, name))
        known.first = known.first or part.first
        known.started = min(known.started, part.started)
        known.last = max(known.last, part.last)
        known.final = known.final or part.final
        known.models += [model for model in part.models if model not in known.models]
        for name, thread in part.threads.items():
            other = known.threads.get(name)
            known.threads[name] = thread if other is None else _joined(other, thread)
        known.calls |= part.calls
        for call, began in part.results.items():
            known.results[call] = min(began, known.results.get(call, began))
        known.kept = sorted([*known.kept, *part.kept], key=lambda request: request.started)[-MOST_REQUESTS:]
    for part in sessions.values():
        _join_pauses(part)
        if part.first is not None:
            _count(part, part.first)
            part.kept = [part.first, *part.kept]
    return sessions


def _join_pauses(part: SessionPart) -> None:
    """Add the pauses between calls of one process and their results at another one."""
    pauses = {(call, began): began - part.calls[call] for call, began in part.results.items() if call in part.calls}
    if not pauses:
        return
    part.tools += sum(max(0.0, pause) for pause in pauses.values())
    for place, request in enumerate(part.kept):
        pause = pauses.get((request.answered or "", request.started))
        if pause is not None:
            part.kept[place] = _after_pause(request, pause)


def _joined(one: ThreadPart, other: ThreadPart) -> ThreadPart:
    return ThreadPart(
        one.parent or other.parent,
        one.forked_from or other.forked_from,
        one.agent or other.agent,
        min(one.started, other.started),
        sorted([*one.spawns, *other.spawns], key=lambda spawn: spawn[1]),
    )


def row(part: SessionPart, running: Sequence[AgentRequest], now: float) -> dict[str, Any]:
    """Return a session as a row: JSON."""
    owner = part.owner
    threads = {*part.threads, *(request.thread for request in running)}
    return {
        "id": part.id,
        "session": owner.session,
        "key": owner.key,
        "client": owner.client,
        "started": part.started,
        "last": now if running else part.last,
        "age": max(0.0, now - part.started),
        "running": bool(running),
        "final": part.final,
        "agents": len(threads),
        **{name: getattr(part, name) for name in _SUMS},
        # None: not told, which is not 0.
        "cached_tokens": None if part.unreported and not part.cached_tokens else part.cached_tokens,
        "cached_part": part.cached_tokens / part.input_tokens if part.input_tokens and part.unreported == 0 else None,
        "models": part.models,
    }


def tree(part: SessionPart, running: Sequence[AgentRequest]) -> list[dict[str, Any]]:
    """Return the threads of a session with their requests, each below the one that began it: those without a known parent
    first, in the order in which they began."""
    requests: dict[str, list[AgentRequest]] = {}
    for request in (*part.kept, *running):
        requests.setdefault(request.thread, []).append(request)
    threads = dict(part.threads)
    for request in running:
        new = ThreadPart(request.parent, request.forked_from, request.agent, request.started)
        threads.setdefault(request.thread, new)
    calls = _beginnings(threads)
    children: dict[str | None, list[str]] = {}
    parents = _parents(threads)
    for name in sorted(threads, key=lambda name: threads[name].started):
        children.setdefault(parents[name], []).append(name)

    def shown(name: str) -> dict[str, Any]:
        thread = threads[name]
        return {
            "thread": name,
            "parent": thread.parent,
            "agent": thread.agent,
            "forked_from": thread.forked_from,
            "began_by": calls.get(name),
            "started": thread.started,
            "requests": list(map(_shown, requests.get(name, ()))),
            "threads": [],
        }

    nodes = {name: shown(name) for name in threads}
    for parent, names in children.items():
        if parent is not None:
            nodes[parent]["threads"] = [nodes[name] for name in names]
    return [nodes[name] for name in children.get(None, ())]


def _shown(request: AgentRequest) -> dict[str, Any]:
    """Return a request as JSON."""
    known = msgspec.structs.replace(request, last_call=None, answered=None, told=False)
    return {"outcome": request.outcome, **msgspec.to_builtins(known)}


def _beginnings(threads: dict[str, ThreadPart]) -> dict[str, str]:
    """Return the request of its parent that began a thread, where that is known: of the answers that had called sub-agents
    before it began, the first one whose calls are not those of threads before."""
    beginnings: dict[str, str] = {}
    left = {name: [number for _, _, number in thread.spawns] for name, thread in threads.items()}
    for name, thread in sorted(threads.items(), key=lambda item: item[1].started):
        parent = threads.get(thread.parent or "")
        if thread.parent is None or parent is None:
            continue
        numbers = left[thread.parent]
        for at, (request_id, ended, _) in enumerate(parent.spawns):
            if numbers[at] and ended <= thread.started:
                numbers[at] -= 1
                beginnings[name] = request_id
                break
    return beginnings


def _parents(threads: Mapping[str, ThreadPart]) -> dict[str, str | None]:
    """Return below which thread each one is shown; None: below none, because its parent is not known, or is below it, as
    clients may say, or because it would be too deep."""
    depths: dict[str, int] = {}
    parents: dict[str, str | None] = {}
    for thread in threads:
        path: dict[str, None] = {}  # from a thread upwards
        name: str | None = thread
        while name is not None and name in threads and name not in depths and name not in path:
            path[name] = None
            name = threads[name].parent
        above = name if name in depths else None
        for below in reversed(path):
            depth = 0 if above is None else depths[above] + 1
            parents[below] = above if depth < _MOST_DEPTH else None
            depths[below] = depth % _MOST_DEPTH
            above = below
    return parents
