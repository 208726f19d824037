"""A chat request, read as scenarios need it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

from responses_gateway.simulator.asked_fields import json_fields

# Clients send context in user messages: `<tag>…</tag>` blocks, and the instructions of a repository. A message of another agent
# counts as the user's.
# Tags of what the gateway and Claude Code put behind what a user wrote.
_BEHIND = ("system_message", "system-reminder")
_CONTEXT = re.compile(
    r"\s*(?:<(?!agent_message\b)([A-Za-z_][\w-]*)[^>]*>.*?</\1>"
    r"|# AGENTS\.md instructions[^\n]*\n\s*<INSTRUCTIONS>.*?</INSTRUCTIONS>)\s*",
    re.DOTALL,
)
HISTORY = ("reasoning", "reasoning_content")
_PROMPTING_ROLES = frozenset({"system", "developer", "user"})
# Where a JSON object may begin, and how many places are tried.
_OBJECT = re.compile(r"\{\s*\"")
_MOST_OBJECTS = 100
_IMAGE_MARKER = re.compile(r"</?image\b[^>]*>")


@dataclass(frozen=True)
class Tool:
    """A function that is offered to the model."""

    name: str
    parameters: dict[str, Any]

    @property
    def properties(self) -> dict[str, Any]:
        """The schema's properties by name."""
        properties = self.parameters.get("properties")
        return properties if isinstance(properties, dict) else {}


@dataclass(frozen=True)
class ChatRequest:
    """A chat request. `body` is already validated: `messages` is a list of objects."""

    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages, in order."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def question(self) -> str:
        """The text of the last user message, without the context that clients wrap in tags; empty if there is none."""
        position = self._question_position()
        return "" if position is None else spoken_text(self.messages[position])

    @property
    def tool_results(self) -> list[str]:
        """The texts of the tool results since the last user message; their number is the step of an agent's work."""
        position = self._question_position()
        later = self.messages if position is None else self.messages[position + 1 :]
        return [message_text(message) for message in later if message.get("role") in ("tool", "function")]

    @property
    def images(self) -> list[str]:
        """The URLs of all image parts of the messages."""
        parts = (part for message in self.messages for part in _parts(message))
        urls = (part.get("image_url") for part in parts if part.get("type") in ("image_url", "input_image"))
        return [str(url.get("url") if isinstance(url, dict) else url) for url in urls]

    @property
    def tools(self) -> list[Tool]:
        """The functions offered, including those in the old `functions` field."""
        entries = [tool.get("function") for tool in self.body.get("tools") or () if isinstance(tool, dict)]
        entries += self.body.get("functions") or []
        return [
            Tool(entry["name"], entry.get("parameters") or {})
            for entry in entries
            if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        ]

    def tool(self, *names: str) -> Tool | None:
        """Find the first offered tool with one of these names, with or without a namespace (`files__read` for `read`)."""
        for name in names:
            for tool in self.tools:
                if tool.name == name or re.split(r"__|\.", tool.name)[-1] == name:
                    return tool
        return None

    @property
    def forced_tool(self) -> Tool | None:
        """The tool that `tool_choice` requires: the named one, or the first for `required`."""
        choice = self.body.get("tool_choice")
        if isinstance(choice, dict):
            wanted = (choice.get("function") or choice).get("name")
            return next((tool for tool in self.tools if tool.name == wanted), None)
        return self.tools[0] if choice == "required" and self.tools else None

    @property
    def parallel(self) -> bool:
        """Whether several calls at once are allowed."""
        return self.body.get("parallel_tool_calls") is not False

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must fit, also one that a prompt without tools contains; a small object for
        `json_object`; None for free text."""
        wanted = self.body.get("response_format")
        if not isinstance(wanted, dict):
            return None if self.body.get("tools") else self._prompted_schema()
        if wanted.get("type") == "json_object":
            return self._prompted_schema() or {"type": "object", "properties": {"answer": {"type": "string"}}}
        if wanted.get("type") != "json_schema":
            return None
        schema = (wanted.get("json_schema") or {}).get("schema")
        return schema if isinstance(schema, dict) else {}

    def _prompted_schema(self) -> dict[str, Any] | None:
        """Return the last JSON schema of an object in the system's and the user's messages: so frameworks ask for JSON."""
        for message in reversed(self.messages):
            if message.get("role") in _PROMPTING_ROLES:
                text = spoken_text(message)
                schema = json_fields(text) or _schema_in(text)
                if schema is not None:
                    return schema
        return None

    def prompt_text(self, *, opens_thought: bool = False, history: tuple[str, ...] = HISTORY) -> str:
        """Render the prompt as a chat template would; its tokens are counted. `opens_thought`: the template ends so. `history`:
        the fields from which earlier reasoning is taken."""
        turns = [f"<|im_start|>{message.get('role')}\n{_rendered(message, history)}<|im_end|>\n" for message in self.messages]
        tools = self.body.get("tools") or self.body.get("functions")
        beginning = "<|im_start|>assistant\n" + "<think>\n" * opens_thought
        return "".join([json.dumps(tools, ensure_ascii=False) if tools else "", *turns, beginning])

    def _question_position(self) -> int | None:
        for position in range(len(self.messages) - 1, -1, -1):
            message = self.messages[position]
            if message.get("role") == "user" and not self._is_attachment(position) and spoken_text(message):
                return position
        return None

    def _is_attachment(self, position: int) -> bool:
        """Tell whether a user message only has the images of the tool result before it, which tool messages cannot contain."""
        if position == 0 or self.messages[position - 1].get("role") != "tool":
            return False
        return any(part.get("type") == "image_url" for part in _parts(self.messages[position]))


def message_text(message: dict[str, Any]) -> str:
    """Return the text of a message: its string, or its text parts, one per line."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in _parts(message) if isinstance(part.get("text"), str))


def spoken_text(message: dict[str, Any]) -> str:
    """Return the text of a message without markers around images and without the blocks of context before and behind it."""
    text = _IMAGE_MARKER.sub("", message_text(message)).strip()
    while (context := _CONTEXT.match(text)) is not None:
        text = text[context.end() :]
    text = text.rstrip()
    while (tag := next((tag for tag in _BEHIND if text.endswith(f"</{tag}>")), None)) is not None:
        text = text[: max(0, text.rfind(f"<{tag}>"))].rstrip()
    return text.strip()


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _rendered(message: dict[str, Any], history: tuple[str, ...]) -> str:
    calls = message.get("tool_calls")
    reasoning = next((message[name] for name in history if message.get(name)), "")
    return f"{reasoning}{message_text(message)}{json.dumps(calls, ensure_ascii=False) if calls else ''}"


def _schema_in(text: str) -> dict[str, Any] | None:
    """Return the first JSON schema of an object in a text, which may stand in a code block or in the middle of a sentence."""
    decoder = json.JSONDecoder()
    if '"properties"' not in text:
        return None
    for beginning in islice(_OBJECT.finditer(text), _MOST_OBJECTS):
        try:
            value, _ = decoder.raw_decode(text, beginning.start())
        except (ValueError, RecursionError):
            continue
        if value.get("type") == "object" and isinstance(value.get("properties"), dict):
            return dict(value)
    return None
