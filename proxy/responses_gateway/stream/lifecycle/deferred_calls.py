"""Calls whose input waits for a verdict: does it match the grammar of the tool?

    send(translator.finish())
    while isinstance(translator.needs, Verdict):
        name, text, unclosed = translator.needs
        if unclosed and not matches(name, text):
            send(translator.refuse())
        else:
            send(translator.judge(better_text or None))

Such a call is added to the stream at once, but its input is held until the answer is complete, and with it all that comes
behind the call. Who judges, and how, is not known here. If the stream fails meanwhile, the input goes out as the model wrote
it.

An input that the model did not close (`unclosed`) waits for a verdict in any case, though it was streamed: it is handed over
only if the grammar accepts it, and never corrected. Else, and without a verdict, the call is incomplete."""

from __future__ import annotations

from collections.abc import Mapping

from responses_gateway.stream.items.calls import CustomCallItem
from responses_gateway.stream.lifecycle.machine import Lifecycle, Stop
from responses_gateway.stream.lifecycle.needs import Verdict
from responses_gateway.wire.tools import Grammar


def waiting_call(lifecycle: Lifecycle, grammars: Mapping[str, Grammar]) -> Verdict | None:
    """Return the verdict that the open call waits for. None is needed in an answer that was cut."""
    call = lifecycle.call
    if call is None or lifecycle.turn.finish_reason != "stop" or not isinstance(call.item, CustomCallItem):
        return None
    unclosed = call.item.expected and not (call.whole or call.cut)
    if (call.deferred and call.whole) or (unclosed and call.name in grammars):
        return Verdict(call.name, call.item.input_of(call.arguments.text), unclosed)
    return None


def close_judged(lifecycle: Lifecycle, replacement: str | None) -> None:
    """Close the call that waits, with this input in place of its own if it is not None."""
    assert lifecycle.call is not None
    assert isinstance(lifecycle.call.item, CustomCallItem)
    lifecycle.call.accepted = True
    lifecycle.call.item.replacement = replacement
    lifecycle.step(Stop())
