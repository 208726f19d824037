"""What the answers of a model show of how it thinks and calls, and what a request asks of its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from responses_gateway import parsers
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.request.parameters.table import has_grammar
from responses_gateway.stream.reading.markup import Evidence
from responses_gateway.wire.deltas import Text, ToolArguments, ToolCall

# Characters of an answer that is searched for calls when it has ended, because everything else waits meanwhile.
_LONGEST_TEXT = 50_000


def shown_by(body: Mapping[str, Any], known: KnownModel, evidence: Evidence, *, completed: bool, decided: bool) -> KnownModel:
    """Return what the answer to a chat request has shown of its model, of which so much is `known`. `completed`: the model
    stopped by itself. `decided`: how the answer was read was decided by something stronger than what is known of the model, so
    that it shows nothing of whether the prompt opens a thought."""
    wish = thinking_wish(body)
    news = KnownModel(field=evidence.field, marked=evidence.first_marker == "open" and wish is not False)
    if decided or evidence.prompt_known or has_grammar(body):
        return news
    opened = None
    if evidence.first_marker == "open" or (evidence.first_marker == "none" and evidence.thought and completed):
        opened = False
    elif evidence.first_marker == "close" and not known.marked:
        opened = True
    if wish is None:
        return msgspec.structs.replace(news, opens=opened)
    return msgspec.structs.replace(news, opens_if_asked=opened) if wish else news


def shown_by_calls(body: Mapping[str, Any], known: KnownModel, output: Sequence[str]) -> KnownModel:
    """Return what a completed output, as the JSON of its items, has shown of how its model calls, while no parser of ours
    looked for calls."""
    items = [msgspec.json.decode(item.encode("utf-8", "replace")) for item in output]
    if any(item["type"] not in ("message", "reasoning") for item in items):
        return KnownModel(calls_field=True)
    text = "".join(part.get("text", "") for item in items if item["type"] == "message" for part in item["content"])
    return KnownModel(calls_written=min(known.calls_written + 1, 2) if ends_with_call(body, text) else 0)


def ends_with_call(body: Mapping[str, Any], text: str) -> bool:
    """Tell whether a text ends with calls that mean to be made, and are not quoted: they begin on a line of their own, need no
    repair, are for offered tools, with arguments that these take, and nothing follows them."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body.get("tools", ())}
    opening = _opening().search(text)
    if opening is None or not schemas or len(text) > _LONGEST_TEXT:
        return False
    if text[: opening.start()].rstrip(" \t")[-1:] not in ("", "\n"):
        return False
    parser = parsers.parser("auto", "auto", schemas=schemas, thinking_open=False)
    deltas = [*parser.feed(text), *parser.finish("stop")]
    calls = [delta for delta in deltas if isinstance(delta, ToolCall)]
    if not calls or parser.repairs or any(isinstance(delta, Text) for delta in deltas[deltas.index(calls[0]) :]):
        return False
    written = {call.index: "" for call in calls}
    for delta in deltas:
        if isinstance(delta, ToolArguments):
            written[delta.index] += delta.text
    return all(_takes(schemas.get(call.name), written[call.index]) for call in calls)


def _takes(schema: Mapping[str, Any] | None, arguments: str) -> bool:
    """Tell whether the parameters of a tool have the names of these arguments, and none that is required is missing."""
    try:
        members = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return False
    if schema is None or not isinstance(members, dict):
        return False
    return members.keys() >= set(schema.get("required") or ()) and members.keys() <= (schema.get("properties") or {}).keys()


@cache
def _opening() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, parsers.call_openings())))


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
