"""The names under which the gateway may be addressed: a web page cannot make it a part of itself (DNS rebinding)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from responses_gateway.server.http.foreign_pages import HostCheck
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.wire.errors import ApiError
from tests.server.running_gateway import RawClient, Served, run, simulated

QUESTION = b'{"model": "simulator", "input": "scenario: plain", "stream": false}'
OURS = [
    "localhost", "localhost:9000", "LOCALHOST", "127.0.0.1:9000", "[::1]:9000", "192.168.1.5", "gateway:9000", "me.localhost",
    "host.docker.internal:9000", "host.containers.internal",
]  # fmt: skip
FOREIGN = [
    "evil.example:9000", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example.", "a@evil.example",
    "[evil.example]", "[", "evilinternal.example", "gateway.default.svc.cluster.local",
]  # fmt: skip


async def status(served: Served, host: str, path: str = "/v1/responses") -> int:
    client = await RawClient.connect(served)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(QUESTION)}\r\nConnection: close\r\n\r\n"
    await client.send(head.encode() + QUESTION)
    answer = await client.read_all()
    client.close()
    if b" 403 " in answer.split(b"\r\n")[0]:
        assert b"host_not_allowed" in answer
        assert b"allowed_hosts" in answer
    return int(answer.split(b" ")[1])


def test_over_loopback_and_without_keys_a_foreign_name_is_refused() -> None:
    async def test() -> None:
        async with simulated() as served:
            for host in OURS:
                assert await status(served, host) == 200, host
            for host in FOREIGN:
                assert await status(served, host) in (400, 403), host
                assert await status(served, host, "/v1/conversations") in (400, 403), host
                assert await status(served, host, "/v1/embeddings") in (400, 403), host
            assert await status(served, FOREIGN[0]) == 403
            assert served.metric("access_refusals_total", reason="host") > len(FOREIGN)

    run(test())


def test_a_websocket_of_a_foreign_name_is_refused_too() -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            await client.send(
                b"GET /v1/responses HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            await client.read_until(b"host_not_allowed")
            client.close()

    run(test())


def test_allowed_names() -> None:
    async def test() -> None:
        async with simulated(allowed_hosts=["llm.example.com", "*.corp.example"]) as served:
            for host in (
                "llm.example.com",
                "LLM.example.com:443",
                "llm.example.com.",
                "a.corp.example",
                "a.b.corp.example",
                *OURS,
            ):
                assert await status(served, host) == 200, host
            for host in ("corp.example", "evil.example", "x.llm.example.com", "evilcorp.example"):
                assert await status(served, host) == 403, host
        async with simulated(allowed_hosts=["*"]) as served:
            assert await status(served, "evil.example") == 200

    run(test())


def request(host: str, address: Any) -> Any:
    transport = SimpleNamespace(get_extra_info={"sockname": address}.get)
    return SimpleNamespace(headers={"Host": host}, transport=transport)


@pytest.mark.parametrize("address", [("10.0.0.7", 9000), ("fd00::7", 9000, 0, 0), "/run/gateway.sock", None])
def test_behind_compose_and_kubernetes_any_name_is_taken(address: Any) -> None:
    """Their connections come to another address than loopback."""
    refused: list[int] = []
    hosts = HostCheck([], has_keys=False, count_refusal=lambda: refused.append(1))
    for host in (*OURS, *FOREIGN):
        hosts.check(request(host, address))
    assert refused == []
    named = HostCheck(["llm.example.com"], has_keys=True, count_refusal=lambda: refused.append(1))
    named.check(request("llm.example.com", address))
    with pytest.raises(ApiError):
        named.check(request("evil.example", address))
    assert refused == [1]


@pytest.mark.parametrize("address", [("127.0.0.1", 9000), ("127.0.1.1", 9000), ("::1", 9000, 0, 0)])
def test_keys_protect_as_well(address: Any) -> None:
    HostCheck([], has_keys=True, count_refusal=lambda: None).check(request("evil.example", address))
    with pytest.raises(ApiError):
        HostCheck([], has_keys=False, count_refusal=lambda: None).check(request("evil.example", address))


def test_many_names_take_no_memory() -> None:
    hosts = HostCheck([], has_keys=True, count_refusal=lambda: None)
    for number in range(1000):
        hosts.check(request(f"a{number}", ("127.0.0.1", 1)))
    assert len(hosts.known) <= 101


@pytest.mark.parametrize("host", ["http://llm.example.com", "llm.example.com:443", "a.*.b", "**", ""])
def test_a_setting_that_is_no_name_is_refused(host: str) -> None:
    with pytest.raises((SettingsError, ValueError)):
        Settings(backend=["http://b"], allowed_hosts=[host])
