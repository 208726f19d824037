"""What a server wants back with a thought is an item of its own, which says nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from responses_gateway.request.translation import translate
from responses_gateway.stream.items.text_items import sealed_members
from responses_gateway.wire.messages import SIGNATURE, details_in
from responses_gateway.wire.requests import parse_request
from tests.stream.message_player import play_message
from tests.stream.stream_player import call, chunk, finish, play, text, tool

SECRET = {"type": "reasoning.encrypted", "data": "QUJD", "id": "r1", "format": "google-gemini-v1", "index": 0}


def thought(words: str, *details: Any) -> bytes:
    return chunk({"reasoning": words, "reasoning_details": list(details)})


def piece(words: str, **members: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": words, "index": 0, **members}


def kept(output: list[dict[str, Any]]) -> list[Any]:
    return [item["reasoning_details"] for item in output if "reasoning_details" in item]


@pytest.mark.parametrize("answer", [text("Hi"), call(0, "c", "weather", '{"a":1}')])
def test_they_are_a_member_of_the_thought(answer: bytes) -> None:
    output = play(thought("hm"), thought(" so", SECRET), answer, finish()).response["output"]
    assert (len(output), output[0]["content"][0]["text"], output[0]["reasoning_details"]) == (2, "hm so", [SECRET])


def test_a_detail_of_an_unknown_kind_with_a_member_without_a_name_is_kept_as_it_is() -> None:
    odd = [{"type": "x", "": "y"}, {"type": "x", "index": 1}, {"type": "x"}]
    output = play(thought("hm", *odd[:2]), text("Hi"), thought("so", odd[2]), text("there"), finish()).response["output"]
    assert kept(output) == [odd[:2], odd[2:]]


def test_thousands_of_signatures_hold_nobody_up() -> None:
    signatures = [piece("", signature="s", index=number) for number in range(5_000)]
    begun = time.process_time()
    output = play(thought("hm", *signatures), text("Hi"), finish()).response["output"]
    assert time.process_time() - begun < 2
    assert len(kept(output)[0]) == 5_000


def test_details_without_a_thought() -> None:
    output = play(chunk({"content": "", "reasoning_details": [SECRET]}), text("Hi"), finish()).response["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert kept(output) == [[SECRET]]


def test_what_comes_behind_the_call_stands_at_the_end() -> None:
    late = chunk({"reasoning_details": [SECRET]}, "tool_calls")
    output = play(call(0, "c", "weather", '{"a":1}'), late).response["output"]
    assert [item["type"] for item in output] == ["function_call", "reasoning"]
    assert kept(output) == [[SECRET]]


def test_pieces_of_a_text_are_joined_and_have_their_signature() -> None:
    pieces = [thought(words, piece(words)) for words in "abc" * 400]
    signature = chunk(
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": None, "signature": "U2"}]}
    )
    other = chunk({"content": "", "reasoning_details": [SECRET, piece("x", index=1), SECRET]})
    output = play(*pieces, signature, other, text("Hi"), finish()).response["output"]
    assert kept(output) == [[piece("abc" * 400, signature="U2"), SECRET, piece("x", index=1), SECRET]]


@pytest.mark.parametrize("between", [text("Hi"), call(0, "c", "weather", '{"a":1}')])
def test_a_signature_behind_several_thoughts_goes_back_with_the_text_of_its_own(between: bytes) -> None:
    late = [{**piece("", index=at), "text": None, "signature": f"S{at}"} for at in (0, 1)]
    second = chunk({"reasoning": "well", "reasoning_details": [piece("well", index=1)]})
    output = play(thought("hm", piece("hm")), between, second, chunk({"reasoning_details": late}, "stop")).response["output"]
    signed = [piece("well", index=1, signature="S1"), piece("hm", signature="S0")]
    assert [entry for details in kept(output) for entry in details] == signed


def opaque(data: str, **delta: Any) -> bytes:
    return chunk({"content": None, "reasoning_opaque": data, **delta})


@pytest.mark.parametrize(
    "pieces",
    [
        [chunk({"reasoning_text": "hm"}), chunk({"reasoning_text": " so"}), opaque("QUJD"), text("Hi"), finish()],
        [chunk({"reasoning_text": "hm"}), opaque("QU", reasoning_text=" so"), opaque("JD"), text("Hi"), finish()],
        [chunk({"reasoning_text": "hm so"}), opaque("QUJD", content="Hi"), finish()],
        [opaque("QUJD", reasoning_text="hm so"), text("Hi"), finish()],
        [chunk({"reasoning_text": "hm so"}), text("Hi"), opaque("QUJD"), finish()],
        [chunk({"reasoning_text": "hm so"}), text("Hi"), chunk({"reasoning_opaque": "QUJD"}, "stop")],
    ],
)
def test_what_copilot_wants_back_goes_back_in_its_fields(pieces: list[bytes]) -> None:
    played = play(*pieces)
    assert ("reasoning", "hm so") in played.said
    assert ("text", "Hi") in played.said
    body = translate(
        parse_request({"model": "m", "input": [*played.response["output"], {"role": "user", "content": "go on"}]})
    ).body
    assistant = [message for message in body["messages"] if message["role"] == "assistant"]
    assert assistant == [{"role": "assistant", "content": "Hi", "reasoning_text": "hm so", "reasoning_opaque": "QUJD"}]


def test_each_opaque_piece_is_kept_however_alike_the_chunks_are() -> None:
    output = play(*[opaque("QUJD", reasoning_text=str(number)) for number in range(9)], text("Hi"), finish()).response["output"]
    assert "".join(detail["data"] for detail in kept(output)[0]) == "QUJD" * 9
    assert output[0]["content"][0]["text"] == "012345678"


@pytest.mark.parametrize("data", [None, 5, [], {}])
def test_what_is_no_text_is_not_opaque(data: Any) -> None:
    played = play(chunk({"reasoning_text": "hm", "reasoning_opaque": data}), text("Hi"), finish())
    assert (played.said, kept(played.response["output"])) == ([("reasoning", "hm"), ("text", "Hi")], [])


@pytest.mark.parametrize("kept_data", [{}, {"data": None}, {"data": 5}, {"data": {"a": 1}}])
def test_kept_opaque_without_its_text_is_not_sent_back(kept_data: Any) -> None:
    output = play(opaque("QUJD", reasoning_text="hm"), text("Hi"), finish()).response["output"]
    item = {**output[0], "reasoning_details": [{"type": "reasoning_opaque", **kept_data}]}
    request = parse_request({"model": "m", "input": [item, output[1], {"role": "user", "content": "go on"}]})
    sent = json.dumps(translate(request).body["messages"])
    assert "hm" in sent
    assert "opaque" not in sent


def test_what_only_repeats_the_thought_is_sent_back_as_reasoning_alone() -> None:
    summary = {"type": "reasoning.summary", "summary": "hm", "index": 1, "format": "x"}
    output = play(thought("hm", piece("hm"), summary), text("Hi"), finish()).response["output"]
    assert (len(output), kept(output)) == (2, [])


@pytest.mark.parametrize("details", [5, "text", {"a": 1}, [], [None, 5, "text"], [[]]])
def test_what_is_no_list_of_objects_is_left_out(details: Any) -> None:
    output = play(chunk({"reasoning": "hm", "reasoning_details": details}), text("Hi"), finish()).response["output"]
    assert kept(output) == []


@pytest.mark.parametrize("kind", [None, 5, [], {}, "new"])
def test_details_of_a_kind_that_nobody_knows_go_back_as_they_came(kind: Any) -> None:
    entry = {"type": kind, "text": "hm"}
    output = play(chunk({"reasoning": "hm", "reasoning_details": [entry]}), text("Hi"), finish()).response["output"]
    assert kept(output) == [[{name: value for name, value in entry.items() if value is not None}]]


def test_a_message_that_repeats_the_stream_brings_no_details_again() -> None:
    last = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "Hi", "reasoning_details": [SECRET]}}]}
    repeated = b"data: %b\n\n" % json.dumps(last).encode()
    assert kept(play(thought("hm", SECRET), text("Hi"), repeated).response["output"]) == [[SECRET]]


def test_more_than_can_be_kept_is_left_out() -> None:
    large = {**SECRET, "data": "A" * (3 << 20)}
    output = play(thought("hm", large), chunk({"content": "", "reasoning_details": [large]}), text("Hi"), finish()).response[
        "output"
    ]
    assert kept(output) == []


def test_sealed_they_are_in_the_encrypted_content_and_so_is_what_belongs_to_a_call() -> None:
    extra = {"google": {"thought_signature": "U2ln"}}
    signed = chunk({"tool_calls": [{**tool(0, "c", "weather", "{}"), "extra_content": extra}]})
    output = play(thought("hm", SECRET), signed, finish("tool_calls"), seal=lambda sealed: sealed).response["output"]
    assert [item["type"] for item in output] == ["reasoning", "reasoning", "function_call"]
    first, second = (sealed_members(item["encrypted_content"]) for item in output[:2])
    assert (first["content"][0]["text"], first["reasoning_details"]) == ("hm", [SECRET])
    assert second == {"content": [], "extra_content": {"c": extra}}
    assert "reasoning_details" not in output[1]


def test_the_signature_of_a_block_of_the_messages_api_has_them() -> None:
    message = play_message(thought("hm", SECRET), text("Hi"), finish())
    assert message.said == [("reasoning", "hm"), ("text", "Hi")]
    signature = "".join(event["delta"].get("signature", "") for event in message.events if "delta" in event)
    assert details_in(signature) == {"reasoning_details": [SECRET]}


@pytest.mark.parametrize("data", ["", ".", ".W", ".e30=", ".\u00e4", "." + "W1tb" * 5000])
def test_a_signature_without_details(data: str) -> None:
    assert not any(details_in(SIGNATURE + data).values())
    assert details_in(f"other{data}") == details_in(None) == {}
