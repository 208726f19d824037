"""`responses-gateway codex-config` and what `responses-gateway codex` does before there is a Codex: file and errors."""

from __future__ import annotations

import re
import socket
import tomllib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.cli import main
from responses_gateway.commands import client_program
from responses_gateway.commands.codex import split_arguments
from responses_gateway.commands.codex_config import configuration, write_own
from responses_gateway.server.resources.codex_catalog import ModelEntry, load_model_table
from responses_gateway.settings import Settings
from responses_gateway.simulator import SimulatorOptions, create_app, serving
from tests.codex.servers import Background, Stage, StartStage, open_stage

ROOT = Path(__file__).parents[2]
DEFAULT = f"http://127.0.0.1:{Settings().port}/v1"
NOWHERE = "http://127.0.0.1:9"
FILE = """\
# My Codex
model = "gpt-5.5"  # the good one
approval_policy = "on-request"

[tui]
theme = "dark"  # of course

[model_providers.other]
name = "other"

[projects."/work"]
trust_level = "trusted"
"""


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    servers = Background()
    yield servers
    servers.stop()


@pytest.fixture
def start_stage(background: Background) -> Iterator[StartStage]:
    stack = AsyncExitStack()

    def start(options: SimulatorOptions | None = None, backend: str | None = None, **overrides: Any) -> Stage:
        return background.run(stack.enter_async_context(open_stage(options or SimulatorOptions(), backend, overrides)))

    yield start
    background.run(stack.aclose())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "codex"
    home.mkdir()
    monkeypatch.setenv("CODEX_HOME", str(home))
    return home


def configured(home: Path) -> dict[str, Any]:
    return tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))


# What is printed


