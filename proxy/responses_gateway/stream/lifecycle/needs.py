"""What a stream needs next from whoever feeds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.tools import ToolTarget

# Why an answer broke off, as the stream shows it: its body ended, the engine behind the server died, the server aborted it.
BrokenOff: TypeAlias = Literal["eof", "engine", "abort"]


class CallToRun(NamedTuple):
    """A call of a hosted tool that the model has made: the chat name, the tool, and the JSON of its arguments."""

    name: str
    target: ToolTarget
    arguments: str


class Verdict(NamedTuple):
    """Whether the input of a custom tool may be handed over (`judge`, `refuse`): the chat name of its call, the input, and
    whether the model left it `unclosed`, so that it passes only if its grammar accepts it."""

    name: str
    text: str
    unclosed: bool


class RunCalls(NamedTuple):
    """The outcomes of calls of hosted tools, in order (`finish_call`): of the open one, and of those held behind it."""

    calls: Sequence[CallToRun]


class AnotherTurn(NamedTuple):
    """The model's next answer, for which it gets the results of its calls, as far as there are any yet (`next_turn`)."""


class Continue(NamedTuple):
    """Another backend that continues the answer (`resume`, `restart`), or the end (`fail`). `error`: what the backend sent."""

    cause: BrokenOff
    error: ApiError | None


class Ended(NamedTuple):
    """Nothing: all but the terminal event is written."""


# None: more of the backend's body (`feed`), or its end (`finish`).
Needs: TypeAlias = Verdict | RunCalls | AnotherTurn | Continue | Ended | None
