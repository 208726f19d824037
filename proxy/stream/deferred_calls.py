"""A translator whose calls of some tools wait for a verdict: is the input what the tool's grammar asks for?

    send(translator.finish())
    while translator.awaiting is not None:
        name, text = translator.awaiting
        send(translator.judge(better_text or None))

Such a call is added to the stream at once, but its input is held until the answer is complete, and with it all that comes
behind the call. Who judges, and how, is not known here. If the stream fails meanwhile, the input goes out as the model wrote
it.
"""

from __future__ import annotations

from proxy.stream.options import Clock, StreamOptions
from proxy.stream.plain_translator import PlainTranslator
from proxy.wire.errors import ApiError
from proxy.wire.tools import Grammar


class JudgedTranslator(PlainTranslator):
    """As `Translator`, if nothing is to be judged. `grammars` and `waits` are as the options have them."""

    def __init__(self, options: StreamOptions, clock: Clock) -> None:
        super().__init__(options, clock)
        self.model = options.model
        self.grammars = options.grammars
        self.waits = options.judged
        self._tools = options.tools
        #: The call that waits: the chat name of its tool, and its input. The answer of the backend is complete then.
        self.awaiting = None

    def grammar_of(self, name: str, namespace: str | None) -> Grammar | None:
        """The grammar of the client's custom tool of this name."""
        for chat_name, grammar in self.grammars.items():
            target = self._tools[chat_name]
            if (target.name, target.namespace) == (name, namespace):
                return grammar
        return None

    def judge(self, replacement: str | None) -> bytes:
        """The verdict on the call that waits: None lets its input pass as it is. Returns the events that were held."""
        if self.awaiting is None or self.ended:
            return b""
        self.awaiting = None
        try:
            self.lifecycle.judge(replacement)
            self._conclude()
        except Exception as error:  # as in feed
            self._break(error)
        return self._take()

    def fail(self, error: ApiError) -> bytes:
        """As that of a translator."""
        events = super().fail(error)
        while self.awaiting is not None:
            events += self.judge(None)
        return events

    def _end(self) -> None:
        if self.awaiting is None:
            super()._end()

    def _conclude(self) -> None:
        self.awaiting = self.lifecycle.unjudged
        if self.awaiting is None:
            super()._conclude()
