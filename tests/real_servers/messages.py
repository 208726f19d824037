"""Checks of the other doors: a turn with a tool by the Messages API, and decisions."""

from __future__ import annotations

import json
import math
from string import ascii_uppercase
from typing import Any

from responses_gateway.conformance.checker import frames
from responses_gateway.conformance.messages import check_message_stream
from tests.real_servers.conversation import Conversation, Wrong, refusal_of, scenario

_WEATHER = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
}
_PARIS = {"city": "Paris", "unit": "celsius"}
# A model that gives all labels together less than this has declined to decide.
_DECLINED = 0.001


def messages(with_: Conversation) -> None:
    """Check a turn with a thought and a call, the next one with its result, and that tokens are counted as they are charged."""
    question = {"role": "user", "content": scenario("weather")}
    asked = _body(with_, question)
    first = _answer(with_, asked)
    kinds = [block["type"] for block in first["content"]]
    if kinds != ["thinking", "tool_use"] or first["stop_reason"] != "tool_use":
        raise Wrong(f"blocks: {', '.join(kinds) or 'none'}; stop_reason {first['stop_reason']}")
    call = first["content"][-1]
    if call["input"] != _PARIS:
        raise Wrong(f"input: {call['input']}")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "18 degrees, sun"}
    said = {"role": "assistant", "content": first["content"]}
    second = _answer(with_, _body(with_, question, said, {"role": "user", "content": [result]}))
    text = "".join(block.get("text", "") for block in second["content"])
    if with_.setting.exact and "18 °C" not in text:
        raise Wrong(f"the second turn says {text[:80]!r}")
    if "input tokens" not in with_.setting.cannot:
        _expect_counted(with_, asked, first["usage"])


def decisions(with_: Conversation) -> None:
    """Check that the probabilities of options are what the server's own log probabilities say; without any, or with too few,
    that is said. The script begins with one of the letters."""
    question = {"type": "choice", "instructions": "Which one?", "choices": [{"value": letter} for letter in ascii_uppercase]}
    options = "\n".join(f"{letter}. {letter}" for letter in ascii_uppercase)
    prompt = f"Choose the best answer about the input above.\n\nWhich one?\n\n{options}\n\nAnswer with one letter."
    given = scenario("parallel")
    shares = _shares(with_, [{"role": "user", "content": given}, {"role": "user", "content": prompt}])
    reply = with_.post("/v1/decisions", {"model": with_.server.model, "input": given, "questions": [question]})
    if reply.status_code != 200:
        refusal = refusal_of(reply)
        if refusal.error.get("code") == "logprobs_unavailable" and shares is None:
            return
        if refusal.error.get("code") == "logprobs_truncated" and shares is not None and 0.0 in shares.values():
            return  # the server leaves open what it gives some letters
        raise Wrong(str(refusal))
    (answer,) = reply.json()["answers"]
    total = sum((shares or {}).values())
    if shares is not None and total < _DECLINED and answer["type"] == "refusal":
        return  # a template that always opens a thought leaves the letters next to nothing
    found = {each["value"]: each["probability"] for each in answer.get("probabilities", ())}
    if not shares or not total or any(abs(found.get(letter, -1) - share / total) > 1e-6 for letter, share in shares.items()):
        raise Wrong(f"{answer}; the server's own: {shares}"[:600])


def _shares(with_: Conversation, messages: list[dict[str, Any]]) -> dict[str, float] | None:
    """Return what the server itself gives each letter: vLLM all of them, others those among their likeliest tokens."""
    fields: dict[str, Any] = {"messages": messages, "max_tokens": 1, "logprobs": True}
    fields["chat_template_kwargs"] = {"enable_thinking": False}
    names: dict[str, str] = {}  # of a server that tells ids in the place of tokens
    if with_.setting.program == "vLLM":
        lines = [f"{space}{letter}" for letter in ascii_uppercase for space in ("", " ")]
        counted = [with_.client.post(f"{with_.server.url}/tokenize", json={"prompt": line}).json()["tokens"] for line in lines]
        fields["logprob_token_ids"] = [tokens[0] for tokens in counted if len(tokens) == 1]
        pairs = zip(lines, counted, strict=True)
        names = {f"token_id:{tokens[0]}": line for line, tokens in pairs if len(tokens) == 1}
    try:
        completion = with_.ask_server("", top_logprobs=20, **fields)
    except Wrong:
        completion = with_.ask_server("", top_logprobs=10, **fields)
    logprobs = completion["choices"][0].get("logprobs")
    if not logprobs:
        return None
    (token,) = logprobs["content"]
    shares = dict.fromkeys(ascii_uppercase, 0.0)
    for top in token["top_logprobs"]:
        letter = names.get(top["token"], top["token"]).strip()
        if letter in shares:
            shares[letter] += math.exp(top["logprob"])
    return shares


def _body(with_: Conversation, *turns: dict[str, Any]) -> dict[str, Any]:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = {"model": with_.server.model, "max_tokens": 2000, "temperature": 0, "messages": list(turns), "tools": [_WEATHER]}
    return {**body, "thinking": thinking, "stream": True}


def _answer(with_: Conversation, body: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a stream, made of its events. Raise `Wrong` for an error, or a stream that breaks a law."""
    reply = with_.post("/v1/messages", body)
    if reply.status_code != 200:
        raise Wrong(str(refusal_of(reply)))
    violations = check_message_stream(reply.content)
    if violations:
        raise Wrong(f"the stream violates {violations[0].rule}: {violations[0].detail[:120]}", broken=True)
    message: dict[str, Any] = {}
    for event in (json.loads(frame.data) for frame in frames(reply.content)):
        _add(message, event)
    return message


def _add(message: dict[str, Any], event: dict[str, Any]) -> None:
    match event["type"]:
        case "message_start":
            message.update(event["message"])
        case "content_block_start":
            message["content"].append(event["content_block"])
        case "content_block_delta":
            _add_delta(message["content"][event["index"]], event["delta"])
        case "content_block_stop":
            block = message["content"][event["index"]]
            if "json" in block:
                block["input"] = json.loads(block.pop("json"))
        case "message_delta":
            message.update(event["delta"], usage=event["usage"])
        case "error":
            raise Wrong(f"error: {event['error']}")


def _add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("text", "thinking", "signature"):
        if name in delta:
            block[name] = block.get(name, "") + delta[name]
    if "partial_json" in delta:
        block["json"] = block.get("json", "") + delta["partial_json"]


def _expect_counted(with_: Conversation, body: dict[str, Any], usage: dict[str, Any]) -> None:
    counted = with_.post("/v1/messages/count_tokens", {name: body[name] for name in body if name != "stream"})
    if counted.status_code != 200:
        raise Wrong(str(refusal_of(counted)))
    charged = sum(usage[name] for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
    if counted.json()["input_tokens"] != charged:
        raise Wrong(f"counted {counted.json()['input_tokens']}, charged {charged}")
