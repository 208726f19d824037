"""What other servers than vLLM send, and what they send behind the end of an answer."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.parsers import parser
from responses_gateway.stream.reading.markup import Markup
from tests.stream.stream_player import (
    DONE,
    Play,
    arguments,
    call,
    chunk,
    event,
    finish,
    judged,
    new_translator,
    play,
    text,
    think,
    tool,
    usage,
)

ANSWER = [think("hm"), text("Hi"), call(0, "a", "clock", "{}"), text("end"), finish()]


def completion(body: bytes) -> Play:
    playing = new_translator()
    return judged(playing.start() + playing.feed_completion(body) + playing.finish(), playing)


def test_usage_without_counts_does_not_take_back_those_that_came() -> None:
    played = play(text("Hi"), finish(), usage(prompt_tokens=5, completion_tokens=2), usage(), usage(total_tokens=0))
    assert played.response["usage"]["total_tokens"] == 7


@pytest.mark.parametrize("wrong", [{"prompt_tokens": -1}, {"prompt_tokens_details": {"cached_tokens": -1}}])
def test_counts_that_cannot_be_true_are_not_repeated(wrong: dict[str, Any]) -> None:
    found = play(text("Hi"), finish(), usage(**{"prompt_tokens": 5, "completion_tokens": 2, **wrong})).response["usage"]
    assert found is None or found["input_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("garbage", [b"data: [done]\n\n", b"data: [cost=3\n\n", b"data: {\n\n"])
def test_garbage_behind_the_reason_takes_nothing_back(garbage: bytes) -> None:
    played = play(call(0, "a", "clock", "{}"), finish(), garbage, text("no"))
    assert (played.response["status"], played.said) == ("completed", [("call", "clock", "{}")])
    assert played.translator.malformed == 1
    assert play(text("Hi"), finish("length"), garbage).response["status"] == "incomplete"


CITED = {"type": "url_citation", "url_citation": {"url": "https://a.example/x", "title": "A", "start_index": 0, "end_index": 5}}
WHOLE = {"type": "url_citation", "url_citation": {"url": "https://b.example/", "content": "…"}}


@pytest.mark.parametrize("streamed", [True, False])
def test_what_a_server_cites_is_cited(streamed: bool) -> None:
    """OpenRouter searches by itself, and OpenAI's search models do; the first may repeat what it cited."""
    text_of_it = {"content": "Paris is the capital."}
    other = [{"type": "file"}, None, {"type": "url_citation"}, {"type": "url_citation", "url_citation": {"url": 3}}]
    if streamed:
        later = {"content": "", "annotations": [CITED, WHOLE, *other]}
        played = play(chunk(text_of_it), chunk({"annotations": [CITED]}), chunk(later), finish())
    else:
        message = {**text_of_it, "annotations": [CITED, WHOLE, *other, CITED]}
        played = completion(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode())
    (item,) = played.response["output"]
    assert item["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "https://a.example/x", "title": "A", "start_index": 0, "end_index": 5},
        {"type": "url_citation", "url": "https://b.example/", "title": "", "start_index": 0, "end_index": 0},
    ]


def test_what_is_cited_beyond_the_text_or_without_one_ends_with_it() -> None:
    far = {"type": "url_citation", "url_citation": {"url": "https://a.example/", "start_index": 7, "end_index": 900}}
    played = play(chunk({"annotations": [CITED]}), text("Hi"), chunk({"annotations": [far]}), finish())
    (item,) = played.response["output"]
    assert [(note["start_index"], note["end_index"]) for note in item["content"][0]["annotations"]] == [(2, 2)]
    assert played.translator.repairs["citation_of_nothing"] == 1


def test_an_answer_cites_no_more_than_can_be_read() -> None:
    many = [{"type": "url_citation", "url_citation": {"url": f"https://a.example/{number}"}} for number in range(2000)]
    played = play(text("Hi"), *(chunk({"annotations": many[start : start + 100]}) for start in range(0, 2000, 100)), finish())
    assert len(played.response["output"][0]["content"][0]["annotations"]) == 100


