"""What is kept of one response: each call of the model, as it was sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.input.template_forms import in_forms
from responses_gateway.request.policy import Policy
from responses_gateway.request.turns import answer_message
from responses_gateway.server.features.rollouts.links import Link, answer_of_message, links_of
from responses_gateway.server.features.rollouts.spans import ItemSpan, item_spans
from responses_gateway.server.features.rollouts.token_chain import NO_IDS, IdsOutcome, TokenChain, TreeName
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts, is_cancelled
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.token_trees import CallRecord, CallTokens, Parentage, TokenTreeTable
from responses_gateway.stream.sampling import CallRecorder, Left, SampledTokens
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.wire.added_fields import AddedField
from responses_gateway.wire.json_text import quoted
from responses_gateway.wire.tools import ToolTable

# What a server is asked for, by its name in the list of models: ids, log probabilities, and the version of its weights.
_LOGPROBS: Mapping[str, Any] = {"logprobs": True, "top_logprobs": 0}
_IDS: Mapping[str, Mapping[str, Any]] = {
    "vllm": {"return_token_ids": True, "return_weight_versions": True},
    "sglang": {"return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True},
    "": {"return_token_ids": True},
}
# Those that have the ids of a prompt.
_PROMPT_FIELDS = frozenset({"kv_transfer_params", "input_ids"})


class AskedPrompt(NamedTuple):
    """The chat request of a turn, the digest of its messages, and what its prompt was sent as."""

    body: Mapping[str, Any]
    digest: bytes
    outcome: IdsOutcome


class CallDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a call besides its tokens, and shown as it is."""

    model: str
    created_at: float
    finish_reason: str | None = None
    weight_version: str | None = None
    backend: str | None = None
    session: str | None = None
    thread: str | None = None
    parent_thread: str | None = None
    agent: str | None = None
    reason: str | None = None
    token_true: bool = False
    item_spans: list[ItemSpan] | None = None


