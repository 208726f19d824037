"""What operators see: health, readiness, metrics and logs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from responses_gateway.server.generation.in_flight import State
from responses_gateway.simulator import create_app, serving
from responses_gateway.telemetry import logs
from tests.server.running_gateway import RawClient, Served, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, backend, chat_stream, refusing, streaming
from tests.waiting import PATIENCE

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
PREFIX = "responses_gateway_"


async def scraped(served: Served) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Sample name without prefix -> labels -> value."""
    text = (await ask(served, "GET", "/metrics")).body.decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name.removeprefix(PREFIX), {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


# ---- health -----------------------------------------------------------------------------------------------------------


def test_health_is_ours_and_ready_is_the_backends() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            assert (await ask(served, "GET", "/health")).json == {"status": "ok"}
            answer = await ask(served, "GET", "/ready")
            assert (answer.status, answer.json["status"]) == (503, "backend unreachable")
        async with serving(create_app()) as url, gateway(url) as served:
            assert (await ask(served, "GET", "/ready")).json == {"status": "ok"}
        async with backend(refusing(500, b"")) as behind, gateway(behind.url) as served:
            assert (await ask(served, "GET", "/ready")).status == 503
        async with backend(refusing(401, b"")) as behind, gateway(behind.url) as served:
            assert (await ask(served, "GET", "/ready")).status == 200

    run(test())


def test_what_a_single_backend_answers_to_ready_is_in_its_metric() -> None:
    async def test() -> None:
        status = 503

        async def play(connection: Connection) -> None:
            await refusing(status, b"")(connection)

        async with backend(play) as behind, gateway(behind.url) as served:
            name = behind.url.removeprefix("http://")
            assert served.metric("backend_up", backend=name) == 1
            assert (await ask(served, "GET", "/ready")).status == 503
            assert served.metric("backend_up", backend=name) == 0
            status = 200
            assert (await ask(served, "GET", "/ready")).status == 200
            assert served.metric("backend_up", backend=name) == 1

    run(test())


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("webhook_deliveries_total", {"endpoint": "mine", "outcome": "given_up"}),
        ("missed_windows_total", {"window": "2h"}),
        ("missed_windows_total", {"window": "8h"}),
    ],
)
def test_what_an_alert_waits_for_is_zero_before_it_happens(metric: str, labels: dict[str, str]) -> None:
    """Prometheus sees no increase where a series begins."""
    webhooks = {"mine": {"url": "http://127.0.0.1:9/", "secret": "a-text-of-16-bytes-or-more", "private": True}}

    async def test() -> None:
        async with gateway("http://127.0.0.1:9", store="memory", webhooks=webhooks) as served:
            async with asyncio.timeout(PATIENCE):
                while (await scraped(served)).get(metric, {}).get(tuple(sorted(labels.items()))) != 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    run(test())


def test_ready_does_not_wait_for_ever() -> None:
    async def play(connection: Connection) -> None:
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, connect_timeout=0.1) as served:
            assert (await ask(served, "GET", "/ready")).status == 503

    run(test())


def test_a_draining_gateway_is_not_ready_and_takes_no_requests() -> None:
    async def test() -> None:
        async with simulated() as served:
            served.parts.in_flight.enter(State.DRAINING)
            assert (await ask(served, "GET", "/ready")).status == 503
            assert (await ask(served, "GET", "/health")).status == 200
            answer = await post(served)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")

    run(test())


# ---- metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_can_be_switched_off() -> None:
    async def test() -> None:
        async with simulated(metrics="off") as served:
            assert (await ask(served, "GET", "/metrics")).status == 404

    run(test())


def test_the_books_of_one_good_stream() -> None:
    async def test() -> None:
        async with backend(streaming(*chat_stream())) as behind, gateway(behind.url, invariant_sampling=1.0) as served:
            await post(served, model="m", tools=[WEATHER])
            await until(lambda: served.metric("sampled_streams_total") == 1)
            seen = await scraped(served)
            assert seen["requests_total"] == {
                (("api", "responses"), ("model", "m"), ("outcome", "completed"), ("stream", "true")): 1
            }
            assert seen["requests_in_flight"] == {(): 0}
            assert seen["terminal_events_total"] == {(("reason", "none"), ("status", "completed")): 1}
            assert seen["tokens_total"] == {
                (("kind", "input"), ("model", "m")): 9,
                (("kind", "cached"), ("model", "m")): 4,
                (("kind", "output"), ("model", "m")): 7,
                # The backend tells the sum alone: it is shared out by length.
                (("kind", "reasoning"), ("model", "m")): 2,
                (("kind", "text"), ("model", "m")): 2,
                (("kind", "tool_arguments"), ("model", "m")): 3,
            }
            assert {dict(labels)["type"]: value for labels, value in seen["output_items_total"].items()} == {
                "reasoning": 1, "message": 1, "function_call": 1,
            }  # fmt: skip
            deltas = {dict(labels)["type"]: value for labels, value in seen["events_total"].items()}
            assert deltas["response.reasoning_text.delta"] == 2
            assert deltas["response.output_text.delta"] == 2
            assert deltas["response.function_call_arguments.delta"] == 2
            for histogram in ("time_to_first_token_seconds", "time_to_first_visible_token_seconds", "request_duration_seconds"):
                assert seen[f"{histogram}_count"] == {(("model", "m"),): 1}
                assert 0 < seen[f"{histogram}_sum"][("model", "m"),] < 5
            assert seen["malformed_chunks_total"] == {(): 0}
            assert seen["defects_total"] == {(): 0}
            for absent in ("invariant_violations_total", "backend_errors_total", "client_disconnects_total", "repairs_total"):
                assert absent not in seen

    run(test())


