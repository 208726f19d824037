"""The HTTP server. `open_parts` opens what it is made of, `create_app` is the aiohttp application, `serve` runs it all."""

from proxy.server.app import create_app
from proxy.server.lifespan import open_parts
from proxy.server.process.serve import serve

__all__ = ["create_app", "open_parts", "serve"]
