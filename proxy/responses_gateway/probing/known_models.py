"""What is known of how each model thinks, and of its chat template: from that, from probing, and from what servers answer.

Evidence about a model only adds up: what was seen once is remembered. Whether prompts open the thought is the one thing that
later evidence may correct."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.parsers import PromptEnd, ThoughtTokens
from responses_gateway.telemetry import logs

_MOST_MODELS = 1000  # most models that are known, because their names come from clients
_MOST_TOOLS = 64  # most lists of tools that are kept, because they come from clients
# What becomes of `strict` in tools: the server enforces the schema (`enforced`), with another prompt (`rendered`), or does not
# (`ignored`); the model keeps to the schema in any case (`kept`), or the request is `refused`.
Enforcement: TypeAlias = Literal["enforced", "rendered", "ignored", "kept", "refused"]


class KnownModel(msgspec.Struct, frozen=True):
    """How one model thinks, and what its template wants. None means unknown.

    `field`: its reasoning came in a field of its own. `marked`: it opened its reasoning itself, in the text. `opens`: the
    prompt ends inside reasoning, where a request leaves it to the template; `opens_if_asked`: where a request turns thinking
    on. `calls_field`: a call came in a field of its own; `calls_written`: so many answers ended with a call in their text, two
    at most. `forms`: what its template wants of messages, by name. `prompt_end`: how to see that in the ids of a prompt;
    `thoughts`: how to see thoughts in those of an answer. `enforcement`: what becomes of strict tools, by the label of the
    backend."""

    field: bool = False
    marked: bool = False
    opens: bool | None = None
    opens_if_asked: bool | None = None
    calls_field: bool = False
    calls_written: int = 0
    forms: frozenset[str] = frozenset()
    prompt_end: PromptEnd | None = None
    thoughts: ThoughtTokens | None = None
    enforcement: Mapping[str, Enforcement] = {}

    @property
    def writes_calls(self) -> bool:
        """Its calls come in the text, and nobody parses them. One answer is not enough: it may have quoted a call."""
        return self.calls_written > 1 and not self.calls_field

    def with_more(self, more: KnownModel) -> KnownModel:
        """Return what is known with more evidence."""
        return KnownModel(
            field=self.field or more.field,
            marked=self.marked or more.marked,
            opens=self.opens if more.opens is None else more.opens,
            opens_if_asked=self.opens_if_asked if more.opens_if_asked is None else more.opens_if_asked,
            calls_field=self.calls_field or more.calls_field,
            calls_written=max(self.calls_written, more.calls_written),
            forms=self.forms | more.forms,
            prompt_end=more.prompt_end or self.prompt_end,
            thoughts=more.thoughts or self.thoughts,
            enforcement={**self.enforcement, **more.enforcement},
        )


UNKNOWN = KnownModel()


class KnownModels(BoundedDict[str, KnownModel]):
    """What is known of each model, by the backend's name of it. `report` is called with what was learned, for other workers.
    `plain_tools`: by the model and the digest of tools that its server has refused, the form in which it took them."""

    def __init__(self) -> None:
        super().__init__(_MOST_MODELS)
        self.report: Callable[[Mapping[str, KnownModel]], None] = lambda _learned: None
        self.plain_tools: BoundedDict[tuple[str, bytes], Sequence[Any]] = BoundedDict(_MOST_TOOLS)
        self.may_ask = False  # servers are examined, by this process or another one

    def learn(self, model: str, news: KnownModel) -> None:
        """Add evidence about a model."""
        before = self.get(model, UNKNOWN)
        after = before.with_more(news)
        if after == before:
            return
        self.take_over({model: after})
        _log(model, before, after)
        self.report({model: after})

    def take_over(self, learned: Mapping[str, KnownModel]) -> None:
        """Take what another process has learned."""
        for model, known in learned.items():
            self[model] = self.get(model, UNKNOWN).with_more(known)


def _log(model: str, before: KnownModel, after: KnownModel) -> None:
    """Say what is new, but not what was only corrected."""
    info = logs.logger().info
    if after.marked and not before.marked:
        info("learned that the model marks its reasoning in the text", extra=logs.fields(model=model))
    if after.writes_calls and not before.writes_calls:
        info("learned that the model's calls come in its text", extra=logs.fields(model=model))
    for form in sorted(after.forms - before.forms):
        info("learned what the model's template wants of messages", extra=logs.fields(model=model, form=form))
    if before.opens is None and after.opens:
        info("learned that the prompt opens the model's reasoning", extra=logs.fields(model=model))