def test_an_image_in_an_answer_is_counted_as_left_out() -> None:
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    played = play(text("Here it is."), chunk({"images": images}), finish())
    assert (played.said, played.translator.repairs["image_left_out"]) == ([("text", "Here it is.")], 1)


def test_the_thought_that_googles_api_marks_in_the_text_is_no_part_of_it() -> None:
    marked = {"extra_content": {"google": {"thought": True}}}
    signed = {"content": " <thought>", "extra_content": {"google": {"thought_signature": "abc"}}}
    first, second = chunk({"content": "<thought>Hm", **marked}), chunk({"content": ", well.", **marked})
    streamed = play(first, second, text("</thought>Use"), chunk(signed), text(" it"), finish())
    assert streamed.said == [("reasoning", "Hm, well."), ("text", "Use <thought> it")]
    assert play(first, call(0, "a", "clock", "{}"), finish()).said == [("reasoning", "Hm"), ("call", "clock", "{}")]
    again = play(text("Look."), first, second, text("</thought>"), call(0, "a", "clock", "{}"), finish())
    assert again.said == [("text", "Look."), ("reasoning", "Hm, well."), ("call", "clock", "{}")]
    message = {"role": "assistant", "content": "<thought>Hm, well.</thought>Hi", **marked}
    whole = completion(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode())
    assert whole.said == [("reasoning", "Hm, well."), ("text", "Hi")]


def test_numbers_among_the_texts_are_texts() -> None:
    price = [text("$"), chunk({"content": 0.005}), text(" ["), chunk({"content": 1}), chunk({"content": 2}), text("]")]
    assert play(*price, finish()).said == [("text", "$0.005 [12]")]
    assert play(chunk({"reasoning_content": 4}), text("Hi"), finish()).said == [("reasoning", "4"), ("text", "Hi")]


def test_numbers_among_the_arguments_are_pieces_of_them() -> None:
    begin = [call(0, "a", "weather", '{"days": '), call(0, None, None, 5), call(0, None, None, ', "wind": ')]
    played = play(*begin, call(0, None, None, True), call(0, None, None, "}"), finish())
    assert played.said == [("call", "weather", '{"days": 5, "wind": true}')]


def test_arguments_that_are_a_number_are_the_clients_to_refuse() -> None:
    assert play(text("Hi"), call(0, "a", "clock", 5), finish()).said == [("text", "Hi"), ("call", "clock", "5")]


def test_a_marker_with_space_behind_it() -> None:
    played = play(text("Hi"), finish(), b"data: [DONE] \n\n", done=False)
    assert (played.response["status"], played.translator.malformed) == ("completed", 0)


def test_an_error_beside_its_choice() -> None:
    ending = event(
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "provider is busy"}}]}
    )
    assert play(text("Hi"), ending).error == ("rate_limit_exceeded", "provider is busy")


def test_an_error_in_a_second_choice() -> None:
    failed = {"index": 1, "delta": {}, "error": {"code": 429, "message": "provider is busy"}}
    ending = event({"choices": [{"index": 0, "delta": {"content": "!"}}, failed]})
    assert play(text("Hi"), ending).error == ("rate_limit_exceeded", "provider is busy")


@pytest.mark.parametrize("nothing", [None, False, "", {}, [], {"message": "", "type": "", "code": None}])
def test_a_field_that_says_that_there_is_no_error(nothing: Any) -> None:
    pieces = [event({"choices": [{"delta": {"content": piece}}], "error": nothing}) for piece in "abc"]
    ending = [event({"choices": [{"delta": {}, "finish_reason": "stop"}], "error": nothing})]
    counts = event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "error": nothing})
    assert play(*pieces, *ending, counts).said == [("text", "abc")]


@pytest.mark.parametrize(
    "error",
    [
        {"detail": "gone"},
        {"message": "gone", "code": 500},
        {"message": "gone", "status_code": 500},
        {"type": "error", "message": "gone"},
        {"type": "error", "error": {"type": "overloaded_error", "message": "gone"}},
        {"error": {"error": {"message": "gone"}}},
        {"error": [{"message": "gone"}]},
        [{"error": {"message": "gone", "code": 500}}],
    ],
)
def test_errors_of_other_shapes(error: Any) -> None:
    played = play(text("Hi"), b"data: " + json.dumps(error).encode() + b"\n\n")
    assert played.error == ("server_error", "gone")
    assert played.said == [("text", "Hi", "incomplete")]


