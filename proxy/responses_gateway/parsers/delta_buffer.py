"""Deltas that a parser gives out, in the order of the text, and the count of its repairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from responses_gateway.parsers.interface import Repair
from responses_gateway.wire.deltas import Delta, Reasoning, Text, ToolArguments, ToolCall, ToolCallCut
from responses_gateway.wire.tools import declared_name, referred


class DeltaBuffer:
    """Collects the deltas of one feed. Neighbouring pieces of one kind become one delta."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self.repairs: defaultdict[str, int] = defaultdict(int)
        self.final = False  # no more text will come
        self.cut = False  # because the output was cut
        self._schemas = schemas
        self.calls = 0  # calls begun so far
        self._deltas: list[Delta] = []
        self._kind: type[Text] | type[Reasoning] | type[ToolArguments] = Text
        self._pieces: list[str] = []
        self._stray: list[str] = []

    def repair(self, slug: Repair) -> None:
        """Count a repair."""
        self.repairs[slug] += 1

    def declared(self, name: str) -> bool:
        """Tell whether the request offers a tool of this name, or one that is meant by it."""
        return self.schema(name) is not None

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON schema of the tool's parameters; None for a tool that was not offered."""
        offered = declared_name(self._schemas, name)
        if offered is None:  # models leave out a namespace, or the label of a server
            longer = [tool for tool in self._schemas if tool.endswith(f"__{name}")]
            offered = longer[0] if len(longer) == 1 else ""
        schema = self._schemas.get(offered)
        reference = schema.get("$ref") if schema else None
        whole = referred(reference, schema) if isinstance(reference, str) else None
        return {**schema, **whole} if schema and isinstance(whole, Mapping) else schema

    def takes_nothing(self, name: str) -> bool:
        """Tell whether the request offers a tool of this name that has no parameters."""
        schema = self.schema(name)
        return schema is not None and not schema.get("properties")

    def text(self, piece: str) -> None:
        """Add text of the answer."""
        self._add(Text, piece)

    def reasoning(self, piece: str) -> None:
        """Add reasoning."""
        self._add(Reasoning, piece)

    def begin_call(self, name: str, call_id: str = "") -> None:
        """Begin a call; its arguments follow."""
        self._flush()
        if name not in self._schemas:
            self.repair("undeclared_tool")
        self._deltas.append(ToolCall(self.calls, call_id, name))
        self.calls += 1

    def arguments(self, piece: str) -> None:
        """Add to the arguments of the call begun last."""
        self._add(ToolArguments, piece)

    def cut_call(self) -> None:
        """Tell that the call begun last stops in the middle of its markup."""
        self._flush()
        self._deltas.append(ToolCallCut(self.calls - 1))

    def stray(self, piece: str) -> None:
        """Keep text that stands where no text belongs inside a call: it comes after the call."""
        self._stray.append(piece)

    def drop_stray(self) -> None:
        """Forget such text: the call is not read to its end, and says so."""
        self._stray.clear()

    def end_call(self) -> None:
        """End the call, and give out the stray text found in it."""
        if self._stray:
            self.repair("stray_text")
            self.text("".join(self._stray))
            self._stray.clear()

    def take(self) -> list[Delta]:
        """Return the deltas since the last call of this method."""
        self._flush()
        deltas = self._deltas
        self._deltas = []
        return deltas

    def _add(self, kind: type[Text] | type[Reasoning] | type[ToolArguments], piece: str) -> None:
        if not piece:
            return
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        self._pieces.append(piece)

    def _flush(self) -> None:
        if not self._pieces:
            return
        text = self._pieces[0] if len(self._pieces) == 1 else "".join(self._pieces)
        self._pieces.clear()
        if self._kind is ToolArguments:
            self._deltas.append(ToolArguments(self.calls - 1, text))
        elif self._kind is Text:
            self._deltas.append(Text(text))
        else:
            self._deltas.append(Reasoning(text))
