"""Which parser reads the markup in a model's text, as the settings and the model's name have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.request import Policy
from proxy.settings import Settings
from proxy.stream import formats
from proxy.stream.markup import Markup

_OFF = frozenset({"none", ""})
#: Text that a tokenizer leaves out of its output unless asked: special tokens look like this.
_SPECIAL = ("<|", "<｜", "[TOOL", "[ARGS", "[THINK", "[/THINK")


class Parsers:
    """The choice for one gateway. Raises `ValueError` for a name that is none."""

    def __init__(self, settings: Settings, policy: Policy) -> None:
        self._reasoning = settings.reasoning_parser
        self._tools = settings.tool_call_parser
        self._rescue = settings.rescue
        self._opened = {"auto": None, "yes": True, "no": False}[settings.opened_thinking]
        formats.parser(self._reasoning, self._tools, schemas={})  # a wrong name is said at the start
        special = self.active and any(marker.startswith(_SPECIAL) for marker in formats.markers(*self._names("")) or ())
        self.policy = replace(policy, raw_tools=self._tools not in _OFF, special_tokens=special)

    @property
    def active(self) -> bool:
        """The backend sends raw markup."""
        return self._reasoning not in _OFF or self._tools not in _OFF

    def markup(self, body: Mapping[str, Any]) -> Markup | None:
        """What reads the answer to a chat request; None where the backend's word is taken."""
        if not self.active and not self._rescue:
            return None
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body.get("tools", ())}
        reasoning, tools = self._names(body["model"])
        opened = self._opened
        kwargs = body.get("chat_template_kwargs")
        if isinstance(kwargs, dict) and False in (kwargs.get("enable_thinking"), kwargs.get("thinking")):
            opened = False
        if not self.active:
            reasoning, tools, opened = "auto", "auto" if schemas else "none", False
        new_parser = partial(formats.parser, reasoning, tools, schemas=schemas, thinking_open=opened)
        return Markup(new_parser, rescue=not self.active)

    def _names(self, model: str) -> tuple[str, str]:
        """The names of both formats; `auto` is replaced by what the model's name tells, if it tells anything."""
        reasoning, tools = self._reasoning, self._tools
        if "auto" in (reasoning, tools):
            found = formats.detect(model, None)
            reasoning = found[0] or "auto" if reasoning == "auto" else reasoning
            tools = found[1] or "auto" if tools == "auto" else tools
        return reasoning, tools
