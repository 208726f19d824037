"""`docs/observability.md` is what the gateway does: its metrics, its fields, its queries."""

from __future__ import annotations

import io
import json
import logging
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import Counter, Gauge, Histogram
from tests.ports import free_port
from tests.server.fleet_of_simulators import ask, fleet
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.running_gateway import gateway, post, run, simulated
from tests.telemetry.traffic import busy_gateway, send_everything

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
KEY = "a-key-of-a-client-that-is-long-enough"
JQ = shutil.which("jq")


def documented() -> set[str]:
    """Return the names of fields in the table of the log line."""
    table = DOCUMENT.partition("| field | meaning |")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def examples(message: str = "response") -> list[dict[str, Any]]:
    blocks = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    (block,) = [block for block in blocks if f'"message": "{message}"' in block]
    return [json.loads(line) for line in block.splitlines()]


def test_the_table_of_metrics_is_up_to_date() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["with_metrics"](DOCUMENT)
    assert written == DOCUMENT, "run `make docs`"
    assert "`responses_gateway_requests_total` (counter; `model`, `outcome`, `stream`, `api`): " in DOCUMENT


def test_no_room_has_a_metric_that_the_table_has_not() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("responses_gateway.")]
    defined = {value for module in modules for value in vars(module).values() if isinstance(value, Counter | Gauge | Histogram)}
    assert len(defined) > 60
    assert [metric.name for metric in defined if f"- `responses_gateway_{metric.name}` (" not in DOCUMENT] == []


def test_every_field_is_explained_and_the_examples_have_no_others() -> None:
    """Compare with the fields of real lines, of all kinds of requests."""
    before = logs.logger().level, logs.logger().handlers, logs.logger().propagate
    logs.configure("json", "info")
    (handler,) = logs.logger().handlers
    assert isinstance(handler, logging.StreamHandler)
    output = io.StringIO()
    handler.setStream(output)

    async def test() -> None:
        async with busy_gateway(access_log=True) as served:
            await send_everything(served)
        key = {"hash": hash_of(KEY), "team": "red"}
        async with simulated(access_log=True, api_keys={"alice": key}, teams={"red": {}}) as served:
            agent = {"X-Session-Id": "child", "X-Parent-Session-Id": "run-7"}
            await post(served, headers={"Authorization": f"Bearer {KEY}", **agent})
            await post(served)  # without a key
        async with model(calls(("docs__fail", {})), says("Sorry."), mcp_servers=DOCS, access_log=True) as (hosting, _):
            await post(hosting, tools=[MCP])
        tool = {"type": "function", "name": "read_file"}
        async with model(says(""), says("Done."), continue_early_ends="certain", access_log=True) as (going_on, _):
            await post(going_on, tools=[tool])
        async with gateway(f"http://127.0.0.1:{free_port()}/v1", access_log=True) as served:
            await post(served)  # of which nobody is there
        async with fleet(access_log=True) as served:
            await ask(served, "plain", "drop=2,times=1")
            await post(served, input="fault: drop=2", text={"format": {"type": "json_object"}})
            for instructions in ("long " * 40, "other " * 40):  # loses what a backend has cached
                await post(served, instructions=instructions, prompt_cache_key="session")

    try:
        run(test())
        logs.flush()
    finally:
        logs.logger().level, logs.logger().handlers, logs.logger().propagate = before
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    responses = [line for line in lines if line["message"] == "response"]
    seen = {name for line in responses for name in line}
    assert seen - documented() == set()
    assert documented() - seen == set()
    requests = [line for line in lines if line["message"] == "request"]
    text = DOCUMENT.partition("### Other requests")[2].partition("### Other records")[0]
    for example in examples("request"):
        assert set(example) <= {name for line in requests for name in line}
    assert [name for line in requests for name in line if f"`{name}`" not in text and name not in documented()] == []
    for example in examples():
        assert set(example) <= documented()
        order = next(line for line in responses if line["outcome"] == example["outcome"])
        shared = [name for name in order if name in example]
        assert [name for name in example if name in order] == shared  # in the order in which they are written


@pytest.mark.skipif(JQ is None, reason="there is no jq here")
def test_the_jq_commands_find_what_they_say(tmp_path: Path) -> None:
    (block,) = re.findall(r"With `jq`:\n\n```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    commands = [line for line in block.splitlines() if not line.startswith("#")]
    gone = {**examples()[0], "delivery": "client_left"}
    (tmp_path / "gateway.log").write_text("\n".join(map(json.dumps, [*examples(), gone])), encoding="utf-8")
    said = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said[0].splitlines()[0].startswith("[0.318,")
    assert "The connection to the backend broke" in said[1]
    assert json.loads(said[2])["output_tokens"] == 402
    assert json.loads(said[3]) == {"qwen3": 804}


@pytest.mark.skipif(JQ is None, reason="there is no jq here")
def test_the_failed_requests_of_one_user_are_found_in_lines_of_json(tmp_path: Path) -> None:
    command = re.findall(r"^jq -c 'select\(.level .*$", DOCUMENT, re.MULTILINE)[0]
    ours = {"level": "warning", "message": "response", "key": "alice", "error": "the backend is down"}
    others = [{**ours, "key": "bob"}, {**ours, "level": "info"}]
    (tmp_path / "gateway.log").write_text("\n".join(map(json.dumps, [*others, ours])), encoding="utf-8")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ours


def test_every_link_leads_somewhere() -> None:
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^):]+)\)", DOCUMENT)]
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []
