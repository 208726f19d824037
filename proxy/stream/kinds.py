"""Kinds of delta that are no type of their own: the lifecycle tells them apart by what is in them."""

from __future__ import annotations


class Blank:
    """Kind of a Reasoning, Text or Refusal delta that is white space alone."""


class ForbiddenCall:
    """Kind of a ToolCall that the request does not permit (tool_choice, max_tool_calls, parallel_tool_calls)."""
