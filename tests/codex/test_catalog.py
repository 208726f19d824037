"""The gateway's model catalog as the client takes it, with the configuration that `responses-gateway codex-config` gives."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from responses_gateway.cli import main
from responses_gateway.commands.codex_config import PROFILE, PROVIDER, configuration
from responses_gateway.server.resources.codex_catalog import SHIPPED_PROMPT
from responses_gateway.simulator import DIALECTS, SimulatorOptions, serving
from responses_gateway.simulator import create_app as create_simulator
from tests.codex.codex_cli import BINARY, PLAIN, Codex
from tests.codex.servers import GREETING, Background, Stage, StartStage
from tests.codex.terminal import TMUX, running
from tests.ports import free_port
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
_PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
MODELS = ("Qwen/Qwen3-8B", "openai/gpt-oss-20b", "Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-Embedding-8B")


@pytest.fixture
def stage(start_stage: StartStage) -> Stage:
    return start_stage(SimulatorOptions(models=MODELS))


def configure(codex: Codex, url: str, model: str) -> None:
    config = configuration(url, model, None)
    codex.provider = config.pop("model_providers")[PROVIDER]
    codex.top.pop("model_context_window")
    codex.top.update(config, model_provider="gateway")  # under this name the client's stand-in writes the provider


@pytest.fixture
def codex(tmp_path: Path, stage: Stage) -> Codex:
    codex = Codex(tmp_path, stage.url)
    configure(codex, stage.url, MODELS[0])
    return codex


def asked(stage: Stage) -> list[dict[str, Any]]:
    """Return the bodies of the requests for a response."""
    return [each.request for each in stage.exchanges if each.path == "/v1/responses"]


def warnings(run: Any) -> list[str]:
    """Return every complaint, also the one about missing metadata."""
    return [*run.errors, *(item["message"] for item in run.items("error"))]


def test_a_turn_without_any_warning(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: agent")
    assert (run.code, warnings(run)) == (0, [])
    assert codex.files() == {"greeting.py": GREETING}
    lists = [each for each in stage.exchanges if each.path.startswith("/v1/models?client_version=")]
    assert [each.status for each in lists] == [200]
    first = asked(stage)[0]
    [part, *_] = first["input"][0]["content"]
    assert (first["input"][0]["role"], part["text"]) == ("developer", SHIPPED_PROMPT.read_text(encoding="utf-8"))
    assert "apply_patch" in [tool["name"] for tool in first["tools"] if tool["type"] == "custom"]
    assert "web_search" not in str([tool["type"] for tool in first["tools"]])
    assert first["reasoning"]["effort"] == "medium"
    assert {chat["reasoning_effort"] for chat in stage.chats} == {"medium"}


def test_a_request_for_approval_is_reviewed_by_the_model_of_the_session(codex: Codex, stage: Stage) -> None:
    codex.top |= {"approval_policy": "on-request", "approvals_reviewer": "auto_review", "sandbox_mode": "workspace-write"}
    shown, errors, code = codex.execute("exec", "--json", "--skip-git-repo-check", "scenario: approval")
    assert code == 0, shown + errors
    assert codex.files() == {"approved.txt": ""}
    reviews = [each for each in stage.exchanges if each.headers.get("x-openai-subagent") == "guardian"]
    assert reviews
    assert {each.status for each in reviews} == {200}
    assert {each.request["model"] for each in reviews} == {MODELS[0]}


def test_reasoning_is_shown_once(codex: Codex) -> None:
    shown, errors, code = codex.execute("exec", *PLAIN, "scenario: agent")
    assert code == 0
    assert (shown + errors).count("A small file is enough: write it, improve it, run it.") == 1


def test_the_levels_are_those_of_the_model(codex: Codex, stage: Stage) -> None:
    codex.top.update(model="openai/gpt-oss-20b", model_reasoning_effort="low")
    assert warnings(codex.run("scenario: plain")) == []
    assert [chat["reasoning_effort"] for chat in stage.chats] == ["low"]


@pytest.mark.parametrize(("model", "seen"), [("Qwen/Qwen3-8B", False), ("Qwen/Qwen3-VL-8B-Instruct", True)])
def test_an_image_goes_only_to_a_model_that_sees(codex: Codex, stage: Stage, model: str, seen: bool) -> None:
    codex.top["model"] = model
    (codex.workspace / "pixel.png").write_bytes(_PIXEL)
    run = codex.run("scenario: plain", "-i", "pixel.png")
    assert (run.code, warnings(run)) == (0, [])
    assert ("image_url" in str(stage.chats[0]["messages"])) is seen
    assert ("image content omitted" in str(stage.chats[0]["messages"])) is not seen


@pytest.mark.parametrize(("tokens_to_spare", "compactions"), [(-40, 1), (60, 0)])
def test_the_window_of_the_backend_decides_when_the_history_is_compacted(
    tokens_to_spare: int, compactions: int, tmp_path: Path, start_stage: StartStage
) -> None:
    """Compaction is due at 90 % of the window, which is chosen here by what the last step but one has used. The window also
    bounds what the client says of its skills: it is measured in one of about the same size."""

    def play(name: str, window: int) -> Stage:
        stage = start_stage(SimulatorOptions(models=MODELS, max_model_len=window))
        codex = Codex(tmp_path / name, stage.url)
        configure(codex, stage.url, MODELS[0])
        run = codex.run("scenario: agent")
        assert (run.code, warnings(run)) == (0, [])
        return stage

    answers = [each.events[-1]["response"] for each in play("measure", 9500).exchanges if each.is_stream]
    used = answers[-2]["usage"]["total_tokens"] + tokens_to_spare
    stage = play("compact", used * 10 // 9)
    requests = [str(chat["messages"][-1]["content"]) for chat in stage.chats]
    assert sum("CONTEXT CHECKPOINT COMPACTION" in text for text in requests) == compactions


def test_a_backend_that_is_down_keeps_nobody_waiting(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(backends=["http://127.0.0.1:9"])
    codex = Codex(tmp_path, stage.url)
    configure(codex, stage.url, "qwen3")
    codex.provider |= {"request_max_retries": 0, "stream_max_retries": 0}
    run = codex.run("hello")
    assert run.code == 1
    assert "failed to refresh" not in str(run.stderr)
    assert [each.status for each in stage.exchanges if each.path.startswith("/v1/models")] == [200]


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
def test_the_picker_lists_what_is_served(codex: Codex, stage: Stage) -> None:
    with running(codex) as terminal:
        terminal.wait_for("Ask Codex to do anything")
        terminal.type("/model")
        screen = terminal.wait_for("Select Model", "gpt-oss-20b")
        for model in MODELS[:3]:
            assert model in screen
        assert "Embedding" not in screen
        assert "131,072 tokens of context" in screen
        assert "⚠" not in screen
        terminal.press("Down")
        terminal.press("Enter")
        terminal.wait_for("Select Reasoning Level for openai/gpt-oss-20b", "Low", "Medium (default)", "High")


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
def test_the_window_that_the_user_sees(codex: Codex) -> None:
    with running(codex) as terminal:
        terminal.wait_for("Ask Codex to do anything")
        terminal.type("scenario: plain")
        terminal.wait_for("A plain answer")
        terminal.type("/status")
        terminal.wait_for("reasoning medium", "used / 125K)")  # 95 % of 131 072


def test_the_patch_that_the_prompt_shows_can_be_applied(codex: Codex) -> None:
    """Apply the patch with the client, which is also the program of that name: the model learns the format from it."""
    prompt = SHIPPED_PROMPT.read_text(encoding="utf-8")
    patch = prompt[prompt.index("\n*** Begin Patch") + 1 : prompt.index("*** End Patch\n")] + "*** End Patch"
    source = codex.workspace / "src"
    source.mkdir()
    (source / "greet.py").write_text('def greet(name):\n    print("Hi " + name)\n    return name\n', encoding="utf-8")
    (source / "unused.py").write_text("pass\n", encoding="utf-8")
    [native] = BINARY.parents[1].glob("@openai/codex-*/vendor/*/bin/codex")
    subprocess.run(["apply_patch", patch], executable=native, cwd=codex.workspace, env=codex.environment, check=True)
    assert codex.files() == {
        "docs/notes.md": "# Notes\nEvery line of a new file begins with a plus sign.\n",
        "src/greeting.py": 'def greet(name):\n    print(f"Hello, {name}!")\n    return name\n',
    }


# responses-gateway codex


def start(codex: Codex, url: str, *arguments: str) -> subprocess.Popen[str]:
    """Start `responses-gateway codex …` as a user has it: Codex on the search path, no configuration of it anywhere."""
    environment = {
        **codex.environment,
        "PATH": os.pathsep.join([str(BINARY.parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "proxy"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "responses_gateway", "codex", "--url", url, "--codex-home", str(codex.home), *arguments],
        cwd=codex.workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_one_command_starts_the_gateway_runs_codex_and_cleans_up(codex: Codex) -> None:
    port = free_port()
    with start(codex, f"http://127.0.0.1:{port}", "--simulator", "exec", *PLAIN, "scenario: agent tps: 500") as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Hello, world!" in output
    assert "Model metadata" not in errors
    assert codex.files() == {"greeting.py": GREETING}
    assert is_free(port)
    assert "stopped" in (codex.home / "gateway.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("dialect", ["vllm-raw", "llamacpp"])
def test_the_first_request_is_as_the_backend_wants_it(codex: Codex, background: Background, dialect: str) -> None:
    """Codex is started when the gateway has looked at its backend: here one that refuses tools, or has a field of its own."""
    stack = AsyncExitStack()
    port = free_port()
    simulator = create_simulator(SimulatorOptions(dialect=DIALECTS[dialect]))
    backend = background.run(stack.enter_async_context(serving(simulator)))
    with start(codex, f"http://127.0.0.1:{port}", "--backend", backend, "exec", *PLAIN, "scenario: agent") as process:
        output, errors = process.communicate(timeout=PATIENCE)
    background.run(stack.aclose())
    assert process.returncode == 0, errors
    assert "Hello, world!" in output
    assert "<tool_call>" not in output
    assert codex.files() == {"greeting.py": GREETING}
    assert "adapted to the backend" in (codex.home / "gateway.log").read_text(encoding="utf-8")


def test_it_uses_a_gateway_that_is_there_and_passes_the_status_on(codex: Codex, stage: Stage) -> None:
    with start(codex, stage.url, "exec", "--no-such-flag") as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "unexpected argument '--no-such-flag'" in errors
    with start(codex, stage.url, "exec", *PLAIN, "scenario: plain hi") as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output.strip()) == (0, "A plain answer to “scenario: plain hi”.")
    assert httpx.get(f"{stage.url}/models", timeout=PATIENCE).status_code == 200  # it was not ours to stop


def test_a_signal_reaches_codex_and_the_gateway_ends_too(codex: Codex) -> None:
    port = free_port()
    with start(
        codex, f"http://127.0.0.1:{port}", "--simulator", "exec", *PLAIN, "scenario: long tokens: 5000 tps: 20"
    ) as process:
        assert process.stderr is not None
        while "scenario: long" not in (line := process.stderr.readline()):  # Codex repeats what it is asked
            assert line, "ended before it began"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert is_free(port)


def test_a_profile_uses_the_gateway_and_all_other_sessions_stay_as_they_are(codex: Codex, stage: Stage) -> None:
    codex.provider["base_url"] = "http://127.0.0.1:9/v1"
    codex.configure()
    before = (codex.home / "config.toml").read_text()
    write = ["codex-config", "--url", stage.url, "--model", MODELS[0], "--codex-home", str(codex.home)]
    assert main([*write, "--write"]) == 0
    run = codex.run("--profile", PROFILE, "Hello")
    assert (run.code, warnings(run)) == (0, [])
    assert [each.status for each in stage.exchanges if each.path.startswith("/v1/models?client_version=")] == [200]
    assert asked(stage)[0]["model"] == MODELS[0]
    assert (codex.home / "config.toml").read_text() == before
    assert main([*write, "--restore"]) == 0
    assert sorted(path.name for path in codex.home.glob("*.toml*")) == ["config.toml"]
