"""An embedded Chat Completions server that behaves like vLLM 0.32, without a GPU: for demos, tests and load.

What it answers is chosen by the last user message, the model name or headers (see `directives`); how it words it by its
personality; what goes wrong by faults.
"""

from proxy.simulator.app import create_app
from proxy.simulator.options import SimulatorOptions
from proxy.simulator.personality import PERSONALITIES, Personality
from proxy.simulator.serving import serving
from proxy.simulator.state import COUNTERS, RECEIVED

__all__ = ["COUNTERS", "PERSONALITIES", "RECEIVED", "Personality", "SimulatorOptions", "create_app", "serving"]
