"""Fields that the gateway adds to a chat request on its own: given up where a strict server refuses them.

Only the very values that the gateway adds are ever left out, or those that mean the same as no value: what a client asked for
stays. A refusal is believed once the same request without the field is accepted."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

# Answers that may be the refusal of a field.
REFUSALS = frozenset({400, 422})
# The fields, with the values that may be left out. The last two are defaults of the API.
_OPTIONAL: dict[str, Any] = {
    "return_token_ids": True,
    "stream_options": {"include_usage": True},
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
}
# How often a request is repeated: a server may name one field at a time.
ATTEMPTS = len(_OPTIONAL)
_NAMES = re.compile(rf"(?<![\w.])(?:{'|'.join(_OPTIONAL)})(?!\w)")
# Words of a refusal, and within how many characters of the name of a field they have to stand: transformers ("Unexpected fields
# in the request: {…}"), pydantic ("Extra inputs are not permitted", with the place), OpenAI ("Unknown parameter", "Unrecognized
# request argument"), serde ("unknown field"), Google ("Cannot find field"), Groq ("property … is unsupported"), LiteLLM
# ("does not support parameters"), JSON schema ("Additional properties are not allowed").
_WORDS = re.compile(
    r"unexpected|unknown|unrecogni[sz]ed|unsupported|forbidden|extra (?:inputs|fields)|cannot find|"
    r"\bnot (?:be )?(?:permitted|allowed|supported|support|accepted|recogni[sz]ed)|additional propert",
    re.IGNORECASE,
)
# How many characters before or after the name of a field such a word may stand.
_REACH = 240


def refused_fields(refusal: bytes) -> frozenset[str]:
    """Return the optional fields that the body of an answer 400 or 422 refuses by name."""
    text = refusal.decode("utf-8", "replace")
    return frozenset(
        name[0] for name in _NAMES.finditer(text) if _WORDS.search(text, max(0, name.start() - _REACH), name.end() + _REACH)
    )


def without(body: bytes, names: Collection[str]) -> bytes:
    """Return a chat request without these optional fields; the others stay byte for byte as they were."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    dropped = [name for name in names if name in fields and msgspec.json.decode(fields[name]) == _OPTIONAL[name]]
    for name in dropped:
        del fields[name]
    return msgspec.json.encode(fields) if dropped else body
