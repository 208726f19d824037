"""Dashboards and rules against our own metrics: what they ask for is there, as a real Prometheus sees it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from responses_gateway.server.metrics import METRICS
from tests.server.gateway_process import program
from tests.server.running_gateway import run
from tests.telemetry.draw_dashboards import PICTURES, picture
from tests.telemetry.prometheus import PROMETHEUS, PROMTOOL, Prometheus, prometheus
from tests.telemetry.traffic import REQUESTS, busy_gateway, send_everything, send_requests
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES = sorted((ROOT / "deploy" / "prometheus").glob("*.yml"))
# What has no series in the traffic of this test: a gateway that does well, without keys and TLS, with one backend.
LAWFULLY_EMPTY = {
    "invariant_violations_total", "token_disagreements_total", "key_requests_total", "key_tokens_total",
    "key_time_to_first_token_seconds_bucket", "key_request_duration_seconds_bucket",
    "access_refusals_total", "backend_retries_total", "continuations_total", "queue_rejections_total",
    "queue_wait_seconds_bucket", "pool_members", "pool_source_stale_seconds", "hosted_calls_total",
    "hosted_call_duration_seconds_bucket", "quota_used_ratio", "quota_warnings_total",
    "webhook_deliveries_total", "missed_windows_total", "moderation_judgements_total", "worker_deaths_total",
    "certificate_expiry_timestamp_seconds",
}  # fmt: skip
# What parts of the gateway that may not be there bring with them: keys, quotas, a pool of backends, several processes.
OPTIONAL = {
    "backend_up", "backend_requests", "backend_requests_in_flight", "backend_breaker_state", "backend_retries", "continuations",
    "queued_requests", "queue_wait_seconds", "queue_rejections", "key_requests", "key_tokens", "access_refusals",
    "build_info", "workers", "pool_members", "pool_source_stale_seconds",
    "quota_used_ratio", "quota_warnings",
}  # fmt: skip

needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here (scripts/install-servers)")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here (scripts/install-servers)")


def pictures(page: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in page["panels"] if panel["type"] != "row"]


def pages() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in DASHBOARDS:
        yield path.name, json.loads(path.read_text(encoding="utf-8"))


def questions() -> list[tuple[str, str]]:
    """Return where each query of a dashboard is, and what it asks, with the variables filled in as Grafana does."""
    found = []
    for name, page in pages():
        for panel in pictures(page):
            found += [(f"{name}: {panel['title']}", target["expr"]) for target in panel["targets"]]
        found += [(f"{name}: annotation", each["expr"]) for each in page["annotations"]["list"]]
    values = {"$job": ".*", "$instance": ".*", "$model": ".*", "$__rate_interval": "1m", "$__range": "1m"}
    for variable, value in values.items():
        found = [(place, expression.replace(variable, value)) for place, expression in found]
    return found


def rules() -> list[dict[str, Any]]:
    files = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULES)
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def names_in(expression: str) -> set[str]:
    """Return the gateway's metrics that a query reads."""
    return set(re.findall(r"(?<![:\w])(?:responses_gateway|process)_\w+", expression))


def families() -> set[str]:
    """Return the metrics that this gateway has, without prefix."""
    return {metric.name.removesuffix("_total") for metric in METRICS}


def may_be_empty(expression: str) -> bool:
    """Tell whether a query may find nothing here."""
    absent = OPTIONAL - families()
    names = {name.removeprefix("responses_gateway_") for name in names_in(expression)}
    return any(name in LAWFULLY_EMPTY or re.sub("_(total|bucket)$", "", name) in absent for name in names)


# ---- as they stand ----------------------------------------------------------------------------------------------------


def test_the_dashboards_are_up_to_date() -> None:
    script = ROOT / "scripts" / "monitoring_files.py"
    assert subprocess.run([sys.executable, str(script)], check=False).returncode == 0, "run `make docs`"


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for name, page in pages():
        for panel in pictures(page):
            place = f"{name}: {panel['title']}"
            assert len(panel["description"]) > 10, place
            assert panel["fieldConfig"]["defaults"]["unit"], place
            assert panel["datasource"]["uid"] == "${datasource}", place
            assert all(target["legendFormat"] for target in panel["targets"]), place


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_show_the_panels_under_the_titles_that_they_have(name: str) -> None:
    page = json.loads((ROOT / "deploy" / "grafana" / f"{name}.json").read_text(encoding="utf-8"))
    drawn = re.findall(r">([^<>]+)</text>", (ROOT / "docs" / "images" / f"dashboard-{name}.svg").read_text(encoding="utf-8"))
    titles = [panel["title"] for panel in page["panels"] if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= PICTURES[name]]
    assert page["title"] in drawn
    missing = [title for title in titles if title not in drawn and f"▾ {title}" not in drawn]
    assert missing == [], "run python -m tests.telemetry.draw_dashboards"


def test_a_picture_shows_values_in_the_units_of_their_panels() -> None:
    panel = {"id": 1, "type": "stat", "title": "First token", "gridPos": {"x": 0, "y": 0, "w": 4, "h": 4}}
    panel["fieldConfig"] = {"defaults": {"unit": "s"}}
    drawn = picture({"title": "A < B", "panels": [panel]}, 4, {1: [("p95", [(0.0, 1.0), (1.0, 0.25)])]}, (0.0, 1.0))
    assert "A &lt; B" in drawn
    assert ">250 ms</text>" in drawn


