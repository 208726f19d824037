"""The programs in `docs/clients.md` and in the README, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients.client_programs import FRAMEWORKS, OLDER_FRAMEWORKS, PYTHON, ROOT, missing, run_command, run_text
from tests.codex.servers import Stage

_BLOCK = re.compile(r"^## (.+?)$(?:(?!^## ).)*?^```(python|js)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {title: (language, text) for title, language, text in _BLOCK.findall((ROOT / "docs" / "clients.md").read_text())}
_URL = "http://127.0.0.1:9000/v1"
_PYTHONS = {
    **dict.fromkeys(("Pydantic AI", "Agno"), FRAMEWORKS),
    **dict.fromkeys(("Instructor", "LlamaIndex", "Strands Agents", "DSPy"), OLDER_FRAMEWORKS),
}
# What DSPy says where it cannot ask the internet for the abilities of OpenAI's models.
_OFFLINE = "Model metadata refresh failed"
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
        "LlamaIndex",
        "Strands Agents",
        "DSPy",
    ]


@pytest.mark.parametrize("title", PROGRAMS)
def test_it_runs_as_it_stands_there(title: str, stage: Stage) -> None:
    language, text = PROGRAMS[title]
    python = _PYTHONS.get(title, PYTHON)
    reason = missing(_SUFFIXES[language], python)
    if reason is not None:
        pytest.skip(reason)
    assert _URL in text
    output = run_text(text.replace(_URL, stage.url), _SUFFIXES[language], python=python)
    assert [line for line in output.errors if _OFFLINE not in line] == []
    if "weather" in text:
        assert output.text == "The tools answered:\n\n- 22 degrees in Paris\n"
    elif title == "Instructor":
        assert output.text.startswith("name=")
    elif title == "DSPy":
        assert output.text == "example\n"  # what the simulator fills in
    else:
        assert "You said “Why is the sky blue?”." in output.text
        shows_reasoning = "reasoning" in text or title == "Strands Agents"
        assert ("A short, friendly answer will do." in output.text) is shows_reasoning


def test_the_program_of_the_readme_runs_as_it_stands_there(stage: Stage) -> None:
    reason = missing(".py")
    if reason is not None:
        pytest.skip(reason)
    (text,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert _URL in text
    output = run_text(text.replace(_URL, stage.url), ".py")
    assert output.errors == []
    assert "You said “Why is the sky blue?”." in output.text


@pytest.mark.parametrize("page", ["README.md", "docs/clients.md"])
def test_the_curl_command_streams_a_response(page: str, stage: Stage, tmp_path: Path) -> None:
    (text,) = re.findall(r"^```sh\n(curl .*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert _URL in text
    output = run_command(["bash", "-c", text.replace(_URL, stage.url)], tmp_path)
    assert "event: response.completed" in output.text
