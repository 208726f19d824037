"""Networks of addresses that somebody is trusted in."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network


class Networks:
    """Some networks, each an address or a range such as `10.0.0.0/24`."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Raise `ValueError` for what is no network."""
        self._networks = [ip_network(network, strict=False) for network in networks]

    def include(self, address: str | None) -> bool:
        """Tell whether an address is in one of them; what is no address, such as the path of a socket, is in none."""
        try:
            found = ip_address(address or "")
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)
