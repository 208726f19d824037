"""Which models a backend serves, by the names that clients use, and where a request may go. Plain data, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from responses_gateway.wire.added_fields import HINT, AddedFields
from responses_gateway.wire.errors import ApiError

_LISTED = 30  # how many models the message of an error lists


@dataclass(frozen=True)
class BackendSpec:
    """A backend as the settings describe it. `url` ends in a version (`/v1`).

    `models`: patterns of the names that it serves; empty: the models that it lists. `aliases`: the client's name → the
    backend's. `max_concurrency`: requests that it gets at once; None: any number. `weight`: its share of the work, relative to
    the others. `continue_answers`: how often another backend may continue an answer; None: once, if all that serve the model
    are alike. `router`: there are many servers behind the URL; None: its answers tell. `session_hints`: as which kind of server
    it is told of sessions; None: it is not. `source`: `settings`, `admin`, or the kind of the source that names it as a member
    of a `pool`, with the name of its `pod`, if it has one; `draining`: it shuts down."""

    name: str
    url: str
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_concurrency: int | None = None
    weight: float = 1.0
    continue_answers: int | None = None
    forward_authorization: bool = True
    forward_provider_keys: bool = False
    router: bool | None = None
    session_hints: str | None = None
    source: str = "settings"
    pool: str = ""
    pod: str = ""
    draining: bool = False


class Hints(NamedTuple):
    """What helps a backend to schedule a request: fields of a chat request, and headers."""

    fields: Mapping[str, Any]
    headers: Mapping[str, str]


class Route(msgspec.Struct, frozen=True):
    """Where a request may go.

    `model` is the client's name for it; empty: any backend will do. `affinity`: requests with the same key have the same
    beginning, and go to the same backend if possible; empty: the least busy one. `avoid`: backends that were tried already.
    `again`: how often a server behind a router failed, whose URL is asked again. `unsent`: to how many of those in `avoid`
    there was no connection, where that does not count as an attempt. `near`: the backend that is taken before all others,
    unless it is too busy. `hints` returns what a backend is told with the request; None: nothing."""

    model: str = ""
    affinity: str = ""
    avoid: frozenset[str] = frozenset()
    again: int = 0
    unsent: int = 0
    near: str = ""
    hints: Callable[[BackendSpec], Hints | None] | None = None

    def hints_for(self, spec: BackendSpec) -> Hints | None:
        """Return what a backend is told with the request; None: nothing."""
        return None if self.hints is None else self.hints(spec)

    @property
    def tries(self) -> int:
        """How many attempts have failed, without those that count as none."""
        return len(self.avoid) + self.again - self.unsent


@dataclass(frozen=True, eq=False)
class PoolSpec:
    """A pool whose members come and go. `source`: the kind of what names them. `problem`: why that cannot be read, `since` when
    by the clock of the event loop, which all processes of a machine share; None: it can. `models` and `aliases`: of all."""

    name: str
    source: str
    models: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    since: float | None = None

    def stale_for(self, now: float) -> float:
        """Return for how many seconds its source could not be read; 0 if it can be."""
        return 0.0 if self.since is None else round(max(0.0, now - self.since), 3)


@dataclass(frozen=True)
class Discovered:
    """What the sources of all pools say."""

    pools: tuple[PoolSpec, ...] = ()
    specs: tuple[BackendSpec, ...] = ()


class Listing(NamedTuple):
    """What a backend lists of its models, by its own names of them: their owners, and where it tells, how many tokens their
    contexts have, and by what it recognises others that serve the same (`policies/alike.py`)."""

    owners: Mapping[str, str | None]
    contexts: Mapping[str, int] = MappingProxyType({})
    checkpoints: Mapping[str, str] = MappingProxyType({})


class ModelCatalogue:
    """The models of one backend, by the names that clients use.

    `aliases`: the client's name → the backend's. `restricted`: the settings say which models it serves. `listed`: None until
    it has listed them."""

    def __init__(self, patterns: Iterable[str], aliases: Mapping[str, str], listed: Listing | None = None) -> None:
        self._patterns = tuple(pattern.lower() for pattern in patterns)
        self.aliases = dict(aliases)
        self.restricted = bool(self._patterns)
        self.listed = listed

    def own_name(self, model: str) -> str:
        """Return the backend's name for a model."""
        return self.aliases.get(model, model)

    def serves(self, model: str) -> bool | None:
        """Tell whether it serves a model by this name; None if that is not known."""
        if model in self.aliases:
            return True
        if self.restricted:
            return self.offers(model)
        return None if self.listed is None else model in self.listed.owners

    def offers(self, listed: str) -> bool:
        """Tell whether the settings let clients use a model that the backend lists."""
        name = listed.lower()
        return not self._patterns or any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def names(self) -> list[str]:
        """Return the names that clients can use, as far as they are known."""
        listed = [name for name in self.listed.owners if self.offers(name)] if self.listed is not None else []
        return [*listed, *(alias for alias in self.aliases if alias not in listed)]

    def context(self, model: str) -> int | None:
        """Return how many tokens the context of a model has; None if the backend does not tell."""
        return self.listed.contexts.get(self.aliases.get(model, model)) if self.listed is not None else None

    def checkpoint(self, model: str) -> str | None:
        """Return what the backend tells of a model (see `alike.py`); None if that is not enough."""
        return self.listed.checkpoints.get(self.own_name(model)) if self.listed is not None else None

    def owner(self, model: str) -> str | None:
        """Return the software that serves the model (`vllm`), as the backend's list has it."""
        owners = self.listed.owners if self.listed is not None else {}
        name = self.own_name(model)
        return owners[name] if name in owners else next(iter(owners.values()), None)


def no_such_model(model: str, catalogues: Iterable[ModelCatalogue]) -> ApiError:
    """Return the error 404 for a model that no backend serves."""
    names = list(dict.fromkeys(name for catalogue in catalogues for name in catalogue.names()))
    served = ", ".join(f"`{name}`" for name in names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    message = f"The model `{model[:100]}` does not exist. Served here: {served or 'none'}."
    return ApiError(404, message, param="model", code="model_not_found")


def with_model(body: bytes, model: str) -> bytes:
    """Replace the `model` of a JSON object; its other fields stay byte for byte as they were."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def with_hints(body: bytes, hints: Mapping[str, Any], added: AddedFields) -> tuple[bytes, AddedFields]:
    """Return a chat request with the fields of hints, and these beside those that were `added` before. What it has already
    comes from the client or from the settings, and stays."""
    had = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields = {name: value for name, value in hints.items() if name not in had}
    if not fields:
        return body, added
    return msgspec.json.encode(fields)[:-1] + b"," + body.lstrip()[1:], {**added, **dict.fromkeys(fields, HINT)}
