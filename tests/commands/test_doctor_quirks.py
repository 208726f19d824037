"""`responses-gateway doctor` on servers with quirks: what it finds, and what it recommends."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from tests.commands.doctor_report import bad_request, report, roles, stream


def test_a_template_that_requires_alternating_turns() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        spoken = [role for role in roles(body) if role != "system"]
        alternating = all(one != other for one, other in pairwise(spoken))
        return None if alternating else bad_request("Conversation roles must alternate user/assistant")

    found = report(change=change)
    assert found.profile["tolerates"]["two_user"] is False
    assert found.settings == {"user_messages": "merge"}


def test_a_template_with_room_for_one_system_message() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        return bad_request("System message must be at the beginning", 500) if "system" in roles(body)[1:] else None

    found = report(change=change)
    assert found.profile["tolerates"] == {"two_system": False, "late_system": False, "developer": True, "two_user": True}
    assert "system_messages: merge" in found.said("note")
    assert found.settings == {}  # the defaults do


def test_reasoning_of_earlier_turns_may_be_refused() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        return bad_request("unknown field") if any("reasoning" in message for message in body["messages"]) else None

    assert report(change=change).settings == {"reasoning_field": "none"}


def test_a_server_that_knows_max_tokens_alone() -> None:
    def ignoring(body: dict[str, Any]) -> web.Response | None:
        body.pop("max_completion_tokens", None)
        return None

    def refusing(body: dict[str, Any]) -> web.Response | None:
        return bad_request("extra fields not permitted", 422) if "max_completion_tokens" in body else None

    for change in (ignoring, refusing):
        assert report(change=change).settings == {"max_tokens_field": "max_tokens"}


def test_a_server_without_limits() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        body.pop("max_completion_tokens", None)
        body.pop("max_tokens", None)
        return None

    found = report(change=change)
    assert "max_output_tokens has no effect" in found.said("warning")
    assert found.settings == {}


def test_a_server_that_ignores_schemas() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        body.pop("response_format", None)
        return None

    found = report(change=change)
    assert found.profile["structured_output"] is False
    assert "JSON schema" in found.said("warning")


def test_a_server_that_fails_at_schemas() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        return bad_request("Input should be 'text' or 'json_object'", 500) if "response_format" in body else None

    found = report(change=change)
    assert (found.status, found.verdict) == (0, "works, with losses")
    assert found.profile["structured_output"] is False
    assert "JSON schema" in found.said("warning")
    assert found.said("error") == ""


def test_a_model_that_cannot_call() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        for name in ("tools", "tool_choice"):
            body.pop(name, None)
        return None

    found = report(change=change)
    assert found.profile["calls"] == "none"
    assert "made no tool call" in found.said("warning")
    assert (found.status, found.profile["shows_tools"]) == (1, False)
    assert "leaves tools out" in found.said("error")
    assert "--chat-template FILE" in found.said("error")


def test_a_model_that_sees_tools_and_makes_no_call_has_a_template_with_a_place_for_them() -> None:
    found = report(model="sim-plain")
    assert (found.profile["calls"], found.profile["shows_tools"]) == ("none", True)
    assert "made no tool call" in found.said("warning")
    assert "leaves tools out" not in found.said("error")


def test_what_nobody_counts_says_nothing_of_a_template() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        answer = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": {}}
        return web.json_response(answer) if body.get("tools") or not body.get("stream") else None

    found = report(change=change)
    assert (found.profile["calls"], found.profile["shows_tools"]) == ("none", None)


def test_a_model_that_calls_only_if_forced() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        if body.get("tool_choice") != "required":
            body.pop("tools", None)
            body.pop("tool_choice", None)
        return None

    found = report(change=change)
    assert found.profile["calls"] == "forced"
    assert "only when forced" in found.said("warning")
    assert "leaves tools out" in found.said("error")
    assert found.settings == {"named_tool_choice": "required"}  # an object that names the function forces nothing here


def test_a_raw_server_whose_model_makes_no_call_to_look_at() -> None:
    for model, parser in (("glm-4.6", "glm45"), ("m", "auto")):
        found = report(dialect="vllm-raw", model=model, change=_say_hello)
        assert found.settings == {"reasoning_parser": "auto", "tool_call_parser": parser}  # it may think at other questions
        assert f"--tool-call-parser {'NAME' if parser == 'auto' else parser}" in found.said("warning")


def _say_hello(body: dict[str, Any]) -> web.Response | None:
    return None if body.get("tool_choice") == "auto" else stream("Hello.")


def test_reasoning_that_never_becomes_an_answer() -> None:
    found = report(model="sim-reasoning-only")
    assert "arrived as reasoning, without any text" in found.said("warning")
    assert found.profile["structured_output"] is None


def test_a_server_that_fails_at_tools_because_it_has_no_parser() -> None:
    for calls, parser in ((True, "hermes"), (False, "auto")):
        found = report(dialect="vllm-raw", change=partial(_fail_at_tools, calls=calls))
        assert (found.status, found.verdict) == (0, "works with the settings below")
        assert found.settings["tool_call_parser"] == parser
        assert found.said("error") == ""


def _fail_at_tools(body: dict[str, Any], *, calls: bool) -> web.Response | None:
    """Answer like vLLM's frontend in Rust; without `calls` the model makes none."""
    if "tools" not in body:
        return None
    if body.get("tool_choice") == "none":
        return None if calls else stream("Hello.")
    return bad_request("tool parsing is disabled by frontend configuration", 500)


