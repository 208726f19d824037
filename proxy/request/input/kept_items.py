"""Items that are kept for later requests, those of a conversation: what no request could build on is refused at once, not by
every request that comes after."""

from __future__ import annotations

from proxy.request.fields import object_list, shown
from proxy.request.input.calls import CALL_TYPES, OUTPUT_TYPES, CallReader, output_call_id
from proxy.request.input.conversation import Conversation
from proxy.request.input.items import entries_at
from proxy.request.input.pairing import Pairing, is_foreign_search
from proxy.request.input.urls import refuse_urls
from proxy.request.loss_report import Ledger
from proxy.request.policy import Policy
from proxy.request.tools.catalog import Catalog
from proxy.request.tools.declarations import ToolReader
from proxy.wire.errors import invalid_request

#: What stands for something else, or asks for it, and is said with the request.
_OF_REQUESTS = frozenset({"item_reference", "compaction_trigger"})


def check_kept_items(items: object, path: str, policy: Policy) -> None:
    """Items on their way into a conversation, from the place `path` of a body. Calls and their outputs may come at different
    times. Raises `ApiError` 400."""
    found, ledger = entries_at(object_list(items, path), path), Ledger()
    for entry in found:
        if entry.kind in _OF_REQUESTS:
            message = f"Invalid value: {shown(entry.kind)} is part of a request, a conversation cannot keep it."
            raise invalid_request(message, f"{entry.path}.type", "invalid_value")
    refuse_urls(found, policy.url_inputs)
    calls = CallReader(Catalog(ToolReader(policy, ledger).brought(found)), ledger)
    for entry in found:
        if entry.kind in CALL_TYPES:
            calls.call(entry)
        elif entry.kind in OUTPUT_TYPES and not is_foreign_search(entry):
            output_call_id(entry)
            calls.output(entry)
    Conversation(policy, Pairing(calls, ledger), ledger).read(found)
