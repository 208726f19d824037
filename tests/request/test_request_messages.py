"""Messages and reasoning: roles, content parts and order."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy
from tests.request.builders import (
    Item,
    assistant,
    call,
    chat_request,
    developer,
    image,
    messages,
    outcomes,
    output,
    reasoning,
    refusal,
    user,
)

# Content in the form of another server's encryption.
CIPHER = "gAAAAABo" + "Zk3x_-9Q" * 20


def content_of(*parts: Item) -> Any:
    """Return the chat content of one user message with these parts."""
    return messages({"role": "user", "content": list(parts)})[-1]["content"]


def test_a_string_is_one_user_message() -> None:
    assert messages(input="hello") == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    "item", [{"role": "user", "content": "hello"}, {"content": "hello"}, {"role": None, "content": "hello"}]
)
def test_type_and_role_may_be_left_out(item: Item) -> None:
    assert messages(item) == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("content", ["hello", [{"type": "output_text", "text": "hello"}]])
def test_an_assistant_message_without_type(content: Any) -> None:
    assert messages({"role": "assistant", "content": content}) == [{"role": "assistant", "content": "hello"}]


def test_text_parts_of_a_user_are_joined() -> None:
    assert content_of({"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}) == "a\nb"


def test_images_keep_their_place_between_texts() -> None:
    text = {"type": "input_text", "text": "<image>"}
    assert content_of(text, image(detail="low"), text) == [
        {"type": "text", "text": "<image>"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "text", "text": "<image>"},
    ]


def test_a_detail_level_that_chat_does_not_know_is_sent_as_high() -> None:
    result = chat_request({"role": "user", "content": [image(detail="original")]})
    assert result.body["messages"][0]["content"][0]["image_url"]["detail"] == "high"
    assert "content input_image adapted" in outcomes(result)


def test_files_audio_and_video() -> None:
    parts = [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA", "file_id": None},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "input_video", "video_url": "https://example.org/a.mp4"},
    ]
    result = chat_request({"role": "user", "content": parts})
    assert result.body["messages"][0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "file", "file": {"file_url": "https://example.org/a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
    ]
    assert {"content input_file preserved", "content input_file adapted"} <= outcomes(result)


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_image", "file_id": "file_1"}, ".file_id"),
        ({"type": "input_image"}, ".image_url"),
        ({"type": "input_image", "image_url": {"url": "x"}}, ".image_url"),
        ({"type": "input_file", "file_id": "file_1"}, ".file_id"),
        ({"type": "input_file", "filename": "a"}, ".file_data"),
        ({"type": "input_audio", "input_audio": "x"}, ".input_audio"),
        ({"type": "input_audio"}, ".input_audio"),
        ({"type": "input_audio", "input_audio": {"data": "x"}}, ".input_audio.format"),
        ({"type": "input_video"}, ".video_url"),
        ({"type": "input_text"}, ".text"),
        ({"type": "input_text", "text": 3}, ".text"),
        ({"type": "hologram"}, ".type"),
        ({"type": 3}, ".type"),
        ({}, ".type"),
        ("text", ""),
    ],
)
def test_a_wrong_part_is_named(part: Any, param: str) -> None:
    assert refusal(user(), {"role": "user", "content": [part]}).param == f"input[1].content[0]{param}"


@pytest.mark.parametrize("content", [3, {"type": "input_text"}, ["text"]])
@pytest.mark.parametrize("role", ["user", "assistant", "developer"])
def test_wrong_content_is_named(role: str, content: Any) -> None:
    assert str(refusal({"role": role, "content": content}).param).removesuffix("[0]") == "input[0].content"


@pytest.mark.parametrize("fields", [{}, {"content": None}, {"content": []}, {"content": [None]},
                                    {"content": [{"type": "input_text", "text": None}]}])  # fmt: skip
@pytest.mark.parametrize("role", ["user", "assistant", "developer", "system"])
def test_a_message_without_content_is_an_empty_one(role: str, fields: Item) -> None:
    """Clients keep such messages in their histories: a refusal would end the session."""
    empty = {"type": "message", "role": role, "content": ""}
    found = chat_request(user("a"), {"type": "message", "role": role, **fields}, user("b"))
    assert found.body == chat_request(user("a"), empty, user("b")).body
    assert outcomes(found) == outcomes(chat_request(user("a"), empty, user("b")))


def test_parts_beside_null_are_read() -> None:
    content = [None, {"type": "input_text", "text": "x"}, {"type": "input_text", "text": None}]
    assert messages({"role": "user", "content": content})[0]["content"] == "x\n"
    refused: Item = {"type": "output_text", "text": "no"}
    answer = {"role": "assistant", "content": [refused, None, {"type": "refusal", "refusal": None}]}
    assert messages(user(), answer)[1]["content"] == "no"
    thought = {"type": "reasoning", "content": [None, {"type": "reasoning_text", "text": None}], "summary": [None]}
    assert messages(user(), thought, answer) == messages(user(), answer)


def test_an_unknown_role_is_named() -> None:
    error = refusal(user(), {"role": "critic", "content": "x"})
    assert error.param == "input[1].role"
    assert "'critic'" in error.message


@pytest.mark.parametrize(
    ("item", "param"),
    [("text", "input[1]"), ({}, "input[1].type"), ({"type": 3}, "input[1].type"), (None, "input[1]")],
)
def test_what_is_no_item_is_named(item: Any, param: str) -> None:
    assert refusal(user(), item).param == param


def test_assistant_parts_are_pieces_of_one_text() -> None:
    parts = [
        {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}], "logprobs": []},
        {"type": "output_text", "text": "b"},
        {"type": "refusal", "refusal": "I will not."},
    ]
    result = chat_request(
        {"type": "message", "role": "assistant", "phase": "final_answer", "status": "incomplete", "content": parts}
    )
    assert result.body["messages"] == [{"role": "assistant", "content": "abI will not."}]
    assert "content refusal adapted" in outcomes(result)


def test_an_assistant_sends_no_images() -> None:
    assert refusal({"role": "assistant", "content": [image()]}).param == "input[0].content[0].type"


def test_assistant_messages_in_a_row_are_one() -> None:
    assert messages(user(), assistant("one"), assistant(""), assistant("two"), user())[1:-1] == [
        {"role": "assistant", "content": "one\n\ntwo"}
    ]


def test_an_empty_assistant_message_is_left_out() -> None:
    assert messages(user("a"), assistant(""), user("b")) == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def test_instructions_and_leading_messages_are_one_system_message() -> None:
    given = [developer("two"), {"role": "system", "content": "three"}, user(), assistant("x"), user()]
    found = messages(*given, instructions="one")
    assert found[0] == {"role": "system", "content": "one\n\ntwo\n\nthree"}
    assert [message["role"] for message in found] == ["system", "user", "assistant", "user"]


def test_several_parts_of_a_system_message() -> None:
    parts = [{"type": "input_text", "text": "one"}, image(), {"type": "input_text", "text": "two"}]
    result = chat_request({"role": "developer", "content": parts}, user())
    assert result.body["messages"][0] == {"role": "system", "content": "one\n\ntwo"}
    assert "content input_image ignored" in outcomes(result)


def test_leading_messages_may_stay_apart() -> None:
    found = messages(developer("two"), user(), instructions="one", policy=Policy(system_messages="keep"))
    assert [(message["role"], message["content"]) for message in found] == [
        ("system", "one"),
        ("system", "two"),
        ("user", "hi"),
    ]


def test_instructions_alone_are_enough() -> None:
    assert messages(instructions="Say hello.", input=[]) == [{"role": "system", "content": "Say hello."}]


def test_an_input_that_holds_nothing_is_refused() -> None:
    assert refusal(developer(""), assistant("")).param == "input"
    assert refusal(input=[]).param == "input"


def test_a_late_developer_message_becomes_a_marked_user_message() -> None:
    result = chat_request(user(), assistant("cut"), developer("Be kind."), {"role": "system", "content": "Be brief."})
    assert result.body["messages"][2:] == [
        {"role": "user", "content": "<developer_message>\nBe kind.\n</developer_message>"},
        {"role": "user", "content": "<system_message>\nBe brief.\n</system_message>"},
    ]
    assert "item late_system_message adapted" in outcomes(result)


def test_a_late_developer_message_may_stay_a_system_message() -> None:
    found = messages(user(), developer("Be kind."), user(), policy=Policy(late_developer="system"))
    assert [message["role"] for message in found] == ["user", "system", "user"]


def test_a_late_developer_message_may_join_the_leading_one() -> None:
    found = messages(user(), developer("Be kind."), user(), instructions="one", policy=Policy(late_developer="merge"))
    assert found[0] == {"role": "system", "content": "one\n\nBe kind."}
    assert [message["role"] for message in found] == ["system", "user", "user"]


def test_user_messages_in_a_row_may_become_one() -> None:
    policy = Policy(user_messages="merge")
    pictures = {"role": "user", "content": [image()]}
    assert messages(user("a"), user("b"), policy=policy) == [{"role": "user", "content": "a\n\nb"}]
    found = messages(user("a"), pictures, user("b"), assistant("x"), user("c"), policy=policy)
    assert [message["role"] for message in found] == ["user", "assistant", "user"]
    assert [part["type"] for part in found[0]["content"]] == ["text", "image_url", "text"]


def test_reasoning_goes_back_with_the_message_that_follows() -> None:
    result = chat_request(user(), reasoning("first"), reasoning("second"), assistant("x"), call("c"), output("c"))
    message = result.body["messages"][1]
    assert message["reasoning"] == "first\nsecond"
    assert (message["content"], len(message["tool_calls"])) == ("x", 1)
    assert "item reasoning preserved" in outcomes(result)


def test_reasoning_after_a_tool_output_belongs_to_the_next_message() -> None:
    found = messages(user(), reasoning("a"), call("c"), output("c"), reasoning("b"), assistant("x"))
    assert [message.get("reasoning") for message in found] == [None, "a", None, "b"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("reasoning", {"reasoning": "a"}),
        ("reasoning_content", {"reasoning_content": "a"}),
        ("both", {"reasoning": "a", "reasoning_content": "a"}),
        ("none", {}),
    ],
)
def test_the_field_that_carries_reasoning(field: Any, expected: dict[str, str]) -> None:
    message = messages(user(), reasoning("a"), assistant("x"), policy=Policy(reasoning_field=field))[1]
    assert message == {"role": "assistant", "content": "x"} | expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}], "summary": []},
            "a\nb",
        ),
        ({"content": None, "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": None}, "s"),
        ({"content": [], "summary": [{"type": "summary_text", "text": "s"}]}, "s"),
        ({"content": [{"type": "reasoning_text", "text": ""}], "summary": None, "encrypted_content": "RU5D"}, None),
        ({"encrypted_content": "RU5D"}, None),
    ],
)
def test_all_that_can_be_read_of_a_reasoning_item(item: Item, expected: str | None) -> None:
    result = chat_request(user(), {"type": "reasoning", **item}, assistant("x"))
    assert result.body["messages"][1].get("reasoning") == expected
    assert ("item reasoning ignored" in outcomes(result)) == (expected is None)


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    result = chat_request(user(), reasoning("a"), user())
    assert [message["role"] for message in result.body["messages"]] == ["user", "user"]
    assert "item reasoning ignored" in outcomes(result)


def test_malformed_reasoning_is_named() -> None:
    assert refusal({"type": "reasoning", "content": [{"type": "reasoning_text"}]}).param == "input[0].content[0].text"
    assert refusal({"type": "reasoning", "summary": "short"}).param == "input[0].summary"


def test_an_agent_message_is_a_marked_user_message() -> None:
    parts = [{"type": "input_text", "text": "done"}, {"type": "encrypted_content", "encrypted_content": CIPHER}]
    result = chat_request(user(), {"type": "agent_message", "author": "child", "recipient": "root", "content": parts})
    assert result.body["messages"][1]["content"] == '<agent_message author="child" recipient="root">\ndone\n</agent_message>'
    assert {"item agent_message adapted", "content encrypted_content ignored"} <= outcomes(result)


def test_what_the_model_wrote_to_another_agent_is_read_though_it_is_called_encrypted() -> None:
    """Codex puts the arguments of `spawn_agent` and `send_message` there as they are: OpenAI would have encrypted them."""
    head = {"type": "input_text", "text": "Payload:"}
    for words in ("Say hello.", "go", "a" * 63, "x " * 100):
        parts = [head, {"type": "encrypted_content", "encrypted_content": words}]
        result = chat_request({"type": "agent_message", "content": parts})
        assert result.body["messages"][0]["content"] == f"<agent_message>\nPayload:\n\n{words}\n</agent_message>"
        assert "content encrypted_content adapted" in outcomes(result)


def test_an_agent_message_that_cannot_be_read_is_left_out() -> None:
    parts = [{"type": "encrypted_content", "encrypted_content": CIPHER}]
    assert len(messages(user(), {"type": "agent_message", "content": parts})) == 1
    assert len(messages(user(), {"type": "agent_message", "content": [{"type": "encrypted_content"}]})) == 1
    for content in ("done", [{"type": "input_text", "text": "done"}]):
        found = messages({"type": "agent_message", "content": content})
        assert found[0]["content"] == "<agent_message>\ndone\n</agent_message>"


@pytest.mark.parametrize(
    "kind",
    [
        "web_search_call",
        "image_generation_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "compaction",
    ],
)
def test_items_of_other_servers_are_left_out_on_record(kind: str) -> None:
    result = chat_request(user(), {"type": kind, "id": "x", "result": "AAAA", "encrypted_content": "RU5D"}, assistant("x"))
    assert [message["role"] for message in result.body["messages"]] == ["user", "assistant"]
    assert f"item {kind} ignored" in outcomes(result)


def test_unknown_items_are_left_out_on_record() -> None:
    result = chat_request(user(), {"type": "acme:thing", "id": "x"}, {"type": "steer", "code": "x"})
    assert len(result.body["messages"]) == 1
    assert "item unknown ignored" in outcomes(result)


def test_a_compaction_trigger_is_refused_unless_a_prompt_is_set() -> None:
    assert refusal(user(), {"type": "compaction_trigger"}).param == "input[1]"
    trigger = {"type": "compaction_trigger"}
    text = {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}}
    result = chat_request(user(), trigger, policy=Policy(compaction_trigger_prompt="Summarise."), text=text)
    assert result.compacting
    assert "response_format" not in result.body
    assert result.body["messages"][-1] == {"role": "user", "content": "Summarise."}
    assert "tools" not in result.body


def test_item_references_stand_for_stored_items() -> None:
    stored = {"msg_1": assistant("stored"), "rs_1": reasoning("why")}
    given = [user(), {"type": "item_reference", "id": "rs_1"}, {"id": "msg_1"}]
    assert chat_request(*given, resolve_item=stored.get).body["messages"][1] == {
        "role": "assistant",
        "content": "stored",
        "reasoning": "why",
    }


def test_a_reference_to_an_item_of_the_same_input_adds_nothing() -> None:
    found = messages(user(), {**assistant("x"), "id": "msg_1"}, {"type": "item_reference", "id": "msg_1"})
    assert found[1:] == [{"role": "assistant", "content": "x"}]


def test_a_reference_to_nothing_is_refused() -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    assert refusal(user(), reference).param == "input[1].id"
    assert refusal(user(), reference, resolve_item={}.get).code == "item_not_found"
    assert refusal(user(), reference, resolve_item={"msg_1": reference}.get).code == "item_not_found"
    assert refusal(user(), {"type": "item_reference", "id": []}).param == "input[1].id"
