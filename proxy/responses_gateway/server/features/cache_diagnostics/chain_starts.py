"""What a server had read when the first response of a chain ended, which nobody knew then to be the beginning of a session."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from responses_gateway.request.prompt_cache.context import Answer, CachedContext, Turn
from responses_gateway.request.prompt_cache.prompt_print import Prompt, PromptPrint, print_of_items
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.responses import Responses
from responses_gateway.state import Stored
from responses_gateway.stream.writer.responses import usage_json

# Items of answers of one turn of the model.
_OF_ONE_TURN = frozenset({"reasoning", "message", "function_call", "custom_tool_call"})
_WIDTH = 8  # bytes of the checksum of a message


def chain_start(responses: Responses, prepared: PreparedRequest, prompt: Prompt) -> CachedContext | None:
    """Return the context that the first response of a chain has left, given the prompt of the second one; None if uncertain."""
    first = prepared.context.first
    if isinstance(first, Stored):
        response = msgspec.json.decode(first.json)
        server = _server(responses, prepared.caller.tenant, first.id)
    elif first is None or first.facts is None or first.facts.answer is None:
        return None
    else:  # only the connection has it
        answer = first.facts.answer
        details = {"usage": msgspec.json.decode(usage_json(answer.usage)), "output": [{"type": kind} for kind in answer.items]}
        response = {**first.echo, "model": first.facts.model, **details}
        server = server_of(first.facts)
    usage = response.get("usage") or {}
    place = prompt.last_answer
    if server is None or place is None or not usage or {item["type"] for item in response["output"]} - _OF_ONE_TURN:
        return None
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0)
    turn = Turn(place, usage["input_tokens"], Answer(usage["output_tokens"], thought))
    return CachedContext(server, _earlier(prompt.checksums, response, prepared, place), (turn,))


def _server(responses: Responses, tenant: str, response_id: str) -> str | None:
    """Return which server has made a response, as `Report` names it."""
    history = responses.reports.history
    for facts in () if history is None else history.since(0):
        if facts.answer is not None and facts.answer.response_id == response_id and facts.tenant == tenant:
            return server_of(facts)
    only = responses.pool.members.only
    return None if only is None or only.router else f"{only.name}\n"


def server_of(facts: RequestFacts) -> str:
    """Return the server that has answered a request, as `Report` names it."""
    return f"{facts.backend}\n{facts.pod or ''}"


def _earlier(checksums: PromptPrint, response: Mapping[str, Any], prepared: PreparedRequest, count: int) -> PromptPrint:
    """Return the checksums of the first prompt, of which there are so many messages in the second one: other where the response
    shows that the request was another."""
    earlier = print_of_items(response["model"], response, ())
    later = print_of_items(prepared.context.request.model, prepared.options.echo, ())
    changed = later.changed(earlier)
    before = {reason: checksum ^ (reason in changed) for reason, checksum in checksums.before.items()}
    messages = checksums.messages[: count * _WIDTH]
    sizes = array("I", checksums.sizes)[:count]
    leading = checksums.leading
    if earlier.messages != later.messages:  # the instructions
        messages = bytes(_WIDTH) + messages[leading * _WIDTH :]
        sizes = array("I", [0]) + sizes[leading:]
        leading = 1
    return PromptPrint(before, messages, leading, sizes.tobytes(), sum(sizes))
