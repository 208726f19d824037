"""Calls whose input waits for a verdict: does it match the grammar of the tool?

    send(translator.finish())
    while translator.awaiting is not None:
        name, text = translator.awaiting
        if translator.unclosed and not matches(name, text):
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

from proxy.stream.items.calls import CustomCallItem
from proxy.stream.lifecycle.machine import Lifecycle, Stop
from proxy.wire.tools import Grammar


def waiting_call(lifecycle: Lifecycle, grammars: Mapping[str, Grammar]) -> tuple[str, str] | None:
    """Return the open call that waits, as its chat name and its input. There is none in an answer that was cut."""
    call = lifecycle.call
    if call is None or lifecycle.finish_reason != "stop" or not isinstance(call.item, CustomCallItem):
        return None
    if call.deferred and call.whole:
        return call.name, call.item.input_of(call.arguments.text)
    if is_unclosed(lifecycle) and call.name in grammars:
        return call.name, call.item.input_of(call.arguments.text)
    return None


def is_unclosed(lifecycle: Lifecycle) -> bool:
    """Tell whether the open call is one of a custom tool whose input is not closed."""
    call = lifecycle.call
    return call is not None and isinstance(call.item, CustomCallItem) and call.item.expected and not (call.whole or call.cut)


def close_judged(lifecycle: Lifecycle, replacement: str | None) -> None:
    """Close the call that waits, with this input in place of its own if it is not None."""
    assert lifecycle.call is not None
    assert isinstance(lifecycle.call.item, CustomCallItem)
    lifecycle.call.accepted = True
    lifecycle.call.item.replacement = replacement
    lifecycle.step(Stop())
