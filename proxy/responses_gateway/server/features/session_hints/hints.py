"""What a server may know of the session of a request: fields and headers, as each kind of server takes them.

The order of requests is the same everywhere: a summary is not to wait behind a queue, and the work itself not behind a title;
each kind of server counts in its own direction. No I/O, no clock."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from responses_gateway.backend.served_models import BackendSpec, Hints, Route
from responses_gateway.request.who_asks.asker import Asker
from responses_gateway.server.generation.request_log.facts import RequestFacts

# How urgent a request is, by its kind. The work itself, and what tells no kind, is as urgent as requests without any hint.
_URGENCY = {"compaction": 1, "subagent": -1, "review": -1, "title": -2, "auxiliary": -2}


def unique_id(tenant: str, client_id: str) -> str:
    """Return the id of a thread as servers know it, who do not know tenants: those of clients without keys are as they came."""
    if not tenant:
        return client_id
    return blake2b(f"{len(tenant)}:{tenant}{client_id}".encode("utf-8", "replace"), digest_size=16).hexdigest()


def affinity_of(tenant: str, asker: Asker) -> str:
    """Return the key of the backend that gets the requests of a session: those of all its threads begin alike."""
    return f"session:{unique_id(tenant, asker.session or '')}"


def all_hints(tenant: str, asker: Asker, spec: BackendSpec) -> Hints | None:
    """Return what a server, and routers before it, may know of who asks; None: the settings do not say what it takes."""
    server = spec.session_hints
    if server is None:
        return None
    session = asker.session or ""  # there is one
    thread = unique_id(tenant, asker.thread or session)
    fields = _priority(server, asker)
    if server == "vllm":
        headers = {"X-Session-ID": thread}
    elif server == "sglang":
        fields["session_id"] = thread
        headers = {"X-SMG-Routing-Key": unique_id(tenant, session)}
    else:
        headers = {"X-Dynamo-Session-ID": thread}
        if asker.parent is not None:
            headers["X-Dynamo-Parent-Session-ID"] = unique_id(tenant, asker.parent)
        if asker.final:
            headers["X-Dynamo-Session-Final"] = "true"
    # Ids of clients may have any characters that can be shown, of which not all can be sent.
    return Hints(fields, {name: value for name, value in headers.items() if value.isascii()})


def relayed(route: Route, facts: RequestFacts, is_chat: bool) -> Route:
    """Return the route of a request of a session that is relayed: if it is a chat request for a model, servers may know how
    urgent it is, but not its thread, because nobody would end it there."""
    hints = partial(_priority_alone, facts.asker) if is_chat and facts.model else None
    return msgspec.structs.replace(route, model=facts.model, affinity=affinity_of(facts.tenant, facts.asker), hints=hints)


def _priority_alone(asker: Asker, spec: BackendSpec) -> Hints | None:
    return None if spec.session_hints is None else Hints(_priority(spec.session_hints, asker), {})


def _priority(server: str, asker: Asker) -> dict[str, Any]:
    urgency = _URGENCY.get(asker.kind or "main", 0)
    priority = -urgency if server == "vllm" else urgency  # vLLM serves the lower number first
    return {"nvext": {"agent_hints": {"priority": priority}}} if server == "dynamo" else {"priority": priority}
