"""Gateways whose backends lead back to them: a request is refused at once, where it would go round until it times out."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run
from tests.server.scripted_backend import Connection, backend

KEY = "an-administrators-key"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def ring(length: int, stack: AsyncExitStack) -> Served:
    """Start gateways of which each is the backend of the one before, and the first that of the last. Return the first."""
    # None may wait for another to list its models in time: the loop has to be found, not given up.
    settings = {"admin_key": KEY, "adapt": False, "connect_timeout": 3600.0}
    gateways = [await stack.enter_async_context(gateway(**settings)) for _ in range(length)]
    for served, behind in zip(gateways, [*gateways[1:], gateways[0]], strict=True):
        headers = {"Authorization": f"Bearer {KEY}"}
        added = await ask(served, "POST", "/admin/backends", headers=headers, json={"url": behind.url})
        assert added.status < 300, added.body
    return gateways[0]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_request_that_comes_back_is_refused_and_its_client_told_why(length: int) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            served = await ring(length, stack)
            message = assert_error(await ask(served, "POST", "/v1/chat/completions", json=CHAT), 508, "loop_detected")
            assert "leads to the gateway itself" in message
            assert "The operator has to set `backend`" in message
            assert assert_error(await post(served, stream=False), 502) == message
            assert assert_error(await ask(served, "GET", "/v1/models"), 508, "loop_detected") == message

    run(test())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
def test_a_gateway_in_front_of_another_is_no_loop_and_names_of_other_proxies_are_kept(path: str) -> None:
    async def play(connection: Connection) -> None:
        body = b'{"object": "list", "data": []}'
        connection.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    async def test() -> None:
        async with (
            backend(play) as behind,
            gateway(behind.url, adapt=False) as second,
            gateway(second.url, adapt=False) as first,
        ):
            method = "POST" if "chat" in path else "GET"
            body = {"json": CHAT} if method == "POST" else {}
            answer = await ask(first, method, path, headers={"Via": "1.1 balancer"}, **body)
            assert answer.status == 200
            lines = [line for request in behind.requests for line in request.decode().split("\r\n")]
            (via,) = [line.partition(": ")[2] for line in lines if line.startswith("Via: 1.1 balancer")]
            gateways = via.split(", ")[1:]
            assert [each.rpartition("-")[0] for each in gateways] == ["1.1 responses-gateway"] * 2
            assert gateways[0] != gateways[1]

    run(test())
