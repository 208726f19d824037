"""How the commands that use a gateway ask it, and what they say of a URL or a certificate that does not do."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest
from aiohttp import web

from responses_gateway.cli import main
from responses_gateway.commands import gateway_offer
from responses_gateway.simulator import create_app, serving
from tests.server.gateway_process import program
from tests.server.process.test_sockets import certificate
from tests.server.running_gateway import run, simulated

COMMANDS = [["codex-config"], ["claude-config"], ["codex", "exec", "hi"], ["key", "list"]]


async def said(capsys: pytest.CaptureFixture[str], command: list[str], url: str) -> str:
    """Return what a command prints that uses the gateway at this URL."""
    await asyncio.to_thread(main, [command[0], "--url", url, *command[1:]])
    printed = capsys.readouterr()
    return printed.err + printed.out


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_certificate_of_a_gateway_is_said_to_be_untrusted(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RESPONSES_GATEWAY_ADMIN_KEY", "an-administrators-key")
    stand_in = tmp_path / "codex"  # which is not run, because the gateway is asked before
    stand_in.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    cert, key = certificate(tmp_path)

    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9", "--tls-cert", str(cert), "--tls-key", str(key)) as running:
            untrusted = await said(capsys, command, running.url)
            assert f"no trusted connection to {running.url}/" in untrusted
            assert "self-signed certificate; SSL_CERT_FILE names" in untrusted
            plain = running.url.replace("https", "http")
            assert "This port speaks HTTPS: the URL has to begin with https://." in await said(capsys, command, plain)
            assert await asyncio.to_thread(main, ["check", running.url]) == 2
            checked = capsys.readouterr().err
            assert "self-signed certificate" in checked
            assert checked.endswith(": SSL_CERT_FILE names a file of your own authority\n")  # and does not ask: is it running?

    run(test())


@pytest.mark.slow
def test_an_authority_of_ones_own_is_trusted_on_this_machine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))

    async def test() -> None:
        async with (
            serving(create_app()) as backend,
            program("--backend", backend, "--tls-cert", str(cert), "--tls-key", str(key)) as running,
        ):
            url = f"https://localhost:{running.port}"
            assert f'base_url = "{url}/v1"' in await said(capsys, ["codex-config"], url)

    run(test())


def test_a_name_that_a_gateway_does_not_go_by_is_not_taken_for_a_missing_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **named: resolve("127.0.0.1", *more, **named))

    async def test() -> None:
        async with simulated() as served:
            refused = await said(capsys, ["codex-config"], f"http://gateway.example.com:{served.port}")
            assert "This gateway is not known under" in refused
            assert "needs a key" not in refused

    run(test())


@pytest.mark.parametrize("command", [["check"], ["doctor", "--gateway"], ["codex-config", "--url"]], ids=" ".join)
def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def test() -> None:
        async with simulated() as served:
            assert await asyncio.to_thread(main, [*command, served.url]) == 0

    run(test())


@pytest.mark.parametrize("command", [["check"], ["doctor", "--gateway"], ["codex-config", "--url"]], ids=" ".join)
def test_a_proxy_of_the_environment_that_cannot_be_used_is_said(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "socksio", None)
    assert main([*command, "http://192.0.2.1"]) == 2
    assert "the proxy that the environment names for http://192.0.2.1" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["\n", "ü"], ids=["line break", "umlaut"])
def test_a_key_from_a_file_with_a_line_break_is_sent_and_one_that_no_header_has_is_refused(
    end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = "an-administrators-key"
    for name in ("RESPONSES_GATEWAY_ADMIN_KEY", "OPENAI_API_KEY", "KEY"):
        monkeypatch.setenv(name, admin + end)
    expected = 0 if end == "\n" else None

    async def test() -> None:
        async with simulated(admin_key=admin) as served:
            for command in (["key", "list", "--url"], ["codex-config", "--env-key", "KEY", "--url"], ["check"]):
                status = await asyncio.to_thread(main, [*command, served.url])
                printed = capsys.readouterr().err
                assert status == expected or (expected is None and "contains characters that a header may not have" in printed)
                assert admin not in printed

    run(test())


@pytest.mark.parametrize("command", [["codex-config", "--restore"], ["claude-config", "--restore"], ["codex", "exec", "hi"]])
def test_a_user_without_a_home_is_told(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "codex").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "~")  # as for a user id that no file of users has
    assert main(command) == 1
    assert "this user has no home" in capsys.readouterr().err


ASKING = [["check"], ["doctor", "--gateway"], ["codex-config", "--url"], ["claude-config", "--url"]]


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
@pytest.mark.parametrize("status", [200, 404, 502])
def test_an_answer_that_is_nested_too_deeply_or_does_not_end_is_no_gateways(
    status: int, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway_offer, "MAX_BYTES", 1_000_000)
    endless = False

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "application/json", "Server": "responses-gateway"}
        if not endless:
            return web.Response(text="[" * 100_000, status=status, headers=headers)
        stream = web.StreamResponse(status=status, headers=headers)
        await stream.prepare(request)
        while True:
            await stream.write(b"[" * 100_000)

    async def test() -> None:
        nonlocal endless
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        async with serving(app) as url:
            assert await asyncio.to_thread(main, [*command, url]) in (1, 2)
            assert url in capsys.readouterr().err
            endless = True
            assert await asyncio.to_thread(main, [*command, url]) in (1, 2)
            assert "sent more than 1000000 bytes" in capsys.readouterr().err

    run(test())


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_what_is_no_url_is_said(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "http://[::1"]) == 2
    assert "not a valid URL" in capsys.readouterr().err


def test_what_a_server_says_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        error = {"message": "down\x1b]0;title\x07", "type": "server_error", "param": None, "code": None}
        return web.json_response({"error": error}, status=502, headers={"Server": "responses-gateway"})

    async def test() -> None:
        app = web.Application()
        app.router.add_get("/v1/models", refuse)
        async with serving(app) as url:
            shown = await said(capsys, ["codex-config"], url)
            assert "its backend does not: down\N{REPLACEMENT CHARACTER}]0;title" in shown
            assert "\x1b" not in shown

    run(test())
