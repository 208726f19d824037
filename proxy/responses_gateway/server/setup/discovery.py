"""The pools of the settings: their sources, and their members as the pool of backends takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from responses_gateway.backend.discovery.discovery import Discovery
from responses_gateway.backend.discovery.dns import DnsSource
from responses_gateway.backend.discovery.files import FileSource
from responses_gateway.backend.discovery.interface import Source, SourceKind
from responses_gateway.backend.served_models import Discovered, PoolSpec
from responses_gateway.server.setup.backend_specs import member_of
from responses_gateway.settings import BackendPool, Settings
from responses_gateway.telemetry import logs


class PoolWatch:
    """Watches the pools of the settings, one time for all processes. `use` is called with what was found, after each change.
    Create it inside the running event loop."""

    def __init__(self, settings: Settings, use: Callable[[Discovered], None]) -> None:
        self._settings = settings
        self._use = use
        self._discovery = Discovery(self._tell, _log_problem, _log_defect)
        self._discovery.watch(_sources(settings))

    async def first_answers(self) -> None:
        """Wait until each source has said something, but not for long."""
        if self._settings.pools:
            await self._discovery.first_answers(self._settings.connect_timeout)

    def replace(self, settings: Settings) -> None:
        """Watch the pools of other settings."""
        had = self._settings.pools
        self._settings = settings
        self._discovery.watch(_sources(settings))
        if had or settings.pools:
            self._tell()

    def found(self) -> Discovered:
        """Return what is known now."""
        settings = self._settings
        pools = []
        specs = []
        for name, source_state in self._discovery.found.items():
            details = settings.pools[name]
            kind = source_state.source.kind
            pools.append(PoolSpec(name, kind, tuple(details.models), details.aliases, source_state.problem, source_state.since))
            specs += [member_of(name, details, target, settings, kind) for target in source_state.targets]
        return Discovered(tuple(pools), tuple(specs))

    async def close(self) -> None:
        """Stop watching."""
        await self._discovery.close()

    def _tell(self) -> None:
        self._use(self.found())


def _sources(settings: Settings) -> dict[str, Source]:
    return {name: source_of(details, os.environ) for name, details in settings.pools.items()}


def source_of(details: BackendPool, environ: Mapping[str, str]) -> Source:
    """Return the source that a pool names. In a pod the environment tells where the API server is."""
    if details.file:
        return FileSource(tuple(details.file), details.interval)
    if details.dns:
        host, _, port = details.dns.rpartition(":")
        return DnsSource(host, int(port), details.interval)
    assert details.kubernetes is not None  # the settings have been checked
    from responses_gateway.backend.discovery.kubernetes import IN_POD, KubernetesSource  # noqa: PLC0415  (few use it)

    namespace, _, service = details.kubernetes.rpartition("/")
    return KubernetesSource(
        service=service,
        namespace=namespace,
        port=details.port,
        api=details.api or _api_server(environ),
        credentials=details.credentials or IN_POD,
    )


def _api_server(environ: Mapping[str, str]) -> str:
    host = environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _log_problem(pool: str, kind: SourceKind, problem: str) -> None:
    fields = logs.fields(pool=pool, source=kind, problem=problem or None)
    if problem:
        logs.logger().warning("the backends of a pool cannot be read: those that are known stay", extra=fields)
    else:
        logs.logger().info("the backends of a pool can be read again", extra=fields)


def _log_defect(error: BaseException) -> None:
    logs.logger().error("a defect in the discovery of backends", exc_info=error)
