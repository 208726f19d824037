"""The forms in which the templates of some models want a conversation: each says the same, and says it again the same way."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.input.template_forms import forms_wanted, in_forms

Messages = list[dict[str, Any]]


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": f"result of {call_id}"}


CHAT: Messages = [
    {"role": "system", "content": "Be good."},
    {"role": "user", "content": "Do it."},
    {"role": "assistant", "content": "Both.", "reasoning": "Two files.", "tool_calls": [call("c1"), call("c2")]},
    result("c1"),
    result("c2"),
    {"role": "system", "content": "Hurry."},
    {"role": "assistant", "content": "", "reasoning": "One more.", "tool_calls": [call("abcdefgh9")]},
    result("abcdefgh9"),
    {"role": "assistant", "content": "Done.", "reasoning": "All read."},
]


@pytest.mark.parametrize(
    ("refusal", "form"),
    [
        ("This model only supports single tool-calls at once!", "single_calls"),
        ("Multiple tool calls are not supported by this template", "single_calls"),
        ("Jinja Exception: Cannot pass both content and thinking in an assistant message with tool calls!", "joined_thoughts"),
        ("System role not supported", "no_system"),
        ("Developer instruction is not enabled for models/gemma-3-27b-it", "no_system"),
        ("Tool messages are not supported", "told_calls"),
        ("bedrock error: The toolConfig field must be defined when using toolUse and toolResult content blocks.", "toolless"),
        ("Bedrock doesn't support tool calling without `tools=` param specified. Pass `tools=` param OR set …", "toolless"),
        ("Requests which include `tool_use` or `tool_result` blocks must define tools.", "toolless"),  # Anthropic
        ("No endpoints found that support image input", "no_images"),
        ("This model does not support images.", "no_images"),
        ("Image input is not enabled for this model", "no_images"),
        ("At most 0 image(s) may be provided in one prompt.", "no_images"),
        ("Model only supports text input; received unsupported content type 'image_url'.", "no_images"),  # SGLang
        ("Multimodal input is not supported by this model.", "no_images"),  # LMDeploy
        ("Only 'text' content type is supported.", "no_images"),  # mlx_lm.server
        ("Multimodal content is not supported", "no_images"),
        ("multimodal processing is not enabled for this model", "no_images"),  # NVIDIA's
        (
            "This model doesn't support the image content block that you provided. Update it and try again.",
            "no_images",
        ),  # Bedrock
        ("This model doesn't support the image field for user messages.", "no_images"),
        ("Failed to process inputs: this model is missing data required for image input", "no_images"),  # Ollama
        ("oneOf at '/' not met: Type mismatch of '/messages/0/content', 'array' not in 'string'", "no_images"),  # Workers AI
        ("The error info is [Unexpected item type in content]", "no_images"),  # DashScope
        ("API 调用参数有误，请检查文档。", "no_images"),  # z.ai, among other things
        ("Invalid API parameter, please check the documentation.", "no_images"),
        ("Non-text content requires multimodal endpoint", "no_images"),  # xLLM
        ("Invalid image. The model does not support vision input.", "no_images"),
        ('{"code": "400", "message": "Param Incorrect", "param": "`text` is not set", "type": ""}', "no_images"),  # MiMo
        ("At most 1 image(s) may be provided in one prompt.", "last_images"),
        ("Image count 5 exceeds limit 1 per request.", "last_images"),
        ("Too many images provided. This model supports up to 5 images", "last_images"),
        ("Assistant response prefill is incompatible with enable_thinking.", "no_prefill"),  # llama.cpp
        ("This model does not support assistant message prefill. The conversation must end with a user message.", "no_prefill"),
        ("Two user turns in a row", "alternating"),
        ("The first turn is not a user turn", "alternating"),
        ("Expected assistant after tool result", "alternating"),
        ("'system' is not one of ['user', 'assistant']", "alternating"),
        ("The messages parameter is illegal. Please check the documentation.", "alternating"),  # z.ai: no user, say
        ("messages 参数非法。请检查文档。", "alternating"),
        ("Request preprocessing failed.", "alternating"),  # LMDeploy, whatever the template says
        ("Tool call IDs should be alphanumeric strings with length 9!", "short_ids"),
        ("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", "short_ids"),
        ("Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but", "short_ids"),
        ("Invalid 'messages[3].tool_call_id': string too long. Expected a string with maximum length 64, but", "short_ids"),
        ("messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", "short_ids"),
        ("messages.2.content.0.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'", "short_ids"),
        (
            "Value at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to satisfy constraint: Member must have",
            "short_ids",
        ),  # Bedrock
        ("messages.1.tool_calls.0.id: String should have at most 40 characters", "short_ids"),
        ("messages: text content blocks must be non-empty", "contents"),
        ("messages: text content blocks must contain non-whitespace text", "contents"),
        (
            "bedrock error: The content field in the Message object at messages.2 is empty. Add a ContentBlock object to",
            "contents",
        ),
        (
            "Invalid 'messages[1].content': string too short. Expected a string with minimum length 1, but got an empty",
            "contents",
        ),
        ("Each message must have at least one content element", "contents"),
        ("Invalid request: the message at position 2 with role 'assistant' must not be empty", "contents"),
        ("messages.2.content: String should have at least 1 character", "contents"),
        ("chat content is empty (2013)", "contents"),
        ("消息内容 content 不能为空", "contents"),
        ("未正常接收到prompt参数。", "contents"),
        ("<400> InternalError.Algo.InvalidParameter: The content field is a required field.", "contents"),
        ("messages.1.content.0.text.text: Field required", "contents"),
        ("Empty content is not allowed for role tool", "contents"),
        ("Message must have content or tool_calls", "contents"),
        ("invalid message content type: <nil>", "no_null"),
        ("messages.1.content: Input should be a valid string", "no_null"),
        ("Invalid 'content': 'content' field must be a string or an array of objects.", "no_null"),
        ("Invalid value for 'content': expected a string, got null.", "no_null"),
        ("The `reasoning_content` in the thinking mode must be passed back to the API.", "all_thoughts"),
        ("thinking is enabled but reasoning_content is missing in assistant tool call message at index 2", "all_thoughts"),
        ("Missing `reasoning_content` field in the assistant message at message index 2. Please refer to …", "all_thoughts"),
    ],
)
def test_refusals_name_a_form(refusal: str, form: str) -> None:
    assert forms_wanted(refusal.encode()) == {form}


@pytest.mark.parametrize(
    "refusal",
    [
        "The image format image/tiff is not supported", "Failed to load image", "Does not support images larger than 20 MB",
        "The server does not support image URLs, only data URLs", "image_url.detail is not supported",
    ],
)  # fmt: skip
def test_a_refusal_of_one_image_leaves_all_where_they_are(refusal: str) -> None:
    assert "no_images" not in forms_wanted(refusal.encode())


def test_where_a_content_has_to_be_a_text_it_may_have_an_image() -> None:
    for refusal in (
        "messages[1].content must be a string",
        "'messages.1' : for 'role:user' … 'messages.1.content' : value must be a string",
    ):
        assert forms_wanted(refusal.encode()) == {"no_images", "no_null"}


@pytest.mark.parametrize(
    "refusal",
    [
        "Unknown parameter: 'parallel_tool_calls'.",
        "The prompt is not supported",
        "No tool call",
        "tools: List should have at least 1 item",
        "temperature must not be empty",
    ],
)
def test_other_refusals_name_none(refusal: str) -> None:
    assert forms_wanted(refusal.encode()) == frozenset()


def test_each_call_is_followed_by_its_result() -> None:
    sent = in_forms(CHAT, {"single_calls"})
    assert sent[:2] == CHAT[:2]
    assert sent[2] == {**CHAT[2], "tool_calls": [call("c1")]}
    assert sent[3:6] == [result("c1"), {"role": "assistant", "content": "", "tool_calls": [call("c2")]}, result("c2")]
    assert sent[6:] == CHAT[5:]


def test_no_message_of_the_assistant_stands_last_unless_it_is_to_be_continued() -> None:
    assert in_forms(CHAT, {"no_prefill"}) == [*CHAT, {"role": "user", "content": "Go on."}]
    assert in_forms(CHAT[:-1], {"no_prefill"}) == CHAT[:-1]
    assert in_forms(CHAT, {"no_prefill"}, continued=True) == CHAT


def test_a_call_without_a_result_stays() -> None:
    sent = in_forms([{**CHAT[2], "tool_calls": [call("a"), call("b")]}, result("b")], {"single_calls"})
    assert [(message.get("tool_calls") or [{}])[0].get("id", "result") for message in sent] == ["a", "b", "result"]


def test_a_thought_and_the_text_before_a_call_are_one_text() -> None:
    sent = in_forms(CHAT, {"joined_thoughts"})
    assert sent[2] == {"role": "assistant", "content": "Two files.\n\nBoth.", "tool_calls": CHAT[2]["tool_calls"]}
    assert sent[:2] + sent[3:] == CHAT[:2] + CHAT[3:]  # a thought alone, and one before an answer, are no trouble


def test_each_message_of_the_assistant_has_a_thought() -> None:
    lost = [CHAT[1], {"role": "assistant", "content": "Yes?"}, *CHAT[5:]]
    sent = in_forms(lost, {"all_thoughts", "alternating"})
    assert [message.get("reasoning_content") for message in sent if message["role"] == "assistant"] == [
        " ", "One more.", "All read.",
    ]  # fmt: skip
    assert not any("reasoning" in message for message in sent)


def test_the_user_says_what_the_system_message_does() -> None:
    sent = in_forms(CHAT, {"no_system"})
    assert sent[0] == {"role": "user", "content": "Be good.\n\nDo it."}
    assert sent[4] == {"role": "user", "content": "<system_message>\nHurry.\n</system_message>"}
    assert in_forms(CHAT[:1] + CHAT[2:5], {"no_system"})[0] == {"role": "user", "content": "Be good."}


def test_calls_and_results_are_told_where_there_is_no_place_for_them() -> None:
    sent = in_forms(CHAT, {"no_system", "told_calls", "alternating"})
    assert [message["role"] for message in sent] == ["user", "assistant"] * 3 + ["user"]
    assert sent[1]["content"] == "Both.\n\n[Called read: {}]\n\n[Called read: {}]"
    assert sent[2]["content"].startswith("<tool_result>\n\nresult of c1\n\n</tool_result>\n\n<tool_result>")
    assert not any({"tool_calls", "tool_call_id"} & message.keys() for message in sent)


def test_ids_have_nine_characters_and_still_belong_together() -> None:
    sent = in_forms(CHAT, {"short_ids"})
    made = [entry["id"] for message in sent for entry in message.get("tool_calls", ())]
    assert made == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert {len(made_id) for made_id in made} == {9}
    assert len(set(made)) == 3
    assert made[2] == "abcdefgh9"


EMPTY: Messages = [
    {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Do it."}]},
    {"role": "assistant", "content": "", "tool_calls": [call("c1")]},
    {"role": "tool", "tool_call_id": "c1", "content": ""},
    {"role": "assistant", "content": "Done."},
]


def test_no_content_is_empty() -> None:
    sent = in_forms(EMPTY, {"contents"})
    assert [message["content"] for message in sent] == [EMPTY[0]["content"][1:], None, "(empty)", "Done."]
    assert sent[1]["tool_calls"] == EMPTY[1]["tool_calls"]
    sent = in_forms(sent, {"contents", "no_null", "alternating"})
    assert "content" not in sent[1]
    assert [message["content"] for message in sent[2:]] == ["(empty)", "Done.", "Go on."]


@pytest.mark.parametrize(
    "forms",
    [{"no_system", "alternating"}, {"contents", "no_null", "alternating"}, {"single_calls", "short_ids", "joined_thoughts"}],
)
def test_a_conversation_that_has_the_forms_stays_as_it_is(forms: set[str]) -> None:
    sent = in_forms(CHAT, forms)
    assert in_forms(sent, forms) == sent
