"""Bodies of `/v1/decisions`, and what the probabilities of a token say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from responses_gateway.request.decisions import (
    LABEL_LINES,
    Inexact,
    Question,
    answer_of,
    groups_of,
    ids_of,
    read_decisions,
    read_label_ids,
    weights_of,
)
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


def prompt(asked: dict[str, Any]) -> str:
    read = question(asked)
    return read.prompt(read.labels({}))


def answer(asked: dict[str, Any], said: TokenLogprob | None) -> dict[str, Any]:
    """The answer by the likeliest tokens."""
    read = question(asked)
    return answer_of(read, weights_of(read.labels({}), said, by_ids=False))


def token(first: str, **shares: float) -> TokenLogprob:
    """A token of which the backend tells these probabilities."""
    top = [TopLogprob(text, math.log(share)) for text, share in shares.items()]
    return TokenLogprob(token=first, logprob=math.log(shares.get(first, 0.01)), top_logprobs=top)


def test_a_predicate_asks_for_a_word() -> None:
    assert "The writer is angry." in prompt(PREDICATE)
    assert answer(PREDICATE, token("Yes", **{"Yes": 0.5, " Yes": 0.125, "No": 0.25, "Maybe": 0.1})) == {
        "type": "predicate",
        "name": "angry",
        "probability": pytest.approx(0.625 / 0.875),
    }


def test_a_choice_asks_for_a_letter() -> None:
    assert 'Where does it go?\n{"a": ["ü"]}\n\nA. billing\nB. true: to a human\nC. true\n' in prompt(CHOICE)
    found = answer(CHOICE, token("B", B=0.6, A=0.2, X=0.1))
    assert (found["choice"], found["confidence"]) == (True, pytest.approx(0.75))
    assert [each["probability"] for each in found["probabilities"]] == [pytest.approx(0.25), pytest.approx(0.75), 0.0]


def test_a_score_is_the_mean_of_its_levels() -> None:
    assert "A. low\nB. middle: this week\nC. high\n" in prompt(SCORE)
    found = answer(SCORE, token("C", C=0.5, B=0.3, A=0.2))
    assert found["score"] == pytest.approx(0.3 + 2 * 0.5)
    assert [each["label"] for each in found["probabilities"]] == ["low", "middle", "high"]


def test_the_token_counts_though_it_is_not_among_the_alternatives() -> None:
    assert answer(PREDICATE, TokenLogprob(token="No", logprob=0.0))["probability"] == 0.0


@pytest.mark.parametrize("said", [None, token("I", I=0.9, Sorry=0.05), token("<think>", **{"<think>": 0.9995, "Yes": 1e-4})])
def test_a_model_that_thinks_of_no_label_has_declined(said: TokenLogprob | None) -> None:
    assert answer(PREDICATE, said) == {"type": "refusal", "name": "angry"}


def likeliest(**shares: float) -> TokenLogprob:
    """A token whose twenty likeliest alternatives are these and others, each of 0.001."""
    others = {f"t{number}": 0.001 for number in range(20 - len(shares))}
    return token(next(iter(shares)), **shares, **others)


def test_what_the_likeliest_tokens_leave_open_is_no_answer() -> None:
    labels = question(CHOICE).labels({})
    assert weights_of(labels, likeliest(A=0.9, B=0.05, C=0.01), by_ids=False) == pytest.approx([0.9, 0.05, 0.01])
    # The one that was drawn may be the least likely of all.
    others = {f"t{number}": 0.001 for number in range(18)}
    drawn = token("Z", Z=1e-9, A=0.9, **others)
    for open_token in (likeliest(A=0.9), likeliest(A=0.5, B=0.4), drawn):
        with pytest.raises(Inexact):
            weights_of(labels, open_token, by_ids=False)
    # Less than a thousandth is open, or nothing, since the server has told all.
    certain = token("A", A=0.999, **{f"t{number}": 1e-6 for number in range(19)})
    assert weights_of(labels, certain, by_ids=False) == pytest.approx([0.999, 0.0, 0.0])
    assert weights_of(labels, token("A", A=0.9, X=0.1), by_ids=False) == pytest.approx([0.9, 0.0, 0.0])


def test_what_is_no_probability_is_none() -> None:
    with pytest.raises(ApiError) as caught:
        weights_of(("Yes", "No"), TokenLogprob("Yes", 12.5, top_logprobs=[TopLogprob("No", 11.0)]), by_ids=False)
    assert (caught.value.status, caught.value.code) == (502, "logprobs_unavailable")


def by_lines(text: str) -> list[int]:
    """Tokenize: one for each line end, and one for each line but for that of `QX`, which takes two."""
    vocabulary = {line: number for number, line in enumerate(dict.fromkeys(text.split("\n")), 10)}
    ids: list[int] = []
    for line in text.split("\n"):
        ids += [] if line == "" else [7, 8] if line == "QX" else [vocabulary[line]]
        ids.append(1)
    return ids[:-1]


def test_the_ids_of_labels_are_those_of_lines_of_one_token() -> None:
    ids = read_label_ids(by_lines(LABEL_LINES))
    assert len(ids["A"]) == len(ids["Yes"]) == len(ids["ZZ"]) == 2
    assert len({each for found in ids.values() for each in found}) == sum(map(len, ids.values()))
    assert "QX" not in ids
    assert read_label_ids([]) == read_label_ids([1, 1, 1]) == read_label_ids(by_lines("\nA\nB\n")) == {}


def test_many_options_have_labels_of_two_letters_where_these_are_one_token() -> None:
    asked = {**CHOICE, "choices": [{"value": f"v{number}"} for number in range(255)]}
    read = question(asked)
    with pytest.raises(ApiError) as caught:
        read.labels({})
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "questions[0]", "unsupported_value")
    ids = read_label_ids(by_lines(LABEL_LINES))
    labels = read.labels(ids)
    assert (labels[0], labels[-1], len(set(labels))) == ("AA", "JU", 255)
    assert "AA. v0\nAB. v1\n" in read.prompt(labels)
    groups = groups_of(labels)
    assert [label for group in groups for label in group] == labels
    assert max(len(ids_of(group, ids)) for group in groups) == 128


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
        ({"questions": [{**SCORE, "levels": [{"label": str(n)} for n in range(256)]}]}, "questions[0].levels", "invalid_value"),
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
