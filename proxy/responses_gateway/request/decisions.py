"""`/v1/decisions`: questions about one input, each answered with one token, of which the probabilities count.

Each question has labels of one token (`Yes`, `No`, letters); what the model gives one is divided by what it gives all of them.
These are the model's own probabilities: nobody has calibrated them. They are exact: a server that tells the ids of the labels
is asked for these, another one for its likeliest tokens; if those leave more than a thousandth open there is no answer."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from string import ascii_letters, ascii_uppercase
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from responses_gateway.request.fields import Object, filled_text, missing, object_list, optional_text, quote, text, wrong_type
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.errors import ApiError, invalid_request

# How many alternatives of a token chat servers tell (vLLM's default limit), and those that refuse so many (mlx_lm.server).
ALTERNATIVES = 20
FEWER_ALTERNATIVES = 10
_MOST_IDS = 128  # how many tokens of its own choice a request may ask vLLM for
# Parameters of a body. The last three are hints that change nothing here.
_KNOWN = frozenset({"model", "input", "questions", "prompt_cache_key", "prompt_cache_options", "safety_identifier"})
_MOST_QUESTIONS = 400
_MOST_OPTIONS = 255
# Labels that are one token for any tokenizer, and those that are for most.
_LETTERS = ascii_uppercase + ascii_letters[:26]
_PAIRS = ["".join(pair) for pair in product(ascii_uppercase, repeat=2)]
_YES_NO = ("Yes", "No")
_LABELS = (*_YES_NO, *_LETTERS, *_PAIRS)
# A text with each label in a line of its own, as the beginning of an answer and behind a space.
LABEL_LINES = "".join(f"\n{label}\n {label}" for label in _LABELS) + "\n"
_LEAST = 0.001  # a model that gives all labels together less than this has declined
_OPEN = 0.001  # how much of a probability may be open

# The ids of a label's tokens: with and without a space before it. Empty where nobody tells them.
LabelIds: TypeAlias = Mapping[str, Sequence[int]]


class Inexact(Exception):
    """The tokens that a server tells leave open how likely a label is."""


class Question(NamedTuple):
    """One question: what the model is asked, what stands for each option in the response, and what the model reads of it.
    `param` is its place in the request."""

    kind: str
    name: str | None
    param: str
    asked: str
    values: Sequence[str | bool]
    words: Sequence[str]

    def labels(self, ids: LabelIds) -> Sequence[str]:
        """Return the labels of the options. Raise `ApiError` 400 for more options than there are labels of one token."""
        amount = len(self.values)
        if self.kind == "predicate":
            return _YES_NO
        if amount <= len(_LETTERS):
            return _LETTERS[:amount]
        pairs = [pair for pair in _PAIRS if pair in ids]
        if len(pairs) < amount:
            most = max(len(_LETTERS), len(pairs))
            message = f"The backend takes at most {most} options here, got {amount}: it has no more labels of one token."
            raise invalid_request(message, self.param, "unsupported_value")
        return pairs[:amount]

    def open_labels(self) -> ApiError:
        """Return the error where the backend tells too little."""
        message = (
            "The backend tells only its likeliest tokens, which leaves open how likely some options are. "
            "Ask for fewer options; vLLM can tell all of them from 0.32 on."
        )
        return invalid_request(message, self.param, "logprobs_truncated")

    def prompt(self, labels: Sequence[str]) -> str:
        """Return what the model is asked."""
        if self.kind == "predicate":
            return f"Is this statement about the input above true?\n\n{self.asked}\n\nAnswer with one word, Yes or No."
        heading = "Choose the best answer about the input above."
        if self.kind == "score":
            heading = "Choose the level that fits the input above; the levels are in ascending order."
        lines = "\n".join(f"{label}. {words}" for label, words in zip(labels, self.words, strict=True))
        letters = "one letter" if len(labels[0]) == 1 else "the two letters"
        return f"{heading}\n\n{self.asked}\n\n{lines}\n\nAnswer with {letters}."


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
    content = body.get("input")
    if content is None:
        raise missing("input")
    if not isinstance(content, str):
        content = [_with_text(item) for item in object_list(content, "input")]
    if body.get("questions") is None:
        raise missing("questions")
    questions = object_list(body["questions"], "questions")
    _check_amount(questions, 1, _MOST_QUESTIONS, "questions")
    entries = [_question(question, f"questions[{index}]") for index, question in enumerate(questions)]
    return Decisions(model, content, entries, optional_text(body, "prompt_cache_key", "body"))


def read_label_ids(tokens: Sequence[int]) -> LabelIds:
    """Return the ids of the labels, given the tokens of `LABEL_LINES`: those of lines of one token. Empty if there are none."""
    if not tokens:
        return {}
    line_end = Counter(tokens).most_common(1)[0][0]
    lines: list[list[int]] = [[]]
    for token in tokens:
        if token == line_end:
            lines.append([])
        else:
            lines[-1].append(token)
    lines = lines[1:-1]
    if len(lines) != 2 * len(_LABELS):
        return {}
    pairs = zip(_LABELS, lines[::2], lines[1::2], strict=True)
    return {label: [line[0] for line in (plain, spaced) if len(line) == 1] for label, plain, spaced in pairs if len(plain) == 1}


def groups_of(labels: Sequence[str]) -> list[Sequence[str]]:
    """Return the labels in groups, for each of which one request can ask."""
    each = _MOST_IDS // 2
    return [labels[start : start + each] for start in range(0, len(labels), each)]


def ids_of(labels: Sequence[str], ids: LabelIds) -> list[int]:
    """Return the ids to ask for."""
    return list(dict.fromkeys(each for label in labels for each in ids[label]))


def names_of(labels: Sequence[str], ids: LabelIds) -> dict[str, str]:
    """Return the labels by what vLLM calls their tokens with `--return-tokens-as-token-ids`."""
    return {f"token_id:{each}": label for label in labels for each in ids.get(label, ())}


def weights_of(
    labels: Sequence[str], token: TokenLogprob | None, *, by_ids: bool, names: Mapping[str, str] = MappingProxyType({})
) -> list[float]:
    """Return the probability of each label, given the first token of an answer: of all tokens that are this label but for white
    space, or have one of its other `names`. `by_ids`: the server was asked for these. Raise `Inexact` if what it tells leaves
    more than a thousandth open, `ApiError` 502 if it is nothing that can be a probability."""
    if token is None:
        return [0.0] * len(labels)
    reported = [(top.token, math.exp(min(top.logprob, 1.0))) for top in token.top_logprobs or ()]
    if all(token.token != alternative for alternative, _ in reported):
        reported.append((token.token, math.exp(min(token.logprob, 1.0))))
    if sum(share for _, share in reported) > 1 + _OPEN:
        raise ApiError(502, "The log probabilities of the backend are none.", type="server_error", code="logprobs_unavailable")
    shares: dict[str, float] = {}
    for alternative, share in reported:
        label = names.get(alternative) or alternative.strip()
        shares[label] = shares.get(label, 0.0) + share
    weights = [shares.get(label, 0.0) for label in labels]
    unseen = sum(label not in shares for label in labels)
    total = sum(weights)
    if by_ids and unseen:
        raise Inexact
    # A token that is not reported is less likely than those that are, of which the one that was drawn may be any.
    likeliest = [share for alternative, share in reported if alternative != token.token]
    if unseen and total and len(reported) >= FEWER_ALTERNATIVES and unseen * min(likeliest) > _OPEN * total:
        raise Inexact
    return weights


def answer_of(question: Question, weights: Sequence[float]) -> Object:
    """Return the answer that the probabilities of the labels give. A model that gives them next to nothing has declined."""
    total = sum(weights)
    if total < _LEAST:
        return {"type": "refusal", "name": question.name}
    shares = [weight / total for weight in weights]
    if question.kind == "predicate":
        return {"type": "predicate", "name": question.name, "probability": shares[0]}
    best = max(range(len(shares)), key=shares.__getitem__)
    answer: Object = {"type": question.kind, "name": question.name, "confidence": shares[best]}
    values = question.values
    if question.kind == "choice":
        probabilities = [{"value": value, "probability": share} for value, share in zip(values, shares, strict=True)]
        return {**answer, "choice": values[best], "probabilities": probabilities}
    score = sum(place * share for place, share in enumerate(shares))
    levels = zip(values, shares, strict=True)
    probabilities = [{"label": label, "value": place, "probability": share} for place, (label, share) in enumerate(levels)]
    return {**answer, "score": score, "probabilities": probabilities}


def _question(question: Object, path: str) -> Question:
    kind = filled_text(question, "type", path)
    name = optional_text(question, "name", path)
    instructions = _instructions(question, path)
    if kind == "predicate":
        return Question(kind, name, path, instructions, _YES_NO, _YES_NO)
    if kind == "choice":
        return Question(kind, name, path, instructions, *_options(question, "choices", "value", path))
    if kind == "score":
        return Question(kind, name, path, instructions, *_options(question, "levels", "label", path))
    known = "'predicate', 'choice', 'score'"
    message = f"Invalid value: {quote(kind)}. Supported values are: {known}."
    raise invalid_request(message, f"{path}.type", "invalid_value")


def _options(question: Object, key: str, member: str, path: str) -> tuple[list[str | bool], list[str]]:
    """Return the values of the options, and what the model reads of each."""
    if question.get(key) is None:
        raise missing(f"{path}.{key}")
    entries = object_list(question[key], f"{path}.{key}")
    _check_amount(entries, 2, _MOST_OPTIONS, f"{path}.{key}")
    values: list[str | bool] = []
    words: list[str] = []
    for index, option in enumerate(entries):
        param = f"{path}.{key}[{index}]"
        value = option.get(member)
        if not isinstance(value, bool) or member == "label":
            value = text(option, member, param)
        description = optional_text(option, "description", param)
        if any(type(other) is type(value) and other == value for other in values):
            raise invalid_request(f"Duplicate value: {quote(value)}.", f"{param}.{member}", "invalid_value")
        values.append(value)
        word = value if isinstance(value, str) else str(value).lower()
        words.append(f"{word}: {description}" if description else word)
    return values, words


def _instructions(question: Object, path: str) -> str:
    content = question.get("instructions")
    if content is None:
        raise missing(f"{path}.instructions")
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for index, given_part in enumerate(object_list(content, f"{path}.instructions")):
        param = f"{path}.instructions[{index}]"
        part = _as_text(given_part)
        if part.get("type") != "input_text":
            message = "Only text and JSON can be part of a question of this gateway."
            raise invalid_request(message, f"{param}.type", "unsupported_value")
        texts.append(text(part, "text", param))
    return "\n".join(texts)


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
