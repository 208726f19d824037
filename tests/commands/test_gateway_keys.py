"""`responses-gateway key` with a gateway that runs."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiohttp import web

from responses_gateway.cli import main
from responses_gateway.settings.keys import hash_of
from tests.ports import free_port
from tests.server.running_gateway import Served, post, run, simulated

ADMIN = "an-administrators-key"


@pytest.fixture
def admin_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPONSES_GATEWAY_ADMIN_KEY", ADMIN)


async def key(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run the command; return its status and what it has printed."""
    status = await asyncio.to_thread(main, ["key", *argv])
    return (status, *capsys.readouterr())


async def status(served: Served, secret: str) -> int:
    return (await post(served, headers={"Authorization": f"Bearer {secret}"})).status


@pytest.mark.usefixtures("admin_key")
def test_a_key_is_added_listed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of("rp_alice-0123456789"), "models": ["m"]}}
        async with simulated(admin_key=ADMIN, api_keys=keys, store="memory") as served:
            limits = ("--limit", "tokens_per_day=100000", "--limit", "models=sim*,m")
            code, said, _ = await key(capsys, "add", "--url", served.url, "--name", "bob", *limits)
            assert code == 0
            (bob,) = re.findall(r"^  (rp_[\w-]{43})$", said, re.MULTILINE)
            assert await status(served, bob) == 200
            code, said, _ = await key(capsys, "list", "--url", f"{served.url}/v1")
            assert code == 0
            assert re.fullmatch(
                r'alice  settings  models=\["m"\]\n'
                r'bob    run time  since \d{4}-\d\d-\d\d  tokens_per_day=100000  models=\["sim\*", "m"\]\n',
                said,
            ), said
            assert (await key(capsys, "remove", "--url", served.url, "--name", "bob"))[0] == 0
            assert await status(served, bob) == 401

    run(test())


@pytest.mark.usefixtures("admin_key")
def test_what_the_gateway_refuses_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN, store="memory") as served:
            assert (await key(capsys, "list", "--url", served.url))[:2] == (0, "There are no keys.\n")
            for wrong, reason in (
                (("add", "--name", "bob"), "lock everybody else out"),
                (("remove", "--name", "bob"), "There is no key named `bob`"),
                (("add", "--limit", "tokens_per_day"), "FIELD=VALUE"),
            ):
                code, said, error = await key(capsys, *wrong, "--url", served.url)
                assert (code, said) == (1, "")
                assert reason in error
            monkeypatch.setenv("RESPONSES_GATEWAY_ADMIN_KEY", "another-administrators-key")
            assert "HTTP 401" in (await key(capsys, "list", "--url", served.url))[2]
            monkeypatch.delenv("RESPONSES_GATEWAY_ADMIN_KEY")
            assert "RESPONSES_GATEWAY_ADMIN_KEY is not set" in (await key(capsys, "list", "--url", served.url))[2]

    run(test())


@pytest.mark.usefixtures("admin_key")
@pytest.mark.parametrize(
    "text",
    [
        "<html>",
        "[]",
        "[" * 100_000,
        "{}",
        '{"data": [{}]}',
        '{"data": [{"name": 3, "source": "admin"}]}',
        '{"data": [{"name": "a", "source": "", "created_at": 1e30, "problem": ""}]}',
    ],
)
def test_what_is_no_gateway_is_said(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    async def test() -> None:
        app = web.Application()
        app.router.add_get("/admin/keys", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        code, _, error = await key(capsys, "list", "--url", f"http://127.0.0.1:{runner.addresses[0][1]}")
        assert code == 1
        assert "URL" in error
        await runner.cleanup()
        assert "no gateway answers" in (await key(capsys, "list", "--url", f"http://127.0.0.1:{free_port()}"))[2]

    run(test())


@pytest.mark.parametrize(
    "argv",
    [
        ("add",),
        ("add", "--config", "x.yaml", "--url", "http://x"),
        ("remove", "--url", "http://x"),
        ("new", "--url", "http://x"),
        ("list", "--config", "x.yaml"),
        ("add", "--config", "x.yaml", "--limit", "tokens_per_day=1"),
        ("list", "--url", "ftp://x"),
    ],
    ids=" ".join,
)
def test_arguments_that_do_not_fit_together(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", *argv]) == 2
    assert capsys.readouterr().err
