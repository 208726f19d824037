"""The HTTP server: one file per resource. `create_app` is the gateway as an aiohttp application, `serve` runs it."""

from proxy.server.app import create_app
from proxy.server.process.serve import serve

__all__ = ["create_app", "serve"]