def test_no_panel_lies_on_another() -> None:
    for name, page in pages():
        taken: dict[tuple[int, int], str] = {}
        for panel in page["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, f"{name}: {panel['title']} on {taken.get((x, y))}"
                    taken[x, y] = panel["title"]
        ids = [panel["id"] for panel in page["panels"]]
        assert len(set(ids)) == len(ids)


def test_variables_are_there_for_what_queries_filter_by() -> None:
    for name, page in pages():
        text = json.dumps([panel.get("targets") for panel in page["panels"]])
        used = set(re.findall(r"\$\{?([a-z]+)", text))
        assert used <= {variable["name"] for variable in page["templating"]["list"]}, name


def test_every_metric_is_on_a_dashboard() -> None:
    shown = " ".join(expression for _, expression in questions())
    assert [name for name in families() if f"responses_gateway_{name}" not in shown] == []


def test_every_alert_says_what_to_do() -> None:
    document = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    headings = {re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-") for line in document.splitlines()
                if line.startswith("#")}  # fmt: skip
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) > 10
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
        path, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert (path, anchor) == ("docs/observability.md", alert["alert"].lower())
        assert anchor in headings


@needs_promtool
def test_the_rules_are_well_formed_and_do_what_they_should() -> None:
    assert PROMTOOL is not None
    for arguments in (["check", "rules", *map(str, RULES)], ["test", "rules", str(ROOT / "tests/telemetry/alerts.test.yml")]):
        done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ---- against real metrics ---------------------------------------------------------------------------------------------


async def empty_questions(server: Prometheus) -> list[str]:
    answers = await asyncio.gather(*(server.query(expression) for _, expression in questions()))
    return [
        f"{place}: {expression}"
        for (place, expression), answer in zip(questions(), answers, strict=True)
        if not answer and not may_be_empty(expression) and not place.endswith(": annotation")
    ]


async def empty_rules(server: Prometheus) -> list[str]:
    """Recorded series that are not there, metrics and labels that alerts ask for in vain."""
    recorded = [rule["record"] for rule in rules() if "record" in rule]
    wanted = sorted({name for rule in rules() for name in names_in(rule["expr"])})
    wanted = [name for name in wanted if not may_be_empty(name)]
    answers = await asyncio.gather(*(server.query(name) for name in [*recorded, *wanted]))
    return [name for name, answer in zip([*recorded, *wanted], answers, strict=True) if not answer]


async def eventually(missing: Callable[[], Awaitable[list[str]]]) -> None:
    """Wait until nothing is missing any more."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while found := await missing():
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.1)


@needs_prometheus
def test_every_query_finds_data(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            served = await stack.enter_async_context(busy_gateway(store="memory"))
            server = await stack.enter_async_context(prometheus(tmp_path, [served.url.removeprefix("http://")], RULES))
            # A rate needs a series that grows while it is watched: once for the series to be there, once to grow.
            for total in (len(REQUESTS) + 1, 2 * (len(REQUESTS) + 1)):
                await send_everything(served)
                await server.wait_for(f"sum(responses_gateway_requests_total) == {total}")
            await server.wait_for("job:responses_gateway_client_disconnects:ratio_rate15m > 0")
            # A scrape that takes too long on a busy machine leaves a gap: the questions are asked until the next one is there.
            await eventually(lambda: empty_questions(server))
            await eventually(lambda: empty_rules(server))
            groups = (await server.ask("rules"))["groups"]
            assert [rule for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []

            async def labels_of(metric: str, label: str) -> set[str]:
                return {labels[label] for labels, _ in await server.query(f"last_over_time(responses_gateway_{metric}[1m])")}

            # What the alerts look at by value is what the gateway says.
            outcomes = await labels_of("requests_total", "outcome")
            assert outcomes == {"completed", "incomplete", "failed", "rejected", "client_disconnected"}
            kinds = await labels_of("backend_errors_total", "kind")
            assert kinds == {"server_error", "rate_limit_exceeded", "invalid_prompt"}
            assert await labels_of("tokens_total", "kind") >= {"input", "cached", "output"}
            await server.wait_for('ALERTS{alertstate="firing"}')
            firing = {
                labels["alertname"] for labels, _ in await server.query('last_over_time(ALERTS{alertstate="firing"}[1m])')
            }
            assert firing == {"ResponsesGatewayMalformedChunks"}

    run(test())


@needs_prometheus
def test_every_query_finds_data_of_several_workers(tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite3")
    flags = ("--simulator", "--workers", "2", "--store", store, "--no-adapt", "--invariant-sampling", "1")
    fast = ("--keepalive-comment", "0.02", "--keepalive-event", "0.05")

    async def test() -> None:
        async with AsyncExitStack() as stack:
            running = await stack.enter_async_context(program(*flags, *fast))
            target = running.url.removeprefix("http://")
            server = await stack.enter_async_context(prometheus(tmp_path, [target], RULES))
            for total in (len(REQUESTS) + 1, 2 * (len(REQUESTS) + 1)):
                await send_requests(running)
                await server.wait_for(f"sum(responses_gateway_requests_total) == {total}")
            await server.wait_for("job:responses_gateway_client_disconnects:ratio_rate15m > 0")
            await eventually(lambda: empty_questions(server))
            await eventually(lambda: empty_rules(server))
            assert await server.value("process_open_fds / process_max_fds < 0.8")
            assert await server.value("process_resident_memory_bytes > 1e8")  # of both

    run(test())
