"""Nemotron 3 and Granite 4.2: Qwen 3 Coder's tags."""

from .hermes import REASONING
from .qwen3_coder import TOOLS

__all__ = ["REASONING", "TOOLS"]
