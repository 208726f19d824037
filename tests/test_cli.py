"""The command line as its user meets it: output, errors and exit status."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

import responses_gateway.server.process.serve
from responses_gateway.cli import COMMANDS, main
from responses_gateway.extras import packages_with
from responses_gateway.settings import Settings, flag
from responses_gateway.settings.reference import reference
from responses_gateway.version import version_line
from tests.ports import free_port
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[1]
SMALL_SERVER = ROOT / "tests" / "hosted" / "small_server.py"


def run_program(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "responses_gateway", *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )


class Server:
    """Stands in for `responses_gateway.server.process.serve.serve`; keeps the settings that it was called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.called_with: list[Settings] = []
        monkeypatch.setattr(responses_gateway.server.process.serve, "serve", self.serve, raising=False)

    def serve(self, settings: Settings, reload: object = None, prepare: object = None) -> int:
        self.called_with.append(settings)
        return 7


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RESPONSES_GATEWAY_BACKEND", "RESPONSES_GATEWAY_PORT", "RESPONSES_GATEWAY_CONFIG"):
        monkeypatch.delenv(name, raising=False)


# The program


def test_help_names_every_command() -> None:
    done = run_program("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_help_answers_at_once() -> None:
    code = "import sys; from responses_gateway.cli import main; main(['--help']); print('loaded', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded"
    assert not {"pydantic", "aiohttp", "yaml", "rich"} & set(loaded)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"responses-gateway {version_line()}\n"


def test_python_m_proxy_is_the_program() -> None:
    done = run_program("--version")
    assert (done.returncode, done.stdout) == (0, f"responses-gateway {version_line()}\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no command was given"),
        (["serv"], "there is no command serv (did you mean serve?)"),
        (["--verson"], "unknown argument --verson (did you mean --version?)"),
        (["serve", "--bakend", "http://a"], "unknown argument --bakend (did you mean --backend?)"),
        (["serve", "--bakend=http://a"], "unknown argument --bakend=http://a (did you mean --backend?)"),
        (["serve", "--back", "http://a"], "unknown argument --back"),
        (["serve", "--api-keys", "a=0123456789abcdef"], "--config, or the variable RESPONSES_GATEWAY_API_KEYS"),
        (["serve", "--models={}"], "--models is no flag: give models in the file"),
        (["serve", "models"], "unknown argument models"),
        (["serve", "http://a"], "unknown argument http://a"),
        (["serve", "--port"], "expected one argument"),
    ],
)
def test_wrong_usage_is_status_2_and_one_clear_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert server.called_with == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    import_module(f"responses_gateway.commands.{command.replace('-', '_')}")
    assert main([command, "--help"]) == 0
    assert f"responses-gateway {command}" in capsys.readouterr().out


# serve


def test_serve_has_a_flag_for_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help-all"]) == 0
    said = capsys.readouterr().out
    assert [flag(setting.name) for setting in reference() if (flag(setting.name) in said) is (setting.kind == "MAPPING")] == []
    sections = {setting.section for setting in reference() if setting.kind != "MAPPING"}
    assert [title for title in sections if f"{title}:" not in said] == []


def test_the_help_of_serve_is_a_page_with_what_is_often_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 75
    for often in ("--backend TEXT", "--port NUMBER", "--store TEXT", "--simulator", "--help-all"):
        assert often in said
    assert "--idle-timeout" not in said
    assert "--idle-timeout" in full_help(capsys)


def full_help(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["serve", "--help-all"]) == 0
    return capsys.readouterr().out


def test_a_misspelt_flag_is_recognised_though_the_short_help_leaves_it_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--idle-timout", "3"]) == 2
    assert "did you mean --idle-timeout?" in capsys.readouterr().err


def test_help_has_colours_in_a_terminal_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("argparse has colours of its own")
    main(["--help"])
    assert "\033" not in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["--help"])
    assert "\033[1mcommands:" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["--help"])
    assert "\033" not in capsys.readouterr().out


def test_help_is_text_and_no_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help-all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "See docs/backends.md. (default" in told
    assert "`" not in told
    assert "](" not in told


def test_serve_hands_the_settings_to_the_server_and_returns_its_status(server: Server) -> None:
    argv = "serve --backend http://a:1 --port 0 --no-relay --strict --log-format json"
    assert main(argv.split()) == 7
    (settings,) = server.called_with
    assert settings == Settings(backend=["http://a:1"], port=0, relay=False, strict=True, log_format="json")