def test_the_books_of_what_goes_wrong() -> None:
    async def test() -> None:
        async with simulated(keepalive_comment=0.02, keepalive_event=0.05) as served:
            await post(served, model="sim-long+tokens=400+tps=20000")
            await post(served, input="fault: malformed")
            await post(served, input="fault: error")
            await post(served, input="fault: status=429", stream=False)
            await post(served, input="scenario: plain fault: length=3")
            await post(served, input="scenario: plain fault: slow-headers=0.01,delay=0.2")
            await post(served, input="hi", temperature=9)
            await post(served, input="hi", prompt_cache_key="k", service_tier="flex")
            client = await RawClient.connect(served)
            await client.post(input="tokens: 3000 tps: 100")
            await client.read_until(b"output_text.delta")
            client.close()
            await until(lambda: not served.parts.in_flight.activities)
            seen = await scraped(served)
            outcomes: dict[str, float] = {}
            for labels, value in seen["requests_total"].items():
                outcomes[dict(labels)["outcome"]] = outcomes.get(dict(labels)["outcome"], 0) + value
            assert outcomes == {"completed": 3, "failed": 2, "rejected": 2, "incomplete": 1, "client_disconnected": 1}
            assert seen["malformed_chunks_total"] == {(): 1}
            errors = {dict(labels)["kind"]: value for labels, value in seen["backend_errors_total"].items()}
            assert errors == {"server_error": 2, "rate_limit_exceeded": 1}
            assert seen["client_disconnects_total"] == {(("phase", "stream"),): 1}
            kept = {dict(labels)["kind"]: value for labels, value in seen["keep_alives_total"].items()}
            assert kept["comment"] >= 3
            assert kept["event"] >= 2
            assert any(dict(labels)["name"] == "service_tier" for labels in seen["losses_total"])
            assert seen["inter_token_latency_seconds_count"][("model", "sim-long+tokens=400+tps=20000"),] > 0
            reasons = {dict(labels)["reason"] for labels in seen["terminal_events_total"]}
            assert reasons == {"none", "max_output_tokens", "server_error", "rate_limit_exceeded"}

    run(test())


@pytest.mark.slow
def test_made_up_names_do_not_make_time_series() -> None:
    async def test() -> None:
        hostile = ['m"} 1\n', "a\\", "ü\n", "x" * 4096]
        async with simulated() as served:
            for number in range(300):
                assert (await post(served, model=f"name-{number}", input="scenario: empty", stream=False)).status == 200
            for name in hostile:
                assert (await post(served, model=name, stream=False)).status == 200
            seen = await scraped(served)
            models = {dict(labels)["model"] for labels in seen["requests_total"]}
            assert len(models) == 101
            assert "other" in models
        async with gateway("http://127.0.0.1:9") as served:
            for number in range(50):
                await post(served, model=f"name-{number}", stream=False)
            seen = await scraped(served)
            assert {dict(labels)["model"] for labels in seen["requests_total"]} == {"unknown"}

    run(test())


def test_a_name_of_great_length_is_no_label() -> None:
    async def test() -> None:
        async with simulated() as served:
            for name in ("x" * 4096, "x" * 200):
                assert (await post(served, model=name, stream=False)).status == 200
            seen = await scraped(served)
            assert {dict(labels)["model"] for labels in seen["requests_total"]} == {"other", "x" * 200}

    run(test())


def test_hostile_parameters_do_not_make_time_series() -> None:
    async def test() -> None:
        async with simulated() as served:
            for number in range(50):
                tools = [{"type": f"tool_{number}"}]
                await post(served, {f"parameter_{number}": 1, "tools": tools}, stream=False)
                await post(served, input=[{"type": f"item_{number}"}, {"role": "user", "content": "hi"}], stream=False)
            seen = await scraped(served)
            assert len(seen.get("losses_total", {})) < 20

    run(test())


# ---- logs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Return what was written to standard error, where the logs go, since the last call."""
    watched = [logs.logger(), logging.getLogger("aiohttp.server")]
    before = [(logger.level, logger.handlers, logger.propagate) for logger in watched]
    yield lambda: capsys.readouterr().err
    for logger, (level, handlers, propagate) in zip(watched, before, strict=True):
        logger.level = level
        logger.handlers = handlers
        logger.propagate = propagate


