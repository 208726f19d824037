"""Puts settings in force in a process that is serving."""

from __future__ import annotations

from collections.abc import Callable

from responses_gateway.server.parts import Parts
from responses_gateway.settings import Settings
from responses_gateway.settings.reloading import Reloaded, reloaded
from responses_gateway.telemetry import logs


class Reloading:
    """Applies settings to the parts of a process, apart from the backends, which workers get from their parent."""

    def __init__(self, parts: Parts, renew_certificate: Callable[[], None] = lambda: None) -> None:
        """`renew_certificate` reads the files of the certificate again, and may raise `ValueError`."""
        self._parts = parts
        self._renew_certificate = renew_certificate
        self._settings = parts.settings

    def apply(self, read: Settings) -> Reloaded:
        """Put settings in force. Raise `ValueError` for those that this process cannot use, and change nothing then."""
        result = reloaded(self._settings, read)
        if (read.tls_cert, read.tls_key) == (self._settings.tls_cert, self._settings.tls_key):  # other files: with a restart
            self._renew_certificate()
        self._parts.live.replace(result.settings)
        self._parts.autoconfiguration.replace(result.settings)
        self._settings = result.settings
        logs.logger().setLevel(result.settings.log_level.upper())
        return result
