"""The client's trace goes on to the backend, whether or not there are traces of our own."""

from __future__ import annotations

import pytest

from responses_gateway.telemetry.tracing import trace_headers
from tests.server.running_gateway import gateway, post, run
from tests.server.scripted_backend import Backend, backend, streaming, text_stream

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def header(behind: Backend, name: str) -> str | None:
    """Return what came to the backend with its last request."""
    lines = behind.requests[-1].partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    found = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.lower() == name]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"traceparent": PARENT}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a=1,b=2"}, {"traceparent": PARENT, "tracestate": "a=1,b=2"}),
        ({"traceparent": PARENT, "tracestate": "x" * 513}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a=1\r\nx: y"}, {"traceparent": PARENT}),
        ({"tracestate": "a=1"}, {}),
        ({"traceparent": PARENT.upper()}, {}),
        ({"traceparent": PARENT + "\r\nX-Evil: 1"}, {}),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, {}),
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, {}),
        ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, {}),
    ],
)
def test_only_a_valid_trace_is_carried(given: dict[str, str], sent: dict[str, str]) -> None:
    assert trace_headers(given) == sent


def test_the_clients_trace_reaches_the_backend() -> None:
    async def test() -> None:
        async with backend(streaming(*text_stream("hi"))) as behind, gateway(behind.url) as served:
            await post(served, headers={"Traceparent": PARENT, "Tracestate": "vendor=1"})
            assert (header(behind, "traceparent"), header(behind, "tracestate")) == (PARENT, "vendor=1")
            await post(served)
            assert header(behind, "traceparent") is None

    run(test())
