"""Which items come out, in which order, with which text: feed this, expect exactly that."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.stream.options import CODEX, QWEN_CODE, STANDARD, SUMMARY_READER, recognise
from tests.stream.stream_player import arguments, call, chunk, event, finish, play, refuse, text, think

ITEM = ["output_item.added", "output_item.done"]


def test_five_items_one_after_the_other() -> None:
    played = play(
        think("Let me "), think("see."), text("I "), text("look."), think("Which?"),
        call(0, "call_x", "weather"), arguments(0, '{"city":'), arguments(0, '"Rome"}'), text("Done."), finish(),
    )  # fmt: skip
    assert played.said == [
        ("reasoning", "Let me see."),
        ("text", "I look."),
        ("reasoning", "Which?"),
        ("call", "weather", '{"city":"Rome"}'),
        ("text", "Done."),
    ]
    assert [kind for kind in played.kinds if kind in ITEM] == ITEM * 5


def test_the_events_of_every_item_in_full() -> None:
    played = play(think("a"), text("b"), call(0, "call_x", "weather", "{}"), finish("tool_calls"))
    assert played.kinds == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert played.data.endswith(b"data: [DONE]\n\n")


def test_ids_are_unique_and_carry_the_token_of_the_response() -> None:
    played = play(think("a"), text("b"), call(0, "call_x", "weather", "{}"), call(1, "", "clock", "{}"), finish())
    assert [item["id"] for item in played.response["output"]] == ["rs_a10000", "msg_a10001", "fc_a10002", "fc_a10003"]
    assert [item["call_id"] for item in played.response["output"][2:]] == ["call_x", "call_a10001"]


def test_every_piece_is_one_delta() -> None:
    played = play(text("Hel"), text("lo"), text(" world"), finish())
    assert played.deltas("output_text") == ["Hel", "lo", " world"]


def test_nothing_at_all_is_a_completed_response_without_items() -> None:
    played = play(chunk({"role": "assistant", "content": ""}), finish())
    assert (played.said, played.kinds) == ([], ["created", "in_progress", "completed"])


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_by_whatever_name(field: str) -> None:
    assert play(chunk({field: "hm"}), text("yes"), finish()).said == [("reasoning", "hm"), ("text", "yes")]


def test_reasoning_under_two_names_is_not_said_twice() -> None:
    assert play(chunk({"reasoning": "hm", "reasoning_content": "hm"}), text("yes"), finish()).said == [
        ("reasoning", "hm"),
        ("text", "yes"),
    ]


def test_reasoning_in_details() -> None:
    details = [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.encrypted", "data": "x"}, {"summary": "m"}]
    played = play(
        chunk({"content": "", "reasoning_details": details}), chunk({"content": "Hi", "reasoning_details": []}), finish()
    )
    assert played.said == [("reasoning", "hm"), ("text", "Hi")]


def test_reasoning_beside_its_details_is_not_said_twice() -> None:
    def both(piece: str) -> bytes:
        return chunk({"content": "", "reasoning": piece, "reasoning_details": [{"type": "reasoning.text", "text": piece}]})

    late = chunk({"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "abc", "signature": "x"}]})
    assert play(both("a"), both("b"), both("c"), late, text("Hi"), finish()).said == [("reasoning", "abc"), ("text", "Hi")]


@pytest.mark.parametrize(
    "thought", [{"content": "hm"}, {"text": "hm"}, ["h", "m"], [{"type": "text", "text": "hm"}], {"summary": [{"text": "hm"}]}]
)
def test_reasoning_as_an_object_or_a_list(thought: Any) -> None:
    assert play(chunk({"reasoning": thought}), text("Hi"), finish()).said == [("reasoning", "hm"), ("text", "Hi")]


def test_one_chunk_with_everything() -> None:
    entry = {"index": 0, "id": "c", "function": {"name": "clock", "arguments": "{}"}}
    played = play(chunk({"reasoning": "r", "content": "t", "tool_calls": [entry]}, finish="tool_calls"))
    assert played.said == [("reasoning", "r"), ("text", "t"), ("call", "clock", "{}")]


def test_content_as_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "so"}, "?", {"type": "text"}]},
        {"type": "thinking", "thinking": " and so"},
        {"type": "text", "text": "Hello"},
        {"type": "image"},
        7,
        ", plainly",
    ]
    assert play(chunk({"content": parts}), finish()).said == [("reasoning", "so and so"), ("text", "Hello, plainly")]


def test_reasoning_as_a_part_with_a_summary() -> None:
    # Databricks sends that of gpt-oss so, a part for each token, and then the text as one or as parts.
    thoughts = [
        {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": word}]}]} for word in ("Go", " on")
    ]
    for content in ("Hello", [{"type": "text", "text": "Hello"}]):
        assert play(*map(chunk, thoughts), chunk({"content": content}), finish()).said == [
            ("reasoning", "Go on"),
            ("text", "Hello"),
        ]


# ---- white space -------------------------------------------------------------------------------------------------------


def test_leading_and_trailing_space_of_the_only_text_is_kept() -> None:
    assert play(text("\n"), text("  Hi "), text("\n"), finish()).said == [("text", "\n  Hi \n")]


def test_a_text_of_white_space_alone_is_no_message() -> None:
    assert play(text("\n\n"), text(" "), finish()).said == []


@pytest.mark.untraced
@pytest.mark.parametrize("begin", ["\n\n", "\n", " \n", "\r\n", "\n \n"])
@pytest.mark.parametrize("indent", ["", "  ", "\t", "\u3000"])
def test_lines_between_reasoning_and_text_separate_and_the_indentation_is_text(begin: str, indent: str) -> None:
    written = f"{begin}{indent}| a | b |"
    for cut in range(len(written) + 1):
        pieces = [text(piece) for piece in (written[:cut], written[cut:]) if piece]
        played = play(think("\n"), think("hm"), think("\n"), *pieces, finish())
        assert played.said == [("reasoning", "hm"), ("text", f"{indent}| a | b |")]
        behind = play(call(0, "c", "clock", "{"), *pieces[:1], arguments(0, "}"), *pieces[1:], finish())
        assert behind.said == [("call", "clock", "{}"), ("text", f"{indent}| a | b |")]


def test_the_indentation_belongs_to_the_text_that_follows_at_once() -> None:
    between = play(think("a"), text("\n  "), think("b"), text("c"), finish())
    assert between.said == [("reasoning", "ab"), ("text", "c")]
    before_a_call = play(think("a"), text("\n  "), call(0, "c", "clock", "{}"), text("c"), finish())
    assert before_a_call.said == [("reasoning", "a"), ("call", "clock", "{}"), ("text", "c")]


def test_space_between_reasoning_and_call_is_no_message() -> None:
    played = play(think("hm\n"), text("\n\n"), call(0, "c", "clock", "{}"), text("\n"), finish())
    assert played.said == [("reasoning", "hm"), ("call", "clock", "{}")]


def test_space_between_text_and_call_is_a_separator() -> None:
    played = play(text("one"), text("\n\n"), call(0, "c", "clock", "{}"), text("\n\n"), text(" two \n"), finish())
    assert played.said == [("text", "one"), ("call", "clock", "{}"), ("text", " two \n")]


def test_space_within_a_text_is_the_text_s_own() -> None:
    played = play(text("one"), text(" \n"), text("\n"), text("two"), finish())
    assert played.said == [("text", "one \n\ntwo")]
    assert played.deltas("output_text") == ["one", " \n\ntwo"]


def test_space_of_another_kind_does_not_split_an_item() -> None:
    assert play(think("a"), text("\n"), think("b"), finish("length")).said == [("reasoning", "ab", "incomplete")]
    assert play(text("a"), think("\n"), text("b"), finish()).said == [("text", "ab")]


def test_an_empty_thought_is_no_item_and_separates_what_follows() -> None:
    assert play(think("\n"), think("\n"), text("\n\n"), text("yes"), finish()).said == [("text", "yes")]
    assert play(text("\n"), think("\n"), text("yes"), finish()).said == [("text", "yes")]


@pytest.mark.parametrize("space", [" ", "\n", "\u00a0", "\u3000", "\x0b", "\u2003"])
def test_white_space_is_the_same_alone_and_with_text(space: str) -> None:
    alone = play(think("a"), text(space), text("b"), finish())
    joined = play(think("a"), text(f"{space}b"), finish())
    assert alone.said == joined.said == [("reasoning", "a"), ("text", f"{space}b".removeprefix("\n"))]
    behind = play(text("a"), text(f"b{space}"), text(space), call(0, "c", "clock", "{}"), finish())
    assert behind.said == [("text", "ab"), ("call", "clock", "{}")]


def test_space_at_the_end_of_a_thought_is_dropped_even_when_it_is_the_last_item() -> None:
    assert play(think("hm \n"), finish("length")).said == [("reasoning", "hm", "incomplete")]


def test_space_at_the_end_of_a_cut_text_is_kept() -> None:
    assert play(text("hm \n"), finish("length")).said == [("text", "hm \n", "incomplete")]


# ---- refusals ----------------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_part_of_its_own() -> None:
    played = play(think("no"), refuse("I can"), refuse("not."), finish())
    assert played.said == [("reasoning", "no"), ("refusal", "I cannot.")]
    assert played.deltas("refusal") == ["I can", "not."]
    assert [kind for kind in played.kinds if "refusal" in kind] == ["refusal.delta", "refusal.delta", "refusal.done"]


def test_refusals_and_other_items_beside_each_other() -> None:
    played = play(
        text("Well."), refuse("No."), refuse("\n"), think("?"), refuse("No!"), text("Or yes."), refuse("No. "), finish()
    )
    assert played.said == [
        ("text", "Well."), ("refusal", "No."), ("reasoning", "?"), ("refusal", "No!"), ("text", "Or yes."), ("refusal", "No. "),
    ]  # fmt: skip


def test_a_refusal_before_a_call_is_closed() -> None:
    played = play(refuse("No."), call(0, "c", "clock", "{}"), refuse("No!"), finish())
    assert played.said == [("refusal", "No."), ("call", "clock", "{}"), ("refusal", "No!")]


def test_codex_gets_refusals_as_text() -> None:
    assert play(refuse("I cannot."), finish(), client=CODEX).said == [("text", "I cannot.")]


def test_codex_names_itself() -> None:
    assert recognise({"originator": "codex_exec"}) is CODEX
    assert recognise({"originator": "Codex Desktop", "x-codex-window-id": "t:0"}) is CODEX
    assert recognise({"originator": "acme"}) is STANDARD
    assert recognise({}) is STANDARD


@pytest.mark.parametrize("header", ["x-initiator", "agent-framework-version", "baml-original-url"])
def test_clients_are_known_by_headers_of_their_own(header: str) -> None:
    assert recognise({header: "agent"}) is SUMMARY_READER
    assert recognise({"user-agent": "QwenCode/0.24.4 (linux; x64)"}) is QWEN_CODE


# ---- how reasoning is shown --------------------------------------------------------------------------------------------


def test_a_summary_mirrors_the_thought() -> None:
    played = play(think("Let me "), think("see. "), text("Yes"), finish(), summary=True)
    (item, _) = played.response["output"]
    assert item["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert item["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert played.deltas("reasoning_summary_text") == played.deltas("reasoning_text") == ["Let me", " see."]
    assert [kind for kind in played.kinds if "summary" in kind] == [
        "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done",
    ]  # fmt: skip


@pytest.mark.parametrize("summary", [True, False])
def test_a_client_that_takes_the_content_of_a_thought_for_text_gets_a_summary_alone(summary: bool) -> None:
    options: dict[str, Any] = {"client": SUMMARY_READER, "summary": summary}
    played = play(think("Let me "), think("see. "), call(0, "c1", "weather", "{}"), finish("tool_calls"), **options)
    (item, _) = played.response["output"]
    assert item["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert item["content"] == []
    assert played.deltas("reasoning_summary_text") == ["Let me", " see."]
    assert not {"reasoning_text.delta", "reasoning_text.done", "content_part.added"} & {*played.kinds}


def test_without_a_summary_the_list_is_there_and_empty() -> None:
    item, _ = play(think("hm"), text("yes"), finish()).response["output"]
    assert item["summary"] == []


def test_the_specification_s_name_of_reasoning_events() -> None:
    played = play(think("hm"), finish(), reasoning_event="response.reasoning")
    assert [kind for kind in played.kinds if kind.startswith("reasoning")] == ["reasoning.delta", "reasoning.done"]


# ---- log probabilities -------------------------------------------------------------------------------------------------


def token(word: str, logprob: float = -0.5) -> dict[str, object]:
    top = [{"token": word, "logprob": logprob, "bytes": list(word.encode())}, {"token": "?", "logprob": -9.0, "bytes": None}]
    return {"token": word, "logprob": logprob, "bytes": list(word.encode()), "top_logprobs": top}


def scored(content: str | None, *tokens: dict[str, object]) -> bytes:
    return chunk({"content": content}, logprobs={"content": list(tokens)})


def tokens_of(part: dict[str, object]) -> list[str]:
    logprobs = part["logprobs"]
    assert isinstance(logprobs, list)
    return [entry["token"] for entry in logprobs]


def test_log_probabilities_ride_on_the_deltas_and_stand_in_the_item() -> None:
    played = play(scored("Hi", token("Hi")), scored(" you", token(" you")), finish(), logprobs=True)
    deltas = [event for event in played.events if event["type"] == "response.output_text.delta"]
    assert [tokens_of(event) for event in deltas] == [["Hi"], [" you"]]
    (part,) = played.response["output"][0]["content"]
    assert part["logprobs"] == [
        {**token(word), "top_logprobs": [token(word)["top_logprobs"][0], {"token": "?", "logprob": -9.0, "bytes": []}]}  # type: ignore[index]
        for word in ("Hi", " you")
    ]


def test_held_white_space_keeps_its_tokens() -> None:
    pieces = [scored("\n", token("\n")), scored("a", token("a")), scored(" ", token(" ")), scored("b", token("b"))]
    played = play(*pieces, scored(" ", token(" ")), finish(), logprobs=True)
    (part,) = played.response["output"][0]["content"]
    assert (part["text"], tokens_of(part)) == ("\na b ", ["\n", "a", " ", "b", " "])


def test_dropped_white_space_takes_its_tokens_along() -> None:
    pieces = [scored("a", token("a")), scored("\n", token("\n")), call(0, "c", "clock", "{}"), scored("b", token("b"))]
    played = play(*pieces, finish(), logprobs=True)
    parts = [item["content"][0] for item in played.response["output"] if item["type"] == "message"]
    assert [tokens_of(part) for part in parts] == [["a"], ["b"]]


def probable(*pieces: bytes) -> list[tuple[str, list[str]]]:
    """Return each text with its tokens."""
    played = play(*pieces, logprobs=True)
    deltas = [event for event in played.events if event["type"] == "response.output_text.delta"]
    parts = [item["content"][0] for item in played.response["output"] if item["type"] == "message"]
    assert [entry["token"] for event in deltas for entry in event["logprobs"]] == [t for part in parts for t in tokens_of(part)]
    return [(part["text"], tokens_of(part)) for part in parts]


def test_tokens_of_trimmed_space_and_of_the_end_marker_do_not_appear() -> None:
    """Check what vLLM sends with several tokens in a delta."""
    first = scored("\n\n  Good.\n", *map(token, ["</think>", "\n\n", "  ", "Good", ".", "\n"]))
    last = scored(" Hi", token(" Hi"), token("<|im_end|>"))
    assert probable(think("hm"), first, last, finish()) == [("  Good.\n Hi", ["  ", "Good", ".", "\n", " Hi"])]
    assert probable(think("hm"), first, finish()) == [("  Good.\n", ["  ", "Good", ".", "\n"])]
    behind = [call(0, "c", "clock", "{}"), last, finish()]
    assert probable(think("hm"), first, *behind) == [("  Good.", ["  ", "Good", "."]), (" Hi", [" Hi"])]


def test_a_token_that_is_space_and_text_stays_with_its_text() -> None:
    assert probable(think("hm"), scored("\n a", token("\n a")), finish()) == [(" a", ["\n a"])]
    assert probable(scored("a.\n", token("a"), token(".\n")), call(0, "c", "clock", "{}"), finish()) == [("a.", ["a", ".\n"])]


def test_tokens_without_a_text_do_not_appear() -> None:
    empty: dict[str, object] = {"token": "", "logprob": -1.0, "bytes": []}
    pieces = scored("\u4f60", empty, empty, token("\u4f60")), scored("!", empty, token("!"), empty)
    assert probable(*pieces, finish()) == [("\u4f60!", ["\u4f60", "!"])]


def test_ids_in_place_of_tokens_become_their_texts() -> None:
    """Check what vLLM sends with `--return-tokens-as-token-ids`: the bytes of the token itself are those of its text."""
    tops = [{"token": f"token_id:{n}", "logprob": -0.1 * n, "bytes": list(f"token_id:{n}".encode())} for n in (7, 8)]
    entry = {"token": "token_id:7", "logprob": -0.7, "bytes": list(b"Hi"), "top_logprobs": tops}
    end = {"token": "token_id:9", "logprob": -0.1, "bytes": list(b"<|im_end|>"), "top_logprobs": []}
    played = play(scored("Hi", entry, end), finish(), logprobs=True)
    (part,) = played.response["output"][0]["content"]
    top = {"token": "Hi", "logprob": pytest.approx(-0.7), "bytes": list(b"Hi")}
    assert part["logprobs"] == [{**top, "top_logprobs": [top]}]
    assert played.translator.repairs == {"logprobs_dropped": 1}


def test_a_text_that_looks_like_an_id_is_a_text() -> None:
    assert probable(scored("token_id:7", token("token_id:7")), finish()) == [("token_id:7", ["token_id:7"])]


def test_tokens_that_are_half_a_character_belong_to_the_text_that_follows() -> None:
    played = play(scored("", token("\u00e6")), scored("\u6211", token("\u6211")), finish(), logprobs=True)
    (part,) = played.response["output"][0]["content"]
    assert tokens_of(part) == ["\u00e6", "\u6211"]


def test_tokens_of_markers_do_not_appear() -> None:
    played = play(scored(None, token("<think>")), scored("a", token("a")), finish(), logprobs=True)
    (part,) = played.response["output"][0]["content"]
    assert tokens_of(part) == ["a"]


@pytest.mark.parametrize(("logprob", "number"), [("-Infinity", -9999.0), ("NaN", -9999.0), ("Infinity", 9999.0)])
def test_an_impossible_token_has_a_number(logprob: str, number: float) -> None:
    tokens = f'[{{"token":"\\ud83d","logprob":{logprob},"top_logprobs":[{{"token":"b","logprob":{logprob}}}]}}]'
    payload = f'{{"choices":[{{"delta":{{"content":"a"}},"logprobs":{{"content":{tokens}}}}}]}}'
    played = play(f"data: {payload}\n\n".encode(), finish(), logprobs=True)
    (part,) = played.response["output"][0]["content"]
    top = {"token": "b", "logprob": number, "bytes": []}
    assert part["logprobs"] == [{"token": "?", "logprob": number, "bytes": [], "top_logprobs": [top]}]


def test_log_probabilities_nobody_asked_for_are_left_out() -> None:
    played = play(scored("Hi", token("Hi")), chunk({"content": "!"}, logprobs={"content": None}), finish())
    assert played.response["output"][0]["content"][0]["logprobs"] == []


# ---- halves of characters ----------------------------------------------------------------------------------------------


def raw(content: str, field: str = "content") -> bytes:
    """Return a chunk with JSON escapes as they stand."""
    return f'data: {{"choices":[{{"delta":{{"{field}":"{content}"}}}}]}}\n\n'.encode()


def test_a_surrogate_pair_cut_between_two_chunks_is_joined() -> None:
    played = play(raw("a\\ud83d"), raw("\\ude00b"), raw("c"), finish())
    assert played.said == [("text", "a\U0001f600bc")]
    assert played.translator.repairs == {"surrogates_joined": 1}


def test_a_surrogate_pair_cut_in_arguments_and_reasoning() -> None:
    entry = '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"clock","arguments":"%s"}}]}}]}'
    pieces = [event_of(entry % '{\\"a\\":\\"\\ud83d'), event_of(entry % '\\ude00\\"}')]
    played = play(raw("x\\ud83d", "reasoning"), raw("\\ude00", "reasoning"), *pieces, finish())
    assert played.said == [("reasoning", "x\U0001f600"), ("call", "clock", '{"a":"\U0001f600"}')]


def event_of(payload: str) -> bytes:
    return f"data: {payload}\n\n".encode()


def test_half_a_character_alone_is_a_replacement_character() -> None:
    assert play(raw("a\\ud83d"), raw("b"), finish()).said == [("text", "a\ufffdb")]
    assert play(raw("a\\ude00b"), finish()).said == [("text", "a\ufffdb")]
    assert play(raw("a\\ud83d"), finish()).said == [("text", "a\ufffd")]
    assert play(raw("a\\ud83d"), finish()).translator.repairs == {"surrogates_replaced": 1}
    assert play(raw("a\\ude00b"), finish()).translator.repairs == {"surrogates_replaced": 1}
    assert play(raw("\\ud83d"), raw("\\ude00"), finish()).said == [("text", "\U0001f600")]


def test_half_a_character_stays_in_its_own_text() -> None:
    entry = '{"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"arguments":"%s"}}]}}]}'
    played = play(raw("a\\ud83d"), call(0, "c", "clock", '{"a":1'), arguments(0, "}"), text("b"), finish())
    assert played.said == [("text", "a\ufffd"), ("call", "clock", '{"a":1}'), ("text", "b")]
    assert played.translator.repairs == {"surrogates_replaced": 1}
    thought = play(raw("a\\ud83d", "reasoning"), raw("\\ude00b"), finish())
    assert thought.said == [("reasoning", "a\ufffd"), ("text", "\ufffdb")]
    begun = [call(0, "c", "clock", '{"a":"'), call(1, "d", "clock", '{"b":"')]
    halves = [event_of(entry % (0, "\\ud83d")), event_of(entry % (1, '\\ude00\\"}')), event_of(entry % (0, '\\"}'))]
    assert play(*begun, *halves, finish()).said == [("call", "clock", '{"a":"\ufffd"}'), ("call", "clock", '{"b":"\ufffd"}')]


def test_half_a_character_in_a_name_or_a_list_does_not_break_the_stream() -> None:
    parts = event_of('{"choices":[{"delta":{"content":[{"type":"text","text":"a\\ud83d"},{"type":"text","text":"\\ude00"}]}}]}')
    assert play(parts, finish()).said == [("text", "a\U0001f600")]
    named = event_of('{"choices":[{"delta":{"tool_calls":[{"id":"\\ud83d","function":{"name":"\\ud83d","arguments":"{}"}}]}}]}')
    assert play(named, finish()).said == [("call", "?", "{}")]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    broken = text("a%b").replace(b"%", b"\xff")
    assert play(broken, text("c"), finish()).said == [("text", "a\ufffdbc")]


def test_unknown_fields_and_chunks_without_choices_are_passed_over() -> None:
    odd = event({"choices": [{"delta": {"content": "a", "audio": {"x": [1]}}, "extra": 1}], "prompt_text": None})
    assert play(event({"choices": []}), event({}), odd, event({"choices": [{"index": 0}]}), finish()).said == [("text", "a")]


def test_a_long_text_is_kept_in_few_pieces_and_every_delta_is_counted() -> None:
    words = [f"word{number}\n" for number in range(3000)]
    played = play(*(think(word) for word in words), *(text(word) for word in words), finish())
    assert played.said == [("reasoning", "".join(words).strip()), ("text", "".join(words))]
    counted = played.translator.writer.deltas
    assert counted["response.reasoning_text.delta"] == len(played.deltas("reasoning_text")) >= 2999
    assert counted["response.output_text.delta"] == len(played.deltas("output_text")) >= 3000
