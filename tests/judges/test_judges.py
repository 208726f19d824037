"""The judges are judged: good streams pass all of them, and each finds what only it can find."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judges import judge_stream, openapi_errors, sdk_errors
from tests.judges.streams import RESPONSE, Event, Script, encode, find, good


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: field for name, field in value.items() if name != key}


@pytest.mark.parametrize(
    "events",
    [
        good(),
        Script().open().reasoning("a", name="reasoning").refusal("no").end(),
        Script().open().message("a", status="incomplete").end("incomplete"),
        Script().open().message("a").end("failed"),
    ],
    ids=["one of each", "the specification's names", "incomplete", "failed"],
)
def test_good_streams_pass_all_judges(events: list[Event]) -> None:
    assert judge_stream(encode(events)) == []


def test_the_complaint_names_event_judge_and_field() -> None:
    events = good()
    events[0]["response"]["temperature"] = None
    assert judge_stream(encode(events)) == [
        "event 0 response.created: OpenAPI: response.temperature: None is not of type 'number'"
    ]


def test_the_laws_are_one_of_the_judges() -> None:
    events = good()
    events[find(events, "output_text.done")]["text"] = "Help"
    (complaint,) = judge_stream(encode(events))
    assert complaint.startswith(f"event {find(events, 'output_text.done')} response.output_text.done: text_mismatch:")


def test_a_text_that_the_sdk_alone_restricts_is_found_behind_one_that_it_allows() -> None:
    def ended(reason: str) -> bytes:
        events = Script().open().message("a", status="incomplete").end("incomplete")
        events[-1]["response"]["incomplete_details"] = {"reason": reason}
        return encode(events)

    assert judge_stream(ended("max_output_tokens")) == []
    (complaint,) = judge_stream(ended("max_output_words"))
    assert "SDK: response.incomplete_details.reason: Input should be" in complaint
    assert judge_stream(ended("content_filter")) == []


def test_what_the_end_lacks_is_a_complaint_too() -> None:
    assert judge_stream(encode(good()[:-1], done=False))[-1].startswith(f"event {len(good()) - 1} (end): done_marker")


def test_the_codex_contract_is_passed_on() -> None:
    events = Script().open().call("{", cut=True).end("incomplete")
    assert judge_stream(encode(events), unfinished_allowed=True) == []
    assert judge_stream(encode(events)) != []


# ---- the document -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(RESPONSE))
def test_the_document_wants_every_field_of_the_response(key: str) -> None:
    assert openapi_errors(RESPONSE) == []
    errors = openapi_errors(without(RESPONSE, key))
    assert errors == ([f"event: '{key}' is a required property"] if key != "object" else [])


def test_the_document_wants_no_null_where_a_field_is_optional() -> None:
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "status": "completed", "summary": [], "encrypted_content": None}
    event = {"type": "response.output_item.done", "sequence_number": 5, "output_index": 0, "item": item}
    assert openapi_errors(event) == ["item.encrypted_content: None is not of type 'string'"]


def test_the_document_judges_openai_s_reasoning_events_by_its_own_names() -> None:
    event = {"type": "response.reasoning_text.delta", "sequence_number": 3, "item_id": "r", "output_index": 0}
    assert openapi_errors({**event, "content_index": 0, "delta": "x"}) == []
    assert openapi_errors({**event, "content_index": 0}) == ["event: 'delta' is a required property"]


def test_what_the_document_does_not_know_is_left_to_the_others() -> None:
    call = {"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "n", "input": ""}
    assert openapi_errors({"type": "response.custom_tool_call_input.delta"}) == []
    assert openapi_errors({"type": "error", "message": "flat"}) == []
    tools = [{"type": "custom", "name": "x"}]
    assert openapi_errors({**RESPONSE, "output": [call], "tools": tools, "tool_choice": {"type": "custom"}}) == []
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    assert openapi_errors({**RESPONSE, "tool_choice": allowed}) == []


def test_the_slips_of_the_document_are_mended() -> None:
    schema = {"type": "json_schema", "name": "n", "description": None, "schema": {"type": "object"}, "strict": True}
    reasoning = {"effort": "minimal", "summary": None}
    assert openapi_errors({**RESPONSE, "text": {"format": schema}, "reasoning": reasoning}) == []
    assert openapi_errors({**RESPONSE, "text": {"format": {**schema, "schema": "object"}}}) != []


# ---- the SDK ----------------------------------------------------------------------------------------------------------


def test_the_sdk_really_validates() -> None:
    event = {"type": "response.output_text.delta", "sequence_number": 3, "item_id": "m", "output_index": 0}
    event |= {"content_index": 0, "delta": "x", "logprobs": []}
    assert sdk_errors(event) == []
    assert sdk_errors(without(event, "logprobs")) == ["logprobs: Field required"]
    assert sdk_errors({**event, "sequence_number": "3"}) == ["sequence_number: Input should be a valid integer"]


def test_the_sdk_names_the_member_of_a_union() -> None:
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": None, "status": "completed"}
    event = {"type": "response.output_item.done", "sequence_number": 5, "output_index": 0, "item": item}
    assert sdk_errors(event) == ["item.ResponseFunctionToolCall.arguments: Input should be a valid string"]
    (error,) = sdk_errors({**event, "item": {**item, "type": "no_such_call"}})
    assert error.startswith("item.")


def test_the_sdk_has_its_own_wishes_for_usage_and_errors() -> None:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0}}
    errors = sdk_errors({**RESPONSE, "usage": {**usage, "input_tokens_details": {"cached_tokens": 0}}})
    assert errors == ["usage.input_tokens_details.cache_write_tokens: Field required"]
    (error,) = sdk_errors({**RESPONSE, "error": {"code": "no_such_code", "message": "x"}})
    assert error.startswith("error.code: Input should be 'server_error'")


def test_the_sdk_knows_events_of_hosted_and_custom_tools_and_no_others() -> None:
    place = {"sequence_number": 1, "item_id": "x", "output_index": 0}
    assert sdk_errors({"type": "response.custom_tool_call_input.delta", "delta": "x", **place}) == []
    assert sdk_errors({"type": "response.web_search_call.searching", **place}) == []
    assert sdk_errors({"type": "acme:event"}) == ["no model for acme:event"]
    assert sdk_errors({}) == ["no model for None"]


def test_that_a_like_event_was_right_hides_nothing() -> None:
    """The document is asked once about events that differ in free texts alone."""
    call = {"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}", "status": "completed", "call_id": "c"}
    event = {"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": call}
    assert openapi_errors(event) == []
    assert openapi_errors({**event, "item": {**call, "arguments": "{1}", "id": "fc_2"}}) == []
    for wrong in ({"status": "done"}, {"arguments": 1}, {"id": None}):
        assert openapi_errors({**event, "item": {**call, **wrong}}) != [], wrong
    assert openapi_errors({**event, "sequence_number": "1"}) != []
