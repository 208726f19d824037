"""Hosts: tell public addresses and loopback addresses from others, and a name as it is looked up."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import idna

# Addresses that count as global and are not those of a server on the internet: the IETF's own, relays of 6to4, and Azure's
# service for its virtual machines.
_SPECIAL = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv4Network("168.63.129.16/32"))
# All public IPv6 addresses begin like this; what Python knows of the others depends on its version.
_GLOBAL = IPv6Network("2000::/3")
# Parts of it: protocols (among them Teredo), documentation, and the former test network.
_SPECIAL_IPV6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "3fff::/20", "3ffe::/16"))
# Interface identifiers of ISATAP, which end with an IPv4 address.
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
# IPv6 networks that embed an IPv4 address: network, prefix length, and how many bits follow the IPv4 address.
_EMBEDDED = (("::ffff:0:0", 96, 0), ("::", 96, 0), ("::ffff:0:0:0", 96, 0), ("64:ff9b::", 96, 0), ("2002::", 16, 80))
_LONGEST_NAME = 253  # characters of a name


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a text is; None if it is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Tell whether an address, as a resolver returns it, is that of a server on the public internet."""
    ip = read_address(address)
    if isinstance(ip, IPv4Address):
        return _is_public_ipv4(ip)
    return ip is not None and _is_public_ipv6(ip)


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine and no other: a loopback address, with a zone or without, `localhost`, or below."""
    name = host.lower().removesuffix(".")
    address = read_address(name.partition("%")[0])
    if address is None:
        return name == "localhost" or name.endswith(".localhost")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def read_ipv4(text: str) -> str | None:
    """Return an IPv4 address in its usual notation; None if it is none. It may have any notation that a resolver accepts:
    `127.1`, `0x7f000001`, `017700000001`, `2130706433`."""
    parts = text.split(".")
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        return None
    *first, last = numbers
    if len(parts) > 4 or any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
        return None
    return str(IPv4Address(last + sum(number << 8 * (3 - place) for place, number in enumerate(first))))


def _number(part: str) -> int:
    if not part.isascii() or not part.isalnum() or len(part) > 64:  # Python takes signs and underscores, too
        raise ValueError
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if len(part) > 1 and part.startswith("0") else int(part)


def _is_public_ipv4(address: IPv4Address) -> bool:
    special = any(address in network for network in _SPECIAL)
    return address.is_global and not (special or address.is_multicast or address.is_reserved or address.is_unspecified)


def _is_public_ipv6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    for network, bits, shift in _EMBEDDED:
        if int(address) >> (128 - bits) == int(IPv6Address(network)) >> (128 - bits):
            return _is_public_ipv4(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return _is_public_ipv4(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GLOBAL and not any(address in network for network in _SPECIAL_IPV6)


def looked_up(host: str) -> str | None:
    """Return the ASCII form of a host, for which the DNS is asked; None if there is none. `faß.de` is `xn--fa-hia.de`, ① is 1,
    and 。 is a dot (UTS 46). Without capitals, and without a dot at the end."""
    if len(host) > _LONGEST_NAME:
        return None
    try:
        name = host if host.isascii() else _encoded(host)
    except ValueError:
        return None
    return name.lower().removesuffix(".")


def _encoded(host: str) -> str:
    """Encode a name as aiohttp does: what IDNA 2008 forbids (an emoji) is encoded by IDNA 2003. Raise `ValueError`."""
    try:
        return idna.encode(host, uts46=True).decode()
    except UnicodeError:
        if any(character.isnumeric() and not character.isascii() for character in host):  # some parsers read ١٢٧ as 127
            raise
        return host.encode("idna").decode()


def address_in(hop: str) -> str | None:
    """Return the address of a hop, which may have a port (`10.0.0.5:4711`, `[::1]:4711`); None if it is none."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    ip = read_address(hop)
    return None if ip is None else str(ip)


def is_network(text: str) -> bool:
    """Tell whether a text is an address, or a range such as `10.0.0.0/24`."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


class Networks:
    """Some networks, each an address or a range such as `10.0.0.0/24`."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Raise `ValueError` for what is no network."""
        self._networks = [ip_network(network, strict=False) for network in networks]

    def include(self, address: str | None) -> bool:
        """Tell whether an address is in one of them; what is no address, such as the path of a socket, is in none."""
        ip = read_address(address or "")
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return ip is not None and any(ip in network for network in self._networks)
