"""What of a request the answer did not honour, which only its end shows: it is in the header of a whole answer,
and of every one in the log and the metrics."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from responses_gateway.request import Loss
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.validity.call_rules import REPAIRS

_NO_LOGPROBS = Loss("parameter", "include", "ignored", "the backend sent no log probabilities")
_NO_CALL = Loss("parameter", "tool_choice", "ignored", "the backend let the model answer without the call that it was to make")
# Items of an answer that are no calls.
_SAID = frozenset({"message", "reasoning", "compaction"})


class _Item(msgspec.Struct):
    type: str


def answer_losses(prepared: PreparedRequest, translator: Translator) -> list[Loss]:
    """Return what an answer that has ended did not honour."""
    losses: list[Loss] = []
    if prepared.options.logprobs and _lacks_logprobs(translator.response.output):
        losses.append(_NO_LOGPROBS)
    if "tool_choice" in prepared.call.body and _lacks_call(prepared, translator):
        losses.append(_NO_CALL)
    repairs = sorted(REPAIRS & translator.lifecycle.repairs.keys())
    if repairs:
        repaired = Loss("item", "function_call", "adapted", f"the arguments of a call were repaired: {', '.join(repairs)}")
        losses += prepared.call.words([repaired])
    return losses


def _lacks_logprobs(output: Sequence[str]) -> bool:
    """Tell whether there are texts, and no log probabilities; `output` is the JSON of the items."""
    texts = [item for item in output if '"type":"output_text"' in item and '"text":""' not in item]
    return bool(texts) and not any('"logprobs":[{' in item for item in texts)


def _lacks_call(prepared: PreparedRequest, translator: Translator) -> bool:
    """Tell whether a call was forced, and the model has ended its answer without any. Servers ignore what they cannot enforce:
    llama.cpp does with a template that has no place for tools."""
    choice = prepared.call.body["tool_choice"]
    forced = isinstance(choice, dict) or choice == "required"
    if not forced or translator.status != "completed" or prepared.options.discarded:
        return False
    return all(msgspec.json.decode(item, type=_Item).type in _SAID for item in translator.response.output)
