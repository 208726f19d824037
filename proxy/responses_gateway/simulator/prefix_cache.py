"""A prefix cache in blocks, as vLLM has one: what it tells of a prompt follows from the prompts and answers before.

A prompt is rendered as the model wrote it: an answer that comes back has the tokens that were generated, so that a prompt that
only grew is an extension of the last one. Whether earlier thoughts are rendered is a matter of the template."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.simulator import tokenizer
from responses_gateway.simulator.chat_request import HISTORY, ChatRequest, message_text
from responses_gateway.simulator.generation import Notation, generate
from responses_gateway.simulator.script import CallTool, Say, Step, Think, script

# Tokens of a block: those of vLLM.
BLOCK = 16
_START = "<|im_start|>"
_TURN_END = tokenizer.encode(f"{tokenizer.END}\n")


@dataclass(frozen=True)
class CacheModel:
    """The cache of a simulated server: the blocks for which it has room, and its template. `drops_thoughts`: thoughts before
    the last user message are left out, unless `chat_template_kwargs` say `preserve_thinking`. Without `reports` nobody is told
    what was cached."""

    blocks: int = 100_000
    drops_thoughts: bool = False
    reports: bool = True


@dataclass(eq=False)
class PrefixCache:
    """The blocks that a server has; those that were used longest ago are evicted first, of one prompt the last ones."""

    model: CacheModel
    _blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def clear(self) -> None:
        """Forget everything, as a server does that is started again."""
        self._blocks.clear()

    def read(self, prompt: Sequence[int], answer: Sequence[int]) -> int | None:
        """Return how many tokens of a prompt are cached, None if that is not reported. Keep the prompt with its answer, whose
        end token is never read. Both are ids."""
        cached = 0
        for key in _keys(prompt[:-1]):
            if key not in self._blocks:
                break
            cached += BLOCK
        for key in reversed(list(_keys([*prompt, *answer]))):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self.model.blocks:
            self._blocks.popitem(last=False)
        return cached if self.model.reports else None

    def prompt_ids(self, request: ChatRequest, notation: Notation) -> list[int]:
        """Return the ids of a rendered prompt."""
        body = request.body
        variables = body.get("chat_template_kwargs")
        keeps = isinstance(variables, dict) and bool(variables.get("preserve_thinking"))
        users = [place for place, message in enumerate(request.messages) if message.get("role") == "user"]
        first = users[-1] if users and self.model.drops_thoughts and not keeps else -1
        ids = tokenizer.encode(json.dumps(body["tools"], ensure_ascii=False)) if body.get("tools") else []
        for place, message in enumerate(request.messages):
            ids += tokenizer.encode(f"{_START}{message.get('role')}\n")
            ids += _content_ids(message, notation, thinks=place > first)
            ids += _TURN_END
        return ids + tokenizer.encode(f"{_START}assistant\n")


def _content_ids(message: dict[str, Any], notation: Notation, *, thinks: bool) -> list[int]:
    text = message_text(message)
    if message.get("role") != "assistant":
        return tokenizer.encode(text)
    steps: list[Step] = []
    thought = next((message[name] for name in HISTORY if message.get(name)), "")
    if thought and thinks:
        steps.append(Think(thought))
    steps.append(Say(text))
    for call in message.get("tool_calls") or ():
        steps.append(CallTool(call["function"]["name"], call["function"]["arguments"]))
    return [token.number for token in generate(script(*steps), notation)]


def _keys(tokens: Sequence[int]) -> Iterable[int]:
    """Yield the key of each whole block, which depends on all blocks before it."""
    key = 0
    for place in range(0, len(tokens) - BLOCK + 1, BLOCK):
        key = hash((key, *tokens[place : place + BLOCK]))
        yield key
