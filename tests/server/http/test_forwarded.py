"""Clients behind reverse proxies: whose word is believed, and what for."""

from __future__ import annotations

import pytest

from tests.log_lines import log_lines
from tests.server.running_gateway import post, run, simulated

LOOPBACK = ["127.0.0.0/8"]


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),  # the client wrote the first one itself
        ("203.0.113.7, 127.0.0.9", "203.0.113.7"),  # a proxy behind a proxy
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("203.0.113.7, nonsense", "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_the_log_names_the_client_that_a_trusted_proxy_names(header: str, address: str) -> None:
    async def test() -> None:
        with log_lines() as lines:
            async with simulated(forwarded_by=LOOPBACK, access_log=True) as served:
                assert (await post(served, headers={"X-Forwarded-For": header})).status == 200
            (line,) = lines("response")
        assert line["client"] == address

    run(test())


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"]])
def test_nobody_else_is_believed(proxies: list[str]) -> None:
    async def test() -> None:
        async with simulated(forwarded_by=proxies, requests_per_minute=1) as served:
            answers = [await post(served, headers={"X-Forwarded-For": f"203.0.113.{number}"}) for number in range(2)]
            assert [answer.status for answer in answers] == [200, 429]

    run(test())


def test_each_client_behind_a_proxy_has_its_own_limit() -> None:
    async def test() -> None:
        async with simulated(forwarded_by=LOOPBACK, requests_per_minute=1) as served:
            addresses = ["203.0.113.1", "203.0.113.2", "203.0.113.1"]
            answers = [await post(served, headers={"X-Forwarded-For": address}) for address in addresses]
            assert [answer.status for answer in answers] == [200, 200, 429]

    run(test())
