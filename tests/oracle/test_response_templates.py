"""Response templates: the interpreter of `transformers`, and vLLM's parser `hf`, as judges of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_parsing import parse_response

from responses_gateway.parsers.template import TemplateParser, load, opens_reasoning
from responses_gateway.parsers.vllm import load as load_vllm
from tests.oracle.cases import PARSERS, pieces_of, schemas, tokenizer
from tests.oracle.comparison import Item, play, same, without_order

pytestmark = pytest.mark.oracle

TEMPLATES: dict[str, dict[str, Any]] = yaml.safe_load((PARSERS / "response_templates.yaml").read_text(encoding="utf-8"))
# A field that is cut or is no call has no value for them: ours gives out its text. Nor have they calls without an opening that
# stand beside other fields: white space around these is a call to them that fails.
CASES = [
    pytest.param(entry["template"], case, id=f"{name}-{case['name']}")
    for name, entry in TEMPLATES.items()
    for case in entry["cases"]
    if not case.get("malformed") and case.get("transformers", True)
]


def ours(template: dict[str, Any], case: dict[str, Any], tokens: PreTrainedTokenizerFast) -> list[Item]:
    loaded = load(template)
    opened = opens_reasoning(loaded, case.get("prompt", ""))
    parser = TemplateParser(loaded, schemas=schemas(), thinking_open=opened)
    return play(parser, pieces_of(case["text"], tokens), case.get("finish", "stop"))


def _all_text(template: dict[str, Any]) -> dict[str, Any]:
    """Return the template so that it keeps all text: `transformers` has the last stretch alone otherwise, a stream has each."""
    fields = {"content": {}, **template["fields"]}
    texts = {name: {**field, "repeats": True, "join": ""} for name, field in fields.items() if name in ("content", "thinking")}
    return {**template, "fields": {**fields, **texts}}


@pytest.mark.parametrize(("template", "case"), CASES)
def test_transformers_reads_the_same_message(template: dict[str, Any], case: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in schemas().items()]
    message = parse_response(case["text"], _all_text(template), prefix=case.get("prompt", ""), tools=tools)
    calls = message.get("tool_calls") or []
    functions = [call["function"] for call in (calls if isinstance(calls, list) else [calls])]
    items: list[Item] = [{"call": function["name"], "arguments": function["arguments"]} for function in functions]
    theirs = [
        {"reasoning": message.get("thinking") or ""},
        {"text": message.get("content") or ""},
        *items,
    ]
    assert same(without_order(ours(template, case, tokenizer("hermes"))), without_order(theirs))


@pytest.mark.parametrize(("template", "case"), CASES)
def test_vllm_streams_the_same_items(template: dict[str, Any], case: dict[str, Any]) -> None:
    if any("join" in field for field in template["fields"].values()):
        pytest.skip("vLLM does not serve it")
    shared = tokenizer("hermes")
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=shared.backend_tokenizer,
        clean_up_tokenization_spaces=False,
        response_template=json.loads(json.dumps(template)),
    )
    reasoning, tools = ("vllm:hf" if name in template["fields"] else None for name in ("thinking", "tool_calls"))
    parsers = load_vllm(reasoning, tools, tokens)
    prompt = tokens.encode(case.get("prompt", ""), add_special_tokens=False)
    theirs = play(
        parsers.parser(schemas=schemas(), prompt_ids=prompt), pieces_of(case["text"], tokens), case.get("finish", "stop")
    )
    assert same(ours(template, case, tokens), theirs)
