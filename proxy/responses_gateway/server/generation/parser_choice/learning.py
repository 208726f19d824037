"""What the answers of a model show of how it thinks, and what a request asks of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from responses_gateway.probing.known_models import KnownModel
from responses_gateway.stream.reading.markup import Evidence

# Fields of a chat request that force its answer into a grammar.
_GRAMMARS = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")


def shown_by(body: Mapping[str, Any], known: KnownModel, seen: Evidence, *, completed: bool, decided: bool) -> KnownModel:
    """Return what the answer to a chat request has shown of its model, of which so much is `known`. `completed`: the model
    stopped by itself. `decided`: how the answer was read was decided by something stronger than what is known of the model, so
    that it shows nothing of whether the prompt opens a thought."""
    wish = thinking_wish(body)
    news = KnownModel(field=seen.field, marked=seen.first_marker == "open" and wish is not False)
    if decided or seen.prompt_known or has_grammar(body):
        return news
    opened = None
    if seen.first_marker == "open" or (seen.first_marker == "none" and seen.thought and completed):
        opened = False
    elif seen.first_marker == "close" and not known.marked:
        opened = True
    if wish is None:
        return msgspec.structs.replace(news, opens=opened)
    return msgspec.structs.replace(news, opens_if_asked=opened) if wish else news


def opens_thought(body: Mapping[str, Any], known: KnownModel, default: bool | None) -> bool | None:
    """Tell whether the prompt opens a thought, by what is known of the model."""
    wish = thinking_wish(body)
    if wish is False:
        return False
    learned = known.opens_if_asked if wish else known.opens
    return default if learned is None else learned


def thinking_wish(body: Mapping[str, Any]) -> bool | None:
    """Tell whether the request turns thinking on or off in the chat template; None if it leaves that open."""
    kwargs = body.get("chat_template_kwargs")
    if not isinstance(kwargs, dict):
        return None
    wishes = (kwargs.get("enable_thinking"), kwargs.get("thinking"))
    return False if False in wishes else True if True in wishes else None


def has_grammar(body: Mapping[str, Any]) -> bool:
    """Tell whether the answer is forced into a grammar."""
    layout = body.get("response_format")
    kind = layout.get("type") if isinstance(layout, dict) else None
    return kind not in (None, "text") or any(body.get(name) for name in _GRAMMARS)
