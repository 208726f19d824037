"""What a server has read of one thread: the last prompt, and where in it the answers of the model stand."""

from __future__ import annotations

from typing import NamedTuple

from responses_gateway.request.input.calls import RESULTS_NOT_KEPT, SEARCH_FAILED
from responses_gateway.request.prompt_cache.prompt_print import Prompt, PromptPrint, text_checksum

_MOST_TURNS = 256  # turns of a context whose places are kept: where an earlier one stood is estimated


class Answer(NamedTuple):
    """What the model said in a turn, as far as it is recognised by that in the next request: all of its tokens, those of its
    `thought`, the checksum of its text (0: none), and the number of its calls. The last two may be None: not known."""

    tokens: int = 0
    thought: int = 0
    text: int | None = None
    calls: int | None = None


class Turn(NamedTuple):
    """Where an answer stands: behind so many messages, and behind so many tokens of the prompt."""

    messages: int
    prompt: int
    answer: Answer

    @property
    def end(self) -> int:
        """The tokens of the prompt and of the answer."""
        return self.prompt + self.answer.tokens


class CachedContext(NamedTuple):
    """A row of turns, each of which goes on from the one before: the checksums of the last prompt, and the turns that stand in
    it; the last one has given its answer at this `server`. `summed_up`: that answer may take the place of all messages."""

    server: str
    checksums: PromptPrint
    turns: tuple[Turn, ...]
    summed_up: bool = False

    @property
    def last(self) -> Turn:
        """The last turn."""
        return self.turns[-1]

    def tokens_before(self, messages: int) -> int:
        """Return how many tokens there are before a message; where that is not known, an estimate that is rather too low."""
        earlier = [turn for turn in self.turns if turn.messages <= messages]
        if not earlier:
            return self._share(0, self.turns[0], 0, messages)
        turn = earlier[-1]
        if turn.messages == messages:
            return turn.prompt
        following = [later for later in self.turns if later.messages > messages]
        if not following:
            return turn.end
        return self._share(turn.messages, following[0], turn.prompt, messages)

    def _share(self, first: int, following: Turn, start: int, messages: int) -> int:
        """Return how far the messages from the `first` one on lead to the place of a later turn, by their lengths in bytes.
        Half of that, because schemas, code and texts have other tokens."""
        whole = self.checksums.bytes_of(first, following.messages)
        part = self.checksums.bytes_of(first, messages)
        return start + (following.prompt - start) * part // max(1, 2 * whole)

    def new_tokens(self, prompt: Prompt) -> int:
        """Return about how many tokens of a later prompt stand behind the answer of the last turn."""
        count = self.checksums.count + (self.last.answer.tokens > 0)
        return prompt.checksums.bytes_of(count) * self.last.prompt // max(1, self.checksums.size)

    def followed_by(self, server: str, prompt: Prompt, turn: Turn, kept: int) -> CachedContext:
        """Return the context after another turn; the turns behind `kept` messages are not where they were."""
        turns = [earlier for earlier in self.turns if earlier.messages < kept]
        return CachedContext(server, prompt.checksums, (*turns, turn)[-_MOST_TURNS:])


def difference(earlier: CachedContext, prompt: Prompt) -> int | None:
    """Return the place of the first message that is not what was there in an earlier turn; the answer of that turn is expected
    behind its prompt. None: there is no difference."""
    common = prompt.checksums.in_common(earlier.checksums)
    count = earlier.checksums.count
    if common < count:
        return common
    answer = earlier.last.answer
    return None if not answer.tokens or _repeats(answer, prompt, count) else count


def _repeats(answer: Answer, prompt: Prompt, place: int) -> bool:
    """Tell whether a message is the answer, as far as that is known."""
    message = prompt.message(place)
    if message.role != "assistant":
        return False
    if answer.text is None:  # of several turns; the results between them may have been left out
        later = map(prompt.message, range(place, prompt.checksums.count))
        return not any(left_out in message.text for message in later for left_out in (RESULTS_NOT_KEPT, SEARCH_FAILED))
    calls = len(message.tool_calls) if isinstance(message.tool_calls, list) else 0
    if calls != answer.calls or (answer.thought and not message.thinks):
        return False
    text = message.text
    return not answer.text or not text or answer.text == text_checksum(text)
