"""What may stand between the answers of backends and the translator: it decides what passes, and when.

An `Upstream` calls it; it reaches the backend by the `AnswerSource` that `begin` gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.wire.errors import ApiError

# Takes what one read brought.
Receive: TypeAlias = Callable[[bytes], None]


class AnswerSource(Protocol):
    """The answer of a backend, as a filter may control it."""

    def hold(self) -> None:
        """Read no more, because too much is held back."""

    def release(self) -> None:
        """Read again, unless the client takes no more."""

    def disconnect(self) -> None:
        """End the connection: the backend stops generating."""


class AnswerFilter(Protocol):
    """The filter of one response, whose turns and backends may be several."""

    @property
    def busy(self) -> bool:
        """Whether the filter itself is waited for, and not the backend."""

    @property
    def closed(self) -> bool:
        """Whether nothing more passes, so that no other backend is asked for the rest."""

    async def admit(self, call: ChatCall) -> bytes | None:
        """Let a request be sent; return what takes the place of the answer where it may not be. Raise `ApiError`."""

    def begin(self, source: AnswerSource, pass_on: Receive | None) -> None:
        """Take an answer that begins; `pass_on` gets what passes, if it is read as a stream."""

    def feed(self, data: bytes) -> None:
        """Take what one read brought."""

    async def end(self, completion: bytes | None, broken: ApiError | None) -> bytes | None:
        """Wait until all of the answer was decided on that was read to its end, or `broken`. `completion` is the body of an
        answer that was no stream; return it, or what takes its place. Raise `ApiError` for an answer that broke off."""

    def stop(self) -> None:
        """Decide on nothing more of this answer."""

    def forget(self) -> None:
        """Leave the answer: another one may begin."""

    def close(self) -> None:
        """End for good, and let go of what refers to this."""
