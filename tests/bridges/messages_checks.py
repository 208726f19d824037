"""What an endpoint for the Messages API must do for Claude Code and Anthropic's SDKs. The sentence of each check is its row in
the table; it returns what is wrong, nothing if it is right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.bridges.backend import ENDLESS, MARK
from tests.bridges.messages_door import WEATHER, Door, user
from tests.bridges.scenarios import scenarios

Check = Callable[[Door], Awaitable[str]]
_TRUTHS = {scenario.name: scenario.truth for scenario in scenarios()}
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def blocks_in_turn(door: Door) -> str:
    """Blocks are numbered from 0, and only one is open"""
    return (await door.ask("again", tools=[WEATHER])).broken("block_i", "block_o", "block_n", "block_u", "block_k")


async def event_lines(door: Door) -> str:
    """Each event has an `event:` line with its type"""
    return (await door.ask("again", tools=[WEATHER])).broken("message_event_name")


async def one_beginning_and_end(door: Door) -> str:
    """One `message_start`, one `message_stop`, and nothing behind it"""
    heard = await door.ask("again", tools=[WEATHER])
    return heard.broken("message_start", "message_end", "message_after_end", "message_marker", "message_malformed")


async def usage_twice(door: Door) -> str:
    """`usage` is in `message_start` and in `message_delta`"""
    return (await door.ask("hello.0.nothink")).broken("message_usage")


async def empty_starts(door: Door) -> str:
    """Blocks start empty: all text and arguments come by delta"""
    return (await door.ask("again", tools=[WEATHER])).broken("block_start")


async def signature(door: Door) -> str:
    """Thinking is signed once, at its end"""
    heard = await door.ask("reasoning_content")
    return heard.broken("signature") or _unlike("reasoning_content", heard.blocks())


async def message_ids(door: Door) -> str:
    """Each message has an id of its own"""
    answers = [await door.ask("hello.0.nothink") for _ in range(2)]
    ids = [event["message"].get("id") for heard in answers for event in heard.events if event.get("type") == "message_start"]
    return "" if len(set(ids)) == 2 else "the same id twice"


async def call_ids(door: Door) -> str:
    """Each call has an id of its own, though the backend repeats its ids"""
    answers = [await door.ask("again", tools=[WEATHER]) for _ in range(2)]
    blocks = [event.get("content_block") or {} for heard in answers for event in heard.events]
    ids = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    return "" if len(set(ids)) == 2 else "the same id twice"


async def interleaved_calls(door: Door) -> str:
    """Two interleaved calls come out exactly"""
    heard = await door.ask("interleaved", tools=[WEATHER])
    return _unlike("interleaved", heard.blocks()) or heard.broken("block_")


async def all_that_was_said(door: Door) -> str:
    """Thinking, text, thinking, text and call come out whole"""
    return _unlike("again", (await door.ask("again", tools=[WEATHER])).blocks())


async def stop_after_a_call(door: Door) -> str:
    """`stop_reason` is `tool_use` where a call was made"""
    return _not_reason("tool_use", (await door.ask("interleaved", tools=[WEATHER])).stop())


async def cut_by_length(door: Door) -> str:
    """`stop_reason` is `max_tokens` where the thinking was cut"""
    return _not_reason("max_tokens", (await door.ask("think.0.cut-reasoning")).stop())


async def refused_by_filter(door: Door) -> str:
    """`stop_reason` is `refusal` where a filter ended the text"""
    return _not_reason("refusal", (await door.ask("filter")).stop())


async def broken_text(door: Door) -> str:
    """A broken connection becomes an `error` event, not an end"""
    return _not_failed((await door.ask("reset")).kinds)


async def broken_call(door: Door) -> str:
    """A call that broke is not closed: Claude Code would run it"""
    kinds = (await door.ask("reset_in_call", tools=[WEATHER])).kinds
    return "the call is closed" if "content_block_stop" in kinds else _not_failed(kinds)


async def no_finish_reason(door: Door) -> str:
    """A stream without `finish_reason` becomes an `error` event"""
    return _not_failed((await door.ask("no_finish")).kinds)


async def refused_by_backend(door: Door) -> str:
    """The backend's 400 and 429 arrive with Anthropic's body"""
    for name, status, kind in (("bad_request", 400, "invalid_request_error"), ("busy", 429, "rate_limit_error")):
        heard = await door.ask(name)
        error = heard.json().get("error") or {}
        if (heard.status, heard.json().get("type"), error.get("type")) != (status, "error", kind):
            return f"HTTP {heard.status}, `{error.get('type')}`"
    return ""


async def request_id(door: Door) -> str:
    """`request-id` is on answers and errors"""
    answers = [await door.ask("hello.0.nothink"), await door.ask("bad_request")]
    return "" if all("request-id" in heard.headers for heard in answers) else "missing"


async def versions(door: Door) -> str:
    """Any `anthropic-version` is accepted, and none"""
    answers = [await door.ask("hello.0.nothink", {}), await door.ask("hello.0.nothink", {"anthropic-version": "2026-10-21"})]
    return _not_answered(*(heard.status for heard in answers))


async def unknown_betas(door: Door) -> str:
    """Unknown betas and fields are accepted"""
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "new-2027-01-01"}
    fields: dict[str, Any] = {"new_field": {"a": 1}, "safeguards": [{"type": "dangerous_tool_use"}]}
    return _not_answered((await door.ask("hello.0.nothink", headers, **fields)).status)


async def system_in_the_middle(door: Door) -> str:
    """A `system` message in the middle keeps its place"""
    messages = [user("first"), {"role": "system", "content": "in between"}, user(f"then {MARK}hello.0.nothink")]
    text = json.dumps((await door.sent("hello.0.nothink", messages=messages)).get("messages"))
    return "" if -1 < text.find("first") < text.find("in between") < text.find("then") else "refused, lost or moved"


async def system_forms(door: Door) -> str:
    """A `system` message is rendered alike as a string and as a list"""
    asked = []
    for content in ("in between", [{"type": "text", "text": "in between", "cache_control": {"type": "ephemeral"}}]):
        messages = [user(f"{MARK}hello.0.nothink"), {"role": "system", "content": content}]
        asked.append((await door.sent("hello.0.nothink", messages=messages)).get("messages"))
    heard = "in between" in json.dumps(asked[0])
    return "" if heard and asked[0] == asked[1] else "refused, lost or unlike"


async def billing_block(door: Door) -> str:
    """Claude Code's billing block does not reach the prompt"""
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be brief."}]
    text = json.dumps(await door.sent("hello.0.nothink", system=system))
    return "" if "Be brief." in text and "billing" not in text else "the prefix cache is lost"


