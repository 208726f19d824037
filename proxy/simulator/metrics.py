"""The counters of the simulated server, and `/metrics` in the names that vLLM uses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counters:
    """`running` is the number of requests that hold the pretended GPU; the others only grow."""

    running: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    #: requests whose client left before the end
    aborted: int = 0
    finished: Counter[str] = field(default_factory=Counter)

    def exposition(self, model: str) -> str:
        """The text format of Prometheus."""
        labels = f'engine="0",model_name="{model}"'
        lines = [
            *_metric("vllm:num_requests_running", "gauge", f"{{{labels}}} {float(self.running)}"),
            *_metric("vllm:num_requests_waiting", "gauge", f"{{{labels}}} 0.0"),
            *_metric("vllm:kv_cache_usage_perc", "gauge", f"{{{labels}}} {min(1.0, self.running / 256)}"),
            *_metric("vllm:prompt_tokens_total", "counter", f"{{{labels}}} {float(self.prompt_tokens)}"),
            *_metric("vllm:generation_tokens_total", "counter", f"{{{labels}}} {float(self.generation_tokens)}"),
            *_metric(
                "vllm:request_success_total",
                "counter",
                *(
                    f'{{{labels},finished_reason="{reason}"}} {float(number)}'
                    for reason, number in sorted(self.finished.items())
                ),
            ),
            *_metric("simulator:requests_total", "counter", f" {float(self.requests)}"),
            *_metric("simulator:requests_aborted_total", "counter", f" {float(self.aborted)}"),
        ]
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, *samples: str) -> list[str]:
    return [f"# TYPE {name} {kind}", *(f"{name}{sample}" for sample in samples)]
