"""Messages of the Messages API as chat messages: in place, in order, and with the same beginning from turn to turn."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.messages import SIGNATURE, error_of, signed
from tests.request.messages_bodies import (
    PNG,
    Fields,
    assistant,
    body_of,
    call,
    chat_of,
    losses_of,
    messages_of,
    reading_of,
    refusal_of,
    result,
    system,
    text,
    thought,
    user,
)

BILL = "x-anthropic-billing-header: cc_version=2.1.330.572; cc_entrypoint=sdk-cli;"
IN_PLACE = Policy(late_developer="system")


def test_the_system_prompt_is_one_message_without_the_billing_block() -> None:
    blocks = [text(BILL), text("You help.", cache_control={"type": "ephemeral"}), text(""), text("Be brief.")]
    found = messages_of(system=blocks)
    assert found == [{"role": "system", "content": "You help.\n\nBe brief."}, {"role": "user", "content": "hi"}]
    assert messages_of(system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert losses_of(system=blocks) >= {"content billing_header ignored", "parameter cache_control ignored"}


def test_a_string_and_a_list_are_the_same() -> None:
    listed = [user(text("a"), text("")), system([text("b")]), assistant("c"), user(text("d"))]
    written = [user("a"), system("b"), {"role": "assistant", "content": "c"}, user("d")]
    assert messages_of(*listed) == messages_of(*written)


@pytest.mark.parametrize("kind", ["input_text", "output_text"])
def test_a_text_may_have_the_type_that_it_has_in_responses(kind: str) -> None:
    said = {"type": kind, "text": "a"}
    written = [user("a"), assistant(call("c")), user(result("c", "a"))]
    assert messages_of(user(said), assistant(call("c")), user(result("c", [said]))) == messages_of(*written)


def test_a_system_message_in_the_middle_stays_in_its_place_or_is_folded() -> None:
    conversation = [user("a"), system("b"), assistant("c"), user("d")]
    assert [message["role"] for message in messages_of(*conversation, policy=IN_PLACE)] == [
        "user",
        "system",
        "assistant",
        "user",
    ]
    assert messages_of(*conversation) == [
        {"role": "user", "content": "a\n<system_message>\nb\n</system_message>"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    assert messages_of(system("first"), user("a"))[0] == {"role": "system", "content": "first"}


def test_a_system_message_behind_results_becomes_part_of_the_last_one() -> None:
    """Keep the end of the prompt a tool message, that of the last call: a user message would hide the reasoning before it."""
    calls = assistant(call("a"), call("b"))
    found = messages_of(user("x"), calls, user(result("b", "B"), result("a", [text("A")])), system("late"))
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in found[2:]] == ["A", "B\n<system_message>\nlate\n</system_message>"]


def test_a_system_message_between_calls_and_results_waits_for_them() -> None:
    for policy, roles in ((None, ["tool"]), (IN_PLACE, ["tool", "system"])):
        found = messages_of(user("x"), assistant(call("a")), system("late"), user(result("a")), policy=policy)
        assert [message["role"] for message in found] == ["user", "assistant", *roles]
        assert "late" in found[-1]["content"]


def test_results_come_in_the_order_of_the_calls_and_images_behind_all_of_them() -> None:
    found = messages_of(
        user("x"),
        assistant(call("a"), call("b"), call("c")),
        user(result("c", [PNG]), text("go on"), result("a", is_error=True, content=""), result("b", None)),
    )
    assert [(message["role"], message.get("tool_call_id")) for message in found[2:]] == [
        ("tool", "a"), ("tool", "b"), ("tool", "c"), ("user", None), ("user", None),
    ]  # fmt: skip
    assert [message["content"] for message in found[2:4]] == ["Error", ""]
    assert found[5]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert found[6]["content"] == "go on"


def test_a_call_without_result_gets_one_and_a_second_result_is_left_out() -> None:
    found = messages_of(user("x"), assistant(call("a")), user("stop"))
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "user"]
    twice = [user("x"), assistant(call("a")), user(result("a", "1"), result("a", "2")), system("late")]
    assert messages_of(*twice)[2]["content"].startswith("1\n<system_message>")
    assert "content tool_result ignored" in losses_of(*twice)


def test_ids_that_a_history_has_twice_are_told_apart() -> None:
    turn = [assistant(call("call_0")), user(result("call_0"))]
    found = messages_of(user("x"), *turn, *turn)
    ids = [message["tool_calls"][0]["id"] for message in found if message["role"] == "assistant"]
    assert len(set(ids)) == 2
    assert [message["tool_call_id"] for message in found if message["role"] == "tool"] == ids


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_reaches_the_template_before_its_calls_whatever_its_signature(field: Any) -> None:
    said = assistant(thought("First.", ""), call("a"), thought("Second."), call("b"), thought(""))
    found = messages_of(user("x"), said, user(result("a"), result("b")), policy=Policy(reasoning_field=field))
    assert found[1][field] == "First.\nSecond."
    assert [made["id"] for made in found[1]["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize("extra", [5, "x", [1], [{}], True, {}])
def test_a_signature_with_anything_in_it_stops_no_conversation(extra: Any) -> None:
    said = assistant(thought("First.", signed(SIGNATURE, json_text({"a": extra}))), call("a"))
    (made,) = messages_of(user("x"), said, user(result("a")))[1]["tool_calls"]
    assert isinstance(made.get("extra_content", {}), dict)


def test_thinking_that_only_anthropic_can_read_is_left_out() -> None:
    said = assistant({"type": "redacted_thinking", "data": "x"}, "yes")
    assert messages_of(user("x"), said, user("y"))[1] == {"role": "assistant", "content": "yes"}
    assert "content redacted_thinking ignored" in losses_of(user("x"), said, user("y"), policy=Policy(strict=True))


def test_a_summary_that_anthropic_has_made_is_what_the_model_has_said() -> None:
    summary = assistant({"type": "compaction", "content": "They build a boat."}, "Which sail?")
    assert messages_of(summary, user("The red one."))[0] == {
        "role": "assistant",
        "content": "They build a boat.\n\nWhich sail?",
    }
    assert losses_of(summary, user("The red one."), policy=Policy(strict=True)) == set()
    failed = assistant({"type": "compaction", "content": None}, "yes")
    assert losses_of(user("x"), failed, user("y")) == {"content unknown ignored"}


def test_arguments_are_json_also_of_a_call_that_was_broken() -> None:
    broken = call("a", __unparsedToolInput={"raw": '{"x": "ä', "len": 8})
    made = messages_of(user("x"), assistant(broken), user(result("a")))[1]["tool_calls"][0]
    assert made["function"]["arguments"] == '{"__unparsedToolInput": {"raw": "{\\"x\\": \\"ä", "len": 8}}'


def test_documents_and_search_results_are_text() -> None:
    document = {
        "type": "document",
        "title": "T",
        "context": "C",
        "source": {"type": "text", "media_type": "text/plain", "data": "D"},
    }
    inner = {"type": "document", "source": {"type": "content", "content": [text("E"), text("F")]}}
    found = {"type": "search_result", "title": "S", "source": "http://s", "content": [text("G")]}
    assert messages_of(user(document, inner, found))[0]["content"] == "T\n\nC\n\nD\nE\nF\nS\nhttp://s\n\nG"


def test_a_pdf_is_a_file_whose_text_is_read_later_and_one_at_a_url_is_named() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    pdf = {"type": "document", "title": "Bill", "context": "of May", "source": source}
    items = reading_of(body_of(user("x"), assistant(call("a")), user(result("a", [text("read"), pdf])))).request.input
    assert isinstance(items, list)
    data = "data:application/pdf;base64,JVBERi0="
    assert items[-1]["output"][1] == {"type": "input_file", "filename": "Bill\nof May", "file_data": data}
    away = {"type": "document", "title": "Bill", "source": {"type": "url", "url": "http://a.org/b.pdf"}}
    found = messages_of(user("x"), assistant(call("a")), user(result("a", [text("read"), away])))
    assert found[-1]["role"] == "tool"
    assert "read\n[The document 'Bill' (http://a.org/b.pdf) cannot be shown here" in found[-1]["content"]
    assert "content document ignored" in losses_of(user(away))


@pytest.mark.parametrize("of_a_tool", [False, True])
def test_the_pictures_of_a_document_follow_its_text(of_a_tool: bool) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    document = {"type": "document", "source": {"type": "content", "content": [text("E"), picture, text("F"), picture]}}
    asked = [user(document, text("G"))]
    if of_a_tool:
        asked = [user("x"), assistant(call("a")), user(result("a", content=[document, text("G")]))]
    shown = [part for message in messages_of(*asked) for part in message["content"] if isinstance(part, dict)]
    assert [part["image_url"]["url"] for part in shown if part["type"] == "image_url"] == ["data:image/png;base64,AAAA"] * 2
    assert of_a_tool or [part["type"] for part in shown] == ["text", "image_url", "image_url", "text"]


def test_images_by_url_and_base64() -> None:
    by_url = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    content = messages_of(user(text("see"), by_url, PNG))[0]["content"]
    assert [part.get("image_url", {}).get("url") for part in content] == [
        None, "https://example.com/a.png", "data:image/png;base64,AAAA",
    ]  # fmt: skip


def search(result_content: Any) -> list[Fields]:
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "vllm"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": result_content}
    return [user("x"), assistant(asked, found, "It is.", " Fast."), user("y")]


def test_a_search_in_the_history_is_a_call_with_what_the_model_has_read() -> None:
    own = [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": b64encode(b"[1] vLLM").decode()}]
    found = messages_of(*search(own))
    assert found[1]["tool_calls"][0]["function"] == {"name": "web_search", "arguments": '{"queries": ["vllm"]}'}
    assert [message["content"] for message in found[2:4]] == ["[1] vLLM", "It is. Fast."]


@pytest.mark.parametrize("carried", ["?", "é", "Größe", "/w==", "\ud800"])
def test_what_another_server_has_found_is_shown_as_far_as_it_can_be_read(carried: str) -> None:
    foreign = [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": carried}]
    assert messages_of(*search(foreign))[2]["content"] == "t\nu"
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    assert messages_of(*search(failed))[2]["content"] == "Error: unavailable"
    page = {"type": "web_fetch_result", "url": "u", "content": {"type": "document", "source": {"type": "text", "data": "P"}}}
    assert messages_of(*search(page))[2]["content"] == "P"


def test_the_beginning_of_an_answer_is_noticed_unless_a_call_ends_it() -> None:
    def prefilled(*messages: Fields) -> bool:
        return reading_of({"model": "m", "messages": list(messages)}).policy.continues_last_message

    assert prefilled(user("x"), assistant("{"))
    assert not prefilled(user("x"), assistant("{", call("a")))
    assert not prefilled(user("x"), assistant("{"), user("y"))
    found = messages_of(user("x"), assistant("{"), policy=Policy(continues_last_message=True))
    assert found[-1] == {"role": "assistant", "content": "{"}


def test_a_place_that_is_named_in_a_refusal_is_named_once() -> None:
    _, _, message = error_of(refusal_of(system([PNG])))
    assert message == "messages[0].content[0].type: blocks of type 'image' cannot stand here."


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([user(result("gone"))], "messages[0].content[0].tool_use_id"),
        ([user("x"), assistant({"type": "tool_use", "id": "", "name": "b", "input": {}})], "messages[1].content[0].id"),
        ([user({"type": "image", "source": {"type": "file", "file_id": "f"}})], "messages[0].content[0].source.type"),
        ([user({"type": "image"})], "messages[0].content[0].source"),
        ([user({"type": "container_upload", "file_id": "f"})], "messages[0].content[0].type"),
        ([user({"text": "x"})], "messages[0].content[0].type"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([system([PNG])], "messages[0].content[0].type"),
        ([user("")], "messages"),
        ([user("x"), assistant({"type": "web_search_tool_result", "tool_use_id": "z", "content": []})],
         "messages[1].content[0].tool_use_id"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_as_the_client_has_sent_it(messages: list[Fields], param: str) -> None:
    error = refusal_of(*messages)
    assert error.param == param
    assert "input[" not in error.message


@pytest.mark.parametrize("fields", [{}, {"content": None}, {"content": [None]}, {"content": [{"type": "text", "text": None}]}])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_a_message_without_content_is_an_empty_one(role: str, fields: Fields) -> None:
    """Clients keep such messages in their histories: a refusal would end the session."""
    empty = {"role": role, "content": ""}
    assert chat_of(user("a"), {"role": role, **fields}, user("b")) == chat_of(user("a"), empty, user("b"))
    nested = result("c", [None, text("x"), {"type": "text", "text": None}])
    assert messages_of(user("a"), assistant(call("c")), user(nested))[-1]["content"] == "x"


@pytest.mark.parametrize("given", [{}, {"input": None}, {"input": []}, {"input": {}}])
def test_a_call_without_input_has_no_arguments(given: Fields) -> None:
    made = {"type": "tool_use", "id": "a", "name": "now", **given}
    asked = messages_of(user("x"), assistant(made), user(result("a", is_error="no")))
    assert asked[1]["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
    assert asked[2]["content"] == "ok"


@pytest.mark.parametrize(
    ("given", "sent"), [('{"path": "a"}', '{"path": "a"}'), ('{"path": "a', "{}"), (["a"], "{}"), (5, "{}"), (True, "{}")]
)
def test_a_call_whose_input_is_no_object_is_kept_as_clients_keep_what_a_model_wrote(given: Any, sent: str) -> None:
    """Claude Code does so, with the result that the arguments are wrong: a refusal would end the session."""
    made = {"type": "tool_use", "id": "a", "name": "now", "input": given}
    asked = messages_of(user("x"), assistant(made), user(result("a", is_error="no")))
    assert asked[1]["tool_calls"][0]["function"] == {"name": "now", "arguments": sent}
    searched = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": given}
    assert messages_of(user("x"), assistant(searched), user("y"))[1]["tool_calls"][0]["function"]["arguments"] == sent


def test_a_refused_address_is_named_where_it_stands() -> None:
    inside = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x"}}
    error = refusal_of(user("x"), user(text("see"), text(""), inside), policy=Policy(url_inputs="public"))
    assert error.param == "messages[1].content[2].source.url"
    assert "'messages[1].content[2].source.url'" in error.message
    nested = refusal_of(
        user("x"), assistant(call("a")), user(result("a", [text("r"), inside])), policy=Policy(url_inputs="public")
    )
    assert nested.param == "messages[2].content[0].content[1].source.url"


def test_blocks_that_are_not_known_are_left_out_and_strict_refuses_them() -> None:
    new = {"type": "hologram"}
    assert messages_of(user(text("x"), new)) == [{"role": "user", "content": "x"}]
    assert "content unknown ignored" in losses_of(user(text("x"), new))
    assert refusal_of(user(text("x"), new), policy=Policy(strict=True)).param == "messages[0].content[1].type"
