"""An answer moves to another backend when its own breaks off: what is known of it by then, and how the rest is joined to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from proxy.stream.continuation.join import Rejoining
from proxy.stream.continuation.ledger import Beginning, TokenLedger
from proxy.stream.lifecycle.machine import Lifecycle
from proxy.stream.options import StreamOptions
from proxy.stream.reading.leading_thought import ThoughtWatch
from proxy.stream.reading.markup import Markup
from proxy.wire.chat import Chunk
from proxy.wire.deltas import Usage
from proxy.wire.errors import ApiError, in_client_terms, is_dead_engine, read_error_chunk

# Why an answer broke off, as the stream tells it.
BrokenOff: TypeAlias = Literal["eof", "engine", "abort"]


class Failover:
    """One answer of the model, which one backend begins and another may finish.

    `ledger` has the ids of its tokens, unless no other backend may go on with it; `rejoining` is the last continuation.
    `answer_began`: how many items were done before it. `engine_error`: the error with which it broke off. `diverged`: why a
    continuation does not fit what was said before. `usage`: what the ids tell of it, where its backend has not told;
    `reasoning_unknown`: no backend has told all of it, in this answer of the response or an earlier one."""

    __slots__ = (
        "_lifecycle", "_options", "answer_began", "broken_off", "diverged", "engine_error", "ledger", "reasoning_unknown",
        "rejoining", "usage",
    )  # fmt: skip

    def __init__(self, options: StreamOptions, lifecycle: Lifecycle) -> None:
        self._options = options
        self._lifecycle = lifecycle
        self.ledger: TokenLedger | None = None
        self.rejoining: Rejoining | None = None
        self.answer_began = 0
        self.broken_off: BrokenOff | None = None
        self.engine_error: ApiError | None = None
        self.diverged = ""
        self.usage: Usage | None = None
        self.reasoning_unknown = False
        self.begin_answer()

    def begin_answer(self) -> None:
        """Be ready for an answer of which nothing is known yet."""
        self.rejoining = None
        self.usage = None
        if self._options.continuable:
            self.ledger = TokenLedger(holds_text=self._options.holds_text)

    def end_answer(self) -> None:
        """Forget the ids: nothing of the answer is missing, or nobody goes on with it."""
        ledger = self.ledger
        if ledger is not None and ledger.complete and self._lifecycle.usage is None:
            self.usage = Usage(len(ledger.prompt), len(ledger.ids))
            self.reasoning_unknown = True
        self.ledger = None

    @property
    def possible(self) -> bool:
        """Whether all is known that another backend needs, and the model has not ended the answer."""
        return self.ledger is not None and self.ledger.complete and not self.answer_ended

    @property
    def answer_ended(self) -> bool:
        """Whether the model has ended the answer."""
        aborted = self.ledger is not None and self.ledger.aborted
        return self._lifecycle.finish_reason is not None and not aborted

    @property
    def said_nothing(self) -> bool:
        """Whether the answer has begun no item."""
        return self._lifecycle.state == "idle" and len(self._lifecycle.writer.done) == self.answer_began

    @property
    def joined(self) -> bool:
        """Whether nothing of what was said before is still to come again."""
        return self.rejoining is None or self.rejoining.joined

    @property
    def reads_again(self) -> bool:
        """Whether a parser of ours has taken the place of the first backend's own."""
        return self.rejoining is not None and self.rejoining.reads_again

    def beginning(self, markup: Markup | ThoughtWatch | None) -> Beginning:
        """Return what was generated of the answer, which `markup` reads."""
        ledger = self.ledger
        assert ledger is not None
        raw = isinstance(markup, Markup) and markup.reads_all and not ledger.parsed
        return Beginning(ledger.prompt, ledger.ids, ledger.whole, "".join(ledger.tail), raw)

    def see(self, chunk: Chunk) -> None:
        """Take a chunk before anything else does. Raise `Diverged` if it continues another answer."""
        ledger = self.ledger
        if ledger is None:
            return
        if not ledger.ids:
            self.answer_began = len(self._lifecycle.writer.done)
        if self.rejoining is not None:
            self.rejoining.see(chunk)
        ledger.see(chunk)

    def ends_with(self, chunk: Chunk) -> bool:
        """Tell whether a chunk has the error of a server that died, which is not the end of an answer that may go on."""
        if chunk.failure is None or not self.possible or not is_dead_engine(chunk.failure):
            return False
        self.broken_off = "engine"
        self.engine_error = in_client_terms(read_error_chunk(chunk.failure))
        return True

    def ends_early(self) -> bool:
        """Tell whether the end of the stream is not the end of the answer, which may go on."""
        if self.ledger is None:
            return False
        if self.broken_off is None and self.possible:
            self.broken_off = "eof" if self._lifecycle.finish_reason is None else "abort"
        return self.broken_off is not None

    def restart(self) -> None:
        """Forget an answer that has `said_nothing`."""
        self.broken_off = None
        self._lifecycle.restart()
        self.begin_answer()

    def keep(self, rejoining: Rejoining) -> Sequence[int]:
        """Keep the tokens that `rejoining` goes on with; return those that will be generated again."""
        ledger = self.ledger
        assert ledger is not None
        self.broken_off = None
        return ledger.cut(rejoining.generated)

    def join(self, rejoining: Rejoining, *, same_parser: bool) -> None:
        """Have the next chunks read as `rejoining` tells. `same_parser`: what read the answer so far reads on."""
        if same_parser and self.rejoining is not None:
            rejoining.follow(self.rejoining)
        self._lifecycle.resume()
        self.rejoining = rejoining
        self.reasoning_unknown = True
