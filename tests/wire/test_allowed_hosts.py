"""Hosts to which a request may have the gateway connect."""

from __future__ import annotations

import pytest

from proxy.wire.allowed_hosts import AllowedHosts

HOSTS = AllowedHosts.read(
    ["mcp.example.com", "*.tools.example", "Plain.example.com:8080", "tools.internal:9000", "10.0.0.5:8080", "[::1]:7000"]
)


@pytest.mark.parametrize(
    "url",
    [
        "https://mcp.example.com/mcp",
        "https://MCP.example.com:443/a?b=c",
        "https://a.tools.example/",
        "https://a.b.tools.example",
        "http://plain.example.com:8080/mcp",
        "https://plain.example.com:8080/mcp",
        "http://tools.internal:9000/sse",
        "http://10.0.0.5:8080/",
        "http://[::1]:7000/mcp",
    ],
)
def test_a_host_that_is_listed_is_allowed(url: str) -> None:
    assert HOSTS.complaint(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://mcp.example.com/",  # not encrypted
        "https://mcp.example.com:8443/",
        "https://tools.example/",
        "https://eviltools.example/",
        "https://mcp.example.com.evil.com/",
        "https://mcp.example.com@evil.com/",
        "https://evil.com#@mcp.example.com/",
        "https://evil.com\\@mcp.example.com/",
        "https://evil.com\t.mcp.example.com/",
        "https://mcp.example.com%2f@evil.com/",
        "https://mcp.example。com/",
        "http://tools.internal/",
        "http://tools.internal:9001/",
        "http://10.0.0.5/",
        "http://10.0.0.5:8081/",
        "http://167772165:8080/",  # 10.0.0.5 in other words
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "ftp://mcp.example.com/",
        "https:///mcp",
        "https://mcp.example.com:99999/",
        "https://[::1/",
        "mcp.example.com",
        "",
    ],
)
def test_any_other_is_not(url: str) -> None:
    assert HOSTS.complaint(url)
    assert not HOSTS.allows_private(url)


def test_a_star_stands_for_public_hosts() -> None:
    hosts = AllowedHosts.read(["*", "*.internal:80"])
    assert hosts.complaint("https://anything.example/") is None
    assert hosts.complaint("https://10.0.0.5/")
    assert hosts.complaint("https://localhost/")
    assert hosts.complaint("http://tools.internal/")  # a private host has to be named in full


def test_only_private_hosts_may_have_private_addresses() -> None:
    assert HOSTS.allows_private("http://tools.internal:9000/sse")
    assert HOSTS.allows_private("http://10.0.0.5:8080/")
    assert not HOSTS.allows_private("http://plain.example.com:8080/")


@pytest.mark.parametrize("entry", ["", "https://mcp.example.com", "mcp.example.com:0", "a:99999", "a b", "*.*", "a/b", "mcp.*"])
def test_an_entry_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="a host is a name"):
        AllowedHosts.read([entry])
