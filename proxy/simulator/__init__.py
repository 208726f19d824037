"""An embedded Chat Completions server that behaves like vLLM 0.32, without a GPU: for demos, tests and load.

The last user message, the model name or headers choose what it answers (see `directives.py`); its dialect determines the
wording; faults determine what goes wrong."""

from proxy.simulator.app import create_app, serving
from proxy.simulator.dialect import DIALECTS, Dialect
from proxy.simulator.state import COUNTERS, RECEIVED, SimulatorOptions

__all__ = ["COUNTERS", "DIALECTS", "RECEIVED", "Dialect", "SimulatorOptions", "create_app", "serving"]
