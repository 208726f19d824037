"""The contexts of the sessions that were last active, in bounded memory: with them each turn is compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.request.prompt_cache.context import Answer, CachedContext, Turn, difference
from responses_gateway.request.prompt_cache.explanation import Explanation, Report, explained, kept_messages
from responses_gateway.request.prompt_cache.prompt_print import Prompt
from responses_gateway.wire.usage import CACHE_BLOCK

# About how many bytes are kept of all sessions, and of one of them.
_MOST = 64 * 1024 * 1024
_MOST_OF_SESSION = 2 * 1024 * 1024
# Contexts of one session, those of the threads last active: a turn is compared with each while all streams of the process wait.
_MOST_CONTEXTS = 256
# Contexts of one thread: branches, lanes of a connection, and those of titles and the like, whose client does not say so.
_MOST_OF_THREAD = 33
# About the bytes of one turn, of one message, and of a context without any.
_TURN = 250
_MESSAGE = 12
_CONTEXT = 1000


class Asking(NamedTuple):
    """Who asks for a turn: the tenant, its session, and its thread in it. `shared`: only a cache is named, which conversations
    may share that merely begin with the same instructions. `sums_up`: it asks for a summary of the thread."""

    tenant: str
    session: str
    thread: str
    shared: bool = False
    sums_up: bool = False


# The contexts of a session, by thread; the one that was last active stands at the end.
_Tree: TypeAlias = OrderedDict[str, list[CachedContext]]


class Contexts:
    """Keeps what servers have read, and explains each turn by that."""

    def __init__(self, most: int = _MOST) -> None:
        self._trees: TenantValues[_Tree] = TenantValues(most // _CONTEXT, most)

    def turn(
        self, asking: Asking, prompt: Prompt, report: Report, answer: Answer, block: int = CACHE_BLOCK, *, named: bool = False
    ) -> Explanation:
        """Take a turn that has ended, and explain what became of the cache; `named`: see `explained`."""
        tree = self._trees.get(asking.tenant, asking.session) or OrderedDict()
        contexts = tree.setdefault(asking.thread, [])
        tree.move_to_end(asking.thread)
        previous = _continued(contexts, prompt, asking, named=named)
        others = [context for thread in tree.values() for context in thread if context is not previous]
        explanation = explained(previous, prompt, report, others, block, named=named)
        turn = Turn(prompt.checksums.count, report.prompt, answer)
        if previous is None:
            context = CachedContext(report.server, prompt.checksums, (turn,))
        else:
            # Else another branch may go on from there, or what a summary takes the place of.
            if not asking.sums_up and difference(previous, prompt) in (None, previous.checksums.count):
                contexts.remove(previous)
            context = previous.followed_by(report.server, prompt, turn, kept_messages(previous, prompt, explanation))
        contexts.append(context._replace(summed_up=asking.sums_up))
        del contexts[:-_MOST_OF_THREAD]
        size = sum(map(_size, tree.values()))
        while (size > _MOST_OF_SESSION or sum(map(len, tree.values())) > _MOST_CONTEXTS) and len(tree) > 1:
            size -= _size(tree.popitem(last=False)[1])
        self._trees.put(asking.tenant, asking.session, tree, size)
        return explanation

    def of(self, asking: Asking) -> Sequence[CachedContext]:
        """Return what is kept of a thread."""
        tree = self._trees.get(asking.tenant, asking.session)
        return () if tree is None else tree.get(asking.thread, ())

    def begin(self, asking: Asking, contexts: list[CachedContext]) -> None:
        """Take what a thread begins with."""
        tree = self._trees.get(asking.tenant, asking.session) or OrderedDict()
        tree[asking.thread] = contexts
        self._trees.put(asking.tenant, asking.session, tree, sum(map(_size, tree.values())))

    def forget(self, tenant: str, session: str) -> None:
        """Forget a session that has ended."""
        if self._trees.get(tenant, session) is not None:
            self._trees.pop(tenant, session)


def _continued(contexts: list[CachedContext], prompt: Prompt, asking: Asking, *, named: bool) -> CachedContext | None:
    """Return the context from which a turn goes on: the one with which it has most in common; None if it begins anew. `named`:
    it says which response it continues."""
    best: CachedContext | None = None
    most = (0, False, False)
    for context in reversed(contexts):
        earlier = context.checksums
        changed = prompt.checksums.changed(earlier)
        if "model_changed" in changed:
            continue
        same_instructions = prompt.checksums.leading > 0 and prompt.checksums.same_instructions(earlier)
        same_tools = earlier.has_tools and "tools_changed" not in changed
        shared = (prompt.checksums.shared_messages(earlier), same_instructions, same_tools)
        if shared > most and (shared[0] or (not asking.shared and (named or _takes_its_place(context, prompt)))):
            best = context
            most = shared
    return best


def _takes_its_place(context: CachedContext, prompt: Prompt) -> bool:
    """Tell whether a prompt without any message of a context belongs to the same conversation: one that was changed, and not
    another one of the same thread, in which the model has said nothing yet."""
    begun = context.checksums.count > context.checksums.leading and not context.summed_up
    return not begun or prompt.last_answer is not None


def _size(contexts: list[CachedContext]) -> int:
    return sum(_CONTEXT + _MESSAGE * context.checksums.count + _TURN * len(context.turns) for context in contexts)
