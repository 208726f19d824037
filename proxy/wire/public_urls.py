"""Tell public addresses and URLs from those that only a machine, a network or a cloud can reach.

Names are not resolved here (this package does no I/O, and the DNS may answer differently a moment later): whoever connects to
one checks the address too, with `address_complaint`."""

from __future__ import annotations

import re
import unicodedata
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_HTTP = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
# URL parsers disagree about these: some drop them, some read a backslash as a slash.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")
_PORT = re.compile(r":[0-9]*$")
# Suffixes of names that belong to a machine, a network or a cluster.
_LOCAL = (
    "localhost", "localdomain", "local", "internal", "intranet", "private", "lan", "home", "corp", "home.arpa", "cluster.local",
    "svc",
)  # fmt: skip
# Addresses that count as global and are not those of a server on the internet: the IETF's own, relays of 6to4, and Azure's
# service for its virtual machines.
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv4Network("168.63.129.16/32"))
# All public IPv6 addresses begin like this; what Python knows of the others depends on its version.
_GLOBAL = IPv6Network("2000::/3")
# Parts of it: protocols (among them Teredo), documentation, and the former test network.
_SPECIAL_IPV6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "3fff::/20", "3ffe::/16"))
# Interface identifiers of ISATAP, which end with an IPv4 address.
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
_NOT_PUBLIC = "its host is a private or special address"
_LONGEST_NAME = 253
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)+")
# IPv6 networks that embed an IPv4 address: network, prefix length, and how many bits follow the IPv4 address.
_EMBEDDED = (
    ("::ffff:0:0", 96, 0),
    ("::", 96, 0),
    ("::ffff:0:0:0", 96, 0),
    ("64:ff9b::", 96, 0),
    ("2002::", 16, 80),
)


def not_public(url: str) -> str | None:
    """Say why a URL does not name a public address; return None if it does."""
    if _AMBIGUOUS.search(url):
        return "it contains characters that are not allowed in a URL"
    match = _HTTP.match(url)
    if match is None:
        return "only http://, https:// and data: are accepted"
    authority = match.group(1)
    if "@" in authority or "%" in authority:
        return "a user name or an encoded host is not accepted"
    return _host_complaint(_PORT.sub("", authority))


def address_complaint(address: str) -> str | None:
    """Say why an address, as a resolver returns it, is not a public one; return None if it is."""
    return _ipv6_complaint(f"[{address}]") if ":" in address else _ipv4_complaint(address)


def _host_complaint(text: str) -> str | None:
    if text.startswith("["):
        return _ipv6_complaint(text)
    name = _ascii_name(text)
    if name is None:
        return "its host is not a name"
    last = name.rpartition(".")[2]
    if last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last):
        return _ipv4_complaint(name)
    if not _NAME.fullmatch(name):
        return "its host is not a name of the public internet"
    if any(name == end or name.endswith(f".{end}") for end in _LOCAL):
        return "its host is a local name"
    return None


def _ascii_name(text: str) -> str | None:
    """Normalize a host as for its look-up: ① is 1, 。 is a dot, a soft hyphen and one trailing dot are dropped."""
    if len(text) > _LONGEST_NAME:
        return None
    name = unicodedata.normalize("NFKC", text)
    if any(not character.isascii() and character.isnumeric() for character in name):
        return None
    try:
        name = name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return None
    return name.lower().removesuffix(".")


def _ipv4_complaint(text: str) -> str | None:
    """Check an address in any notation that a resolver accepts: `127.1`, `0x7f000001`, `017700000001`, `2130706433`."""
    parts = text.split(".")
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return "its host is not an address"
    *first, last = numbers
    if len(parts) > 4 or any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
        return "its host is not an address"
    value = last + sum(number << 8 * (3 - place) for place, number in enumerate(first))
    return _ipv4_address_complaint(IPv4Address(value))


def _number(part: str) -> int:
    if not part.isascii() or not part.isalnum() or len(part) > 64:  # Python takes signs and underscores, too
        raise ValueError
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if len(part) > 1 and part.startswith("0") else int(part)


def _ipv6_complaint(text: str) -> str | None:
    try:
        address = IPv6Address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return "its host is not an address"
    if not text.endswith("]") or address.scope_id is not None:
        return "its host is not an address"
    for network, bits, shift in _EMBEDDED:
        if int(address) >> (128 - bits) == int(IPv6Address(network)) >> (128 - bits):
            return _ipv4_address_complaint(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return _ipv4_address_complaint(IPv4Address(int(address) & 0xFFFFFFFF))
    if address not in _GLOBAL or any(address in network for network in _SPECIAL_IPV6):
        return _NOT_PUBLIC
    return None


def _ipv4_address_complaint(address: IPv4Address) -> str | None:
    special = any(address in network for network in _SPECIAL)
    if address.is_global and not (special or address.is_multicast or address.is_reserved or address.is_unspecified):
        return None
    return _NOT_PUBLIC
