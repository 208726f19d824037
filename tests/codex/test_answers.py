"""Turns without tools: what the user asks, what the user sees."""

from __future__ import annotations

import json
from pathlib import Path

from responses_gateway.simulator import SimulatorOptions
from tests.codex.codex_cli import PLAIN, Codex
from tests.codex.servers import Stage, StartStage

_THOUGHT = "So the answer is 391, and nothing else is needed."
# One red pixel.
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)


def test_a_plain_answer(codex: Codex, stage: Stage) -> None:
    codex.use_catalog()
    run = codex.run("scenario: plain hello")
    assert run.answers == ["A plain answer to “scenario: plain hello”."]
    assert (run.code, run.errors) == (0, [])
    assert run.usage["input_tokens"] > 0
    assert run.usage["output_tokens"] == 15
    assert len(stage.chats) == 1


def test_a_model_in_no_catalog(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: plain hello")
    assert (run.code, run.answers, run.errors) == (0, ["A plain answer to “scenario: plain hello”."], [])
    [chat] = stage.chats
    assert [message["role"] for message in chat["messages"]] == ["system", "user", "user"]
    assert chat["model"] == "qwen3"


def test_every_character_arrives(codex: Codex) -> None:
    answers = codex.run("scenario: unicode").answers
    assert answers[-1] == 'Grüße aus 東京! 👩‍🚀 שלום «"quoted"» \\ back\tslash\u2028line'


def test_reasoning_is_shown_as_a_summary(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: reasoning")
    [thought] = run.items("reasoning")
    assert thought["text"].startswith("**Considering the question**")
    assert thought["text"].endswith(_THOUGHT)
    assert run.answers == ["The answer is **391**."]
    assert run.usage["reasoning_output_tokens"] == 86


def test_raw_reasoning_is_shown_to_those_who_want_it(codex: Codex) -> None:
    codex.top |= {"show_raw_agent_reasoning": True, "model_reasoning_summary": "none"}
    _, shown, code = codex.execute("exec", *PLAIN, "scenario: reasoning")
    assert code == 0
    assert shown.count(_THOUGHT) == 1


def test_raw_reasoning_and_its_summary_are_not_shown_twice(codex: Codex) -> None:
    codex.use_catalog()
    codex.top |= {"show_raw_agent_reasoning": True}
    _, shown, code = codex.execute("exec", *PLAIN, "scenario: reasoning")
    assert code == 0
    assert shown.count(_THOUGHT) == 1


def test_reasoning_goes_back_to_the_model(codex: Codex, stage: Stage) -> None:
    codex.run("scenario: reasoning")
    codex.run("--last", "scenario: plain and now?", command="resume")
    reasoning = [message.get("reasoning", "") for message in stage.chats[-1]["messages"]]
    assert any(_THOUGHT in text for text in reasoning)


def test_an_answer_without_text_ends_quietly(codex: Codex) -> None:
    run = codex.run("scenario: empty")
    assert (run.code, run.answers, run.errors) == (0, [], [])


def test_an_answer_that_the_server_takes_for_reasoning_is_read(codex: Codex) -> None:
    run = codex.run("scenario: reasoning_only")
    assert (run.code, run.answers, run.errors) == (0, ["Thinking about “scenario: reasoning_only”, and thinking on."], [])


def test_a_refusal_is_read(codex: Codex) -> None:
    run = codex.run("scenario: refusal")
    assert (run.code, run.answers) == (0, ["I'm sorry, but I can't help with that."])


def test_an_image(codex: Codex, stage: Stage) -> None:
    path = codex.workspace / "red.png"
    path.write_bytes(_PNG)
    run = codex.run("-i", str(path), "--", "scenario: image")
    assert run.answers == ["I received 1 image part(s): image/png."]


def test_an_output_schema(codex: Codex, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    run = codex.run("--output-schema", str(path), "scenario: schema")
    [answer] = run.answers
    assert set(json.loads(answer)) == {"city", "people"}


def test_a_resumed_session_remembers(codex: Codex, stage: Stage) -> None:
    first = codex.run("scenario: plain my name is Ada")
    second = codex.run("--last", "scenario: plain what is my name?", command="resume")
    assert (first.code, second.code, second.errors) == (0, 0, [])
    roles = [message["role"] for message in stage.chats[-1]["messages"]]
    assert roles == ["system", "user", "user", "assistant", "user"]
    assert stage.chats[-1]["messages"][3]["content"] == first.answers[0]
    assert second.usage["cached_input_tokens"] > 0


def test_reasoning_effort_reaches_the_backend(codex: Codex, stage: Stage) -> None:
    codex.top["model_reasoning_effort"] = "high"
    codex.run("scenario: plain")
    assert stage.chats[0]["reasoning_effort"] == "high"


def test_a_slow_backend_is_waited_for(tmp_path: Path, start_stage: StartStage) -> None:
    """Codex gives up when no event comes for a while; comments do not count."""
    stage = start_stage(SimulatorOptions(first_token_seconds=1.5), header_grace=0.1, keepalive_event=0.2)
    codex = Codex(tmp_path, stage.url)
    codex.provider |= {"stream_idle_timeout_ms": 800, "stream_max_retries": 0}
    run = codex.run("scenario: plain")
    assert (run.code, run.answers, run.errors) == (0, ["A plain answer to “scenario: plain”."], [])


def test_the_attempt_at_a_websocket_goes_unnoticed(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(websocket=False)
    codex = Codex(tmp_path, stage.url)
    codex.use_catalog()
    codex.provider["supports_websockets"] = True
    run = codex.run("scenario: plain")
    assert (run.code, run.items("error"), len(run.answers)) == (0, [], 1)
    assert [(each.method, each.status) for each in stage.exchanges] == [("GET", 426), ("POST", 200)]


def test_a_review(codex: Codex, stage: Stage) -> None:
    codex.git("init", "--quiet")
    (codex.workspace / "notes.txt").write_text("one\n")
    codex.git("add", ".")
    codex.git("commit", "--quiet", "--message", "Begin")
    (codex.workspace / "notes.txt").write_text("one\ntwo\n")
    run = codex.run("--uncommitted", command="review")
    assert (run.code, run.errors, len(run.answers)) == (0, [], 1)
    assert stage.exchanges[0].headers["x-openai-subagent"] == "review"