@pytest.mark.parametrize("end", [b"", b"\n\n", b"\r\n", b"\n\ndata: [DONE]\n\n"])
def test_json_in_a_body_that_says_that_it_streams(end: bytes) -> None:
    def streamed(*parts: bytes) -> Play:
        playing = new_translator()
        events = playing.start() + playing.feed(b"".join(parts) + end) + playing.finish()
        return judged(events + playing.finish(), playing)  # because another backend could have been asked

    message = {"role": "assistant", "content": "Hi"}
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assert streamed(json.dumps(whole, indent=1).encode()).said == [("text", "Hi")]
    assert streamed(b'[{\n"error": {"message": "gone"}\n}]').error == ("server_error", "gone")
    assert streamed(text("Hi"), b'{"error": {"message": "gone"}}').error == ("server_error", "gone")
    assert streamed(json.dumps(whole).encode()[:-9]).response["status"] == "failed"


@pytest.mark.parametrize("notice", [{"message": "queued"}, {"message": "ok", "code": 0}, {"type": "ping"}])
def test_a_notice_is_no_error(notice: dict[str, Any]) -> None:
    assert play(text("Hi"), event(notice), finish()).said == [("text", "Hi")]


@pytest.mark.parametrize("before", [b"", b"\n", b": ping\n\n", b"event: x\n", b"\xef\xbb\xbf"])
def test_a_stream_whose_content_type_does_not_say_so(before: bytes) -> None:
    played = completion(before + b"".join(ANSWER) + DONE)
    assert played.said == play(*ANSWER).said
    assert completion(before + text("Hi")).error[1] == "The backend closed the stream before the model finished."


def test_calls_of_another_choice_belong_to_the_answer() -> None:
    # LiteLLM with Bedrock until January 2026: each block in a choice of its own, and the reason in choice 0 again.
    first = [tool(0, "a", "weather", ""), {"index": 0, "function": {"arguments": '{"city":"Rome"}'}}]
    second = [tool(1, "b", "clock", ""), {"index": 1, "function": {"arguments": "{}"}}]
    calls = [(1, first[0]), (1, first[1]), (2, second[0]), (2, second[1])]
    chunks = [event({"choices": [{"index": index, "delta": {"tool_calls": [entry]}}]}) for index, entry in calls]
    played = play(text("Look."), *chunks, finish("tool_calls"))
    assert played.said == [("text", "Look."), ("call", "weather", '{"city":"Rome"}'), ("call", "clock", "{}")]
    assert played.response["status"] == "completed"
    words = [event({"choices": [{"index": 1, "delta": {"content": word}}]}) for word in ("It ", "is ", "sunny.")]
    assert play(think("hm"), *words, *chunks[2:], finish()).said[:2] == [("reasoning", "hm"), ("text", "It is sunny.")]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([{"content": "Hi"}, {"content": " you"}], [("text", "Hi you")]),
        ([{"role": "assistant"}, {"reasoning": "hm"}, {"content": "Hi"}], [("reasoning", "hm"), ("text", "Hi")]),
        ([{"content": ""}, {"tool_calls": [tool(0, None, None, "}")]}], []),
        ([{"tool_calls": [tool(0, None, None, "}")]}, {}], []),
    ],
)
def test_choices_of_one_index_are_one(pieces: list[dict[str, Any]], said: list[Any]) -> None:
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in pieces]
    choices[-1]["finish_reason"] = "stop"
    begin = [] if said else [call(0, "a", "clock", "{")]
    played = play(*begin, event({"choices": choices}), usage(prompt_tokens=9, completion_tokens=9))
    assert played.said == (said or [("call", "clock", "{}")])
    assert played.response["usage"]["output_tokens"] == 9


