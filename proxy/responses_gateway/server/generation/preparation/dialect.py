"""What a request brings with it that was made in the words of another protocol than the Responses API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request import Loss, Policy
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.writer.interface import ClientProtocol


class Fitted(NamedTuple):
    """The body of a chat request that the backend has room for, and what was lost by that."""

    body: dict[str, Any]
    losses: Sequence[Loss] = ()


# Returns a chat request, before it is sent, as the backend has room for it.
Fit = Callable[[dict[str, Any]], Awaitable[Fitted]]


class Dialect(msgspec.Struct, frozen=True):
    """What the Responses request that stands for another one does not say.

    `protocol` writes the answer, in which the model is called `model`. `losses` are those of reading the request, and `words`
    gives those of its translation the names that its client knows. `affinity`: requests with the same one go to the same
    backend; empty: those with the same beginning. `fit` makes room for the chat request. `policy` tells how the request is
    translated."""

    protocol: ClientProtocol
    model: str
    losses: Sequence[Loss]
    words: Callable[[Iterable[Loss]], Sequence[Loss]]
    fit: Fit
    policy: Policy
    affinity: str = ""

    def options(self, options: StreamOptions) -> StreamOptions:
        """Return the options of the translator of the answer. What was searched is shown to the client: nothing is stored, so
        that it has to come back with the next request."""
        hosted = None if options.hosted is None else options.hosted._replace(shows_results=True)
        return msgspec.structs.replace(options, protocol=self.protocol, model=self.model, hosted=hosted)
