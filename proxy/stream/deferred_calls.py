"""Calls whose input waits for a verdict: does it match the grammar of the tool?

    send(translator.finish())
    while translator.awaiting is not None:
        name, text = translator.awaiting
        send(translator.judge(better_text or None))

Such a call is added to the stream at once, but its input is held until the answer is complete, and with it all that comes
behind the call. Who judges, and how, is not known here. If the stream fails meanwhile, the input goes out as the model wrote
it."""

from __future__ import annotations

from proxy.stream.items.calls import CustomCallItem
from proxy.stream.lifecycle import Lifecycle, Stop


def waiting_call(lifecycle: Lifecycle) -> tuple[str, str] | None:
    """Return the open call that waits, as its chat name and its input. There is none in an answer that was cut."""
    call = lifecycle.call
    if call is None or not call.deferred or lifecycle.finish_reason != "stop" or not lifecycle.is_whole():
        return None
    assert isinstance(call.item, CustomCallItem)
    return call.name, call.item.input_of(call.arguments.text)


def close_judged(lifecycle: Lifecycle, replacement: str | None) -> None:
    """Close the call that waits, with this input in place of its own if it is not None."""
    assert lifecycle.call is not None
    assert isinstance(lifecycle.call.item, CustomCallItem)
    lifecycle.call.item.replacement = replacement
    lifecycle.step(Stop())
