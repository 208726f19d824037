"""Read a model's text by the `response_template` that its checkpoint brings in `tokenizer_config.json`.

The format is that of `transformers`: fields (`thinking`, `content`, `tool_calls`) with the delimiters that open and close them,
and what to make of the text in between. `load` reads a template, `TemplateParser` reads answers by it."""

from __future__ import annotations

from responses_gateway.parsers.template.definition import ResponseTemplate, load
from responses_gateway.parsers.template.delimiters import TemplateError
from responses_gateway.parsers.template.interpreter import TemplateParser, opens_reasoning

NAMES = frozenset({"template", "hf", "beam"})  # vLLM's names for it; `beam` constrains the output besides

__all__ = ["NAMES", "ResponseTemplate", "TemplateError", "TemplateParser", "load", "opens_reasoning"]
