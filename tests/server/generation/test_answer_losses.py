"""What an answer does not honour of its request is on record as other losses are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running_gateway import gateway, post, run
from tests.server.scripted_backend import backend, chunk, streaming, text_stream

LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
CHOICE = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [LOGPROB]}}
SENT = [chunk(choices=[CHOICE]), chunk({}, "stop"), b"data: [DONE]\n\n"]
ASKED: dict[str, Any] = {"include": ["message.output_text.logprobs"]}


@pytest.mark.parametrize(
    ("answer", "asked", "lost"),
    [
        (text_stream('Hi: "logprobs":[{'), ASKED, True),
        (SENT, ASKED, False),
        (text_stream("Hi"), {}, False),
        (text_stream(), ASKED, False),
    ],
)
def test_log_probabilities_that_were_asked_for_and_not_sent_are_a_loss(
    answer: list[bytes], asked: dict[str, Any], lost: bool
) -> None:
    async def test() -> None:
        async with backend(streaming(*answer)) as behind, gateway(behind.url) as served:
            whole = await post(served, stream=False, **asked)
            assert whole.status == 200
            assert ('ignored="parameter:include"' in whole.headers.get("x-responses-gateway-losses", "")) is lost
            await post(served, **asked)
            labels = {"kind": "parameter", "name": "include", "outcome": "ignored"}
            served.parts.metrics.flush()
            counted = served.parts.metrics.registry.get_sample_value("responses_gateway_losses_total", labels)
            assert counted == (2 if lost else None)

    run(test())
