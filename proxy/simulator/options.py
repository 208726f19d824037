"""The knobs of a simulator."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.simulator.personality import PERSONALITIES, Personality


@dataclass(frozen=True)
class SimulatorOptions:
    """`tokens_per_second` per stream, 0 for no pace; `first_token_seconds` is the pretended prefill.

    `models` are those listed; any other name is accepted too unless `strict_models`. With `api_key`, requests without it get
    401. A request may override personality and pace (see `directives`).
    """

    models: tuple[str, ...] = ("simulator",)
    personality: Personality = field(default_factory=lambda: PERSONALITIES["vllm"])
    tokens_per_second: float = 0.0
    first_token_seconds: float = 0.0
    max_model_len: int = 131072
    strict_models: bool = False
    api_key: str | None = None
