"""What is said of a client: its name, and the groups it is in."""

from __future__ import annotations

from dataclasses import dataclass

# Characters of a name.
_LONGEST = 128
_MOST_GROUPS = 1000


class NotIdentified(Exception):
    """The client cannot be identified. The message is for clients, and repeats nothing of what they sent."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Somebody, with the source that says so: `jwt:alice` and an API key `alice` are different owners."""

    name: str
    groups: tuple[str, ...]


def claimed(source: str, name: object, groups: object) -> Claimed:
    """Return who is meant. `groups` is a list of names, or one name. Raise `NotIdentified`."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        raise NotIdentified("there is no usable name in it")
    several = groups if isinstance(groups, list) else [groups]
    return Claimed(f"{source}:{name}", tuple(group for group in several[:_MOST_GROUPS] if isinstance(group, str)))
