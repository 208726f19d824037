"""Installing the gateway: the wheel, what `make run` installs, what the documents tell users to install; the first start."""

from __future__ import annotations

import email
import os
import pty
import re
import runpy
import select
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from responses_gateway import extras
from responses_gateway.server.process.announcement import next_steps
from responses_gateway.version import version_line
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
SITE_PACKAGES = sysconfig.get_path("purelib")
OURS = "responses-gateway"
# What else the documents install, each from its own makers.
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
_OF_EXTRAS = (Requirement(line).name for lines in EXTRAS.values() for line in lines)
OTHERS = {"@openai/codex", "@anthropic-ai/claude-code", "uv", "pipx", *_OF_EXTRAS}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MESSAGES = sorted((ROOT / "proxy" / "responses_gateway").rglob("*.py"))
_INSTALL = re.compile(
    r"\b(?:pip|uv pip|uv tool|pipx|npm) (?:install|upgrade)(?P<words>[^`\n|\"(;#]*)|\buvx --from (?P<source>\S+)"
)
_VALUED = {"-r", "--prefix", "-e", "-g", "--editable"}


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RESPONSES_GATEWAY_", "PYTHON"))}
    return {**kept, **variables}


def installed_by(text: str) -> set[str]:
    """Return the names of the distributions that commands in a text would fetch from a package index."""
    found: set[str] = set()
    for command in _INSTALL.finditer(text):
        words = re.findall(r"'[^']*'|\S+", command["words"] or command["source"] or "")
        for before, word in zip(["", *words], words, strict=False):
            name = word.strip("'\",:") if word.startswith("'") else word.strip("'\".,:")
            local = name.startswith((".", "{", "/", "git+", "-", "$", "dist/")) or not name
            if not local and (before not in _VALUED or before == "-g"):
                found.add(name if name.startswith("@") else Requirement(name).name)
    return found


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_the_gateway_its_data_and_its_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"responses_gateway"}
    data = {
        str(path.relative_to(ROOT / "proxy")) for path in (ROOT / "proxy").rglob("*") if path.suffix in {".yaml", ".md", ".txt"}
    }
    assert data <= set(names)
    assert [name for name in names if name.endswith("/licenses/LICENSE")]


def test_an_installed_gateway_prints_the_pages_that_its_messages_name(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)

    def docs(*topic: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "responses_gateway", "docs", *topic]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    listed = docs()
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert names == {page.stem for page in (ROOT / "docs").glob("[a-z]*.md")}
    page = docs("security").stdout
    assert page.startswith("# Security\n")
    assert docs("docs/security.md#keys").stdout == page, "as a message names it"
    assert docs("claude").stdout.startswith("# Claude Code"), "the only page that begins so"
    assert docs("forward_authorization").stdout.startswith("- `forward_authorization` (")
    unknown = docs("secruity")
    assert unknown.returncode == 2
    assert "did you mean security?" in unknown.stderr


def test_the_metadata_of_a_release_is_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    environment = {**os.environ, "REPOSITORY_URL": "https://git.example/owner/name"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=PATIENCE)
    (built,) = tmp_path.glob("*.whl")
    archive = zipfile.ZipFile(built)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Author"]
    assert "Claude Code" in metadata["Summary"]
    assert len(metadata.get_all("Classifier", [])) > 5
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Repository", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith("https://git.example/owner/name") for url in urls.values())


def test_the_installed_wheel_puts_a_command_on_the_path_that_serves_a_whole_response(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, timeout=PATIENCE)
    # Dependencies come from this environment; the gateway itself from the folder, which is searched first.
    paths = environment(PYTHONPATH=os.pathsep.join([str(target), SITE_PACKAGES]), PYTHONSAFEPATH="1", TERM="dumb")

    def said_by(*argv: str) -> str:
        command = [str(target / "bin" / OURS), *argv]
        done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said_by("--version") == f"{OURS} {version_line()}\n"
    assert "invariants: ok" in said_by("demo", "--tokens-per-second", "1000")


# What users are told to install


def test_every_page_and_message_installs_this_gateway_and_no_other_distribution() -> None:
    wrong = {str(path.relative_to(ROOT)): installed_by(path.read_text(encoding="utf-8")) for path in (*PAGES, *MESSAGES)}
    assert {name: found - {OURS} - OTHERS for name, found in wrong.items() if found - {OURS} - OTHERS} == {}
    assert any(wrong.values())  # it does find them


