"""Metrics under the names of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running_gateway import Served, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import backend, chat_stream, streaming

LABELS = 'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="simulator"'


async def shown(served: Served) -> str:
    await until(lambda: not served.parts.in_flight.activities, "the exchange has ended")
    return (await ask(served, "GET", "/metrics")).body.decode()


@pytest.mark.parametrize(
    ("names", "prefix", "tokens"),
    [
        ("1.44", "gen_ai_client_operation", 'gen_ai_client_token_usage_sum{%s,gen_ai_token_type="input"}'),
        ("latest", "gen_ai_client_inference", "gen_ai_client_inference_operation_input_tokens_sum{%s}"),
    ],
)
def test_a_request_to_a_backend_is_observed(names: Any, prefix: str, tokens: str) -> None:
    async def test() -> None:
        async with simulated(gen_ai_metrics=names) as served:
            usage = (await post(served)).final["usage"]
            text = await shown(served)
            # Prometheus sorts the labels of a sample as they were declared.
            assert f'{prefix}_duration_seconds_count{{error_type="",{LABELS}}} 1.0' in _sorted(text)
            assert f"{prefix}_time_to_first_chunk_seconds_count{{{LABELS}}} 1.0" in _sorted(text)
            assert f"{tokens % LABELS} {float(usage['input_tokens'])}" in _sorted(text)

    run(test())


def _sorted(text: str) -> str:
    """Return samples with their labels in order."""
    lines = []
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        labels, _, value = rest.partition("}")
        lines.append(f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}" if brace else line)
    return "\n".join(lines)


def test_a_failure_has_its_type_and_without_the_setting_there_is_nothing() -> None:
    async def test() -> None:
        async with backend(streaming(*chat_stream()[:4])) as behind:
            async with gateway(behind.url, gen_ai_metrics="latest") as served:
                await post(served, model="m")
                failed = [line for line in (await shown(served)).splitlines() if "duration_seconds_count{" in line]
                assert any('gen_ai_request_model="m"' in line and 'error_type="server_error"' in line for line in failed)
            async with gateway(behind.url) as served:
                await post(served, model="m")
                assert "gen_ai_" not in await shown(served)

    run(test())
