"""The models that judge: what requests ask to be moderated, and the tool calls of answers."""

from __future__ import annotations

from typing import Annotated

from responses_gateway.settings.section import Section, only

# What stands in the prompt for the text that is to be judged.
TEXT = "{text}"
_Prompt = Annotated[
    str | None, only(lambda prompt: TEXT in prompt, "the prompt must contain {text}, which stands for the text to be judged")
]


class ModerationSettings(Section):
    """Who judges, and how it is asked."""

    title = "Moderation"
    optional = True

    moderation_model: str | None = None
    """The guard model that judges requests with `moderation`: a model of a backend that answers `safe`, or `unsafe` and a line
    of categories, as Llama Guard does. See [docs/security.md](security.md#moderation). By default nothing is judged."""
    moderation_prompt: _Prompt = None
    """A prompt with `{text}` for a guard model whose chat template has no prompt. It has to ask for the same form of answer. By
    default the guard gets the conversation."""


class SafeguardSettings(Section):
    """Who judges tool calls."""

    title = "Safeguards"
    optional = True

    safeguards_model: str | None = None
    """The model that judges the tool calls of answers to clients that ask for it with `safeguards`: any model of a backend.
    Claude Code's auto mode needs it, see [docs/claude-code.md](claude-code.md#auto-mode). By default nothing is judged."""
