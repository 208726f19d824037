"""Items of the Responses API that are done, as JSON: what the client gets, and what the gateway keeps of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from responses_gateway.stream.writer.interface import ItemStatus, Phase, TextKind
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.json_text import json_text, quote
from responses_gateway.wire.tools import ToolTarget

# What OpenAI writes for a token that was out of the question; JSON has no -Infinity, and no other infinity.
_LEAST_LOGPROB = -9999.0


def reasoning(item_id: str, status: ItemStatus, text: str, *, summary: bool, sealed: str | None, details: str = "") -> str:
    """Return a reasoning item, given its text as JSON: as content and, with `summary`, once more as a summary part. Without a
    text it has no parts."""
    content = reasoning_part(text) if text else ""
    parts = summary_part(text) if summary else ""
    wanted = f',"reasoning_details":{details}' if details else ""
    encrypted = "" if sealed is None else f',"encrypted_content":{quote(sealed)}'
    head = f'{{"type":"reasoning","id":"{item_id}","status":"{status}"'
    return f'{head},"summary":[{parts}],"content":[{content}]{wanted}{encrypted}}}'


def message(item_id: str, status: ItemStatus, part: str, phase: Phase) -> str:
    """Return a message with one part, given as JSON."""
    told = f'"phase":"{phase}",' if phase else ""
    return f'{{"type":"message","id":"{item_id}","status":"{status}","role":"assistant",{told}"content":[{part}]}}'


def reasoning_part(text: str) -> str:
    """Return the content part of reasoning, given its text as JSON."""
    return f'{{"type":"reasoning_text","text":{text}}}'


def summary_part(text: str) -> str:
    """Return the summary part of reasoning, given its text as JSON."""
    return f'{{"type":"summary_text","text":{text}}}'


def message_part(kind: TextKind, text: str, logprobs: str, annotations: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the part of a message; `text` and `logprobs` are JSON."""
    if kind == "refusal":
        return f'{{"type":"refusal","refusal":{text}}}'
    notes = json_text(annotations) if annotations else "[]"
    return f'{{"type":"output_text","text":{text},"annotations":{notes},"logprobs":{logprobs}}}'


def logprobs_json(logprobs: Sequence[TokenLogprob]) -> str:
    """Return log probabilities as the Responses API has them."""
    if not logprobs:
        return "[]"
    return json_text(
        [
            {
                "token": entry.token,
                "logprob": _finite(entry.logprob),
                "bytes": entry.bytes or [],
                "top_logprobs": [
                    {"token": top.token, "logprob": _finite(top.logprob), "bytes": top.bytes or []}
                    for top in entry.top_logprobs or ()
                ],
            }
            for entry in logprobs
        ]
    )


def call_begun(kind: str, item_id: str, call_id: str, target: ToolTarget) -> str:
    """Return the JSON that the item of a call begins with."""
    namespace = "" if target.namespace is None else f',"namespace":{quote(target.namespace)}'
    later = ',"async":true' if target.asynchronous else ""
    named = f'"call_id":{quote(call_id)},"name":{quote(target.name)}{namespace}{later}'
    return f'{{"type":"{kind}","id":"{item_id}",{named}'


def extra_member(extra: str) -> str:
    """Return the member of a call that the server wants back with it, given as JSON; empty if there is none."""
    return f',"extra_content":{extra}' if extra else ""


def _finite(logprob: float) -> float:
    return min(-_LEAST_LOGPROB, max(_LEAST_LOGPROB, logprob))