def test_every_page_installs_extras_as_the_messages_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release changes one line, and `make docs` the pages."""
    rewritten = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["with_install_commands"]
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    assert [rewritten(text) for text in texts] == texts
    monkeypatch.setattr(extras, "SOURCE", OURS)
    released = [rewritten(text) for text in texts]
    assert sum(text.count(f"pip install '{OURS}[") for text in released) > 5
    assert all("pip install '.[" not in text for text in released)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pip install --upgrade responses-proxy", {"responses-proxy"}),
        ("needs `pip install 'responses-proxy[redis]'`.", {"responses-proxy"}),
        ("uv tool install .\npipx install git+https://example.com/a", set()),
        ("pip install --require-hashes --no-deps -r requirements.lock", set()),
        ("uvx --from responses-proxy responses-gateway demo", {"responses-proxy"}),
        ("npm install -g @openai/codex", {"@openai/codex"}),
    ],
)
def test_what_a_command_would_fetch_is_recognised(text: str, names: set[str]) -> None:
    assert installed_by(text) == names


def test_make_run_installs_nothing_for_development() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "demo"):
        assert re.search(rf"^{target}: \$\(VENV\)/\.runtime-stamp ##", makefile, re.MULTILINE)
    script = (ROOT / "scripts" / "install-runtime").read_text(encoding="utf-8")
    assert "--require-hashes --no-deps -r requirements.lock" in script
    assert "requirements-dev" not in script
    needed = {
        Requirement(line).name for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    }
    assert needed & {"mypy", "pytest", "hypothesis", "ruff"} == set()


def test_make_run_asks_uv_where_it_is_installed(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n', encoding="utf-8")
    uv.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "VENV": str(tmp_path / "venv"), "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts" / "install-runtime"], env=environment(**variables), capture_output=True, text=True, check=True
    )
    locked, own = calls.read_text(encoding="utf-8").splitlines()
    assert "--require-hashes --no-deps -r requirements.lock" in locked
    assert own.endswith("--no-deps --editable .")
    assert "with uv" in done.stdout


# The first start


def test_in_a_terminal_a_gateway_says_what_to_try_and_keeps_simulated_answers_out_of_the_users_store(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        variables = environment(XDG_STATE_HOME=str(tmp_path), COLUMNS="200")
        os.execve(sys.executable, [sys.executable, "-m", "responses_gateway", "serve", "--simulator", "--port", "0"], variables)
    try:
        said = read_until(terminal, "SDK")
        (curl,) = re.findall(r"^ +curl +(curl .*?)\r$", said, re.MULTILINE)
        done = subprocess.run(
            shlex.split(curl.replace("curl -N", "curl -sN --noproxy '*'")),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert "event: response.completed" in done.stdout
        assert "api_key" in said
        assert list(tmp_path.iterdir()) == []
    finally:
        os.kill(pid, signal.SIGTERM)
        drain(terminal)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def read_until(terminal: int, text: str) -> str:
    """Return what the program has written when the text and the rest of its line are there."""
    deadline = time.monotonic() + PATIENCE
    said = b""
    while not re.search(rf"{text}.*\n".encode(), said):
        assert time.monotonic() < deadline, said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 65536)
    return said.decode()


def drain(terminal: int) -> None:
    """Read until the program has closed its side, which Linux reports as an error."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def test_with_keys_the_commands_send_one() -> None:
    text = next_steps("http://127.0.0.1:9000", "qwen3", keys=True)
    assert "-H 'authorization: Bearer '\"$RESPONSES_GATEWAY_KEY\"" in text
    assert [line.split()[:3] for line in text.splitlines() if "--env-key RESPONSES_GATEWAY_KEY" in line] == [
        ["Codex", "responses-gateway", "codex"],
        ["Claude", "responses-gateway", "claude"],
    ]
    assert "os.environ['RESPONSES_GATEWAY_KEY']" in text


def test_without_a_known_model_the_models_come_first_and_the_live_page_where_there_is_one() -> None:
    steps = next_steps("http://127.0.0.1:9000", None, page="http://127.0.0.1:9001/ui").splitlines()
    first = next(line for line in steps if line.startswith("  "))
    assert "curl http://127.0.0.1:9000/v1/models" in first
    assert '"model": "MODEL"' in "\n".join(steps)
    assert any(line.split() == ["live", "http://127.0.0.1:9001/ui"] for line in steps)


def test_the_recording_in_the_readme_is_of_this_program_and_loads_nothing() -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    assert "docs/images/demo.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", " ", picture).replace("&#160;", " ")
    for part in ("responses-gateway demo", "simulated backend", "get_weather", "invariants: ok"):
        assert part in shown
    assert re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?https?://", picture) == []
    assert shown.count("The user wants to know") == 1  # what is left on the screen, not each frame


def test_locked_packages_are_installed_without_resolving_them_again() -> None:
    """Else a release of today breaks the installation: `coverage[toml]>=7`, wanted by a package, is not what is locked."""
    files = [ROOT / "Makefile", ROOT / "Dockerfile", *(ROOT / "scripts").glob("install-*")]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if "--require-hashes" in line]
    assert len(lines) >= 5
    assert [line for line in lines if "--no-deps" not in line] == []
