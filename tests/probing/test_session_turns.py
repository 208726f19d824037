"""What three turns show of a server: thoughts left out by its template, what keeps them; what it accepts of sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from responses_gateway.probing.diagnosis import findings, rows
from responses_gateway.probing.prober import probe
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.session_turns import keeping_variables
from responses_gateway.simulator import CacheModel, SimulatorOptions, create_app, serving


def probed(**model: Any) -> Profile:
    async def ask() -> Profile:
        async with serving(create_app(SimulatorOptions(cache=CacheModel(**model)))) as url:
            return await probe(f"{url}/v1")

    return asyncio.run(ask())


def test_a_template_that_leaves_out_thoughts_is_named_with_what_keeps_them() -> None:
    profile = probed(drops_thoughts=True)
    session = profile.session
    assert (session.drops_thoughts, session.keeps) == (True, {"preserve_thinking": True})
    assert session.lost is not None
    assert session.lost >= 64
    (found,) = [finding for finding in findings(profile) if "leaves out earlier thoughts" in finding.text]
    assert f" {session.lost} tokens " in found.text
    assert "models: {simulator: {chat_template_kwargs: {preserve_thinking: true}}}" in found.advice


def test_a_template_that_keeps_thoughts_loses_nothing() -> None:
    profile = probed()
    assert (profile.session.drops_thoughts, profile.session.lost) == (False, 0)
    assert not any("thoughts at" in finding.text for finding in findings(profile))


def test_what_is_not_reported_is_not_said_to_be_lost() -> None:
    profile = probed(drops_thoughts=True, reports=False)
    assert profile.session.lost is None
    assert any("leaves out earlier thoughts" in finding.text for finding in findings(profile))


def test_what_a_server_accepts_of_sessions_is_listed() -> None:
    (row,) = [row for row in rows(probed()) if row.ability == "accepts of sessions"]
    assert row.value == "priority, session_id, nvext"


@pytest.mark.parametrize(
    ("template", "variables"),
    [
        ("{% if preserve_thinking or loop.index0 > last %}", {"preserve_thinking": True}),
        ("{%- if not clear_thinking %}", {"clear_thinking": False}),
        ("{% if truncate_history_thinking is not defined %}", {"truncate_history_thinking": False}),
        ("{{ messages }}", {}),
    ],
)
def test_a_template_tells_its_variables(template: str, variables: dict[str, bool]) -> None:
    assert keeping_variables(template) == variables
