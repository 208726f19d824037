"""Where a request wants to go, and which models a backend serves under which names. Plain data, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from proxy.wire.errors import ApiError

#: Names of models that an error repeats.
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request wants to go.

    `model` is the client's name for it; empty: any backend will do. `affinity`: requests with the same key share a beginning,
    and go to the same backend where they can; empty: the least busy one. `avoid`: backends that were tried already.
    """

    model: str = ""
    affinity: str = ""
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True)
class BackendSpec:
    """A backend as the settings describe it. `url` ends in a version (`/v1`).

    `models`: patterns of the names that it serves; empty: what it lists itself. `aliases`: the client's name → the backend's.
    `max_concurrency`: requests that it gets at once, None for any number. `weight`: its share of the work beside the others.
    """

    name: str
    url: str
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_concurrency: int | None = None
    weight: float = 1.0
    forward_authorization: bool = True


class Catalogue:
    """The models of one backend, by the names that clients use."""

    def __init__(self, patterns: Iterable[str], aliases: Mapping[str, str]) -> None:
        self._patterns = tuple(pattern.lower() for pattern in patterns)
        self.aliases = dict(aliases)
        #: What it listed: name → owner; None until it has.
        self.listed: Mapping[str, str | None] | None = None

    @property
    def restricted(self) -> bool:
        """The settings say what it serves."""
        return bool(self._patterns)

    def serves(self, model: str) -> bool | None:
        """Whether it serves a model by this name; None if nobody knows."""
        if model in self.aliases:
            return True
        if self._patterns:
            return self.offers(model)
        return None if self.listed is None else model in self.listed

    def offers(self, listed: str) -> bool:
        """Whether a model that it lists is one that it is to serve."""
        name = listed.lower()
        return not self._patterns or any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def own_name(self, model: str) -> str:
        """The backend's name for a model."""
        return self.aliases.get(model, model)

    def names(self) -> list[str]:
        """What clients can ask for, as far as that is known."""
        found = [name for name in self.listed or () if self.offers(name)]
        return [*found, *(alias for alias in self.aliases if alias not in found)]

    def owner(self, model: str) -> str | None:
        """What serves the model (`vllm`), as the backend's list has it."""
        listed = self.listed or {}
        name = self.own_name(model)
        return listed[name] if name in listed else next(iter(listed.values()), None)


def no_such_model(model: str, catalogues: Iterable[Catalogue]) -> ApiError:
    """404: no backend serves a model by this name."""
    names = list(dict.fromkeys(name for catalogue in catalogues for name in catalogue.names()))
    served = ", ".join(f"`{name}`" for name in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    message = f"The model `{model[:100]}` does not exist. Served here: {served or 'none'}."
    return ApiError(404, message, param="model", code="model_not_found")


def renamed(body: bytes, model: str) -> bytes:
    """A JSON object with another `model`, its other fields byte for byte as they were."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)
