"""The fields of a request's line in the log; docs/observability.md explains each of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from responses_gateway.backend.transport.client import backend_request_id
from responses_gateway.server.generation.request_log.facts import AnswerFacts, RequestFacts, origin_of, outcome_of
from responses_gateway.telemetry import logs
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError

# Logged in place of a backend's own words.
_UNQUOTED = "The backend reported an error; log_backend_errors shows its message here."


def log_line(facts: RequestFacts) -> dict[str, Any]:
    """Return what is to be said of a request."""
    answer = facts.answer
    began = facts.began
    fields: dict[str, Any] = {
        "request_id": facts.request_id,
        "response_id": None if answer is None else answer.response_id,
        "api": facts.protocol.name,
        **origin_of(facts),
        "model": facts.model[:200] or None,  # because clients make names up
        "backend": facts.backend,
        "pod": facts.pod,
        "backend_request_id": None if facts.backend is None else backend_request_id(facts.request_id),
        "stream": facts.streamed,
        "outcome": outcome_of(facts),
        "delivery": "client_left" if facts.client_left else "detached" if facts.detached else "complete",
        "phase": facts.phase if facts.client_left else None,
        "seconds": _milliseconds(facts.ended_at - began),
        "backend_called": None if facts.backend_called is None else _milliseconds(facts.backend_called - began),
        "first_token": None if facts.times.first is None else _milliseconds(facts.times.first - began),
        "first_visible": None if facts.times.visible_at is None else _milliseconds(facts.times.visible_at - began),
    }
    fields |= _relayed_fields(facts) if answer is None else _answer_fields(facts, answer)
    fields["continued"] = facts.continued or None
    fields["not_continued"] = facts.not_continued
    if answer is not None:
        fields["items"] = sum(answer.items.values())
        fields["repairs"] = sum(answer.repairs.values()) or None
    fields |= facts.notes
    if facts.refusal is not None:
        fields["status"] = facts.refusal.status
    if facts.error is not None:
        fields |= _error_fields(facts.error, quotes_backends=facts.quotes_backends)
    return logs.present(fields)


def usage_fields(usage: Usage | None) -> dict[str, int | None]:
    """Return the fields for the usage that a backend reported."""
    if usage is None:
        return {}
    return {"input_tokens": usage.input, "cached_tokens": usage.cached, "output_tokens": usage.output}


def _relayed_fields(facts: RequestFacts) -> dict[str, Any]:
    if facts.relayed is None:
        return {}
    api = (facts.path or "").removeprefix("/v1/").partition("/")[0]  # `chat`, `embeddings`
    return {"api": api, "path": facts.path, **usage_fields(facts.relayed)}


def _answer_fields(facts: RequestFacts, answer: AnswerFacts) -> dict[str, Any]:
    return {
        **usage_fields(answer.usage),
        # The number in the client's usage, or else what was counted; absent without any reasoning.
        "reasoning_tokens": (answer.usage and answer.usage.reasoning) or facts.tokens_by_kind.get("reasoning"),
        "tokens_from": answer.reasoning_from,
        "unseen_tokens": facts.unseen_tokens or None,
        **(_turn_fields(facts, answer) if facts.calls or answer.turns[1:] else {}),
        "finish_reason": answer.finish_reason,
    }


def _turn_fields(facts: RequestFacts, answer: AnswerFacts) -> dict[str, Any]:
    """Return what only responses with several turns, or with hosted calls, have in their lines."""
    return {
        "turns": len(answer.turns),
        "usage_by_turn": [logs.present(usage_fields(turn.used)) for turn in answer.turns],
        "hosted_calls": Counter(call.target.kind for call in facts.calls) or None,
        "hosted_failures": sum(call.outcome != "completed" for call in facts.calls) or None,
    }


def _error_fields(error: ApiError, *, quotes_backends: bool) -> dict[str, Any]:
    """Return the fields of an error; the words of a backend may repeat the prompt."""
    words = error.message[:200] if quotes_backends or not error.quoted else _UNQUOTED
    return {
        "code": error.code or error.type,
        "reason": error.reason,
        "error": words if error.status >= 500 else None,
        "param": error.param if not error.quoted else None,
    }


def _milliseconds(seconds: float) -> float:
    """Return seconds to three digits."""
    return round(seconds * 1000) / 1000  # because `round` takes far longer with digits
