"""The model servers of this machine are found, and their user is asked; and how a session goes on."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import pytest

from responses_gateway.commands import Unusable
from responses_gateway.commands.client_files import change, restore, restore_own
from responses_gateway.commands.client_program import tell_how_to_go_on
from responses_gateway.commands.local_servers import LocalServer, choose_server, find_servers, suggested
from tests.ports import free_port

OLLAMA = LocalServer("Ollama", "http://127.0.0.1:11434", 3)
VLLM = LocalServer("vLLM", "http://127.0.0.1:8000", 1)


class Handler(BaseHTTPRequestHandler):
    body = b'{"data": [{"id": "qwen3", "owned_by": "vllm"}]}'

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_server_that_lists_models_is_found(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_servers([free_port(), port]) == [LocalServer("vLLM", f"http://127.0.0.1:{port}", 1)]
    monkeypatch.setattr(Handler, "body", b"<html>another page</html>")
    assert find_servers([port]) == []


@pytest.mark.parametrize(
    ("servers", "answer", "chosen"),
    [
        ([OLLAMA], "\n", OLLAMA.url),
        ([OLLAMA], "n\n", None),
        ([OLLAMA, VLLM], "2\n", VLLM.url),
        ([OLLAMA, VLLM], "\n", OLLAMA.url),
        ([OLLAMA, VLLM], "3\n", None),
        ([], "y\n", None),
    ],
)
def test_the_user_is_asked_in_a_terminal(
    servers: list[LocalServer], answer: str, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", shown)
    assert choose_server(servers) == chosen
    assert all(str(server) in shown.getvalue() for server in servers)


def test_nobody_is_asked_without_one_but_the_error_says_what_is_there() -> None:
    assert choose_server([OLLAMA]) is None
    assert (
        suggested([OLLAMA])
        == "\nFound Ollama at http://127.0.0.1:11434 (3 models). To use it: --backend http://127.0.0.1:11434"
    )


def test_the_session_that_was_written_last_goes_on_with_our_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = "0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000"
    (tmp_path / f"rollout-2026-11-27T09-00-00-{session}.jsonl").write_text("{}")
    began = (tmp_path / f"rollout-2026-11-27T09-00-00-{session}.jsonl").stat().st_mtime
    tell_how_to_go_on("codex", ["--backend", "http://gpu:8000"], "resume", tmp_path.glob("*"), began)
    assert f"responses-gateway codex --backend http://gpu:8000 resume {session}" in capsys.readouterr().err
    tell_how_to_go_on("codex", [], "resume", tmp_path.glob("*"), began + 10)
    tell_how_to_go_on("codex", [], "resume", [], 0.0)
    assert capsys.readouterr().err == ""


def test_what_was_written_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(Unusable, match="no backup"):
        restore(path)
    path.write_text("one")
    change(path, lambda _: ("two", ""))
    change(path, lambda _: ("three", ""))
    texts = []
    for _ in range(2):
        restore(path)
        texts.append(path.read_text())
    assert texts == ["two", "one"]
    with pytest.raises(Unusable, match="no backup"):
        restore(path)


def test_a_file_of_ours_is_removed_where_it_was_not_there_before(tmp_path: Path) -> None:
    path = tmp_path / "responses-gateway.config.toml"
    change(path, lambda _: ("one", ""))
    change(path, lambda _: ("two", ""))
    restore_own(path)
    assert path.read_text() == "one"
    restore_own(path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Unusable, match="nothing was changed"):
        restore_own(path)


def test_a_server_that_streams_something_else_without_end_is_passed_over(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            for _ in range(1000):
                handler.wfile.write(b"a picture of a camera")
                sleep(0.1)

    monkeypatch.setattr(Handler, "do_GET", stream)
    began = monotonic()
    assert find_servers([port]) == []
    assert monotonic() - began < 10
