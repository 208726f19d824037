"""The systemd unit, as systemd itself judges it."""

from __future__ import annotations

import configparser
import re
import sys
from pathlib import Path

from responses_gateway.settings import Settings
from tests.deploy.checking_programs import DEPLOY, run, tool

UNIT = DEPLOY / "systemd" / "responses-gateway.service"
# Of ten; systemd calls a service "OK" below 4.5, and one that reaches the network cannot get far below 1.
MOST_EXPOSED = 1.5


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    unit = UNIT.read_text(encoding="utf-8")
    there = tmp_path / UNIT.name
    there.write_text(unit.replace("/opt/responses-gateway/bin/responses-gateway", sys.executable), encoding="utf-8")
    done = run(tool("systemd-analyze", "install-servers"), "verify", "--man=no", str(there))
    complaints = [line for line in done.stderr.splitlines() if UNIT.stem in line]
    assert (done.returncode, complaints) == (0, [])


def test_little_is_open_to_the_service() -> None:
    done = run(tool("systemd-analyze", "install-servers"), "security", "--offline=true", "--no-pager", str(UNIT))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_running_responses_have_time_to_end() -> None:
    service = section("Service")
    assert int(service["TimeoutStopSec"]) >= Settings().drain_timeout + 5


def test_what_is_stored_lies_in_the_folder_of_the_service() -> None:
    """Expect `store: auto` to take the folder of the gateway's name below XDG_STATE_HOME, here that of StateDirectory."""
    service = section("Service")
    assert "XDG_STATE_HOME=/var/lib" in service["Environment"].split()
    assert service["StateDirectory"] == "responses-gateway"


def section(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # as the documentation of configparser has it
    parser.read(UNIT, encoding="utf-8")
    return parser[name]