def test_refused_tools_are_an_error() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        return bad_request("m does not support tools") if "tools" in body else None

    found = report(change=change)
    assert found.status == 1
    assert "m does not support tools" in found.said("error")
    assert "--tool-call-parser NAME" in found.said("error")


def test_markup_that_leaks_through_the_parsers_is_rescued() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        if "step by step" not in body["messages"][0]["content"]:
            return None
        return stream("hm</think>391")

    found = report(change=change)
    assert found.settings == {"rescue": True}
    assert "still gets into the text" in found.said("warning")


@pytest.mark.parametrize(("opening", "opened"), [("", "yes"), ("<think>", "no")])
def test_whether_the_template_opens_reasoning(opening: str, opened: str) -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        return stream(f"{opening}Let me see.</think>391")

    found = report(change=change)
    assert found.settings["reasoning_parser"] == "qwen3"
    assert found.settings["opened_thinking"] == opened


def test_a_prompt_that_is_cut_silently() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        body["messages"][-1]["content"] = body["messages"][-1]["content"][-1000:]
        return None

    found = report(change=change, max_model_len=4096)
    assert found.profile["overflow"] == "accepted"
    assert "forget" in found.said("warning")


def test_an_answer_in_one_piece_where_a_stream_was_requested() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        body.pop("stream", None)
        body.pop("stream_options", None)
        return None

    found = report(change=change)
    assert "in one piece" in found.said("warning")
    assert found.status == 0


def test_a_server_that_goes_on_after_a_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.probing.prober.STOP_DEADLINE", 0.1)
    busy = {"running": 0.0}

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=f'vllm:num_requests_running{{model="m"}} {busy["running"]}\n')

    def change(body: dict[str, Any]) -> web.Response | None:
        if "1 to 2000" in body["messages"][0]["content"]:
            busy["running"] += 1
            body["messages"][0]["content"] += " tps: 50"  # else a busy machine may see all of it at once
        return None

    monkeypatch.setattr("responses_gateway.simulator.endpoints.metrics", metrics)
    found = report(change=change)
    assert found.profile["stops"] is False
    assert found.status == 1
    assert "continues after the client has disconnected" in found.said("error")


@pytest.mark.parametrize(("city", "reading"), [("zq7\nzq7", "json"), (r"zq7\nzq7", "text"), ("Paris", None)])
def test_how_patterns_are_read(city: str, reading: str | None) -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        if "pattern" not in json.dumps(body.get("tools")):
            return None
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "get_weather"}}
        call["function"]["arguments"] = json.dumps({"city": city})  # type: ignore[index]
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
        data = json.dumps({"object": "chat.completion.chunk", "choices": [choice]})
        return web.Response(text=f"data: {data}\n\ndata: [DONE]\n\n", content_type="text/event-stream")

    found = report(change=change)
    assert found.profile["pattern_reading"] == reading
    assert found.settings.get("custom_tool_grammar") == reading


def mistral(body: dict[str, Any]) -> web.Response | None:
    """Refuse what Mistral's templates refuse: a user behind a result, an assistant first, ids of calls of another form."""
    spoken = [role for role in roles(body) if role != "system"]
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    orderly = spoken[0] == "user" and ("tool", "user") not in pairwise(spoken)
    if orderly and all(len(name) == 9 and name.isalnum() for name in ids):
        return None
    return bad_request("Unexpected role 'user' after role 'tool'")


def test_a_template_that_has_the_assistant_answer_results() -> None:
    found = report(change=mistral)
    assert found.settings == {"user_messages": "alternate"}
    assert "turns that do not alternate" in found.said("warning")


def test_a_template_that_takes_no_calls_at_all_is_not_taken_for_one_of_order() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        return bad_request("no tools here") if "tool" in roles(body) else None

    assert "user_messages" not in report(change=change).settings


def test_switches_of_thinking_may_be_refused() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        refused = [name for name in ("chat_template_kwargs", "reasoning_effort") if name in body]
        return bad_request(f"Unrecognized request argument supplied: {refused[0]}") if refused else None

    found = report(change=change)
    assert "The server refuses fields that the gateway adds: chat_template_kwargs, reasoning_effort." in found.said("note")
    assert found.settings == {}
