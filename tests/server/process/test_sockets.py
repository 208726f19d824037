"""Where the gateway listens: HTTPS, a port for operators, a Unix socket; and what all workers must share."""

from __future__ import annotations

import asyncio
import datetime
import os
import resource
import signal
import socket
import ssl
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from responses_gateway.server.process.sockets import open_listeners, tls_context, url_of
from responses_gateway.settings import SUPERVISED_VARIABLE, Settings, SettingsError
from tests.server.gateway_process import WITHOUT_UVLOOP, Program, fresh_connections, program
from tests.server.running_gateway import QUESTION, final_of, run, until

WORKERS = pytest.mark.parametrize("workers", [("--workers", "2"), ()], ids=["2 workers", "1 process"])
SIMULATED = ("--simulator", "--store", "none")


def certificate(folder: Path, name: str = "server", password: bytes | None = None, days: int = 1) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key; `name` is its common name, `days` how long it is valid."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject_name=subject, issuer_name=subject, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(pem)
    return files


def name_of_certificate(port: int) -> str:
    """The common name of the certificate that a server shows."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    (name,) = x509.load_pem_x509_certificate(pem.encode()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


# Addresses


def test_all_addresses_are_those_of_both_kinds() -> None:
    async def test() -> None:
        async with program(*SIMULATED, "--host", "::") as running:
            port = running.url.rpartition(":")[2]
            async with fresh_connections() as session:
                for host in ("127.0.0.1", "[::1]"):
                    async with session.get(f"http://{host}:{port}/v1/models") as answer:
                        assert answer.status == 200

    run(test())


@WORKERS
def test_a_low_limit_of_open_files_is_raised(workers: tuple[str, ...]) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    low = f"resource.setrlimit(resource.RLIMIT_NOFILE, (128, {most}))"
    first = f"import os, resource; '{SUPERVISED_VARIABLE}' in os.environ or {low}"  # workers inherit what their parent has
    question = {**QUESTION, "input": "tokens: 1000 tps: 1"}

    async def test() -> None:
        async with AsyncExitStack() as stack:
            running = await stack.enter_async_context(program(*SIMULATED, *workers, first=first))
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
            for _ in range(100):
                answer = await session.post(f"{running.url}/v1/responses", json=question)
                stack.callback(answer.close)
                assert answer.status == 200

    run(test())


# HTTPS


@pytest.mark.parametrize(
    ("workers", "first"),
    [(("--workers", "2"), ""), ((), ""), ((), WITHOUT_UVLOOP)],
    ids=["2 workers", "1 process", "asyncio"],
)
def test_https(workers: tuple[str, ...], first: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=cert)

    async def test() -> None:
        tls = ("--tls-cert", str(cert), "--tls-key", str(key))
        async with program(*SIMULATED, *workers, *tls, first=first) as running:
            assert running.url.startswith("https://")
            url = running.url.replace("127.0.0.1", "localhost")
            async with fresh_connections() as session:
                question = {**QUESTION, "input": "tokens: 2000 tps: 5000"}
                for _ in range(3):
                    async with session.post(f"{url}/v1/responses", json=question, ssl=trusted) as answer:
                        assert final_of(await answer.read())["status"] == "completed"
                for _ in range(2):
                    async with session.get(running.url.replace("https", "http") + "/v1/models") as answer:
                        assert answer.status == 400
                        assert "https://" in (await answer.json())["error"]["message"]
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0
            assert "Traceback" not in running.said

    run(test())


def test_a_rolling_restart_takes_a_new_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "old")

    async def test() -> None:
        flags = ("--workers", "2", "--tls-cert", str(cert), "--tls-key", str(key))
        async with program(*SIMULATED, *flags) as running:
            assert await asyncio.to_thread(name_of_certificate, running.port) == "old"
            new = certificate(tmp_path, "new")
            os.replace(new[0], cert)
            os.replace(new[1], key)
            running.signal(signal.SIGUSR2)
            await running.says(" rolled ")
            await until(lambda: len(running.workers) == 2)
            assert await asyncio.to_thread(name_of_certificate, running.port) == "new"

    run(test())


async def days_left(running: Program) -> list[float]:
    """How long the certificates are valid that `/metrics` names, in days."""
    async with fresh_connections() as session, session.get(f"{running.url}/metrics", ssl=False) as answer:
        lines = (await answer.text()).splitlines()
    ends = [float(line.split()[-1]) for line in lines if line.startswith("responses_gateway_certificate_expiry_")]
    return [round((end - time.time()) / 86400, 1) for end in ends]


@WORKERS
def test_reloaded_settings_take_a_renewed_certificate(workers: tuple[str, ...], tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "old")
    file = tmp_path / "gateway.yaml"
    file.write_text(f"backend: http://127.0.0.1:9/v1\nstore: none\ntls_cert: {cert}\ntls_key: {key}\n", encoding="utf-8")

    async def test() -> None:
        async with program("--config", str(file), *workers) as running:
            assert await days_left(running) == [1]
            new = certificate(tmp_path, "new", days=90)
            os.replace(new[0], cert)  # as a program does that renews it: for a moment, the key is another one's
            running.signal(signal.SIGHUP)
            await running.says("settings not reloaded: nothing has changed")
            assert await asyncio.to_thread(name_of_certificate, running.port) == "old"
            assert await days_left(running) == [1]
            os.replace(new[1], key)
            running.signal(signal.SIGHUP)
            await running.says("settings reloaded")
            while await days_left(running) != [90]:  # noqa: ASYNC110  (the slower of two workers, which says nothing)
                await asyncio.sleep(0.02)
            assert await asyncio.to_thread(name_of_certificate, running.port) == "new"

    run(test())


def test_without_tls_no_certificate_expires() -> None:
    async def test() -> None:
        async with program(*SIMULATED) as running:
            assert await days_left(running) == []

    run(test())


@WORKERS
def test_a_certificate_that_is_not_there_is_status_2(workers: tuple[str, ...], tmp_path: Path) -> None:
    async def test() -> None:
        missing = str(tmp_path / "no.pem")
        async with program(*SIMULATED, *workers, "--tls-cert", missing, starts=False) as running:
            assert await running.exit() == 2
            assert f"--tls-cert: {missing}: No such file or directory" in running.said
            assert "Traceback" not in running.said

    run(test())


def test_wrong_files_are_named(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    _, other = certificate(tmp_path, "other")
    _, locked = certificate(tmp_path, "locked", b"secret")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate", encoding="utf-8")
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    assert tls_context(Settings()) is None
    assert tls_context(Settings(tls_cert=both)) is not None
    wrong: list[tuple[Path | None, Path | None, str]] = [
        (None, key, "--tls-key needs --tls-cert"),
        (cert, tmp_path / "no.key", "--tls-key: "),
        (cert, other, "--tls-key: this is not the key of the certificate in"),
        (cert, locked, "the key without a password"),
        (cert, None, "--tls-cert: "),
        (garbage, key, "--tls-cert: "),
        (tmp_path, key, "Is a directory"),
    ]
    for tls_cert, tls_key, said in wrong:
        with pytest.raises(SettingsError) as caught:
            tls_context(Settings(tls_cert=tls_cert, tls_key=tls_key))
        assert said in str(caught.value)


# Addresses


@WORKERS
def test_operators_have_a_port_of_their_own(workers: tuple[str, ...]) -> None:
    async def test() -> None:
        async with program(*SIMULATED, *workers, "--operations-port", "0", "--drain-delay", "600") as running:
            async with fresh_connections() as session:

                async def status(url: str) -> int:
                    async with session.get(url) as answer:
                        return answer.status

                for url in (running.url, running.operations):
                    assert await status(f"{url}/health") == 200
                    assert await status(f"{url}/ready") == 200
                assert await status(f"{running.url}/metrics") == 404
                assert await status(f"{running.operations}/metrics") == 200
                assert await status(f"{running.operations}/v1/models") == 404
                running.signal(signal.SIGTERM)
                await running.says("draining", times=len(running.workers) or 1)
                assert await status(f"{running.operations}/ready") == 503
                assert await status(f"{running.operations}/metrics") == 200
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0

    run(test())


@WORKERS
def test_a_unix_socket(workers: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with socket.socket(socket.AF_UNIX) as left_by_one_that_was_killed:
        left_by_one_that_was_killed.bind(str(path))

    async def test() -> None:
        async with program(*SIMULATED, *workers, "--host", f"unix:{path}") as running:
            assert running.url == f"unix:{path}"
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
                session.post("http://gateway/v1/responses", json=QUESTION) as answer,
            ):
                assert final_of(await answer.read())["status"] == "completed"
            async with program(*SIMULATED, "--host", f"unix:{path}", starts=False) as second:
                assert await second.exit() == 1
                assert "already in use" in second.said
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0, running.said
            assert os.listdir(tmp_path) == []

    run(test())


@WORKERS
def test_an_address_that_is_taken_is_named_and_how_to_take_another(workers: tuple[str, ...]) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            async with program(*SIMULATED, *workers, "--port", port, starts=False) as running:
                assert await running.exit() == 1
                assert f"cannot listen address=127.0.0.1:{port}" in running.said
                assert "Address already in use: choose another port with --port" in running.said

    run(test())


def test_the_port_of_operators_that_is_taken_has_its_own_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(port=0, operations_port=taken.getsockname()[1])
        with pytest.raises(OSError, match="choose another port with --operations-port"):
            open_listeners(settings)


def test_every_address_of_a_host_has_the_same_port() -> None:
    listeners = open_listeners(Settings(host="localhost", port=0, operations_port=0))
    try:
        assert len({listener.getsockname()[1] for listener in listeners.clients}) == 1
        assert url_of(listeners.operators[0], tls=True).startswith("https://")
        assert {url_of(listener, tls=False) for listener in listeners.clients}
    finally:
        listeners.close()


# What workers share


async def created(running: Program, session: aiohttp.ClientSession, **fields: object) -> dict[str, object]:
    async with session.post(
        f"{running.url}/v1/responses", json={**QUESTION, "input": "tps: 5000", "stream": False, **fields}
    ) as answer:
        assert answer.status == 200
        found: dict[str, object] = await answer.json()
        return found


def test_what_one_worker_seals_the_other_opens() -> None:
    async def test() -> None:
        async with program(*SIMULATED, "--workers", "2") as running, fresh_connections() as session:
            asked = [created(running, session, include=["reasoning.encrypted_content"]) for _ in range(20)]
            responses = await asyncio.gather(*asked)
            items = [item for response in responses for item in response["output"]]  # type: ignore[attr-defined]
            seals = [item["encrypted_content"] for item in items if "encrypted_content" in item]
            assert len(seals) >= 20
            assert len({seal.split(".")[1] for seal in seals}) == 1  # the name of the key

    run(test())


def test_what_one_worker_stores_the_other_finds(tmp_path: Path) -> None:
    async def test() -> None:
        store = str(tmp_path / "responses.sqlite3")
        async with program("--simulator", "--workers", "2", "--store", store) as running, fresh_connections() as session:
            first = await asyncio.gather(*(created(running, session) for _ in range(10)))
            following = (created(running, session, previous_response_id=response["id"]) for response in first for _ in "12")
            assert len(await asyncio.gather(*following)) == 20

    run(test())


def test_a_memory_is_of_one_process() -> None:
    async def test() -> None:
        async with program("--simulator", "--workers", "2", "--store", "memory", starts=False) as running:
            assert await running.exit() == 2
            assert "works with one worker only" in running.said

    run(test())


def test_so_it_does_not_stand_in_for_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_bytes(b"")  # a file where a folder should be

    async def test() -> None:
        backend = ("--backend", "http://127.0.0.1:9")
        async with program(*backend, "--workers", "2", starts=False, XDG_STATE_HOME=str(state)) as running:
            assert await running.exit() == 1
            assert "several workers need a file that all can write" in running.said

    run(test())
