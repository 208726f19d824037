"""`/v1/decisions`: questions about one input, each answered with one token, of which the probabilities count.

Each question has labels of one token (`Yes`, `No`, letters); what the model gives them is divided by what it gives all of them.
These are the model's own probabilities: nobody has calibrated them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from string import ascii_letters, ascii_uppercase
from typing import Any, NamedTuple

from responses_gateway.request.fields import (
    Object,
    filled_text,
    missing,
    object_list,
    optional_text,
    quote,
    text,
    wrong_type,
)
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.errors import ApiError, invalid_request

# How many alternatives of a token chat servers tell (vLLM's default limit).
ALTERNATIVES = 20
# Parameters of a body. The last three are hints that change nothing here.
_KNOWN = frozenset({"model", "input", "questions", "prompt_cache_key", "prompt_cache_options", "safety_identifier"})
_MOST_QUESTIONS = 400
# Labels that are one token for any tokenizer. The API allows 255 choices.
_LETTERS = ascii_uppercase + ascii_letters[:26]
_YES_NO = ("Yes", "No")


class Option(NamedTuple):
    """One answer of a question: its label, and what stands for it in the response."""

    label: str
    value: str | bool


class Question(NamedTuple):
    """One question: what the model is asked, and its options in order."""

    kind: str
    name: str | None
    prompt: str
    options: Sequence[Option]


class Decisions(NamedTuple):
    """A request: the model, the input as that of a Responses request, the questions."""

    model: str
    input: str | list[Object]
    questions: list[Question]
    cache_key: str | None


def read_decisions(body: Object) -> Decisions:
    """Read a body. Raise `ApiError` 400 naming the field that is wrong, or that cannot be honoured."""
    for name in body:
        if name not in _KNOWN:
            raise invalid_request(f"Unknown parameter: {quote(name)}.", name, "unknown_parameter")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise missing("model") if not model else wrong_type("model", "a string")
    given = body.get("input")
    if given is None:
        raise missing("input")
    if not isinstance(given, str):
        given = [_with_text(item) for item in object_list(given, "input")]
    if body.get("questions") is None:
        raise missing("questions")
    questions = object_list(body["questions"], "questions")
    _check_amount(questions, 1, _MOST_QUESTIONS, "questions")
    asked = [_question(question, f"questions[{index}]") for index, question in enumerate(questions)]
    return Decisions(model, given, asked, optional_text(body, "prompt_cache_key", "body"))


def answer_of(question: Question, token: TokenLogprob | None) -> Object:
    """Return the answer that the first token of the model gives. A model that thinks of no label has declined."""
    weights = _weights(question, token) if token is not None else [0.0] * len(question.options)
    total = sum(weights)
    if not total:
        return {"type": "refusal", "name": question.name}
    shares = [weight / total for weight in weights]
    if question.kind == "predicate":
        return {"type": "predicate", "name": question.name, "probability": shares[0]}
    best = max(range(len(shares)), key=shares.__getitem__)
    answer: Object = {"type": question.kind, "name": question.name, "confidence": shares[best]}
    values = [option.value for option in question.options]
    if question.kind == "choice":
        told = [{"value": value, "probability": share} for value, share in zip(values, shares, strict=True)]
        return {**answer, "choice": values[best], "probabilities": told}
    score = sum(place * share for place, share in enumerate(shares))
    levels = zip(values, shares, strict=True)
    told = [{"label": label, "value": place, "probability": share} for place, (label, share) in enumerate(levels)]
    return {**answer, "score": score, "probabilities": told}


def _weights(question: Question, token: TokenLogprob) -> list[float]:
    """Return the probability of each label: of all tokens that are this label but for white space."""
    alternatives = [(top.token, top.logprob) for top in token.top_logprobs or ()]
    if all(token.token != alternative for alternative, _ in alternatives):
        alternatives.append((token.token, token.logprob))
    found: dict[str, float] = {}
    for alternative, logprob in alternatives:
        label = alternative.strip()
        found[label] = found.get(label, 0.0) + math.exp(min(logprob, 0.0))
    return [found.get(option.label, 0.0) for option in question.options]


def _question(question: Object, path: str) -> Question:
    kind = filled_text(question, "type", path)
    name = optional_text(question, "name", path)
    asked = _instructions(question, path)
    if kind == "predicate":
        prompt = f"Is this statement about the input above true?\n\n{asked}\n\nAnswer with one word, Yes or No."
        return Question(kind, name, prompt, [Option(label, label) for label in _YES_NO])
    if kind == "choice":
        options = _options(question, "choices", "value", path)
        heading = "Choose the best answer about the input above."
    elif kind == "score":
        options = _options(question, "levels", "label", path)
        heading = "Choose the level that fits the input above; the levels are in ascending order."
    else:
        known = "'predicate', 'choice', 'score'"
        message = f"Invalid value: {quote(kind)}. Supported values are: {known}."
        raise invalid_request(message, f"{path}.type", "invalid_value")
    lines = "\n".join(f"{label}. {words}" for label, words in zip(_LETTERS, _words(question, kind), strict=False))
    prompt = f"{heading}\n\n{asked}\n\n{lines}\n\nAnswer with one letter."
    return Question(kind, name, prompt, options)


def _options(question: Object, key: str, member: str, path: str) -> list[Option]:
    if question.get(key) is None:
        raise missing(f"{path}.{key}")
    given = object_list(question[key], f"{path}.{key}")
    _check_amount(given, 2, len(_LETTERS), f"{path}.{key}")
    options: list[Option] = []
    for index, (label, choice) in enumerate(zip(_LETTERS, given, strict=False)):
        param = f"{path}.{key}[{index}]"
        value = choice.get(member)
        if not isinstance(value, bool) or member == "label":
            value = text(choice, member, param)
        optional_text(choice, "description", param)
        if any(type(option.value) is type(value) and option.value == value for option in options):
            raise invalid_request(f"Duplicate value: {quote(value)}.", f"{param}.{member}", "invalid_value")
        options.append(Option(label, value))
    return options


def _words(question: Object, kind: str) -> list[str]:
    """Return what the model reads of each option."""
    if kind == "choice":
        named = [(_word(option["value"]), option.get("description")) for option in question["choices"]]
    else:
        named = [(option["label"], option.get("description")) for option in question["levels"]]
    return [f"{value}: {description}" if description else value for value, description in named]


def _word(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _instructions(question: Object, path: str) -> str:
    given = question.get("instructions")
    if given is None:
        raise missing(f"{path}.instructions")
    if isinstance(given, str):
        return given
    said: list[str] = []
    for index, given_part in enumerate(object_list(given, f"{path}.instructions")):
        param = f"{path}.instructions[{index}]"
        part = _as_text(given_part)
        if part.get("type") != "input_text":
            message = "Only text and JSON can be part of a question of this gateway."
            raise invalid_request(message, f"{param}.type", "unsupported_value")
        said.append(text(part, "text", param))
    return "\n".join(said)


def _with_text(item: Object) -> Object:
    """Return an item with its JSON parts as text."""
    content = item.get("content")
    if not isinstance(content, list):
        return item
    return {**item, "content": [_as_text(part) if isinstance(part, dict) else part for part in content]}


def _as_text(part: Mapping[str, Any]) -> Object:
    if part.get("type") != "input_json":
        return dict(part)
    return {"type": "input_text", "text": json.dumps(part.get("data"), ensure_ascii=False)}


def _check_amount(values: Sequence[object], least: int, most: int, param: str) -> None:
    if not least <= len(values) <= most:
        message = f"Invalid '{param}': this gateway takes {least} to {most}, got {len(values)}."
        raise ApiError(400, message, code="invalid_value", param=param)
