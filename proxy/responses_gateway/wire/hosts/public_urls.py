"""Tell URLs of public hosts from those that only a machine, a network or a cloud can reach.

The DNS may answer differently a moment later: whoever connects to a host also checks its address, with `is_public`."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from yarl import URL

from responses_gateway.wire.hosts.addresses import is_public, looked_up, read_ipv4
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts

_HTTP = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
# URL parsers disagree about these: some drop them, some read a backslash as a slash.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")
_PORT = re.compile(r":[0-9]*$")
# Suffixes of names that belong to a machine, a network or a cluster.
_LOCAL = (
    "localhost", "localdomain", "local", "internal", "intranet", "private", "lan", "home", "corp", "home.arpa", "cluster.local",
    "svc",
)  # fmt: skip
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+")
_NO_ADDRESS = "its host is not an address"
# Ports of web servers: others belong to services that are not meant to be asked by strangers.
_WEB_PORTS = frozenset({80, 443, 8080, 8443})


def not_public(url: str) -> str | None:
    """Say why a URL does not name a public address; return None if it does."""
    if _AMBIGUOUS.search(url):
        return "it contains characters that are not allowed in a URL"
    match = _HTTP.match(url)
    if match is None:
        return "it begins neither with http:// nor with https://"
    authority = match.group(1)
    if "@" in authority or "%" in authority:
        return "a user name or an encoded host is not accepted"
    return _host_complaint(_PORT.sub("", authority))


def _host_complaint(host: str) -> str | None:
    if host.startswith("["):
        return _address_complaint(_in_brackets(host))
    name = looked_up(host)
    if name is None:
        return "its host is not a name"
    last = name.rpartition(".")[2]
    if last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last):
        return _address_complaint(read_ipv4(name))
    if not _NAME.fullmatch(name):
        return "its host is not a name of the public internet"
    if any(name == end or name.endswith(f".{end}") for end in _LOCAL):
        return "its host is a local name"
    return None


def _in_brackets(host: str) -> str | None:
    """Return the IPv6 address in brackets; None if there is none."""
    try:
        return str(IPv6Address(host[1:-1])) if host.endswith("]") else None
    except ValueError:
        return None


def _address_complaint(address: str | None) -> str | None:
    if address is None:
        return _NO_ADDRESS
    return None if is_public(address) else "its host is a private or special address"


def page_complaint(url: str, private_hosts: AllowedHosts) -> str | None:
    """Say why a page is not fetched; return None if it is."""
    try:
        parsed = URL(url)
        host = parsed.raw_host or ""  # as it is looked up
        port = parsed.port or 0
    except ValueError:
        return "it is not a valid URL"
    has_user = bool(parsed.user or parsed.password)
    if parsed.scheme in ("http", "https") and not has_user and may_be_private(host, port, private_hosts):
        return None
    # Where two parsers see different hosts, the one that connects counts.
    reason = not_public(url) or not_public(str(parsed))
    if reason is None and port not in _WEB_PORTS:
        return f"port {port} is not that of a web server"
    return reason


def may_be_private(host: str, port: int, private_hosts: AllowedHosts) -> bool:
    """Tell whether the addresses of a host may be private."""
    return private_hosts.lists(host, port) or private_hosts.lists(host)