@dataclass(eq=False, slots=True)
class ResponseKeeper:
    """An `AnswerKeeper` of `chat_call.py`. `place` is None where nothing is stored."""

    table: TokenTreeTable
    place: TreeName | None
    recorder: CallRecorder
    owner: str
    prepared: PreparedRequest
    live: LiveSettings
    chain: TokenChain | None  # of prompts that are to be ids
    _prompts: list[AskedPrompt] = field(default_factory=list)  # by turn
    _facts: RequestFacts | None = None
    _parentage: Parentage | None = None  # of the first turn
    _asked: int = 0  # turns, those that another gateway has asked as well
    _own: set[str] = field(default_factory=set)  # fields that have the ids of the prompt of a turn

    def begin(self, facts: RequestFacts) -> None:
        """Take the facts of the request, which tell the backend that answers."""
        self._facts = facts
        self.recorder.backend = lambda: facts.backend

    async def asking(self, call: ChatCall) -> ChatCall:
        """Return a request as it is sent: with what the server is asked for."""
        if self._asked == len(self.recorder.calls):  # another backend is asked the same, perhaps in another form
            return call
        self._asked = len(self.recorder.calls)
        body = {name: value for name, value in call.body.items() if name not in _PROMPT_FIELDS or name not in self._own}
        links = links_of(body)
        if self._parentage is None:
            asker = self.prepared.caller.asker
            previous = self.prepared.context.request.previous_response_id
            self._parentage = Parentage(previous, links.answers, asker.thread, asker.kind, links.prompt)
        wanted = {**_IDS.get(self.owner, _IDS[""]), **({} if body.get("logprobs") else _LOGPROBS)}
        # The call is on record without what a server refuses.
        added = {name: AddedField(value=value) for name, value in wanted.items()}
        outcome = NO_IDS
        if self.chain is not None:
            outcome = await self.chain.prompt(msgspec.structs.replace(call, body=body), links, self._parentage, self.recorder)
        self._prompts.append(AskedPrompt(body, links.prompt, outcome))
        if outcome.ids is not None:
            field_name = "input_ids" if self.owner == "sglang" else "kv_transfer_params"
            wanted[field_name] = outcome.ids if self.owner == "sglang" else {"prompt_token_ids": outcome.ids}
            added[field_name] = AddedField()
            self._own.add(field_name)
        return msgspec.structs.replace(call.with_body({**body, **wanted}), added={**call.added, **added})

    async def keep(self, translator: Translator) -> None:
        """Store the calls of a response that has ended, or that its client has left. Never raises: the response is the client's
        whatever becomes of them."""
        place = self.place
        if not translator.ended:
            translator.answer.stop()  # tokens may wait to be read
        elif self._parentage is None and self.recorder.calls:  # another gateway has asked
            await self.asking(self.prepared.call)
        if place is None or self._parentage is None:
            return
        calls = self._records(translator)
        try:
            await self.table.add(place.tenant, place.name, calls, self._parentage)
        except StoreUnavailable as error:
            logs.logger().error("tokens not stored", extra=logs.fields(response_id=translator.response_id, error=str(error)))

    def _records(self, translator: Translator) -> list[CallRecord]:
        """Return the calls; the id of the last one is that of the response."""
        response_id = translator.response_id
        done = translator.lifecycle.writer.done
        firsts = [turn.first_item for turn in translator.lifecycle.turns] + [len(done)]
        asker = self.prepared.caller.asker
        # As it is now, because the server may meanwhile have refused a form of messages that later requests will not have.
        policy = self.live.current.parsers.policy(self.prepared.context.request.model)
        left = self._left(translator)
        records: list[CallRecord] = []
        for number, sampled in enumerate(self.recorder.calls):
            tokens = sampled.tokens(left)
            partial = tokens.reason in ("client_left", "cancelled")  # nothing continues it: its client does not go on from it
            items = [msgspec.json.decode(item) for item in done[firsts[number] : firsts[number + 1]]]
            prompt = self._prompts[number] if number < len(self._prompts) else None
            link = None if prompt is None or partial else _link_of(prompt, items, translator.options.tools, policy)
            call_id = response_id if sampled is self.recorder.calls[-1] else f"{response_id}.{number + 1}"
            thread = None if partial else asker.thread
            details = quoted(msgspec.to_builtins(self._details(translator, number, tokens, items)))
            kept = CallTokens(tokens.prompt, tokens.ids, tokens.log_probs)
            records.append(CallRecord(call_id, response_id, asker.kind, thread, details, kept, link))
        return records

    def _left(self, translator: Translator) -> Left | None:
        """Return why the last call may have been left before its end."""
        if not translator.ended or (self._facts is not None and self._facts.client_left):
            return "client_left"
        return "cancelled" if is_cancelled(translator) else None

    def _details(
        self, translator: Translator, number: int, tokens: SampledTokens, items: Sequence[Mapping[str, Any]]
    ) -> CallDetails:
        sampled = self.recorder.calls[number]
        asker = self.prepared.caller.asker
        outcome = self._prompts[number].outcome if number < len(self._prompts) else NO_IDS
        misfit = outcome.misfit_in(tokens.prompt)
        hidden = translator.lifecycle.writer is not translator.writer  # the client has other items
        return CallDetails(
            translator.options.model,
            translator.created,
            tokens.finish_reason,
            tokens.weight_version,
            sampled.backend,
            *(asker.session, asker.thread, asker.parent, asker.agent),
            # Why there are no tokens comes first, and before absent log probabilities what became of the prompt.
            tokens.reason if tokens.ids is None else misfit or tokens.reason,
            outcome.ids is not None and tokens.prompt is not None and misfit is None,
            None if hidden else item_spans(sampled.texts, tokens, items),
        )


def _link_of(prompt: AskedPrompt, items: Sequence[dict[str, Any]], tools: ToolTable, policy: Policy) -> Link:
    """Return what a later request has of a prompt and the items of its answer, if its client repeats them."""
    body = prompt.body
    messages = in_forms(body["messages"], policy.forms, continued=bool(body.get("continue_final_message")))
    calls = sum(len(message.get("tool_calls") or ()) for message in messages)
    answer = answer_message(items, tools, policy, calls)
    digest = prompt.digest if messages == body["messages"] else links_of({**body, "messages": messages}).prompt
    return Link(digest, answer_of_message(answer))
