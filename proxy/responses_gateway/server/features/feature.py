"""The socket of optional features.

A feature has a name, its section of the settings, and `open`, which makes what it adds from the core of the gateway; the stack
closes that. The core knows no feature: it goes through lists, which are empty without any. Where a list has the entries of
several features, they stand in the order of `standard.py`.

A kind of addition exists only where two features use it, or where one does that the core would have to know otherwise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from responses_gateway.backend.pool_options import Share
from responses_gateway.server.generation.additions import Additions
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.http.routes import Route
from responses_gateway.settings import SECTIONS, Section, Settings, SettingsError
from responses_gateway.telemetry.instruments import Counter, Gauge, Histogram
from responses_gateway.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Core:
    """What features are made of. `background` is None without a store; `share` is that of this process among the workers, and
    `workers_folder` the folder that they share, if there are several. `trial`: the settings are only checked, nothing is
    served."""

    settings: Settings
    metrics: Metrics
    responses: Responses
    background: Background | None
    share: Share
    workers_folder: Path | None
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Opened(Additions):
    """What a feature adds: to the making of responses, `routes` that are served, and `questions` that workers ask each other,
    by name."""

    routes: Sequence[Route] = ()
    questions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Served(NamedTuple):
    """What the features serve: routes for clients, operators and visitors, answers for other workers."""

    routes: list[Route]
    questions: dict[str, Callable[..., Any]]


# Opens a feature; None: the settings do not ask for it. Raises `ValueError` for settings that cannot be used.
Open: TypeAlias = Callable[[Core, AsyncExitStack], Awaitable[Opened | None]]


class Feature(NamedTuple):
    """An optional part of the gateway. `section`: the settings that nobody else reads; None if it has none. `metrics` are shown
    once it is opened. `failing_programs` starts the programs that the settings name, and returns what is wrong with them."""

    name: str
    section: type[Section] | None
    open: Open
    metrics: Sequence[Counter | Gauge | Histogram] = ()
    failing_programs: Callable[[Settings], Awaitable[list[str]]] | None = None


async def open_features(features: Iterable[Feature], core: Core, stack: AsyncExitStack) -> Served:
    """Open features in their order, and add to the core what they add. Return what they serve. Raise `SettingsError` for
    settings of a feature that is not among them, and what `Open` raises."""
    features = list(features)
    unknown = sorted(_unknown_settings(features, core.settings))
    if unknown:
        raise SettingsError("\n".join(f"unknown setting {name}" for name in unknown))
    additions = core.responses.additions
    served = Served([], {})
    for feature in features:
        opened = await feature.open(core, stack)
        if opened is not None:
            core.metrics.declare(feature.metrics)
            for kind in fields(additions):
                getattr(additions, kind.name).extend(getattr(opened, kind.name))
            served.routes.extend(opened.routes)
            served.questions.update(opened.questions)
    return served


def _unknown_settings(features: Sequence[Feature], settings: Settings) -> Iterator[str]:
    """Yield the settings that were given and that no feature reads."""
    read = {feature.section for feature in features}
    for section in SECTIONS:
        if section.optional and section not in read:
            yield from section.model_fields.keys() & settings.model_fields_set
