"""Metrics under the names of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from responses_gateway.server.generation.request_log.facts import NO_GAPS, StreamTimes
from responses_gateway.telemetry.gen_ai import CallTiming, GenAiMetrics, PrometheusSink
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.running_gateway import Served, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import backend, chat_stream, streaming
from tests.telemetry.collector import collector

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
            assert f"# TYPE {prefix}_time_per_output_chunk_seconds histogram" in text
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


def test_the_time_per_chunk_is_the_mean_of_an_answer() -> None:
    times = StreamTimes(0.0, list(NO_GAPS))
    for reads, mean in (([1.0], None), ([1.25, 1.5], 0.25), ([2.5], 0.5)):
        times.reads += reads
        times.count_gaps()
        assert times.turn_gap == mean
    times.between_turns = True
    times.reads += [8.0, 9.0]
    times.count_gaps()
    assert times.turn_gap == 1.0
    registry = CollectorRegistry()
    metrics = GenAiMetrics([PrometheusSink(registry)], "latest")
    metrics.called("m", CallTiming(2.0, 0.5, 0.25), None, None)
    metrics.called("m", CallTiming(2.0), None, "server_error")
    text = generate_latest(registry).decode()
    assert next(line for line in text.splitlines() if "time_per_output_chunk_seconds_sum" in line).endswith(" 0.25")
    assert next(line for line in text.splitlines() if "time_per_output_chunk_seconds_count" in line).endswith(" 1.0")


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


def test_numbers_go_to_the_collector_of_the_traces_as_well() -> None:
    async def test() -> None:
        async with collector() as theirs:
            async with simulated(gen_ai_metrics="latest", otel_endpoint=theirs.url) as served:
                usage = (await post(served)).final["usage"]
            (duration,) = theirs.numbers["gen_ai.client.inference.duration"]
            assert (duration["count"], duration["unit"], duration["gen_ai.operation.name"]) == (1, "s", "chat")
            (counted,) = theirs.numbers["gen_ai.client.inference.usage.output_tokens"]
            assert (counted["sum"], counted["unit"]) == (usage["output_tokens"], "{token}")

    run(test())


def test_calls_of_tools_are_observed() -> None:
    async def test() -> None:
        made = calls(("docs__add", {"a": 1, "b": 2}), ("docs__fail", {}))
        async with model(made, says("Ok."), mcp_servers=DOCS, gen_ai_metrics="1.44") as (served, _):
            await post(served, model="m", tools=[MCP])
            text = _sorted(await shown(served))
        for failed in ("", "tool_error"):
            tool = f'error_type="{failed}",gen_ai_operation_name="execute_tool",gen_ai_tool_name="mcp"'
            assert f"gen_ai_execute_tool_duration_seconds_count{{{tool}}} 1.0" in text
            mcp = f'error_type="{failed}",mcp_method_name="tools/call",network_transport="pipe"'
            assert f"mcp_client_operation_duration_seconds_count{{{mcp}}} 1.0" in text

    run(test())