def test_serve_reads_environment_and_file(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("backend: http://a:1\nport: 1\n", encoding="utf-8")
    monkeypatch.setenv("RESPONSES_GATEWAY_PORT", "2")
    assert main(["serve", "--config", str(file)]) == 7
    assert server.called_with == [Settings(backend=["http://a:1"], port=2)]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no backend is set: give --backend URL (in a container"),
        (["--backend", "http://a", "--port", "x"], "--port: expected a whole number"),
        (["--backend", "http://a", "--simulator"], "--simulator starts a simulated backend: leave out --backend"),
        (["--config", "none.yaml"], "none.yaml: No such file"),
        (["--backend", "http://localhost:9000"], "the backend localhost:9000 is the address of this gateway itself"),
        (["--backend", "http://127.0.0.1:8000", "--host", "0.0.0.0", "--port", "8000"], "the backend 127.0.0.1:8000 is the"),
        (["--backend", "http://a", "--tokenizer", "~nobody-here/model"], "--tokenizer: ~nobody-here/model: "),
        (["--backend", "http://a", "--tokenizer", "x" * 300], f"--tokenizer: {'x' * 300}: "),
        (
            ["--backend", "http://a", "--store", "~nobody-here/db", "--check"],
            "--store: ~nobody-here/db: ~nobody-here/db: this user",
        ),
    ],
)
def test_wrong_settings_are_status_2_and_no_traceback(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    assert main(["serve", *argv]) == 2
    assert capsys.readouterr().err.startswith(f"responses-gateway: {said}")
    assert server.called_with == []


@pytest.mark.parametrize("argv", [["--port", "x"], [], ["--record", "/dev/null/x", "--backend", "http://a"]])
def test_a_wrong_parser_is_named_together_with_what_else_is_wrong(
    argv: list[str], capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    assert main(["serve", *argv, "--tool-call-parser", "hermess"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 2
    assert "hermess" in said


def test_a_chain_of_gateways_on_one_machine_is_no_circle(server: Server) -> None:
    assert main(["serve", "--backend", "http://127.0.0.1:9000", "--port", "9001"]) == 7
    assert main(["serve", "--backend", "http://other:9000"]) == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv", [["docs"], ["docs", "backends"], ["completion", "bash"], ["serve", "--help-all"]], ids=" ".join
)
def test_a_page_that_nobody_reads_to_its_end_is_no_traceback(argv: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "responses_gateway", *argv], cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.slow
def test_a_gateway_whose_stderr_is_closed_serves() -> None:
    port = free_port()
    command = [sys.executable, "-m", "responses_gateway", "serve", "--simulator", "--port", str(port)]
    with subprocess.Popen(["sh", "-c", 'exec "$0" "$@" 2>&-', *command], cwd=ROOT) as gateway:
        try:
            asyncio.run(until(lambda: gateway.poll() is not None or _answers(port), "an answer"))
            assert gateway.poll() is None
        finally:
            gateway.terminate()
    assert gateway.returncode == 0


def _answers(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health") as answer:
        return bool(answer.status == 200)
    return False


def test_ctrl_c_while_a_command_starts_is_no_traceback() -> None:
    code = "import builtins, responses_gateway.cli\n"
    code += "def interrupted(name): raise KeyboardInterrupt\n"
    code += "responses_gateway.cli.import_module = interrupted\n"
    code += "raise SystemExit(responses_gateway.cli.main(['serve', '--simulator']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


_INTERRUPTED_AND_SWALLOWED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell would ignore it
def interrupted(*unused):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        for wait in range(1000): pass
    except BaseException:
        pass
    print("went on")
"""


@pytest.mark.parametrize(
    ("interrupted", "status"),
    [("responses_gateway.cli.import_module", -signal.SIGINT), ("responses_gateway.commands.serve._settings", 0)],
)
def test_ctrl_c_while_the_gateway_starts_is_not_lost_where_exceptions_are_swallowed(interrupted: str, status: int) -> None:
    code = f"{_INTERRUPTED_AND_SWALLOWED}\nimport responses_gateway.cli, responses_gateway.commands.serve\n"
    code += f"{interrupted} = interrupted\n"
    code += "responses_gateway.cli.main(['serve', '--simulator'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_server_is_imported_ends_it_without_a_traceback(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "responses_gateway", "serve", "--simulator", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as gateway:
        try:
            assert gateway.stderr is not None
            said = gateway.stderr.readline()
            assert said.startswith("The simulated backend is ready at ")
            os.killpg(gateway.pid, number)
            _, rest = gateway.communicate(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(gateway.pid, signal.SIGKILL)
    assert gateway.returncode == 0
    assert "Traceback" not in rest
    with pytest.raises(ProcessLookupError):
        os.killpg(gateway.pid, 0)


def test_print_config_prints_what_is_in_force_and_serves_nothing(
    capsys: pytest.CaptureFixture[str], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPONSES_GATEWAY_BACKEND_API_KEY", "hunter2")
    assert main(["serve", "--backend", "http://a", "--print-config"]) == 0
    said = capsys.readouterr().out
    assert "hunter2" not in said
    in_force = yaml.safe_load(said)
    assert in_force["backend"] == ["http://a/v1"]
    assert list(in_force) == list(Settings.model_fields)
    notes = [line for line in said.splitlines() if line.startswith("#")]
    assert notes == [
        "# backend is set by --backend",
        "# backend_api_key is set by RESPONSES_GATEWAY_BACKEND_API_KEY",
        "# All other settings have their defaults.",
    ]
    assert server.called_with == []


def test_a_file_that_is_missing_is_named_with_what_names_it(
    capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    config = tmp_path / "gateway.yaml"
    config.write_text(f"tls_cert: {missing}\n", encoding="utf-8")
    monkeypatch.setenv("RESPONSES_GATEWAY_RECORD", str(config / "records"))
    assert main(["serve", "--backend", "http://a", "--config", str(config), "--check"]) == 2
    assert [line.rpartition(": ")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"responses-gateway: RESPONSES_GATEWAY_RECORD: {config}/records", f"{config}: tls_cert: {missing}",
    ]  # fmt: skip


def test_check_leaves_no_file_that_the_user_of_the_gateway_could_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for store in ("auto", str(tmp_path / "new" / "store.sqlite3")):
        assert main(["serve", "--backend", "http://a", "--store", store, "--check"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wanted", ["--check", "--print-config", None])
def test_files_that_settings_name_are_examined_together(
    capsys: pytest.CaptureFixture[str], server: Server, wanted: str | None, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    flags = ["--tls-cert", missing, "--tokenizer", missing, "--model-table", missing, "--tool-call-parser", "hermess"]
    assert main(["serve", "--backend", "http://a", *flags, *([] if wanted is None else [wanted])]) == 2
    said = capsys.readouterr()
    for name in ("--tls-cert: ", "--tokenizer: ", "--model-table: ", "hermess"):
        assert said.err.count(name) == 1, said.err
    assert ("tls_cert" in said.out) == (wanted == "--print-config")
    assert server.called_with == []


def test_check_serves_nothing(capsys: pytest.CaptureFixture[str], server: Server) -> None:
    assert main(["serve", "--backend", "http://a", "--store", "memory", "--check"]) == 0
    assert "can be used" in capsys.readouterr().out
    assert server.called_with == []


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--store", "{file}/responses.sqlite3"], "--store: {file}/responses.sqlite3: "),
        (["--store", "postgresql://user:hunter2@127.0.0.1:9/none"], "--store: 127.0.0.1:9/none: "),
        (["--store", "postgresql://user@127.0.0.1:9/none?password=hunter2"], "--store: 127.0.0.1:9/none?password=***"),
        (["--host", "192.0.2.1"], "cannot listen at 192.0.2.1:"),
        (["--operations-port", "9001", "--operations-host", "192.0.2.1"], "cannot listen at 192.0.2.1:"),
    ],
)
def test_check_refuses_what_a_start_would(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str], complaint: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    flags = [part.format(file=file) for part in flags]
    assert main(["serve", "--backend", "http://a", "--check", *flags]) == 2
    shown = capsys.readouterr()
    assert complaint.format(file=file) in shown.err
    assert "hunter2" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("modules", "flags", "extra"),
    [
        (["trafilatura"], ["--web-search-url", "http://search"], "web"),
        (["psycopg", "responses_gateway.state.postgres"], ["--store", "postgresql://db/responses"], "postgres"),
        (["redis"], ["--events", "redis://cache"], "redis"),
        (["opentelemetry.sdk.trace"], ["--otel-endpoint", "http://collector"], "otel"),
    ],
)
def test_check_refuses_a_feature_whose_extra_is_missing(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    modules: list[str],
    flags: list[str],
    extra: str,
) -> None:
    package, *importing = modules
    monkeypatch.setitem(sys.modules, package, None)
    for name in importing:
        monkeypatch.delitem(sys.modules, name, raising=False)
    packages_with.cache_clear()
    store = [] if "--store" in flags else ["--store", str(tmp_path / "responses.sqlite3")]
    assert main(["serve", "--backend", "http://a", "--check", *store, *flags]) == 2
    assert f"[{extra}]" in capsys.readouterr().err
    packages_with.cache_clear()


def test_check_starts_programs_and_names_what_they_lack(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    programs = {
        "works": {"command": sys.executable, "args": [str(SMALL_SERVER)]},
        "missing": {"command": str(tmp_path / "nothing")},
        "unknown": {"command": "no-such-program"},
        "plain": {"command": str(SMALL_SERVER)},
        "homeless": {"command": sys.executable, "cwd": str(tmp_path / "nowhere")},
        "broken": {"command": sys.executable, "args": ["-c", "import nowhere_to_be_found"]},
    }
    config = tmp_path / "gateway.json"
    config.write_text(json.dumps({"backend": ["http://a"], "store": "memory", "mcp_servers": programs}))
    assert main(["serve", "--config", str(config), "--check"]) == 2
    *unstartable, broken = capsys.readouterr().err.splitlines()
    assert [line.partition("mcp_servers: ")[2] for line in unstartable] == [
        f"missing: command: there is no program {tmp_path}/nothing. Install it, or correct the path.",
        "unknown: command: there is no program no-such-program in the folders of PATH. Install it, or give its full path.",
        f"plain: command: {SMALL_SERVER} is not an executable file. Allow it to be executed (chmod +x), or correct the path.",
        f"homeless: cwd: there is no folder {tmp_path}/nowhere. Create it, or correct the path.",
    ]
    assert "mcp_servers: broken: the program " in broken
    assert broken.endswith("ModuleNotFoundError: No module named 'nowhere_to_be_found'")
    assert main(["doctor", "--config", str(config)]) == 1
    assert capsys.readouterr().out.splitlines()[:4] == [f"error: {line[line.index('mcp_servers') :]}" for line in unstartable]
    config.write_text(json.dumps({"backend": ["http://a"], "store": "memory", "mcp_servers": {"works": programs["works"]}}))
    assert main(["serve", "--config", str(config), "--check"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("style", ["text", "json"])
def test_check_prints_its_result_alone_and_warnings_in_its_own_lines(tmp_path: Path, style: str) -> None:
    (tmp_path / "state").touch()
    config = tmp_path / "gateway.json"
    servers = {"works": {"command": sys.executable, "args": [str(SMALL_SERVER)]}}
    config.write_text(json.dumps({"backend": ["http://a"], "log_format": style, "mcp_servers": servers}))
    command = [sys.executable, "-m", "responses_gateway", "serve", "--config", str(config), "--check"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "The settings can be used.\n"
    (warning,) = ended.stderr.splitlines()
    assert warning.startswith(f"responses-gateway: warning: store in memory: cannot open {tmp_path}/state/")


@pytest.mark.slow
def test_all_unknown_flags_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--backnd", "http://a", "--idle-timout", "3"]) == 2
    said = capsys.readouterr().err
    assert "did you mean --backend?" in said
    assert "did you mean --idle-timeout?" in said


def test_serve_simulator_brings_a_backend_that_answers_while_the_server_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[str, int]] = []

    def serve(settings: Settings, reload: object = None, prepare: object = None) -> int:
        (url,) = settings.backend
        assert settings.ui == "open"
        with urlopen(f"{url}/models", timeout=PATIENCE) as answer:
            answers.append((url, answer.status))
        return 0

    monkeypatch.setattr(responses_gateway.server.process.serve, "serve", serve, raising=False)
    assert main(["serve", "--simulator"]) == 0
    ((url, status),) = answers
    assert status == 200
    assert capsys.readouterr().err == f"The simulated backend is ready at {url.removesuffix('/v1')}.\n"
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{url}/models", timeout=PATIENCE)
