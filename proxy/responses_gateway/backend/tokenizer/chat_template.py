"""A model's chat template: renders the messages of a chat request as the prompt, as `apply_chat_template` does.

Messages are prepared as vLLM prepares them: arguments of calls become objects, absent content an empty text, reasoning
appears in both of its fields, and every tool has all of its fields. Rendering needs the packages of the extra `tokenizer`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from responses_gateway.wire.errors import invalid_request

Object = dict[str, Any]


class ChatTemplate:
    """A compiled template. Rendering takes milliseconds for long conversations: call it in a thread."""

    def __init__(
        self, sources: Mapping[str, str], variables: Mapping[str, str], now: Callable[[], datetime] = datetime.now
    ) -> None:
        """Compile the templates in `sources`, by name: `default` is needed, `tool_use` serves requests with tools.

        `variables`: the special tokens by their names (`bos_token`, ...). Raises `jinja2.TemplateSyntaxError`, and
        `ImportError` without the extra."""
        from responses_gateway.backend.tokenizer.jinja_environment import TEMPLATE_ERRORS, compile_templates  # noqa: PLC0415  (an extra)

        self._templates = compile_templates(sources, now)
        self._errors = TEMPLATE_ERRORS
        self._variables = dict(variables)

    def render(self, body: Mapping[str, Any], *, add_generation_prompt: bool = True) -> str:
        """Return the prompt for the body of a chat request. Raises `ApiError` 400 if the template refuses the messages, or if
        they contain more than text."""
        tools = _tools(body.get("tools"))
        effort = body.get("reasoning_effort")
        template = self._templates.get("tool_use" if tools else "default") or self._templates["default"]
        variables: Object = {
            **self._variables,
            **({"reasoning_effort": effort} if effort is not None else {}),
            **(body.get("chat_template_kwargs") or {}),
            "messages": [_message(message, index) for index, message in enumerate(body["messages"])],
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return template.render(variables)
        except self._errors as error:
            raise invalid_request(f"The model's chat template refuses these messages: {error}", "input") from None

    def thinking_open(self, body: Mapping[str, Any], opens: tuple[str, ...], closes: tuple[str, ...]) -> bool:
        """Tell whether the prompt ends inside a reasoning block that the template opened: the answer begins with reasoning.
        `opens` and `closes` are the markers of such blocks. Raises `ApiError` as `render` does."""
        prompt = self.render(body)
        conversation = self.render(body, add_generation_prompt=False)
        if prompt == conversation or not prompt.startswith(conversation):
            return prompt.rstrip().endswith(opens)
        # Markers in the conversation do not count, only those in what the template adds to its end.
        added = prompt.removeprefix(conversation)
        return max(map(added.rfind, opens), default=-1) > max(map(added.rfind, closes), default=-1)


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
            message = (
                f"Message {index} contains a part of type '{part.get('type')}': the gateway's own tokenizer only handles text. "
                "Only a backend with a /tokenize endpoint can count such a request."
            )
            raise invalid_request(message, "input", "unsupported_value")
    return "\n".join(part["text"] for part in content)


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
