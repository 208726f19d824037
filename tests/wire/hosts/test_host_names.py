"""Hosts as they are looked up and judged: names, loopback addresses, and the names under which the gateway is addressed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from responses_gateway.wire.hosts.addresses import is_loopback, is_public, looked_up
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.own_names import OwnNames, is_same_origin
from responses_gateway.wire.hosts.public_urls import not_public, page_complaint

NAMES = {
    "faß.de": "xn--fa-hia.de",
    "FASS.de.": "fass.de",
    "βόλος.example": "xn--nxasmm1c.example",  # a final sigma
    "bücher。example": "xn--bcher-kva.example",
    "①②⑦.⓪.⓪.①": "127.0.0.1",
    "💩.example": "xn--ls8h.example",  # not in IDNA 2008
    "a_b.example": "a_b.example",
    "10.1.2.3": "10.1.2.3",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_judged_as_it_is_looked_up(name: str) -> None:
    assert looked_up(name) == NAMES[name]
    assert str(URL(f"http://{name}/").raw_host).removesuffix(".") == NAMES[name]  # what aiohttp asks the DNS for


def test_a_soft_hyphen_is_judged_as_those_do_who_drop_it() -> None:
    assert looked_up("loc\u00adalhost") == "localhost"  # aiohttp refuses it


@pytest.mark.parametrize("name", ["١٢٧.٠.٠.١", "\ud800.example", "ü" * 300, "ß" * 70 + ".de", "a" * 254])
def test_what_cannot_be_looked_up_has_no_name(name: str) -> None:
    assert looked_up(name) is None
    assert not_public(f"http://{name}/") is not None


@given(st.text(max_size=40))
def test_every_text_has_a_name_in_ascii_or_none(text: str) -> None:
    name = looked_up(text)
    assert name is None or name.isascii()


def test_a_private_host_is_allowed_by_the_name_that_is_looked_up() -> None:
    listed = AllowedHosts.read(["xn--fa-hia.internal", "fass.lan"])
    for host in ("faß.internal", "FAß.internal", "xn--fa-hia.internal"):
        assert page_complaint(f"http://{host}:8000/", listed) is None, host
    for host in ("fass.internal", "faß.lan"):
        assert page_complaint(f"http://{host}:8000/", listed), host


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST.", "me.localhost", "127.0.0.1", "127.8.9.10", "::1", "0:0:0:0:0:0:0:1", "::1%lo",
        "::ffff:127.0.0.1",
    ],
)  # fmt: skip
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "127.evil.example", "127.0.0.1.example", "localhost.example", "10.0.0.1", "0.0.0.0", "::", "fe80::1%lo"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True), ("2606:4700:4700::1111", True), ("10.0.0.1", False), ("::1", False), ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False), ("127.1", False), ("", False), ("example.com", False),
    ],
)  # fmt: skip
def test_a_public_address(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_own_names_are_those_that_no_foreign_page_can_have() -> None:
    names = OwnNames(["llm.example.com", "*.corp.example", "*"])
    own = [
        "localhost:9000",
        "192.168.1.5",
        "[::1]:9000",
        "gateway:9000",
        "host.docker.internal",
        "LLM.example.com.:1",
        "a.corp.example",
    ]
    foreign = ["evil.example", "corp.example", "x.llm.example.com", "localhost.evil.example", "["]
    assert [host for host in own + foreign if names.include(host)] == own


def test_the_origin_of_a_page_of_the_gateway() -> None:
    assert is_same_origin("http://localhost:9000", "LOCALHOST:9000")
    assert is_same_origin("https://llm.example.com/", "llm.example.com")
    for origin in ("null", "http://localhost:9001", "http://[", "http://localhost:9000.evil.example", ""):
        assert not is_same_origin(origin, "localhost:9000")


def test_a_list_of_hosts() -> None:
    hosts = AllowedHosts.read(["Wiki.lan", "10.1.2.3:8080", "[fd00::1]:81", "*.example.com", "*:7000"])
    assert hosts.lists("wiki.LAN")
    assert hosts.lists("10.1.2.3", 8080)
    assert hosts.lists("fd00::1", 81)
    assert not hosts.lists("wiki.lan", 80)
    assert not hosts.lists("a.example.com")
    assert hosts.covers("wiki.lan")
    assert hosts.covers("a.b.EXAMPLE.com")
    assert hosts.covers("anything", 7000)
    ascii_names = AllowedHosts.read(["xn--fa-hia.lan:80", "*.xn--bcher-kva.example"])
    assert AllowedHosts.read(["faß.lan:80", "*.bücher.example"]) == ascii_names
    assert not hosts.covers("example.com")
    assert not hosts.covers("a.example.com", 80)
