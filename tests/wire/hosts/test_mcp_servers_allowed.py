"""The hosts of MCP servers to which a request may have the gateway connect."""

from __future__ import annotations

import pytest

from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.mcp_servers import may_be_private, server_complaint

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
    assert server_complaint(url, HOSTS) is None


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
    assert server_complaint(url, HOSTS)
    assert not may_be_private(url, HOSTS)


def test_a_star_stands_for_public_hosts() -> None:
    hosts = AllowedHosts.read(["*", "*.internal:80"])
    assert server_complaint("https://anything.example/", hosts) is None
    assert server_complaint("https://10.0.0.5/", hosts)
    assert server_complaint("https://localhost/", hosts)
    assert server_complaint("http://tools.internal/", hosts)  # a private host has to be named in full


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("http://tools.internal:9000/sse", True),
        ("http://10.0.0.5:8080/", True),
        ("http://plain.example.com:8080/", True),  # a name that the DNS of a company resolves to a private address
        ("https://mcp.example.com/mcp", False),
        ("https://a.tools.example/", False),
        ("http://a.wide.example:81/", False),
    ],
)
def test_a_host_that_is_listed_with_its_port_may_have_private_addresses(url: str, private: bool) -> None:
    hosts = AllowedHosts((*HOSTS.entries, *AllowedHosts.read(["*.wide.example:81"]).entries))
    assert server_complaint(url, hosts) is None
    assert may_be_private(url, hosts) is private


@pytest.mark.parametrize("entry", ["", "https://mcp.example.com", "mcp.example.com:0", "a:99999", "a b", "*.*", "a/b", "mcp.*"])
def test_an_entry_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="a host is a name"):
        AllowedHosts.read([entry])
