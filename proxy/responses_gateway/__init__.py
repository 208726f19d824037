"""responses-gateway: OpenAI's Responses API in front of any Chat Completions server.

As a library: `Translator` (with its `StreamOptions`) turns the bytes of a chat stream into those of a Responses stream,
`check_stream` holds a Responses stream against its laws. No I/O in either.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers understand it: importing `typing` takes longer than all else here
__all__ = ["StreamOptions", "Translator", "__version__", "check_stream"]

if TYPE_CHECKING:
    from typing import Any

    from responses_gateway.conformance.checker import check_stream
    from responses_gateway.stream.options import StreamOptions
    from responses_gateway.stream.translator import Translator
    from responses_gateway.version import __version__


# The module of each name of the library.
_MODULES = {
    "StreamOptions": "responses_gateway.stream.options",
    "Translator": "responses_gateway.stream.translator",
    "__version__": "responses_gateway.version",
    "check_stream": "responses_gateway.conformance.checker",
}


def __getattr__(name: str) -> Any:
    """Import a name of the library when it is first used, so that the command line need not wait for it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