async def results_in_order(door: Door) -> str:
    """Results follow in the order of the calls"""
    calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "get_weather", "input": {}} for n in "ab"]
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"of {n}"} for n in "ba"]
    asked = await door.sent("hello.0.nothink", messages=_after_calls(calls, results), tools=[WEATHER])
    said = [str(message["content"]) for message in asked.get("messages", []) if message["role"] == "tool"]
    return "" if len(said) == 2 and "of a" in said[0] and "of b" in said[1] else "not so"


async def image_in_a_result(door: Door) -> str:
    """An image in a result reaches the model"""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}}
    call = {"type": "tool_use", "id": "toolu_a", "name": "get_weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_a", "content": [image]}
    asked = await door.sent("hello.0.nothink", messages=_after_calls([call], [result]), tools=[WEATHER])
    return "" if f"data:image/png;base64,{_PIXEL}" in json.dumps(asked) else "lost"


async def tool_choices(door: Door) -> str:
    """`tool_choice` none, any and tool are translated"""
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice, wanted in (("none", "none"), ("any", "required"), ("tool", named)):
        given = {"type": choice} | ({"name": "get_weather"} if choice == "tool" else {})
        asked = await door.sent("hello.0.nothink", tools=[WEATHER], tool_choice=given)
        if asked.get("tool_choice") != wanted and not (choice == "none" and asked and not asked.get("tools")):
            return f"`{choice}` is not"
    return ""


