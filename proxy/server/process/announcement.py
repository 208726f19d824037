"""The log line of a gateway that has begun to listen, and the next steps in a terminal."""

from __future__ import annotations

from proxy.server.process import next_steps
from proxy.server.process.sockets import Listeners, url_of
from proxy.server.setup.backend_specs import specs_of
from proxy.settings import Settings
from proxy.telemetry import logs
from proxy.version import version_line


def announce(settings: Settings, listeners: Listeners, **more: int) -> None:
    """Log the URLs at which requests are answered. In a terminal, show the next steps."""
    tls = settings.tls_cert is not None
    urls = [url_of(listener, tls) for listener in listeners.clients]
    operations = url_of(listeners.operators[0], tls) if listeners.operators else None
    backends = " ".join(spec.url for spec in specs_of(settings))
    fields = logs.fields(url=",".join(urls), backend=backends, operations=operations, version=version_line(), **more)
    logs.logger().info("listening", extra=fields)
    next_steps.show(settings, urls[0], operations)
