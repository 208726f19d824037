"""Prompts of a chain as ids of tokens, so that each is a pure extension of the one before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from responses_gateway.backend.prompt_tokens import PromptTokens
from responses_gateway.server.features.rollouts.links import Links
from responses_gateway.server.features.rollouts.token_prompt import ENDS, Earlier, Misfit, extended, misfit_of
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.token_trees import Parentage, TokenTreeTable
from responses_gateway.stream.sampling import CallRecorder


class TreeName(NamedTuple):
    """Where the calls of a response are kept: the tenant, and the name of the tree."""

    tenant: str
    name: str


class IdsOutcome(NamedTuple):
    """The ids of a prompt; None where it is sent as messages, because of the `misfit`, or because it continues nothing."""

    ids: list[int] | None = None
    misfit: Misfit | None = None

    def misfit_in(self, echoed: Sequence[int] | None) -> Misfit | None:
        """Return why the prompt was not these ids, given what the server says that it was."""
        if self.ids is None or echoed is None:
            return self.misfit
        return None if self.ids == list(echoed) else "ids_ignored"


NO_IDS = IdsOutcome()


@dataclass(eq=False, slots=True)
class TokenChain:
    """Finds the ids of the prompts of one response. `place` is None where nothing is stored; `within`: how many seconds the
    server may take to render a prompt."""

    table: TokenTreeTable
    place: TreeName | None
    prompts: PromptTokens
    within: float
    _messages: int = 0  # of the last turn

    async def prompt(self, call: ChatCall, links: Links, parentage: Parentage, recorder: CallRecorder) -> IdsOutcome:
        """Return the ids of the prompt of a turn; `parentage` is that of the first one. Never raises: others go as messages."""
        try:
            earlier = await self._earlier(links, parentage, recorder)
        except StoreUnavailable:
            return IdsOutcome(misfit="store_unavailable")
        finally:
            self._messages = len(call.body["messages"])
        if isinstance(earlier, str):
            return IdsOutcome(misfit=earlier)
        if earlier is None:
            return NO_IDS
        misfit = misfit_of(call.body, earlier)
        if misfit is not None or earlier.prompt is None or earlier.sampled is None:
            return IdsOutcome(misfit=misfit)
        return await self._extended(call, earlier.prompt + earlier.sampled, earlier.messages)

    async def _earlier(self, links: Links, parentage: Parentage, recorder: CallRecorder) -> Earlier | Misfit | None:
        """Return the call that a prompt continues: the last turn of this response, or one that was kept; or why it continues
        none. None if the model has not answered before. Raise `StoreUnavailable`."""
        if len(recorder.calls) > 1:  # the last one has only begun
            tokens = recorder.calls[-2].tokens()
            return Earlier(tokens.prompt, tokens.ids, tokens.finish_reason, self._messages + 1)
        parent = None if self.place is None else await self.table.parent_of(*self.place, parentage)
        if parent is None:
            return "history_differs" if links.answers else None
        place, kept = parent
        finish_reason = msgspec.json.decode(kept.details).get("finish_reason")
        if place is None:  # it is named, or is in the same thread, but its answer is not in the messages
            return "history_differs" if finish_reason in ENDS else "answer_cut"
        return Earlier(kept.tokens.prompt, kept.tokens.sampled, finish_reason, links.places[place])

    async def _extended(self, call: ChatCall, before: array[int], messages: int) -> IdsOutcome:
        rendered = await self.prompts.rendered(call.body, call.headers, self.within)
        if rendered is None:
            return IdsOutcome(misfit="not_rendered")
        extension = extended(before, rendered)
        if extension is None:
            return IdsOutcome(misfit="ends_differ")
        if not extension.certain:
            history = {**call.body, "messages": call.body["messages"][:messages], "add_generation_prompt": False}
            earlier = await self.prompts.rendered(history, call.headers, self.within)
            if earlier is None or earlier.count(extension.end) != extension.ends:
                return IdsOutcome(misfit="ends_differ")
        return IdsOutcome(extension.ids)
