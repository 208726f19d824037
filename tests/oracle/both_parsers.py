"""The two parsers of a case, ours and vLLM's through the plug-in, and the comparison of what they make of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerFast

from responses_gateway import parsers
from responses_gateway.parsers.vllm import VllmParser, VllmParsers, load
from tests.oracle.cases import Case, recorded_tokenizer, tokenizer
from tests.oracle.comparison import Item, play, same, trimmed, without_order
from tests.oracle.families import FAMILIES

_THINKS = ("enable_thinking", "thinking")


def tokenizer_of(case: Case) -> PreTrainedTokenizerFast:
    return recorded_tokenizer() if case.recorded else tokenizer(case.family)


def ours(case: Case) -> parsers.MarkupParser:
    family = FAMILIES[case.family]
    vocabulary = tokenizer_of(case).get_added_vocab()
    known = parsers.markers(family.reasoning, family.tools) & vocabulary.keys()
    return parsers.parser(
        family.reasoning,
        family.tools,
        schemas=case.schemas,
        thinking_open=case.opened,
        marker_ids={marker: vocabulary[marker] for marker in known},
    )


def theirs(case: Case) -> VllmParser:
    """Make vLLM's parser. It is told what its server knows: if the request asks for thinking, and how the prompt ends."""
    return _loaded(case.family, case.recorded).parser(
        schemas=case.schemas,
        thinking_open=case.opened,
        prompt_ids=None if case.thinking else _closed_prompt(case),
        template_kwargs=_template_kwargs(case),
    )


def theirs_whole(case: Case) -> tuple[str, str, list[Item]]:
    """Return vLLM's answer without streaming: reasoning, text and calls, without an order."""
    machine, request = _loaded(case.family, case.recorded).compose(case.schemas, _template_kwargs(case))
    ids = [token for _, its_ids in case.pieces for token in its_ids]
    reasoning, text, calls = machine.parse(case.text, request, enable_auto_tools=True, model_output_token_ids=ids)
    return trimmed(reasoning or ""), trimmed(text or ""), [_call(call) for call in calls or ()]


@cache
def _loaded(name: str, recorded: bool) -> VllmParsers:
    family = FAMILIES[name]
    reasoning = f"vllm:{family.reasoning}" if family.reasoning else None
    return load(reasoning, f"vllm:{family.tools}", recorded_tokenizer() if recorded else tokenizer(name))


def _template_kwargs(case: Case) -> dict[str, Any]:
    efforts = FAMILIES[case.family].efforts
    effort = {"reasoning_effort": efforts[not case.thinking]} if efforts else {}
    return {**dict.fromkeys(_THINKS, case.thinking), **effort}


def _closed_prompt(case: Case) -> list[int]:
    """Return the end of a prompt that asks for an answer without reasoning: an empty block of it, if the family has one."""
    machine, _ = _loaded(case.family, case.recorded).compose({}, _template_kwargs(case))
    reader = machine.reasoning_parser
    if reader is None or not (reader.reasoning_start_str and reader.reasoning_end_str):
        return []
    ids: list[int] = tokenizer_of(case).encode(reader.reasoning_start_str + reader.reasoning_end_str, add_special_tokens=False)
    return ids


def _call(call: Any) -> Item:
    try:
        return {"call": call.name, "arguments": json.loads(call.arguments)}
    except ValueError:
        return {"call": call.name, "begun": call.arguments.strip()}


@dataclass(frozen=True)
class Comparison:
    """The items of both. `whole`: ours gives what vLLM answers when it does not stream."""

    ours: list[Item]
    theirs: list[Item]
    agree: bool
    whole: bool


@cache
def compare(case: Case) -> Comparison:
    """Run both parsers over the whole case, a token at a time. An exception of vLLM's is an item of its own."""
    mine = play(ours(case), case.pieces, case.reason)
    try:
        other = play(theirs(case), case.pieces, case.reason)
    except Exception as error:
        other = [{"raises": f"{type(error).__name__}: {error}"}]
    if same(mine, other):
        return Comparison(mine, other, agree=True, whole=True)
    try:
        whole = same(without_order(mine), theirs_whole(case))
    except Exception:  # then vLLM has no answer to agree with
        whole = False
    return Comparison(mine, other, agree=False, whole=whole)
