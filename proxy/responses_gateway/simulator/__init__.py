"""An embedded Chat Completions server that behaves like vLLM 0.32, without a GPU: for demos, tests and load.

The last user message, the model name or headers choose what it answers (see `directives.py`); its dialect determines the
wording; faults determine what goes wrong."""

from responses_gateway.simulator.app import create_app, serving
from responses_gateway.simulator.dialect import DIALECTS, Dialect
from responses_gateway.simulator.prefix_cache import CacheModel
from responses_gateway.simulator.state import CACHE, COUNTERS, RECEIVED, SimulatorOptions
from responses_gateway.simulator.weak import WeakModel

__all__ = [
    "CACHE", "COUNTERS", "DIALECTS", "RECEIVED", "CacheModel", "Dialect", "SimulatorOptions", "WeakModel", "create_app",
    "serving",
]  # fmt: skip
