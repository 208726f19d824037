"""The gateway without one of its features: it starts, answers, and does not know the feature's settings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.standard import FEATURES
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import SECTIONS, Settings, SettingsError
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.simulator import serving
from scripts import structure
from tests.server.running_gateway import RawClient, gateway, post, run
from tests.thoroughness import one_in
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "proxy" / "responses_gateway"
BY_NAME = pytest.mark.parametrize("feature", FEATURES, ids=[feature.name for feature in FEATURES])
# A setting of each section that only a feature reads.
GIVEN: dict[str, dict[str, Any]] = {
    "agent_turns": {"continue_early_ends": "all"},
    "hosted_tools": {"hosted_call_timeout": 3},
    "moderation": {"moderation_model": "guard"},
    "safeguards": {"safeguards_model": "judge"},
    "tool_calls": {"repair_calls": "off"},
    "completion_windows": {"idle_requests": 2},
    "webhooks": {"webhooks": {"mine": {"url": "https://example.com/", "secret": "a secret of sixteen"}}},
}
# Starts the gateway of the package in the first argument, and has it answer.
ANSWER = """
import asyncio
import sys
from pathlib import Path

import aiohttp
from aiohttp import web

sys.path.insert(0, sys.argv[1])
import responses_gateway
assert Path(responses_gateway.__file__).is_relative_to(sys.argv[1])
from responses_gateway.server.app import create_app
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.simulator import create_app as create_simulator, serving


async def answer():
    async with serving(create_simulator()) as url, open_parts(Settings(backend=[url], store="memory")) as parts:
        runner = Runner(create_app(parts))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as session:
            path = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/responses"
            async with session.post(path, json={"model": "simulator", "input": "hi"}) as response:
                print((await response.json())["status"])
        await runner.cleanup()


asyncio.run(answer())
"""


def feature_with(**additions: Any) -> Feature:
    """Return a feature that adds this to the gateway."""

    async def opened(_core: Core, _stack: AsyncExitStack) -> Opened:
        return Opened(**additions)

    return Feature("added", None, opened)


def test_a_defect_in_what_a_feature_notes_of_an_answer_is_reported_and_the_request_ends_all_the_same() -> None:
    def note(*_: object) -> dict[str, Any]:
        raise TypeError("a note that fails")

    async def test() -> None:
        features = [*FEATURES, feature_with(tool_notes=[note])]
        async with serving(create_simulator()) as url, gateway(url, features=features, concurrent_requests=1) as served:
            for stream in (True, False, True):
                answer = await post(served, input="hi", tools=[{"type": "function", "name": "f"}], stream=stream)
                assert (answer.status, served.parts.in_flight.activities) == (200, set())
            assert served.metric("defects_total") == 3

    with pytest.raises(AssertionError, match="a note that fails"):  # the defect is in the log
        run(test())


def test_a_defect_behind_the_head_of_a_stream_ends_the_connection() -> None:
    """A second answer would be taken for a part of the first one."""

    async def conclude(*_: object) -> None:
        raise TypeError("a conclusion that fails")

    async def test() -> None:
        features = [*FEATURES, feature_with(conclusions=[conclude])]
        async with serving(create_simulator()) as url, gateway(url, features=features, concurrent_requests=1) as served:
            for _ in range(2):
                client = await RawClient.connect(served)
                await client.post(input="hi", stream=True)
                answer = await client.read_all()
                client.socket.close()
                assert (answer.count(b"HTTP/1.1 "), b"HTTP/1.1 200 " in answer) == (1, True)
                assert b"response.output_text.done" in answer
            assert served.metric("defects_total") == 2

    with pytest.raises(AssertionError, match="a conclusion that fails"):  # the defect is in the log
        run(test())


@BY_NAME
def test_without_a_feature_the_gateway_answers(feature: Feature) -> None:
    async def test() -> None:
        others = [each for each in FEATURES if each is not feature]
        async with serving(create_simulator()) as url, gateway(url, store="memory", features=others) as served:
            assert (await post(served, input="hi")).final["status"] == "completed"

    run(test())


@pytest.mark.parametrize("name", GIVEN)
def test_without_a_feature_its_settings_are_unknown(name: str) -> None:
    async def test() -> None:
        others = [feature for feature in FEATURES if feature.name != name]
        settings = Settings(backend=["http://127.0.0.1:9/v1"], store="none", **GIVEN[name])
        with pytest.raises(SettingsError, match=f"unknown setting {next(iter(GIVEN[name]))}"):
            async with open_parts(settings, features=others):
                pass

    run(test())


def test_each_section_that_only_a_feature_reads_has_its_feature() -> None:
    sections = {feature.name: feature.section for feature in FEATURES if feature.section is not None}
    assert set(sections.values()) == {section for section in SECTIONS if section.optional}
    assert sections.keys() == GIVEN.keys()


@pytest.mark.slow
def test_of_the_server_the_list_alone_imports_a_feature() -> None:
    features = PACKAGE / "server" / "features"
    for path in (PACKAGE / "server").rglob("*.py"):
        room = path.relative_to(features).parts[0] if path.is_relative_to(features) else ""
        for imported in structure.modules_imported(path, PACKAGE):
            inside = imported.relative_to(features).parts if imported.is_relative_to(features) else ()
            assert len(inside) < 2 or inside[0] == room or room == "standard.py", f"{path} imports {imported}"


# Because the process of each takes seconds, a brief run tries some.
@pytest.mark.slow
@pytest.mark.parametrize("feature", [pytest.param(feature, id=feature.name) for feature in one_in(4, FEATURES)])
def test_a_feature_is_a_folder_and_a_line(feature: Feature, tmp_path: Path) -> None:
    package = tmp_path / "responses_gateway"
    # With what Python has compiled, because compiling all of it takes three times as long as the test.
    shutil.copytree(PACKAGE, package)
    features = package / "server" / "features"
    shutil.rmtree(features / feature.name)
    standard = features / "standard.py"
    constant = feature.name.upper()
    kept = [line for line in standard.read_text().splitlines() if constant not in line.replace(",", " ").split()]
    standard.write_text("\n".join(kept))
    command = [sys.executable, "-c", ANSWER, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.split() == ["completed"], done.stderr
