"""The names of hosts, as they are looked up."""

from __future__ import annotations

import idna

_LONGEST = 253


def looked_up(host: str) -> str | None:
    """Return the ASCII form of a host, for which the DNS is asked; None if there is none. `faß.de` is `xn--fa-hia.de`, ① is 1,
    and 。 is a dot (UTS 46). Without capitals, and without a dot at the end."""
    if len(host) > _LONGEST:
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
