"""The gateway behind a real nginx and a real Envoy with our configurations: nothing of a stream may be held back, nothing sent
twice."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.deploy import envoy_process, nginx_process
from tests.deploy.envoy_process import Start, envoy
from tests.deploy.nginx_process import Proxy, nginx
from tests.judges import judge_stream
from tests.ports import free_port
from tests.server.running_gateway import QUESTION, RawClient, body_of, final_of, gateway, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, backend, chunk, streaming, text_stream
from tests.waiting import PATIENCE

WORDS = [f"word {number} " for number in range(8)]


@pytest.fixture(params=[nginx, envoy], ids=["nginx", "envoy"])
def proxy(request: pytest.FixtureRequest) -> Start:
    """Start a proxy in front of gateways on these ports."""
    start: Start = request.param
    return start


@pytest.mark.parametrize("site", ["replicas.conf", "responses-gateway.conf"])
def test_nginx_accepts_the_configuration(site: str, tmp_path: Path) -> None:
    main, _ = nginx_process.write_configuration(tmp_path, site, [9000, 9001])
    assert nginx_process.check_configuration(main) == ""


@pytest.mark.parametrize(("wrong", "complaint"), [("", ""), ("max_requests_per_connection", "has unknown fields")])
def test_envoy_accepts_the_configuration(wrong: str, complaint: str, tmp_path: Path) -> None:
    file, _ = envoy_process.write_configuration(tmp_path, [9000, 9001])
    text = file.read_text(encoding="utf-8")
    assert wrong in text
    file.write_text(text.replace(wrong, f"{wrong}s") if wrong else text, encoding="utf-8")
    told = envoy_process.check_configuration(file)
    assert bool(told) is bool(wrong), told
    assert complaint in told


def test_each_event_arrives_before_the_next_is_made(proxy: Start, tmp_path: Path) -> None:
    """Let the backend go on only when the client has read what it sent: the test stops if one event is held back."""
    read = asyncio.Event()

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        for word in WORDS:
            read.clear()
            connection.send(chunk({"content": word}))
            await read.wait()
        connection.send(chunk({}, "stop"), b"data: [DONE]\n\n")
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served, proxy(tmp_path, served.port) as front:
            client = await RawClient.connect(front)
            await client.post()
            for word in WORDS:
                # The space behind a word waits for what follows it: it may be the end of the text.
                await client.read_until(word.strip().encode())
                read.set()
            await client.read_until(b"\r\n0\r\n\r\n")  # not the end of a header that ends with 0
            assert final_of(body_of(client.received))["output"][0]["content"][0]["text"] == "".join(WORDS)
            client.close()

    run(test())


def test_signs_of_life_pass_while_the_backend_thinks(proxy: Start, tmp_path: Path) -> None:
    async def play(connection: Connection) -> None:
        if connection.request.startswith(b"GET"):  # whether the gateway is ready
            connection.reset()
        await connection.lost

    async def test() -> None:
        settings = {"header_grace": 0, "keepalive_comment": 0.05, "keepalive_event": 0.1}
        async with backend(play) as behind, gateway(behind.url, **settings) as served, proxy(tmp_path, served.port) as front:
            client = await RawClient.connect(front)
            await client.post()
            await client.read_until(b"\n: ")
            await client.read_until(b'"type":"response.in_progress"')
            client.close()

    run(test())


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset])
def test_a_client_that_leaves_frees_the_backend(leave: Callable[[RawClient], None], proxy: Start, tmp_path: Path) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "Hello"}))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served, proxy(tmp_path, served.port) as front:
            client = await RawClient.connect(front)
            await client.post()
            await client.read_until(b"Hello")
            leave(client)
            await asyncio.wait_for(behind.connections[0].lost, PATIENCE)
            await until(lambda: not served.parts.in_flight.activities)

    run(test())


def test_a_websocket_is_upgraded_and_holds_a_conversation(proxy: Start, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            simulated() as served,
            proxy(tmp_path, served.port) as front,
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{front.url}/v1/responses") as socket,
        ):
            for _ in range(2):
                body = {"type": "response.create", "model": "simulator", "input": "scenario: plain", "store": False}
                await socket.send_str(json.dumps(body))
                events = [json.loads(await socket.receive_str(timeout=PATIENCE))]
                while events[-1]["type"] != "response.completed":
                    events.append(json.loads(await socket.receive_str(timeout=PATIENCE)))
                frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                assert judge_stream((frames + "data: [DONE]\n\n").encode()) == []

    run(test())


def test_over_tls(tmp_path: Path) -> None:
    async def test() -> None:
        trusted = ssl.create_default_context()
        trusted.check_hostname = False
        async with simulated() as served, nginx(tmp_path, served.port, site="responses-gateway.conf") as front:
            trusted.load_verify_locations(tmp_path / "fullchain.pem")
            url = f"https://127.0.0.1:{front.port}/v1/responses"
            async with aiohttp.ClientSession() as session, session.post(url, json=QUESTION, ssl=trusted) as answer:
                assert final_of(await answer.read())["status"] == "completed"

    run(test())


def test_what_is_too_large_is_told_in_the_words_of_the_api(proxy: Start, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            backend(streaming(*text_stream("Hello"))) as behind,
            gateway(behind.url, max_body_bytes=2_000_000) as served,
            proxy(tmp_path, served.port) as front,
        ):
            status, body = await post(front, input="x" * 1_900_000)
            assert (status, body["status"]) == (200, "completed")
            status, body = await post(front, input="x" * 2_100_000)
            assert (status, body["error"]["type"]) == (413, "invalid_request_error")

    run(test())


def test_operators_pages_are_not_for_everybody(proxy: Start, tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated() as served, proxy(tmp_path, served.port) as front, aiohttp.ClientSession() as session:
            for path in ("/metrics", "/ui", "/ui/", "/ui/api/state", "/%6Detrics", "/./metrics", "//metrics", "/%75i/"):
                async with session.get(URL(front.url + path, encoded=True)) as answer:
                    assert answer.status == 404, path
            async with session.get(f"{front.url}/ready") as answer:
                assert answer.status == 200

    run(test())


def test_a_request_that_was_sent_is_not_sent_again(proxy: Start, tmp_path: Path) -> None:
    """Kill a gateway over a request: another may not get it, because it may have been answered."""

    async def die(connection: Connection) -> None:
        connection.reset()

    async def test() -> None:
        async with backend(die) as one, backend(die) as other:
            ports = [int(gateway.url.rpartition(":")[2]) for gateway in (one, other)]
            async with proxy(tmp_path, *ports) as front, aiohttp.ClientSession() as session:
                async with session.post(f"{front.url}/v1/responses", json=QUESTION) as answer:
                    assert answer.status in (502, 503)
                sent = [request for request in (*one.requests, *other.requests) if request.startswith(b"POST")]
                assert len(sent) == 1  # the others ask whether it is ready

    run(test())


def test_a_replica_that_is_away_is_passed_over(proxy: Start, tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            backend(streaming(*text_stream("Hello"))) as behind,
            gateway(behind.url) as served,
            proxy(tmp_path, free_port(), served.port) as front,
        ):
            for _ in range(4):
                status, body = await post(front)
                assert (status, body["status"]) == (200, "completed")

    run(test())


def test_gateways_that_drain_get_no_requests_from_envoy_while_another_is_ready(tmp_path: Path) -> None:
    """Envoy would by default use them all as soon as most of them are not ready."""

    async def drain(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        connection.end()

    async def test() -> None:
        async with (
            backend(drain) as one,
            backend(drain) as other,
            backend(streaming(*text_stream("Hello"))) as behind,
            gateway(behind.url) as served,
        ):
            ports = [int(away.url.rpartition(":")[2]) for away in (one, other)]
            async with envoy(tmp_path, *ports, served.port) as front:
                for _ in range(6):
                    status, body = await post(front)
                    assert (status, body["status"]) == (200, "completed")

    run(test())


async def post(front: Proxy, **fields: object) -> tuple[int, dict[str, Any]]:
    """Send a request without stream and return the status and the body."""
    body = io.BytesIO(json.dumps({**QUESTION, "stream": False, **fields}).encode())
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{front.url}/v1/responses", data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()
