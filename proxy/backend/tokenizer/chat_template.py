"""A model's chat template: from the messages of a chat request to the prompt, as `apply_chat_template` writes it.

Before rendering, messages are prepared as vLLM prepares them: arguments of calls become objects, absent content an empty
text, reasoning stands in both of its fields, and every tool has all of its fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from proxy.wire.errors import ApiError, invalid_request

Object = dict[str, Any]

#: How the reasoning blocks of model families begin and end.
REASONING_MARKERS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)

#: What a template may stumble over in messages that it was not written for.
_STUMBLES = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class ChatTemplate:
    """A compiled template. Rendering takes milliseconds for long conversations: call it in a thread."""

    def __init__(
        self, sources: Mapping[str, str], variables: Mapping[str, str], now: Callable[[], datetime] = datetime.now
    ) -> None:
        """`sources`: templates by name, of which `default` is needed and `tool_use` serves requests with tools.
        `variables`: the special tokens by their names (`bos_token`, ...). Raises `jinja2.TemplateSyntaxError`.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda layout: now().strftime(layout)
        self._templates = {name: environment.from_string(source) for name, source in sources.items()}
        self._variables = dict(variables)

    def render(self, body: Mapping[str, Any], *, add_generation_prompt: bool = True) -> str:
        """The prompt for the body of a chat request. Raises `ApiError` 400 if the template refuses the messages, or if they
        hold more than text."""
        tools = _tools(body.get("tools"))
        template = self._templates.get("tool_use" if tools else "default") or self._templates["default"]
        variables: Object = {
            **self._variables,
            **_chosen(body, "reasoning_effort"),
            **(body.get("chat_template_kwargs") or {}),
            "messages": [_message(message, index) for index, message in enumerate(body["messages"])],
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return template.render(variables)
        except _STUMBLES as error:
            raise invalid_request(f"The model's chat template refuses these messages: {error}", "input") from None

    def thinking_open(
        self, body: Mapping[str, Any], markers: Sequence[tuple[str, str]] = REASONING_MARKERS, prompt: str | None = None
    ) -> bool:
        """Whether the prompt ends inside a reasoning block that the template has opened, so that the answer begins with
        reasoning. `markers`: pairs of texts that open and close one; `prompt`: the rendered prompt, if it is there already.
        Raises `ApiError` as `render` does."""
        prompt = self.render(body) if prompt is None else prompt
        conversation = self.render(body, add_generation_prompt=False)
        if prompt == conversation or not prompt.startswith(conversation):
            return prompt.rstrip().endswith(tuple(opening for opening, _ in markers))
        # What the conversation says about markers does not count, only what the template adds behind it.
        added = prompt.removeprefix(conversation)
        return any(added.rfind(opening) > added.rfind(closing) for opening, closing in markers)


class _Generation(Extension):
    """`{% generation %}`: marks what the model wrote, for training. Here its content counts and nothing else."""

    tags = {"generation"}  # noqa: RUF012  (as the base class has it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter would escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _chosen(body: Mapping[str, Any], *names: str) -> Object:
    return {name: body[name] for name in names if body.get(name) is not None}


def _message(message: Mapping[str, Any], index: int) -> Object:
    prepared: Object = {**message, "content": _text(message.get("content"), index)}
    if message.get("role") != "assistant":
        return prepared
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        prepared["reasoning"] = prepared["reasoning_content"] = reasoning
    if message.get("tool_calls"):
        prepared["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return prepared


def _text(content: Any, index: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.get("type") != "text":
            raise _uncountable(part.get("type"), index)
    return "\n".join(part["text"] for part in content)


def _uncountable(kind: object, index: int) -> ApiError:
    return invalid_request(
        f"Message {index} holds a part of type '{kind}': the gateway's own tokenizer knows text alone. "
        "Only a backend with a /tokenize endpoint can count such a request.",
        "input",
        "unsupported_value",
    )


def _call(call: Mapping[str, Any]) -> Object:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if not arguments:
        function["arguments"] = {}
    elif isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments)
        except ValueError:
            function["arguments"] = arguments  # as the model wrote it
    return {**call, "function": function}


def _tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Object] | None:
    if not tools:
        return None
    return [{**tool, "function": {"name": None, "description": None, "parameters": None, **tool["function"]}} for tool in tools]
