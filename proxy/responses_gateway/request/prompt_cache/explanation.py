"""Why a turn found less in the prefix cache of its server than the turn before it had left there.

What a server reports are numbers: the tokens of the prompt, and those of them that were cached. Where a part of the request is
not what it was, that is why. Where there is only more of it, either the template renders the past in another way, or the server
has dropped what it had. A template begins to differ at an answer of the model, mostly at its thought, and what it leaves out is
missing in the length of the prompt; a server that drops blocks knows nothing of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from responses_gateway.request.prompt_cache.context import CachedContext, Turn, difference
from responses_gateway.request.prompt_cache.prompt_print import Prompt, Reason
from responses_gateway.wire.usage import CACHE_BLOCK

Cause: TypeAlias = Literal[
    "first", "other_backend", "evicted", "tools_changed", "instructions_changed", "input_changed", "template", "unreported"
]
# Fields that templates read, by what is said of them where one has changed.
_VARIABLES: dict[Reason, str] = {"reasoning_effort_changed": "reasoning_effort", "verbosity_changed": "verbosity"}


class Report(NamedTuple):
    """What a server reported of a turn: the tokens of the prompt, and those of them that were cached; None: it did not say."""

    server: str
    prompt: int
    cached: int | None


class Explanation(NamedTuple):
    """What became of the cache in a turn. `context` are the tokens before it, `possible` those that the server could have had
    of it, in whole blocks; `lost` those that it did not use again, None where it reports none. `item`: what differs first."""

    cause: Cause | None
    lost: int | None
    context: int
    cached: int | None
    possible: int
    item: str = ""


class _Difference(NamedTuple):
    """The first part of a request that is not what it was, and how many tokens stand before it whatever the template."""

    cause: Cause
    item: str
    before: int


def explained(
    previous: CachedContext | None, prompt: Prompt, report: Report, others: Sequence[CachedContext], block: int, *, named: bool
) -> Explanation:
    """Explain a turn. `previous` has the turns from which it goes on, None if it is the first one; `others` are the other
    contexts of its tree. `named`: it says which response it continues, so that what differs is another branch of its thread."""
    at_server = [one for one in (previous, *others) if one is not None and one.server == report.server]
    # Of what stands before a difference little is known, and of turns before the last ones nothing: the server may know better.
    differences = [(one.last.end, _difference(one, prompt)) for one in at_server]
    common = max(report.cached or 0, *(end if change is None else change.before for end, change in differences), 0)
    possible = max(0, min(common, report.prompt - 1)) // block * block
    if previous is None:
        return Explanation("first", 0, 0, report.cached, possible)
    place = difference(previous, prompt) if named else None
    before_fork = [turn for turn in previous.turns if turn.messages < (place or 0) < previous.checksums.count]
    context = (before_fork or previous.turns)[-1].end
    if report.cached is None:
        return Explanation("unreported", None, context, None, possible)
    lost = max(0, context - report.cached) // block * block
    # The last token of an answer was not read, so that a block that ends with it is not cached.
    if not lost or report.cached >= (context - 1) // block * block:
        return Explanation(None, 0, context, report.cached, possible)
    # What a template adds to a turn takes some tokens, however small the blocks are.
    cause, item = _cause(previous, prompt, report, report.cached, max(block, CACHE_BLOCK))
    if cause == "template":
        possible = report.cached // block * block
    return Explanation(cause, lost, context, report.cached, possible, item)


def kept_messages(previous: CachedContext, prompt: Prompt, explanation: Explanation) -> int:
    """Return behind how many messages the earlier turns are not where they were, in the prompt of a turn."""
    change = _difference(previous, prompt)
    if change is not None and change.cause != "input_changed":
        return 0
    if explanation.cause == "template" and explanation.cached is not None:
        turn = _turn_at(previous, explanation.cached)
        # What was before an answer stays where it was. A thought may be left out now, which is not to be found a second time.
        return turn.messages if turn.answer.thought and _speaks(previous, prompt) else turn.messages + 1
    if explanation.cause in ("evicted", "other_backend") and _speaks(previous, prompt):
        thinking = [turn.messages for turn in previous.turns if turn.answer.thought]
        if thinking:
            return thinking[0]  # because thoughts may be left out now, which does not show
    place = difference(previous, prompt)
    return previous.checksums.count + 1 if place is None else place + 1


def _difference(earlier: CachedContext, prompt: Prompt) -> _Difference | None:
    """Return the first difference, in the order of the causes: templates have tools and instructions in either order, so that
    nothing is certain to stand before them."""
    checksums = prompt.checksums
    changed = checksums.changed(earlier.checksums)
    if "tools_changed" in changed:
        return _Difference("tools_changed", "tools", 0)
    if not checksums.same_instructions(earlier.checksums):
        return _Difference("instructions_changed", "messages[0]", 0)
    place = difference(earlier, prompt)
    variables = [name for reason, name in _VARIABLES.items() if reason in changed]
    if place is not None:
        before = 0 if variables else earlier.tokens_before(place)
        return _Difference("input_changed", f"messages[{place}]", before)
    return _Difference("template", variables[0], 0) if variables else None


def _cause(previous: CachedContext, prompt: Prompt, report: Report, cached: int, block: int) -> tuple[Cause, str]:
    if previous.server != report.server:
        return "other_backend", ""
    difference = _difference(previous, prompt)
    if difference is None:
        turn = _rendered_anew(previous, prompt, report, cached, block)
        return ("evicted", "") if turn is None else ("template", f"messages[{turn.messages}]")
    if cached + 2 * block <= difference.before and not _left_out(previous, cached, block):
        return "evicted", ""
    return difference.cause, difference.item


def _rendered_anew(previous: CachedContext, prompt: Prompt, report: Report, cached: int, block: int) -> Turn | None:
    """Return the turn whose answer the template renders in another way than it was generated; None if it does not."""
    new = previous.new_tokens(prompt)
    missing = previous.last.end + new - report.prompt
    turn = _left_out(previous, cached, block)
    if turn is not None:
        thoughts = sum(one.answer.thought for one in previous.turns if one.messages >= turn.messages)
        # What a template puts around a message is in no proportion to its length.
        if missing + new + block // 2 >= thoughts // 2 and _speaks(previous, prompt):
            return turn
    last = previous.last
    # A prompt ends with what opens the answer, which has another form in the past; what is cached ends with a whole block.
    if last.prompt - 2 * block <= cached:
        return last
    if report.prompt >= last.end:
        return None
    # It is certain that something is rendered anew; whether that is where the cache ends is not.
    thinking = [one for one in previous.turns if one.answer.thought]
    first = thinking[0] if thinking else previous.turns[0]
    return None if cached + 2 * block <= first.prompt else _turn_at(previous, cached)


def _left_out(previous: CachedContext, cached: int, block: int) -> Turn | None:
    """Return the turn before whose thought the cache ends, as if that were left out. Its prompt may open the thought."""
    for turn in previous.turns:
        if turn.answer.thought and turn.prompt - 2 * block <= cached < turn.prompt + block:
            return turn
    return None


def _speaks(previous: CachedContext, prompt: Prompt) -> bool:
    """Tell whether somebody speaks to the model after its last answer: templates leave out thoughts before that, and none while
    its calls are answered."""
    places = range(previous.checksums.count, prompt.checksums.count)
    return any(prompt.message(place).role not in ("", "assistant", "tool") for place in places)


def _turn_at(previous: CachedContext, tokens: int) -> Turn:
    """Return the turn in whose answer so many tokens of the prompt end."""
    for turn in previous.turns:
        if tokens < turn.end:
            return turn
    return previous.last
