"""Bodies of `/v1/decisions`, and what the probabilities of a token say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from responses_gateway.request.decisions import Question, answer_of, read_decisions
from responses_gateway.wire.chat import TokenLogprob, TopLogprob
from responses_gateway.wire.errors import ApiError

PREDICATE = {"type": "predicate", "name": "angry", "instructions": "The writer is angry."}
CHOICE: dict[str, Any] = {
    "type": "choice",
    "instructions": [{"type": "input_text", "text": "Where does it go?"}, {"type": "input_json", "data": {"a": ["ü"]}}],
    "choices": [{"value": "billing"}, {"value": True, "description": "to a human"}, {"value": "true"}],
}
SCORE: dict[str, Any] = {
    "type": "score",
    "instructions": "How urgent is it?",
    "levels": [{"label": "low"}, {"label": "middle", "description": "this week"}, {"label": "high"}],
}


def body(*questions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Wrong again!", "questions": list(questions), **fields}


def question(asked: dict[str, Any]) -> Question:
    (read,) = read_decisions(body(asked)).questions
    return read


def token(first: str, **shares: float) -> TokenLogprob:
    """A token of which the backend tells these probabilities."""
    top = [TopLogprob(text, math.log(share)) for text, share in shares.items()]
    return TokenLogprob(token=first, logprob=math.log(shares.get(first, 0.01)), top_logprobs=top)


def test_a_predicate_asks_for_a_word() -> None:
    asked = question(PREDICATE)
    assert "The writer is angry." in asked.prompt
    assert answer_of(asked, token("Yes", **{"Yes": 0.5, " Yes": 0.125, "No": 0.25, "Maybe": 0.1})) == {
        "type": "predicate",
        "name": "angry",
        "probability": pytest.approx(0.625 / 0.875),
    }


def test_a_choice_asks_for_a_letter() -> None:
    asked = question(CHOICE)
    assert 'Where does it go?\n{"a": ["ü"]}\n\nA. billing\nB. true: to a human\nC. true\n' in asked.prompt
    answer = answer_of(asked, token("B", B=0.6, A=0.2, X=0.1))
    assert (answer["choice"], answer["confidence"]) == (True, pytest.approx(0.75))
    assert [each["probability"] for each in answer["probabilities"]] == [pytest.approx(0.25), pytest.approx(0.75), 0.0]


def test_a_score_is_the_mean_of_its_levels() -> None:
    asked = question(SCORE)
    assert "A. low\nB. middle: this week\nC. high\n" in asked.prompt
    answer = answer_of(asked, token("C", C=0.5, B=0.3, A=0.2))
    assert answer["score"] == pytest.approx(0.3 + 2 * 0.5)
    assert [each["label"] for each in answer["probabilities"]] == ["low", "middle", "high"]


def test_the_token_counts_though_it_is_not_among_the_alternatives() -> None:
    answer = answer_of(question(PREDICATE), TokenLogprob(token="No", logprob=0.1))
    assert answer["probability"] == 0.0


@pytest.mark.parametrize("said", [None, token("I", I=0.9, Sorry=0.05)])
def test_a_model_that_thinks_of_no_label_has_declined(said: TokenLogprob | None) -> None:
    assert answer_of(question(PREDICATE), said) == {"type": "refusal", "name": "angry"}


def test_the_input_may_be_items_with_json_in_them() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_json", "data": 1}, "?"]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    decisions = read_decisions(body(PREDICATE, input=items, prompt_cache_key="k"))
    assert decisions.input == [{"role": "user", "content": [{"type": "input_text", "text": "1"}, "?"]}, items[1]]
    assert decisions.cache_key == "k"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"questions": []}, "questions", "invalid_value"),
        ({"questions": [PREDICATE] * 401}, "questions", "invalid_value"),
        ({"questions": None}, "questions", "missing_required_parameter"),
        ({"questions": [{"type": "guess", "instructions": "x"}]}, "questions[0].type", "invalid_value"),
        ({"questions": [PREDICATE, {"type": "predicate"}]}, "questions[1].instructions", "missing_required_parameter"),
        ({"questions": [{"type": "score", "instructions": "x"}]}, "questions[0].levels", "missing_required_parameter"),
        ({"questions": [{**CHOICE, "choices": [{"value": 1}, {"value": 2}]}]}, "questions[0].choices[0].value", "invalid_type"),
        ({"questions": [{**CHOICE, "choices": [{"value": "a"}]}]}, "questions[0].choices", "invalid_value"),
        ({"questions": [{**CHOICE, "choices": [{"value": "a"}] * 2}]}, "questions[0].choices[1].value", "invalid_value"),
        ({"questions": [{**SCORE, "levels": [{"label": str(n)} for n in range(53)]}]}, "questions[0].levels", "invalid_value"),
        (
            {"questions": [{**PREDICATE, "instructions": [{"type": "input_image", "image_url": "x"}]}]},
            "questions[0].instructions[0].type",
            "unsupported_value",
        ),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"model": ""}, "model", "missing_required_parameter"),
        ({"model": 5}, "model", "invalid_type"),
        ({"stream": True}, "stream", "unknown_parameter"),
    ],
)
def test_a_body_that_is_wrong_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_decisions(body(PREDICATE, **fields))
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
