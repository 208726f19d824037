"""Metrics under the names of OpenTelemetry's conventions for generative AI: one observation for each request to a backend.

The names are changing: `1.44` are those of semantic conventions 1.44, `latest` those that replace them. The
buckets are the ones that the conventions advise."""

from __future__ import annotations

from typing import Literal, Protocol

from prometheus_client import CollectorRegistry, Histogram

_SECONDS = tuple(0.01 * 2**power for power in range(14))
_TOKENS = tuple(4**power for power in range(14))
# The operation, and the protocol by which it is asked for.
_CHAT = ("chat", "openai")
_LABELS = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")


class ReportedTokens(Protocol):
    """What a backend reports."""

    @property
    def input(self) -> int | None:
        """Tokens of the prompt."""

    @property
    def output(self) -> int | None:
        """Tokens of the answer."""


class GenAiMetrics:
    """The histograms of one process."""

    def __init__(self, registry: CollectorRegistry, names: Literal["1.44", "latest"]) -> None:
        latest = names == "latest"
        prefix = "gen_ai_client_inference" if latest else "gen_ai_client_operation"

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, text, (*_LABELS, *labels), buckets=buckets, registry=registry)

        self._duration = histogram(f"{prefix}_duration_seconds", "Requests to backends.", _SECONDS, "error_type")
        self._first = histogram(f"{prefix}_time_to_first_chunk_seconds", "To the first chunk.", _SECONDS)
        self._tokens: dict[str, Histogram] = {}
        self._usage: Histogram | None = None
        if latest:
            for kind in ("input", "output"):
                self._tokens[kind] = histogram(f"{prefix}_operation_{kind}_tokens", f"Tokens: {kind}.", _TOKENS)
        else:
            self._usage = histogram("gen_ai_client_token_usage", "Tokens, by type.", _TOKENS, "gen_ai_token_type")

    def called(self, model: str, seconds: float, first: float | None, tokens: ReportedTokens | None, error: str | None) -> None:
        """Observe a request that took so many seconds, and so many to the first chunk; `error` is the code of its failure."""
        labels = (*_CHAT, model)
        self._duration.labels(*labels, error or "").observe(seconds)
        if first is not None:
            self._first.labels(*labels).observe(first)
        if tokens is None:
            return
        for kind, number in (("input", tokens.input), ("output", tokens.output)):
            if number is None:
                continue
            if self._usage is not None:
                self._usage.labels(*labels, kind).observe(number)
            else:
                self._tokens[kind].labels(*labels).observe(number)
