"""The options of a simulator, and what it keeps: counters, the last requests, how often faults happened."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.simulator.dialect import DIALECTS, Dialect
from responses_gateway.simulator.prefix_cache import CacheModel, PrefixCache
from responses_gateway.simulator.strict_tools import StrictTools
from responses_gateway.simulator.weak import WeakModel

_REMEMBERED = 1000  # messages for which faults are counted


@dataclass(frozen=True)
class SimulatorOptions:
    """The options of a simulator. A request may override dialect and pace (see `directives.py`). `tokens_per_second` is the
    pace of each stream, 0 for no limit; `first_token_seconds` is the simulated prefill. `models` are listed; any other name is
    accepted too, unless `strict_models`. With `api_key`, requests without it get 401. `weak`: the mistakes of a weak model.
    `strict_tools`: whether the server enforces the schemas of strict tools, and whether the prompt has `strict`.
    `cache`: a real prefix cache; without one, three quarters of every history are cached."""

    models: tuple[str, ...] = ("simulator",)
    dialect: Dialect = field(default_factory=lambda: DIALECTS["vllm"])
    tokens_per_second: float = 0.0
    first_token_seconds: float = 0.0
    max_model_len: int = 131072
    strict_models: bool = False
    api_key: str | None = None
    weak: WeakModel | None = None
    strict_tools: StrictTools = "renders"
    cache: CacheModel | None = None


@dataclass
class Counters:
    """Counters of the simulated server. `running` counts the requests in progress; the others only grow."""

    running: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    aborted: int = 0  # requests whose client disconnected before the end
    finished: Counter[str] = field(default_factory=Counter)

    def exposition(self, model: str) -> str:
        """Return the counters in the text format of Prometheus, under the names that vLLM uses."""
        labels = f'engine="0",model_name="{model}"'
        finished = (f'{{{labels},finished_reason="{reason}"}} {float(n)}' for reason, n in sorted(self.finished.items()))
        lines = [
            *_metric("vllm:num_requests_running", "gauge", f"{{{labels}}} {float(self.running)}"),
            *_metric("vllm:num_requests_waiting", "gauge", f"{{{labels}}} 0.0"),
            *_metric("vllm:kv_cache_usage_perc", "gauge", f"{{{labels}}} {min(1.0, self.running / 256)}"),
            *_metric("vllm:prompt_tokens_total", "counter", f"{{{labels}}} {float(self.prompt_tokens)}"),
            *_metric("vllm:generation_tokens_total", "counter", f"{{{labels}}} {float(self.generation_tokens)}"),
            *_metric("vllm:request_success_total", "counter", *finished),
            *_metric("simulator:requests_total", "counter", f" {float(self.requests)}"),
            *_metric("simulator:requests_aborted_total", "counter", f" {float(self.aborted)}"),
        ]
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, *samples: str) -> list[str]:
    return [f"# TYPE {name} {kind}", *(f"{name}{sample}" for sample in samples)]


class FaultCounts:
    """Counts how often something was asked, for faults that happen only a number of times."""

    def __init__(self) -> None:
        self._happened: BoundedDict[int, int] = BoundedDict(_REMEMBERED)

    def count(self, message: str, times: int | None) -> bool:
        """Count the message, and tell whether a fault that happens `times` times (None: always) happens once more."""
        return times is None or self.earlier(message) < times

    def earlier(self, message: str) -> int:
        """Count the message, and return how often it was counted before."""
        key = hash(message)
        happened = self._happened.get(key, 0)
        self._happened[key] = happened + 1
        return happened


OPTIONS = web.AppKey("options", SimulatorOptions)
COUNTERS = web.AppKey("counters", Counters)
# the last requests, the oldest first: `{"body": …, "headers": …}`
RECEIVED: web.AppKey[deque[dict[str, Any]]] = web.AppKey("received", deque)
FAULT_COUNTS = web.AppKey("fault_counts", FaultCounts)
# there with the option `cache`
CACHE = web.AppKey("cache", PrefixCache)