@pytest.mark.parametrize("part", ["delta", "message"])
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0]])
def test_nor_are_calls_lost_beside_the_text_in_one_chunk(part: str, order: list[int]) -> None:
    # GitHub Copilot's proxy with Claude: the text in one choice, each call in another, here all at once.
    said = [
        {"content": "Let me see."},
        {"tool_calls": [tool(0, "a", "clock", "{}")]},
        {"tool_calls": [tool(0, "b", "weather", "{}")]},
    ]
    choices = [{"index": at, part: {"role": "assistant", **said[one]}} for at, one in enumerate(order)]
    items = [("text", "Let me see."), ("call", "clock", "{}"), ("call", "weather", "{}")]
    assert play(event({"choices": choices}), finish("tool_calls")).said == [items[one] for one in order]


def test_chunks_of_another_choice_are_passed_over() -> None:
    other = [event({"choices": [{"index": 1, "delta": {"content": piece}}]}) for piece in "xyz"]
    ending = event({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]})
    turned = event({"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "d"}}]})
    played = play(text("a"), other[0], text("b"), *other[1:], text("c"), turned, ending, finish())
    assert (played.response["status"], played.said) == ("completed", [("text", "abcd")])
    ending = event({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]})
    assert play(*other, *map(text, "abc"), ending).said == [("text", "xyz")]


# ---- a message that repeats what deltas brought ------------------------------------------------------------------------


def whole(finish_reason: str | None = "stop", delta: Any = None, **message: Any) -> bytes:
    """Return a chunk with a whole message."""
    choice = {"index": 0, "finish_reason": finish_reason, "delta": delta, "message": {"role": "assistant", **message}}
    return event({"object": "chat.completion.chunk", "choices": [choice]})


PARIS = [tool(0, "c9", "weather", '{"city":"Paris"}')]


@pytest.mark.parametrize("delta", [None, {}, {"role": "assistant", "content": ""}])
def test_a_last_message_does_not_say_everything_twice(delta: Any) -> None:
    played = play(think("Hm"), text("Hel"), text("lo"), whole(delta=delta, content="Hello", reasoning_content="Hm"))
    assert played.said == [("reasoning", "Hm"), ("text", "Hello")]
    assert played.translator.repairs["message_repeated"] == 1
    calls = play(call(0, "a", "weather", '{"city":'), arguments(0, '"Paris"}'), whole(delta=delta, tool_calls=PARIS))
    assert calls.said == [("call", "weather", '{"city":"Paris"}')]


@pytest.mark.parametrize("before", ["", "\n\n"])
@pytest.mark.parametrize("thought", [[], [think("Hm")]])
def test_a_last_message_brings_the_end_of_the_text(thought: list[bytes], before: str) -> None:
    words = "Hello there. How are you?"
    for size in range(1, len(words)):
        for step in (1, 3, size):
            pieces = [text(words[begin : min(begin + step, size)]) for begin in range(0, size, step)]
            played = play(*thought, *pieces, whole(content=before + words, reasoning="Hm" if thought else None))
            assert played.said == [*[("reasoning", "Hm")] * len(thought), ("text", words)]
    assert play(text("Hel"), finish(), whole(content="Hello"), whole(content="Hello!")).said == [("text", "Hello!")]


def test_a_last_message_brings_the_end_of_the_thought() -> None:
    last = whole(content="Hello", reasoning_content="Hm. So")
    assert play(think("Hm."), last).said == [("reasoning", "Hm. So"), ("text", "Hello")]
    assert play(think("Hm."), text("He"), last).said == [("reasoning", "Hm."), ("text", "Hello")]


@pytest.mark.parametrize("content", ["Hullo there", "lo there", "Hell", "Hello\n ", ["Hello there"], None])
def test_what_was_streamed_stays_where_a_last_message_says_otherwise(content: Any) -> None:
    assert play(text("Hello"), whole(content=content)).said == [("text", "Hello")]


@pytest.mark.parametrize("mark", ["<tool_call>", "Let me think.</think>Hello"])
def test_a_last_message_brings_nothing_more_of_text_that_is_raw(mark: str) -> None:
    reads = Markup(lambda *, thinking_open: parser(None, "hermes", schemas={}, thinking_open=thinking_open))
    assert play(text("Hi "), text("<to"), whole(content="Hi <to" + mark), markup=reads).said == [("text", "Hi <to")]


OSLO = '{"city":"Oslo"}'
ROME = '{"city":"Rome"}'


@given(st.integers(0, 2), st.integers(0, len(OSLO)), st.booleans(), st.booleans())
def test_a_last_message_brings_what_the_deltas_lack_of_calls(whole_ones: int, cut: int, ids: bool, finished: bool) -> None:
    deltas = [call(at, f"c{at}", "weather", made) for at, made in enumerate((OSLO, ROME)[:whole_ones])]
    if whole_ones < 2:
        deltas.append(call(whole_ones, f"c{whole_ones}", "weather", (OSLO, ROME)[whole_ones][:cut]))
    told = [tool(at, f"c{at}" if ids else None, "weather", made) for at, made in enumerate((OSLO, ROME))]
    played = play(*deltas, *[finish("tool_calls")] * finished, whole("tool_calls", tool_calls=told))
    assert played.said == [("call", "weather", OSLO), ("call", "weather", ROME)]


@pytest.mark.parametrize(
    "told",
    [
        [tool(0, "a", "weather", ROME)],
        [tool(0, "a", "clock", OSLO)],
        [tool(0, "new", "weather", '{ "city": "Oslo" }')],
        [tool(None, None, "weather", ROME)],
        [tool(0, "a", "weather", "")],
        [],
    ],
)
def test_a_call_stays_as_it_came_where_a_last_message_says_otherwise(told: list[Any]) -> None:
    assert play(call(0, "a", "weather", OSLO), whole("tool_calls", tool_calls=told)).said == [("call", "weather", OSLO)]


def test_a_last_message_has_the_arguments_of_the_calls_whose_ids_it_has() -> None:
    empty = [call(0, "a", "weather", "{}"), call(1, "b", "weather", "")]
    told = [tool(1, "b", "weather", ROME), tool(0, "a", "weather", OSLO)]
    assert play(*empty, whole("tool_calls", tool_calls=told)).said == [("call", "weather", OSLO), ("call", "weather", ROME)]


def test_a_last_message_brings_what_no_delta_had() -> None:
    said = [("text", "I look."), ("call", "weather", '{"city":"Paris"}')]
    assert play(text("I look."), whole("tool_calls", content="I look.", tool_calls=PARIS)).said == said
    assert play(think("Hm"), whole(content="Hello", reasoning="Hm")).said == [("reasoning", "Hm"), ("text", "Hello")]


def test_messages_in_the_place_of_deltas_are_pieces() -> None:
    pieces = [whole(None, content=""), whole(None, content="Hel"), whole(None, content="lo"), whole(delta={})]
    assert play(*pieces).said == [("text", "Hello")]
    assert play(whole(delta={}, content="Hello")).said == [("text", "Hello")]


def test_a_message_beside_each_delta_is_ignored() -> None:
    beside = [text("Hel", message={"content": "Hel"}), text("lo", message={"content": "Hello"})]
    assert play(*beside, whole(delta={"content": ""}, content="Hello")).said == [("text", "Hello")]


def test_calls_of_markup_are_not_run_twice() -> None:
    """The server sends raw text, and at its end the calls that it has read in it."""
    markup = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
    schemas: dict[str, Any] = {"weather": {}}
    reads = Markup(lambda *, thinking_open: parser(None, "hermes", schemas=schemas, thinking_open=thinking_open))
    played = play(text(markup), whole("tool_calls", content=markup, tool_calls=PARIS), markup=reads)
    assert played.said == [("call", "weather", '{"city": "Paris"}')]


@pytest.mark.slow
def test_log_probabilities_of_tokens_that_are_written_in_another_way_hold_nobody_up() -> None:
    choice = {"message": {"role": "assistant", "content": " ab" * 4_000}, "finish_reason": "stop"}
    entries = [{"token": "ab", "logprob": -1.0}] * 4_000
    body = json.dumps({"choices": [{**choice, "logprobs": {"content": entries}}]}).encode()
    playing = new_translator(logprobs=True)
    data = playing.start()
    begun = time.process_time()
    data += playing.feed_completion(body)
    assert time.process_time() - begun < 1
    assert judged(data + playing.finish(), playing).said == [("text", " ab" * 4_000)]