async def thinking_disabled(door: Door) -> str:
    """Thinking that is disabled is switched off at the backend"""
    asked = await door.sent("hello.0.nothink", thinking={"type": "disabled"})
    switch = asked.get("chat_template_kwargs") or {}
    off = switch.get("enable_thinking") is False or switch.get("thinking") is False or asked.get("reasoning_effort") == "none"
    return "" if off else "not so"


async def thinking_history(door: Door) -> str:
    """Thinking in the history reaches the template, with an empty signature too"""
    thought = {"type": "thinking", "thinking": "Hm, so.", "signature": ""}
    past = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    asked = await door.sent("hello.0.nothink", messages=[user("one"), past, user(f"{MARK}hello.0.nothink")])
    fields = [message.get(name) for message in asked.get("messages", []) for name in ("reasoning", "reasoning_content")]
    return "" if "Hm, so." in fields else "lost"


async def cached_tokens(door: Door) -> str:
    """`input_tokens` leaves out what came from the cache"""
    usage = (await door.ask("interleaved", tools=[WEATHER])).usage()
    told = (usage.get("input_tokens"), usage.get("cache_read_input_tokens"))
    return "" if told == (16, 4) else f"{told[0]} and {told[1]}, not 16 and 4"


async def ping(door: Door) -> str:
    """A `ping` comes while the first token takes 17 s"""
    heard = await door.ask("silent")
    return "" if "ping" in heard.kinds else "none"


async def leaving(door: Door) -> str:
    """The backend is stopped when the client leaves"""
    async with door.client.stream("POST", "/v1/messages", json=door.body(ENDLESS)) as response:
        async for _ in response.aiter_bytes():
            if door.backend.endless:
                break
    return "" if await door.backend.left_within(20) else "not so"


async def unknown_model(door: Door) -> str:
    """The classifier's `claude-sonnet-5` is answered, though nobody serves it"""
    return _not_answered((await door.ask("hello.0.nothink", model="claude-sonnet-5")).status)


async def models(door: Door) -> str:
    """`/v1/models` answers in Anthropic's form, and in OpenAI's"""
    theirs = (await door.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
    others = (await door.client.get("/v1/models", headers={"authorization": "Bearer none"})).json()
    both = "has_more" in theirs and others.get("object") == "list"
    return "" if both else "one form only"


FAST: tuple[Check, ...] = (
    blocks_in_turn, event_lines, one_beginning_and_end, usage_twice, empty_starts, signature, message_ids, call_ids,
    interleaved_calls, all_that_was_said, stop_after_a_call, cut_by_length, refused_by_filter, broken_text, broken_call,
    no_finish_reason, refused_by_backend, request_id, versions, unknown_betas, system_in_the_middle, system_forms,
    billing_block, results_in_order, image_in_a_result, tool_choices, thinking_disabled, thinking_history, cached_tokens,
    leaving, unknown_model, models,
)  # fmt: skip
ALL: tuple[Check, ...] = (*FAST, ping)


async def judged(door: Door, checks: tuple[Check, ...]) -> dict[str, str]:
    """Return what each check found, by its sentence."""
    found = {}
    for check in checks:
        try:
            async with asyncio.timeout(60):
                problem = await check(door)
        except Exception as error:  # an answer of any form must not end the comparison
            problem = f"not as expected ({type(error).__name__})"
        found[str(check.__doc__)] = problem
    return found


def _unlike(name: str, blocks: list[tuple[Any, ...]]) -> str:
    wanted = list(_TRUTHS[name].items or [])
    return "" if blocks == wanted else f"{', '.join(block[0] for block in blocks) or 'nothing'}: not what was said"


def _not_reason(reason: str, delta: Any) -> str:
    return "" if delta.get("stop_reason") == reason else f"`{delta.get('stop_reason')}`"


def _not_failed(kinds: list[object]) -> str:
    return (
        ""
        if "error" in kinds and "message_stop" not in kinds
        else "a whole message"
        if "message_stop" in kinds
        else "no `error`"
    )


def _not_answered(*statuses: int) -> str:
    return ", ".join(f"HTTP {status}" for status in statuses if status != 200)


def _after_calls(calls: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [user(f"{MARK}hello.0.nothink"), {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
