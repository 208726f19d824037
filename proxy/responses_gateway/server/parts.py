"""What the requests of one process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from responses_gateway.backend.pool import Pool
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.in_flight import InFlight
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.generation.request_log.usage import TokenUsage
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.http.routes import Route
from responses_gateway.server.identity.sources import Sources
from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.server.setup.discovery import PoolWatch
from responses_gateway.settings import Settings
from responses_gateway.state import Store
from responses_gateway.state.fleet_counters import FleetCounters
from responses_gateway.telemetry.metrics import Metrics


class Accounts(NamedTuple):
    """Who clients are (`sources`), what a fleet lets them have (`counters`), what they are charged (`ledger`; None where nobody
    has a quota) and what they have used."""

    sources: Sources
    counters: FleetCounters | None
    ledger: Ledger | None
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class Parts:
    """What `lifespan.open_parts` opens. `settings` are those at the start; `live` has those in force. `pools` finds
    backends, in a process that is alone. `routes` are those of the features, and `questions` what their parts in other
    workers may ask."""

    settings: Settings
    metrics: Metrics
    pool: Pool
    pools: PoolWatch | None
    store: Store | None
    live: LiveSettings
    in_flight: InFlight
    responses: Responses
    background: Background | None
    autoconfiguration: Autoconfiguration
    accounts: Accounts
    routes: Sequence[Route]
    questions: Mapping[str, Callable[..., Any]]