@pytest.mark.parametrize(("window", "warned"), [(8192, True), (32768, False)])
def test_a_context_that_is_too_small_is_told(
    window: int, warned: bool, start_stage: StartStage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = start_stage(SimulatorOptions(max_model_len=window))
    assert main(["codex-config", "--url", stage.url]) == 0
    assert (f"has {window:,} tokens, of which Codex's first request" in capsys.readouterr().err) is warned


def test_a_ready_file_is_printed(start_stage: StartStage, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    stage = start_stage(SimulatorOptions(models=("bge-m3", "qwen3", "other")))
    assert main(["codex-config", "--url", stage.url]) == 0
    assert tomllib.loads(capsys.readouterr().out) == {
        "model": "qwen3",  # the first that one can talk to
        "model_provider": "responses-gateway",
        "web_search": "disabled",
        "show_raw_agent_reasoning": False,
        "model_providers": {
            "responses-gateway": {
                "name": "responses-gateway",
                "base_url": stage.url,
                "wire_api": "responses",
                "model_catalog_url": f"{stage.url}/models",
                "experimental_bearer_token": "none",
            }
        },
    }
    assert list(home.iterdir()) == []


def test_no_gateway_is_needed_when_the_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codex-config", "--model", "org/m", "--env-key", "MY_KEY"]) == 0
    printed = capsys.readouterr()
    assert "web search is turned off" in printed.err
    config = tomllib.loads(printed.out)
    assert (config["model"], config["web_search"]) == ("org/m", "disabled")
    provider = config["model_providers"]["responses-gateway"]
    assert provider["base_url"] == f"http://127.0.0.1:{Settings().port}/v1"
    assert provider["env_key"] == "MY_KEY"
    assert "experimental_bearer_token" not in provider


@pytest.mark.parametrize("url", [NOWHERE, f"{NOWHERE}/", f"{NOWHERE}/v1/"])
def test_the_url_may_be_given_with_or_without_its_version(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codex-config", "--model", "m", "--url", url]) == 0
    assert f'base_url = "{NOWHERE}/v1"' in capsys.readouterr().out


def test_the_key_is_used_to_ask_for_the_models(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = start_stage(SimulatorOptions(api_key="right"))
    monkeypatch.setenv("MY_KEY", "right")
    assert main(["codex-config", "--url", stage.url, "--env-key", "MY_KEY"]) == 0
    said = capsys.readouterr().out
    assert 'env_key = "MY_KEY"' in said
    assert "right" not in said


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["--url", NOWHERE], 1, f"no gateway answers at {NOWHERE}/v1: start one"),
        (["--url", "127.0.0.1:9000"], 2, "--url: "),
        (["--env-key", "NOT_SET_ANYWHERE"], 1, "--env-key: the variable NOT_SET_ANYWHERE is not set: set it to"),
    ],
)
def test_what_cannot_be_is_said(argv: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codex-config", *argv]) == status
    assert capsys.readouterr().err.startswith(f"responses-gateway: {said}")


def test_a_gateway_that_wants_a_key_is_named(start_stage: StartStage, capsys: pytest.CaptureFixture[str]) -> None:
    stage = start_stage(SimulatorOptions(api_key="right"))
    assert main(["codex-config", "--url", stage.url]) == 1
    assert "needs a key: put it into an environment variable, and name that with --env-key" in capsys.readouterr().err


def test_a_key_that_was_refused_is_named(
    start_stage: StartStage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE_KEY", "wrong")
    stage = start_stage(SimulatorOptions(api_key="right"))
    assert main(["codex-config", "--url", stage.url, "--env-key", "ALICE_KEY"]) == 1
    assert "refused the key in ALICE_KEY" in capsys.readouterr().err


def test_each_start_of_codex_writes_its_own_file_anew(tmp_path: Path) -> None:
    """A key that an earlier start named would be asked for at each later one, and a backup would be left by each."""
    path = tmp_path / "home" / "config.toml"
    write_own(path, configuration("http://one/v1", "m", "ALICE_KEY"))
    path.write_text(path.read_text(encoding="utf-8") + '\n[projects."/src"]\ntrust_level = "trusted"\n', encoding="utf-8")
    write_own(path, configuration("http://two/v1", "m", None))
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    provider = written["model_providers"]["responses-gateway"]
    assert "env_key" not in provider
    assert provider["base_url"] == "http://two/v1"
    assert written["projects"] == {"/src": {"trust_level": "trusted"}}
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]


def test_a_gateway_whose_backend_is_down_is_named(start_stage: StartStage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codex-config", "--url", start_stage(backend=NOWHERE).url]) == 1
    said = capsys.readouterr().err
    assert "answers, but its backend does not: The backend cannot be reached" in said
    assert "is this the URL" not in said


# What is written


def test_a_new_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    assert configured(home)["model"] == "m"
    assert [path.name for path in home.iterdir()] == ["config.toml"]
    assert capsys.readouterr().out == f"Wrote {home / 'config.toml'}.\n"


def test_what_was_there_stays(home: Path) -> None:
    file = home / "config.toml"
    file.write_text(FILE, encoding="utf-8")
    file.chmod(0o600)
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    text = file.read_text(encoding="utf-8")
    for kept in ("# My Codex\n", "# the good one\n", 'theme = "dark"  # of course\n', 'approval_policy = "on-request"\n'):
        assert kept in text
    before, after = tomllib.loads(FILE), configured(home)
    assert {key: after[key] for key in ("tui", "projects", "approval_policy")} == {
        key: before[key] for key in ("tui", "projects", "approval_policy")
    }
    assert set(after["model_providers"]) == {"other", "responses-gateway"}
    assert (after["model"], after["model_provider"]) == ("m", "responses-gateway")
    assert (home / "config.toml.bak").read_text(encoding="utf-8") == FILE
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_second_time_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text(FILE, encoding="utf-8")
    argv = ["codex-config", "--model", "m", "--write", "--default"]
    assert main(argv) == 0
    text = (home / "config.toml").read_text(encoding="utf-8")
    assert main(argv) == 0
    assert "is up to date" in capsys.readouterr().out
    assert (home / "config.toml").read_text(encoding="utf-8") == text
    assert sorted(path.name for path in home.iterdir()) == ["config.toml", "config.toml.bak"]


@pytest.mark.parametrize(("named", "written"), [("other", "other"), ("gone", "qwen3")])
def test_the_model_of_the_file_stays_if_it_is_served(named: str, written: str, start_stage: StartStage, home: Path) -> None:
    (home / "config.toml").write_text(f'model = "{named}"\n', encoding="utf-8")
    stage = start_stage(SimulatorOptions(models=("qwen3", "other")))
    assert main(["codex-config", "--url", stage.url, "--write", "--default"]) == 0
    assert configured(home)["model"] == written


def test_a_file_that_did_not_exist_before_it_was_written_can_be_deleted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "config.toml"
    arguments = ["codex-config", "--model", "one", "--default"]
    assert main([*arguments, "--write"]) == 0
    assert main([*arguments, "--restore"]) == 1
    assert capsys.readouterr().err.endswith("nothing was changed: if --write has made the file, delete it\n")
    assert path.exists()


def test_no_backup_overwrites_another(home: Path) -> None:
    (home / "config.toml").write_text(FILE, encoding="utf-8")
    assert main(["codex-config", "--model", "one", "--write", "--default"]) == 0
    assert main(["codex-config", "--model", "two", "--write", "--default"]) == 0
    assert (home / "config.toml.bak").read_text(encoding="utf-8") == FILE
    assert 'model = "one"' in (home / "config.toml.bak.1").read_text(encoding="utf-8")


def test_a_key_that_the_user_has_set_stays_until_another_is_given(home: Path) -> None:
    (home / "config.toml").write_text(
        '[model_providers.responses-gateway]\nexperimental_bearer_token = "mine"\n', encoding="utf-8"
    )
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    assert configured(home)["model_providers"]["responses-gateway"]["experimental_bearer_token"] == "mine"
    assert main(["codex-config", "--model", "m", "--write", "--default", "--env-key", "KEY"]) == 0
    provider = configured(home)["model_providers"]["responses-gateway"]
    assert provider["env_key"] == "KEY"
    assert "experimental_bearer_token" not in provider
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    assert configured(home)["model_providers"]["responses-gateway"] == provider


@pytest.mark.parametrize(
    "auth", ['auth = { command = "key" }\n', '[model_providers.responses-gateway.auth]\ncommand = "key"\n']
)
def test_a_command_for_the_key_stays_until_a_variable_is_named(auth: str, home: Path) -> None:
    """Codex does not start with both."""
    file = home / "config.toml"
    file.write_text(f'[model_providers.responses-gateway]\nname = "x"\n{auth}', encoding="utf-8")
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    provider = configured(home)["model_providers"]["responses-gateway"]
    assert provider["auth"] == {"command": "key"}
    assert "experimental_bearer_token" not in provider
    assert main(["codex-config", "--model", "m", "--write", "--default", "--env-key", "KEY"]) == 0
    provider = configured(home)["model_providers"]["responses-gateway"]
    assert provider["env_key"] == "KEY"
    assert "auth" not in provider


def test_what_would_go_before_the_gateway_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("model_context_window = 1000\n", encoding="utf-8")
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    assert "Note: model_context_window in this file overrides" in capsys.readouterr().out
    assert configured(home)["model_context_window"] == 1000


@pytest.mark.parametrize("text", ["model = \n", 'model_providers = "x"\n', "[model_providers]\nresponses-gateway = 1\n"])
def test_a_file_that_cannot_be_used_is_left_alone(text: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 1
    assert capsys.readouterr().err.startswith("responses-gateway: ")
    assert (home / "config.toml").read_text(encoding="utf-8") == text
    assert [path.name for path in home.iterdir()] == ["config.toml"]


def test_a_link_stays_a_link(home: Path, tmp_path: Path) -> None:
    dotfile = tmp_path / "dotfiles.toml"
    dotfile.write_text(FILE, encoding="utf-8")
    (home / "config.toml").symlink_to(dotfile)
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    assert (home / "config.toml").is_symlink()
    assert 'model = "m"' in dotfile.read_text(encoding="utf-8")


SPREAD = '[model_providers.a]\nname = "a"\n[tui]\ntheme = "dark"\n[model_providers.b]\nname = "b"\n'


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ('model_providers = { other = { name = "o" } }\n', {"other"}),
        ('model_providers.other = { name = "o" }\n', {"other"}),
        ('[model_providers]\nother = { name = "o" }\n', {"other"}),
        ('[model_providers.responses-gateway]\nname = "old"  # mine\n', set()),
        (SPREAD, {"a", "b"}),
    ],
)
def test_providers_may_be_written_in_any_way(text: str, others: set[str], home: Path) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")
    assert main(["codex-config", "--model", "m", "--write", "--default"]) == 0
    config = configured(home)
    assert set(config["model_providers"]) == {*others, "responses-gateway"}
    assert config["model_providers"]["responses-gateway"]["name"] == "responses-gateway"
    assert config["model"] == "m"


# Web search


@pytest.mark.parametrize("named", [[], ["--model", "qwen3"]])
def test_web_search_is_on_where_the_gateway_has_a_provider(
    named: list[str], start_stage: StartStage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = start_stage(web_search_url=NOWHERE)
    assert main(["codex-config", "--url", stage.url, *named]) == 0
    config = tomllib.loads(capsys.readouterr().out)
    assert config["web_search"] == "live"
    assert config["features"] == {"standalone_web_search": True}
    assert config["suppress_unstable_features_warning"] is True
    assert config["model_providers"]["responses-gateway"]["supports_standalone_web_search"] is True


@pytest.mark.parametrize(
    ("before", "features"),
    [
        ("", {}),
        ("[features]\napps = false  # not mine\n\n[tui]\ntheme = 'dark'\n", {"apps": False}),
        ("features = { apps = false }\n[tui]\ntheme = 'dark'\n", {"apps": False}),
        ("features.apps = false\n[tui]\ntheme = 'dark'\n", {"apps": False}),
        ("model_providers.other.name = 'other'\nmodel_providers.other.base_url = 'http://x'\n", {}),
        ("model_providers = { other = { name = 'other', base_url = 'http://x' } }\n", {}),
    ],
)
def test_features_may_be_written_in_any_way(before: str, features: dict[str, Any], start_stage: StartStage, home: Path) -> None:
    (home / "config.toml").write_text(before, encoding="utf-8")
    stage = start_stage(web_search_url=NOWHERE)
    assert main(["codex-config", "--url", stage.url, "--write", "--default"]) == 0
    assert configured(home)["features"] == {**features, "standalone_web_search": True}
    assert configured(home)["web_search"] == "live"
    without = start_stage()
    assert main(["codex-config", "--url", without.url, "--write", "--default"]) == 0
    assert configured(home)["web_search"] == "disabled"
    for name, value in tomllib.loads(before).items():
        if isinstance(value, dict):
            assert configured(home)[name].items() >= value.items()


def test_features_that_are_no_table_are_left_alone(
    start_stage: StartStage, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text("features = 5\n", encoding="utf-8")
    stage = start_stage(web_search_url=NOWHERE)
    assert main(["codex-config", "--url", stage.url, "--write", "--default"]) == 1
    assert "features is not a table" in capsys.readouterr().err
    assert configured(home) == {"features": 5}


# What is said of it


def test_the_guide_shows_what_the_command_gives() -> None:
    guide = (ROOT / "docs" / "codex.md").read_text(encoding="utf-8")
    for document, url in ((guide, "http://gateway:9000/v1"), (ROOT.joinpath("README.md").read_text(encoding="utf-8"), DEFAULT)):
        [block] = re.findall(r"```toml\n(.*?)```", document, re.DOTALL)
        assert tomllib.loads(block) == configuration(url, "qwen3", None)


def test_the_guide_names_every_field_of_the_model_table(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "codex.md").read_text(encoding="utf-8")
    assert [name for name in ModelEntry.model_fields if f"`{name}`" not in guide] == []
    [example] = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "models.yaml").write_text(example, encoding="utf-8")
    (tmp_path / "my-coder.md").write_text("You are a coder.", encoding="utf-8")
    assert load_model_table(tmp_path / "models.yaml").find("my-coder-7b").display_name == "My Coder"


# responses-gateway codex


@pytest.mark.parametrize(
    ("argv", "ours", "codex"),
    [
        ([], [], []),
        (["exec", "--url", "x"], [], ["exec", "--url", "x"]),
        (["--backend", "http://a", "exec", "hi"], ["--backend", "http://a"], ["exec", "hi"]),
        (["--backend=http://a", "--simulator", "-m", "x"], ["--backend=http://a", "--simulator"], ["-m", "x"]),
        (["--", "--help"], [], ["--help"]),
        (["exec", "--", "x"], [], ["exec", "--", "x"]),
        (["--model", "m"], ["--model", "m"], []),
        (["a serve b", "serve"], [], ["a serve b", "serve"]),
    ],
)
def test_the_first_argument_that_is_not_ours_is_codex_s_and_all_behind_it(
    argv: list[str], ours: list[str], codex: list[str]
) -> None:
    assert split_arguments(argv) == (ours, codex)


@pytest.fixture
def _codex_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_program, "find_program", lambda name: "/bin/true")


def test_without_codex(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(client_program, "find_program", lambda name: None)
    assert main(["codex", "exec", "hi"]) == 127
    assert "npm install -g @openai/codex" in capsys.readouterr().err


@pytest.mark.usefixtures("_codex_is_there")
def test_a_gateway_elsewhere_is_not_started(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["codex", "--url", "http://gateway.invalid:9000", "--codex-home", str(home)]) == 1
    assert "no gateway answers at http://gateway.invalid:9000/v1" in capsys.readouterr().err


@pytest.mark.usefixtures("_codex_is_there")
def test_another_server_is_not_taken_for_a_gateway(
    background: Background, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    stack = AsyncExitStack()
    url = background.run(stack.enter_async_context(serving(create_app(SimulatorOptions()))))
    assert main(["codex", "--url", url, "--codex-home", str(home)]) == 1
    background.run(stack.aclose())
    assert "is no gateway: give another URL with --url" in capsys.readouterr().err


@pytest.mark.usefixtures("_codex_is_there")
def test_a_gateway_that_does_not_start_says_why(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESPONSES_GATEWAY_BACKEND", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert main(["codex", "--url", f"http://127.0.0.1:{port}", "--codex-home", str(home)]) == 1
    said = capsys.readouterr().err
    assert "no gateway answers at" in said
    assert "give --backend URL, or try --simulator" in said
