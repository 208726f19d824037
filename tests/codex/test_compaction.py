"""A history that grows too long is summarised, and the work goes on."""

from __future__ import annotations

import pytest

from responses_gateway.simulator.errors import WORDINGS
from responses_gateway.simulator.scenarios import SCENARIOS
from responses_gateway.simulator.script import script
from tests.codex.codex_cli import Codex
from tests.codex.servers import Stage

_SUMMARY = "Another language model started to solve this problem"


def kinds(stage: Stage) -> list[str]:
    """Return what each chat request was for."""
    texts = [str(chat["messages"][-1]["content"]) for chat in stage.chats]
    return ["compaction" if "CONTEXT CHECKPOINT COMPACTION" in text else "turn" for text in texts]


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_full_context_is_compacted_in_the_next_turn(codex: Codex, stage: Stage, wording: str) -> None:
    first = codex.run(f"scenario: plain fault: overflow={wording}")
    assert first.code == 1
    assert "Codex ran out of room in the model's context window" in first.errors[-1]
    second = codex.run("--last", "scenario: plain again", command="resume")
    assert (second.code, second.answers) == (0, ["A plain answer to “scenario: plain again”."])
    assert kinds(stage) == ["turn", "compaction", "turn"]
    assert _SUMMARY in str(stage.chats[-1]["messages"])


def test_usage_triggers_a_compaction(codex: Codex, stage: Stage) -> None:
    codex.use_catalog(auto_compact_token_limit=6000)  # reached after the second step of the work
    run = codex.run("scenario: agent")
    assert (run.code, run.errors) == (0, [])
    compaction = kinds(stage).index("compaction")
    assert "tools" not in stage.chats[compaction]
    assert _SUMMARY in stage.chats[compaction + 1]["messages"][-1]["content"]
    assert run.answers[-1] == "I have read the summary; everything in it is done."


@pytest.mark.parametrize("times", [1, 100])
def test_a_model_that_writes_no_summary_does_not_end_the_work(
    codex: Codex, stage: Stage, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Codex would put nothing in the place of its session. It asks again, and keeps the session if no summary comes."""
    summary = SCENARIOS["compaction"]
    empty = [script()] * times
    monkeypatch.setitem(SCENARIOS, "compaction", lambda request: empty.pop() if empty else summary(request))
    codex.use_catalog(auto_compact_token_limit=6000)
    run = codex.run("scenario: agent")
    if times == 1:
        assert (run.code, run.answers[-1]) == (0, "I have read the summary; everything in it is done.")
        assert kinds(stage).count("compaction") == 2
    else:
        assert run.code == 1
        assert "The model wrote no summary." in run.errors[-1]
        empty.clear()
        after = codex.run("--last", "scenario: plain", command="resume")
        assert (after.code, kinds(stage)[-2:]) == (0, ["compaction", "turn"])
        assert "scenario: agent" in str(stage.chats[-2]["messages"])


@pytest.mark.parametrize("websocket", [False, True])
def test_remote_compaction(codex: Codex, stage: Stage, websocket: bool) -> None:
    """Use a provider that Codex asks to compact by itself: it keeps what it gets and cannot read it."""
    codex.use_catalog(auto_compact_token_limit=6000)
    codex.provider |= {"name": "OpenAI", "supports_websockets": websocket}
    run = codex.run("scenario: agent")
    assert (run.code, run.errors) == (0, [])
    texts = [str(chat["messages"][-1]["content"]) for chat in stage.chats]
    compaction = next(index for index, text in enumerate(texts) if "Write this handoff summary now" in text)
    assert "tools" not in stage.chats[compaction]
    assert "replaced by this summary" in str(stage.chats[compaction + 1]["messages"])
    assert run.answers[-1] == "I have read the summary; everything in it is done."
