"""Build the fields of the response object that repeat the request.

The specification requires all of them, and most must not be null, so missing parameters are echoed with their defaults. The
values are those in effect: an effort or a service tier that the gateway ignored is not echoed."""

from __future__ import annotations

from responses_gateway.request.fields import Object
from responses_gateway.request.parameters.moderation import NO_MODERATION
from responses_gateway.request.parameters.parameters import effort_in_effect, format_name
from responses_gateway.request.policy import Policy
from responses_gateway.wire.requests import ResponsesRequest, TextConfig

# Members of an `mcp` tool that are never repeated.
_SECRETS = frozenset({"authorization", "headers"})


def echo(request: ResponsesRequest, policy: Policy) -> Object:
    """Return every field of the response that repeats a request, given a request that has been translated without error."""
    tier = request.service_tier
    honours_tier = tier != "auto" and ("service_tier" in policy.forward or tier in policy.service_tier_priorities)
    fields: Object = {
        "instructions": request.instructions,
        "tools": [_tool(tool) for tool in request.tools] if request.tools else [],
        "tool_choice": "auto" if request.tool_choice is None else _tool_choice(request.tool_choice),
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "max_tool_calls": request.max_tool_calls,
        "text": {"format": {"type": "text"}} if request.text is None else _text(request.text),
        "reasoning": _reasoning(request, policy),
        "max_output_tokens": request.max_output_tokens,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "presence_penalty": 0.0 if request.presence_penalty is None else request.presence_penalty,
        "frequency_penalty": 0.0 if request.frequency_penalty is None else request.frequency_penalty,
        "top_logprobs": request.top_logprobs or 0,
        "truncation": request.truncation or "disabled",
        "previous_response_id": request.previous_response_id,
        "store": policy.stores_responses and request.store is not False,
        "background": bool(request.background),
        "service_tier": (tier if honours_tier else None) or "default",
        "metadata": request.metadata or {},
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
    }
    if request.conversation is not None:
        conversation = request.conversation
        fields["conversation"] = {"id": conversation if isinstance(conversation, str) else conversation.get("id")}
    if request.background_options is not None:
        fields["background_options"] = request.background_options
    if request.moderation is not None and not policy.moderates and "moderation" not in policy.forward:
        fields["moderation"] = NO_MODERATION
    if request.user is not None:
        fields["user"] = request.user
    return fields


def _tool(tool: Object) -> Object:
    """Return a function with all keys of the specification's type, and other tools without the secrets of an MCP server."""
    if tool["type"] == "mcp":
        return {key: value for key, value in tool.items() if key not in _SECRETS}
    if tool["type"] != "function":
        return tool
    return {"type": "function", "name": None, "description": None, "parameters": None, "strict": None} | tool


def _tool_choice(choice: str | Object) -> str | Object:
    if isinstance(choice, dict) and choice["type"] == "allowed_tools" and choice.get("mode") is None:
        return {**choice, "mode": "auto"}
    return choice


def _text(text: TextConfig) -> Object:
    if text.format is None:
        fields: Object = {"format": {"type": "text"}}
    elif text.format["type"] == "json_schema":
        defaults: Object = {"type": "json_schema", "name": None, "description": None, "schema": None, "strict": None}
        given = defaults | text.format
        fields = {"format": {**given, "name": format_name(text.format), "strict": given["strict"] is True}}
    else:
        fields = {"format": text.format}
    if text.verbosity is not None:
        fields["verbosity"] = text.verbosity
    return fields


def _reasoning(request: ResponsesRequest, policy: Policy) -> Object:
    reasoning = request.reasoning
    summary = (reasoning.summary or reasoning.generate_summary) if reasoning else None
    return {"effort": effort_in_effect(request, policy), "summary": None if summary == "none" else summary}
