"""responses-proxy: OpenAI's Responses API in front of any Chat Completions server.

As a library: `from proxy import StreamOptions, Translator` turns the bytes of a chat stream into those of a Responses stream,
`from proxy import check_stream` holds a Responses stream against its laws. No I/O in either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["StreamOptions", "Translator", "__version__", "check_stream"]

if TYPE_CHECKING:
    from proxy.stream.invariants import check_stream
    from proxy.stream.translator import StreamOptions, Translator


def __getattr__(name: str) -> Any:
    """The library is imported when it is asked for: the command line need not wait for it."""
    if name in {"StreamOptions", "Translator"}:
        from proxy.stream import translator  # noqa: PLC0415

        return getattr(translator, name)
    if name == "check_stream":
        from proxy.stream.invariants import check_stream  # noqa: PLC0415

        return check_stream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