SECRET_WORDS = ("tell nobody", "sk-client-key", "x-private", "Grüße")


async def some_requests() -> None:
    headers = {"Authorization": "Bearer sk-client-key", "X-Private": "x-private", "X-Request-Id": "my-id"}
    async with backend(streaming(*chat_stream())) as behind, gateway(behind.url, access_log=True) as served:
        await post(served, model="m", input="tell nobody", headers=headers)
        await post(served, {"temperature": "tell nobody"}, headers=headers)
    quoting = b'{"error": {"message": "what do you mean by tell nobody", "code": 400}}'
    async with backend(refusing(400, quoting)) as behind, gateway(behind.url, access_log=True) as served:
        await post(served, model="m", input="tell nobody", headers=headers)
    async with gateway("http://127.0.0.1:9", access_log=True) as served:
        await post(served, model="m", input="tell nobody", headers=headers)


def test_json_lines(written: Callable[[], str]) -> None:
    logs.configure("json", "debug")
    run(some_requests())
    text = written()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    done = [line for line in lines if line["message"] == "response"]
    assert sorted(line["outcome"] for line in done) == ["completed", "failed", "rejected", "rejected"]
    assert all(line["request_id"] == "my-id" for line in done)
    (good,) = (line for line in done if line["outcome"] == "completed")
    assert good["response_id"].startswith("resp_")
    assert (good["model"], good["stream"], good["level"]) == ("m", True, "info")
    assert (good["input_tokens"], good["output_tokens"]) == (9, 7)
    assert (good["reasoning_tokens"], good["tokens_from"]) == (2, "estimate")
    assert 0 <= good["first_token"] <= good["seconds"] < 5
    ours, theirs, down = (line for line in done if line["outcome"] != "completed")
    assert (ours["status"], ours["param"]) == (400, "temperature")
    assert (theirs["status"], theirs["code"]) == (400, "invalid_prompt")
    assert (down["status"], down["level"]) == (502, "warning")
    assert "cannot be reached" in down["error"]
    assert [word for word in SECRET_WORDS if word in text] == []


@pytest.mark.parametrize("asked_for", [False, True])
def test_the_words_of_a_failing_backend_are_logged_if_asked_for(written: Callable[[], str], asked_for: bool) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"access_log": True, "log_backend_errors": asked_for}
        words = b'{"error": {"message": "out of memory at: tell nobody"}}'
        async with backend(refusing(503, words)) as behind, gateway(behind.url, **settings) as served:
            assert b"out of memory" in (await post(served, input="tell nobody")).body

    logs.configure("json", "debug")
    run(test())
    said = written()
    assert ("out of memory" in said) == asked_for
    assert '"code": "server_error"' in said


def test_text_lines(written: Callable[[], str]) -> None:
    logs.configure("text", "info")
    run(some_requests())
    text = written()
    lines = [line for line in text.splitlines() if " response " in line]
    assert len(lines) == 4
    assert [line for line in text.splitlines() if " request " in line] == []  # one line tells all of a request
    (good,) = (line for line in lines if "outcome=completed" in line)
    for part in (
        " info ",
        " response ",
        "request_id=my-id",
        "model=m",
        "output_tokens=7",
        "seconds=",
        "path=/v1/responses status=200",
    ):
        assert part in good
    assert [word for word in SECRET_WORDS if word in text] == []


def test_the_window_fills_no_log(written: Callable[[], str]) -> None:
    """Who opens it would see the commands of the start go out of sight."""

    async def test() -> None:
        async with simulated(access_log=True, ui="open") as served:
            assert (await ask(served, "GET", "/ui/")).status == 200
            assert (await ask(served, "GET", "/ui/api.js")).status == 200
            assert (await ask(served, "GET", "/ui/nothing.js")).status == 404

    logs.configure("text", "info")
    run(test())
    (line,) = written().splitlines()
    assert " warning " in line
    assert "path=/ui/nothing.js status=404" in line


def test_no_line_can_be_forged(written: Callable[[], str]) -> None:
    logs.configure("text", "info")

    async def test() -> None:
        async with simulated(access_log=True) as served:
            forged = "m\n2026-01-01 error forged\r\x1b[2J\u2028"
            await post(served, model=forged)
            await ask(served, "GET", f"/v1/models/{quote(forged)}")

    run(test())
    text = written()
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text


def test_broken_http_is_no_line(written: Callable[[], str]) -> None:
    """Hostile HTTP is answered, and leaves neither a traceback nor its bytes in the log."""
    logs.configure("text", "info")

    async def test() -> None:
        async with backend(streaming(HEAD)) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(b"GET / HTTP/1.1\r\nAuthorization: sk-client-key" + b"x" * 100_000 + b"\r\n\r\n")
            with suppress(ConnectionError):
                await client.read_all()
            client.close()

    run(test())
    assert written() == ""
