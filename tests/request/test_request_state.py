"""Requests that continue a stored response, and parameters that need a store."""

from __future__ import annotations

import pytest

from responses_gateway.request import Policy, translate
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import parse_request

KEEPS = Policy(stores_responses=True)
STORED = [{"role": "user", "content": "one"}, {"type": "message", "role": "assistant", "content": "two"}]


def test_the_history_comes_before_the_input() -> None:
    request = parse_request({"model": "m", "input": "three", "previous_response_id": "resp_1", "instructions": "Be brief."})
    result = translate(request, KEEPS, history=STORED)
    assert [message["content"] for message in result.body["messages"]] == ["Be brief.", "one", "two", "three"]
    assert result.echo["previous_response_id"] == "resp_1"
    assert ("parameter", "previous_response_id", "preserved") in {
        (loss.kind, loss.name, loss.outcome) for loss in result.losses
    }


def test_an_output_may_answer_a_call_of_the_history() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    request = parse_request({"model": "m", "input": [output], "previous_response_id": "resp_1"})
    messages = translate(request, KEEPS, history=[*STORED[:1], call]).body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("given", ["conv_1", {"id": "conv_1"}])
def test_the_conversation_is_echoed(given: object) -> None:
    request = parse_request({"model": "m", "input": "x", "conversation": given})
    assert translate(request, KEEPS).echo["conversation"] == {"id": "conv_1"}


def test_a_history_alone_is_enough() -> None:
    request = parse_request({"model": "m", "conversation": "conv_1"})
    assert len(translate(request, KEEPS, history=STORED).body["messages"]) == 2


def test_stored_prompts_there_are_none() -> None:
    request = parse_request({"model": "m", "input": "x", "prompt": {"id": "pmpt_1"}})
    with pytest.raises(ApiError) as refused:
        translate(request, KEEPS)
    assert refused.value.param == "prompt"


def test_sealed_reasoning_is_given_where_it_can_be() -> None:
    request = parse_request({"model": "m", "input": "x", "include": ["reasoning.encrypted_content"]})
    assert translate(request, Policy(encrypts_reasoning=True)).encrypted_reasoning
    assert not translate(request, Policy()).encrypted_reasoning
