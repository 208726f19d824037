"""`responses-gateway check` as its user sees it: what it prints, and its exit status."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.commands import check, gateway_offer
from tests.conformance.broken_streams import OPENAI
from tests.conformance.message_streams import FULL, without
from tests.conformance.message_streams import encode as encode_messages
from tests.judges.streams import Event, Script, encode, find, good

Save = Callable[..., str]  # a body, and maybe a name -> the path of a file that has it


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    return check.run(parser.parse_args(argv))


@pytest.fixture
def saved(tmp_path: Path) -> Save:
    def save(data: bytes, name: str = "stream") -> str:
        path = tmp_path / f"{name}.txt"
        path.write_bytes(data)
        return str(path)

    return save


def wrong_text() -> list[Event]:
    events = good()
    events[find(events, "output_text.done")]["text"] = "Help"
    return events


def number_missing() -> list[Event]:
    events = good()
    events[3]["sequence_number"] = None
    return events


# ---- saved streams ----------------------------------------------------------------------------------------------------


def test_a_good_stream_ends_with_0(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(encode(good()))) == 0
    assert capsys.readouterr().out == "33 events, the last response.completed: valid at level spec\n"


def test_a_broken_law_is_shown_and_ends_with_1(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(encode(wrong_text()))) == 1
    level, header, violation, _, summary = capsys.readouterr().out.splitlines()
    assert level == "breaks clients"
    assert header.split() == ["event", "rule", "what", "was", "seen"]
    assert violation.split()[:2] == ["18", "text_mismatch"]
    assert '"p" at character 3, the deltas have "lo"' in violation
    assert summary == "33 events, the last response.completed: 1 violation of 1 rule at level spec"


def test_what_openai_does_is_listed_and_does_not_count(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(encode(OPENAI["reasoning without a status"](), done=False))) == 0
    heading, *_, summary = capsys.readouterr().out.splitlines()
    assert heading == "stricter than OpenAI (not counted)"
    assert summary.endswith("valid, 5 not counted at level spec")


def test_each_level_counts_what_is_worse_too(saved: Save) -> None:
    paths = [
        saved(encode(wrong_text()), "breaks"),
        saved(encode(number_missing()), "spec"),
        saved(encode(good(), done=False), "no"),
    ]
    exits = {level: [run(path, "--level", level) for path in paths] for level in ("breaks", "spec", "stricter")}
    assert exits == {"breaks": [1, 0, 0], "spec": [1, 1, 0], "stricter": [1, 1, 1]}


def test_the_levels_are_printed_apart_the_worst_first(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    events = wrong_text()
    events[3]["sequence_number"] = None
    assert run(saved(encode(events, done=False))) == 1
    out = capsys.readouterr().out
    places = [
        out.index(part) for part in ("breaks clients", "text_mismatch", "against the spec", "sequence", "stricter", "[DONE]")
    ]
    assert places == sorted(places)
    assert out.endswith("2 violations of 2 rules, 1 not counted at level spec\n")


def test_help_tells_the_default_level(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    assert "`spec` (the default)" in " ".join(capsys.readouterr().out.split())


def test_many_violations_of_one_rule_are_folded(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    data = encode(good()).replace(b"event: ", b"event: x.")
    assert run(saved(data)) == 1
    out = capsys.readouterr().out
    assert out.count("event_name") == 6
    assert "and 28 more" in out
    assert "33 violations of 1 rule" in out


def test_json_has_them_all(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(encode(wrong_text(), done=False))
    assert run("--json", path) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["target"] == path
    assert (report["events"], report["terminal"]) == (33, "response.completed")
    assert (report["level"], report["valid"]) == ("spec", False)
    assert report["counts"] == {"breaks": 1, "spec": 0, "stricter": 1}
    assert [(found["rule"], found["event"], found["level"]) for found in report["violations"]] == [
        ("text_mismatch", 18, "breaks"),
        ("done_marker", 33, "stricter"),
    ]


def test_a_cut_call_is_judged_by_the_client(saved: Save) -> None:
    path = saved(encode(Script().open().call('{"a', cut=True).end("incomplete")))
    assert run(path) == 1
    assert run(path, "--client", "codex") == 0


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"type":"response.created","sequence_number":"\\ud800"}'])
@pytest.mark.parametrize("how", [[], ["--json"]])
def test_what_hardly_is_json_is_judged_too(
    data: bytes, how: list[str], saved: Save, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(saved(b"event: response.created\ndata: " + data + b"\n\n"), *how) == 1
    capsys.readouterr().out.encode()


def test_a_stream_cannot_drive_the_terminal(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(encode(good()).replace(b"event: response.created", b"event: \x1b[2Jx"))) == 1
    assert "event: \ufffd[2Jx, type: response.created" in capsys.readouterr().out


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(encode(good()))))
    assert run("-") == 0


@pytest.mark.parametrize("data", [b"", b'{"id": "resp_1"}', b": nothing\n\ndata: [DONE]\n\n"])
def test_a_file_without_events_ends_with_2(saved: Save, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    assert run(saved(data)) == 2
    assert "contains no server-sent events" in capsys.readouterr().err


def test_a_chat_stream_ends_with_2(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(b'data: {"object":"chat.completion.chunk","choices":[]}\n\n')) == 2
    assert "a stream of Chat Completions" in capsys.readouterr().err


def test_events_that_are_no_json_are_judged(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(b"data: hello\n\n")) == 1
    assert "1 event, the last unreadable" in capsys.readouterr().out


def test_a_file_that_is_not_there_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path / "none")) == 2
    assert "No such file" in capsys.readouterr().err


# ---- servers ----------------------------------------------------------------------------------------------------------


class Server:
    """A Responses endpoint on loopback that answers every request alike, and keeps what it was asked."""

    def __init__(self, body: bytes = b"", *, status: int = 200, kind: str = "text/event-stream", cut: bool = False) -> None:
        self._body, self._status, self._kind, self._cut = body, status, kind, cut
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.models: Any = {"data": [{"id": "first"}, {"id": "second"}]}
        self.models_status = 200

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.headers.append(request.headers)
        answer = web.StreamResponse(status=self._status, headers={"content-type": self._kind})
        await answer.prepare(request)
        await answer.write(self._body)
        if self._cut and request.transport is not None:
            request.transport.close()
        return answer

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response(self.models, status=self.models_status if self.models else 404)

    def check(self, *argv: str, path: str = "") -> int:
        """Run the command against this server."""

        async def checked() -> int:
            app = web.Application()
            app.router.add_post("/v1/responses", self._respond)
            app.router.add_post("/v1/messages", self._respond)
            app.router.add_get("/v1/models", self._list)
            runner = web.AppRunner(app)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                return await asyncio.to_thread(run, f"http://127.0.0.1:{runner.addresses[0][1]}{path}", *argv)
            finally:
                await runner.cleanup()

        return asyncio.run(checked())


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/responses"])
def test_a_server_is_found_by_any_of_its_addresses(path: str) -> None:
    assert Server(encode(good())).check(path=path) == 0


def test_a_server_that_breaks_a_law_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert Server(encode(wrong_text())).check() == 1
    assert "text_mismatch" in capsys.readouterr().out


def test_the_request_is_small_and_streams() -> None:
    server = Server(encode(good()))
    server.check()
    (request,) = server.requests
    assert request["model"] == "first"
    assert request["stream"] is True
    assert request["input"]
    assert "tools" not in request
    assert "authorization" not in server.headers[0]


def test_the_request_follows_the_flags() -> None:
    server = Server(encode(good()))
    server.check("--model", "m", "--input", "Hi", "--tools", "--api-key", "secret", "--client", "codex")
    (request,), (headers,) = server.requests, server.headers
    assert (request["model"], request["input"]) == ("m", "Hi")
    assert [tool["type"] for tool in request["tools"]] == ["function"]
    assert headers["authorization"] == "Bearer secret"
    assert headers["originator"].startswith("codex")


def test_the_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    server = Server(encode(good()))
    server.check()
    assert server.headers[0]["authorization"] == "Bearer from-env"


def test_a_stream_that_breaks_off_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert Server(encode(good()[:5], done=False), cut=True).check() == 1
    out, err = capsys.readouterr()
    assert "terminal_missing" in out
    assert "the stream broke off" in err


def test_a_stream_that_breaks_off_before_its_first_event_ends_with_2() -> None:
    assert Server(cut=True).check() == 2


def test_a_stream_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gateway_offer, "MAX_BYTES", 1000)
    assert Server(encode(good())).check() == 2
    assert "more than 1000 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"no such model","code":404}}', "HTTP 404: no such model"),
        (b'{"detail":"Not Found"}', 'HTTP 404: {"detail": "Not Found"}'),
        (b'["x"]', 'HTTP 404: ["x"]'),
        (b"<h1>gone</h1>", "HTTP 404: <h1>gone</h1>"),
        (b"<html>\r\n<h1>gone</h1>\r\n", "HTTP 404: <html> <h1>gone</h1>"),
        (b"", "HTTP 404\n"),
        (b"[" * 100_000, f"HTTP 404: {'[' * 200}\n"),
    ],
)
def test_an_http_error_is_shown_and_ends_with_2(capsys: pytest.CaptureFixture[str], body: bytes, message: str) -> None:
    assert Server(body, status=404).check() == 2
    assert message in capsys.readouterr().err


def test_an_answer_that_is_no_stream_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert Server(b"{}", kind="application/json").check() == 2
    assert "answered with application/json, not with a stream" in capsys.readouterr().err


@pytest.mark.parametrize("models", [None, {"data": []}, []])
def test_without_a_list_of_models_one_must_be_named(capsys: pytest.CaptureFixture[str], models: Any) -> None:
    server = Server(encode(good()))
    server.models = models
    assert server.check() == 2
    assert "--model" in capsys.readouterr().err
    assert server.check("--model", "m") == 0


def test_a_server_that_wants_a_key_is_not_to_be_named_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    server.models, server.models_status = {"error": {"message": "No key."}}, 401
    assert server.check() == 2
    said = capsys.readouterr().err
    assert "/v1/models answered HTTP 401: No key; give the server's key with --api-key" in said
    assert "--model" not in said


def test_a_key_that_no_header_can_carry_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9", "--api-key", "ключ") == 2
    assert "the API key" in capsys.readouterr().err


def test_a_server_out_of_reach_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert run(url, "--model", "m") == 2
    assert f"cannot reach {url}/v1: " in capsys.readouterr().err


# ---- the Messages API --------------------------------------------------------------------------------------------------


def test_any_server_of_the_messages_api_is_asked_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    server = Server(encode_messages(FULL))
    assert server.check("--protocol", "messages", "--tools", path="/v1/messages") == 0
    (request,), (headers,) = server.requests, server.headers
    assert (request["model"], request["stream"], request["messages"][0]["role"]) == ("first", True, "user")
    assert request["max_tokens"] > 0
    assert [set(tool) for tool in request["tools"]] == [{"name", "description", "input_schema"}]
    assert (headers["authorization"], headers["anthropic-version"]) == ("Bearer from-env", "2023-06-01")


def test_a_message_that_breaks_a_rule_ends_with_1(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(encode_messages(without(FULL, -1)))
    assert run(path, "--protocol", "messages") == 1
    assert "message_end" in capsys.readouterr().out
    assert run(saved(encode_messages(FULL)), "--protocol", "messages", "--level", "stricter") == 0


def test_codex_reads_no_messages(saved: Save, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(encode_messages(FULL)), "--protocol", "messages", "--client", "codex") == 2
    assert "needs --protocol responses" in capsys.readouterr().err
