"""Prompts that are ids of tokens: a prompt that was rendered before, and behind it what was generated already.

A real server continues whatever ids it gets. Here the messages are read back from the prompt, so that the same scenario
answers, and continues after the tokens that were generated."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from responses_gateway.simulator import tokenizer
from responses_gateway.simulator.errors import vllm_error

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", re.DOTALL)
_ANSWER = "<|im_start|>assistant\n"
_START = tokenizer.SPECIAL["<|im_start|>"]


class TokenPrompt(NamedTuple):
    """A prompt in ids. `chat`: the chat request whose template gives its beginning; `generated`: the ids behind that."""

    ids: tuple[int, ...]
    chat: dict[str, Any]
    generated: tuple[int, ...]


def token_ids(value: object, param: str) -> tuple[int, ...] | None:
    """Return the ids of a prompt; None if it is no list of ids. Raises `ErrorAnswer` for an empty list."""
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        return None
    if not value or min(value) < 0:
        raise vllm_error(f"{param} must be a non-empty list of non-negative integers", param=param)
    try:
        tokenizer.decode(value)
    except ValueError as error:
        raise vllm_error(f"Token id {error} of the vocabulary", param=param) from None
    return tuple(value)


def read_prompt(ids: Sequence[int], *, opens_thought: bool) -> TokenPrompt:
    """Read a prompt that is ids. `opens_thought`: the template ends in an open thought."""
    last = max((place for place, number in enumerate(ids) if number == _START), default=0)
    header = tokenizer.encode(_ANSWER + "<think>\n" * opens_thought)
    end = last + len(header) if list(ids[last : last + len(header)]) == header else len(ids)
    text = tokenizer.decode(ids[:last])
    head, separator, _ = text.partition("<|im_start|>")
    chat: dict[str, Any] = {
        "messages": [{"role": role, "content": content} for role, content in _TURN.findall(text)] or [{"content": text}]
    }
    if separator and head:
        chat["tools"] = json.loads(head)
    return TokenPrompt(tuple(ids), chat, tuple(ids[end:]))


def chat_prompt_ids(body: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the ids that take the place of a chat request's messages; None if they are to be rendered. They are ignored
    without a word where a message has a part that is no text, or with `echo`."""
    transfer = body.get("kv_transfer_params")
    wanted = transfer.get("prompt_token_ids") if isinstance(transfer, dict) else None
    parts = [part for message in body["messages"] for part in _list(message.get("content"))]
    if wanted is None or body.get("echo") or any(not isinstance(part, dict) or part.get("type") != "text" for part in parts):
        return None
    ids = token_ids(wanted, "kv_transfer_params.prompt_token_ids")
    if ids is None:
        raise vllm_error("prompt_token_ids must be a non-empty list of non-negative integers", param="kv_transfer_params")
    return ids


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
