"""The programs in `docs/clients.md`, as they stand there."""

from __future__ import annotations

import re

import pytest

from tests.clients.client_programs import FRAMEWORKS, ROOT, absence, run_text
from tests.codex.servers import Stage

_BLOCK = re.compile(r"^## (.+?)$(?:(?!^## ).)*?^```(python|js)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {title: (language, text) for title, language, text in _BLOCK.findall((ROOT / "docs" / "clients.md").read_text())}
_URL = "http://127.0.0.1:9000/v1"
_FRAMEWORKS = {"Pydantic AI", "Instructor", "Agno"}
_SUFFIXES = {"python": ".py", "js": ".mjs"}


def test_every_client_has_one() -> None:
    assert list(PROGRAMS) == [
        "OpenAI for Python",
        "OpenAI for JavaScript",
        "OpenAI Agents SDK",
        "Vercel AI SDK",
        "LangChain",
        "Pydantic AI",
        "Instructor",
        "Agno",
    ]


@pytest.mark.parametrize("title", PROGRAMS)
def test_it_runs_as_it_stands_there(title: str, stage: Stage) -> None:
    language, text = PROGRAMS[title]
    reason = absence("frameworks.py" if title in _FRAMEWORKS else f"program{_SUFFIXES[language]}")
    if reason is not None:
        pytest.skip(reason)
    assert _URL in text
    frameworks = {"python": FRAMEWORKS} if title in _FRAMEWORKS else {}
    output = run_text(text.replace(_URL, stage.url), _SUFFIXES[language], **frameworks)
    assert output.errors == []
    if "weather" in text:
        assert output.text == "The tools answered:\n\n- 22 degrees in Paris\n"
        return
    if title == "Instructor":
        assert output.text.startswith("name=")
        return
    assert "You said “Why is the sky blue?”." in output.text
    shows_reasoning = "reasoning" in text
    assert ("A short, friendly answer will do." in output.text) is shows_reasoning
