"""The next turn of the model within one response: its own last turn, and the results of the calls that the gateway ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from responses_gateway.request.fields import Object
from responses_gateway.request.input.call_matching import match_calls
from responses_gateway.request.input.calls import CallItemReader
from responses_gateway.request.input.item_reader import ItemReader
from responses_gateway.request.input.items import entries_at
from responses_gateway.request.input.template_forms import in_forms
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.policy import Policy
from responses_gateway.request.tools.catalog import NO_TOOLS
from responses_gateway.wire.tools import ToolTable, ToolTarget, chat_name

# The items of calls that the client runs, and after which the model may go on.
_KIND_OF_CALL: dict[str, str] = {"function_call": "function", "custom_tool_call": "custom"}
# Asks a model to go on that has ended its turn too early.
GO_ON = (
    "Your last turn ended without a complete tool call and without a final answer. If the task is not finished, go on now: "
    "make the next tool call, whole and outside of your reasoning. If it is finished, give the final answer."
)


class RunCall(NamedTuple):
    """A call that was run: its id, the chat name of the tool, the arguments as the model wrote them, the result for it, and the
    `extra_content` of the call."""

    call_id: str
    name: str
    arguments: str
    result: str
    extra: Object | None = None

    @property
    def items(self) -> tuple[Object, Object]:
        """The call and its result, as the messages of the next turn are made of."""
        call: Object = {"type": "function_call", "call_id": self.call_id, "name": self.name, "arguments": self.arguments}
        call["extra_content"] = self.extra
        return call, {"type": "function_call_output", "call_id": self.call_id, "output": self.result}


def with_chat_name(item: Object, tools: ToolTable) -> Object:
    """Return the item of a call with the name under which its tool was offered; any other item as it is."""
    kind = _KIND_OF_CALL.get(item["type"])
    if kind is None:
        return item
    called = ToolTarget(kind, item["name"], item.get("namespace"))
    return {**item, "name": chat_name(tools, called, item["name"]), "namespace": None}


def with_turn(
    body: Mapping[str, Any], parts: Sequence[Object | RunCall], policy: Policy, *, may_call: bool = True
) -> dict[str, Any]:
    """Return the chat request that asks for the next turn: `body`, and messages for what the model said in the last one, in
    order: items (reasoning, messages, calls whose results come later) and the calls that were run. All of them are one message
    of the model, which the results follow. A tool that was forced in the last turn is not forced again; without `may_call` the
    model has to answer now."""
    items = [part.items[0] if isinstance(part, RunCall) else part for part in parts]
    items += [part.items[1] for part in parts if isinstance(part, RunCall)]
    before = sum(len(message.get("tool_calls") or ()) for message in body["messages"])
    messages = in_forms([*body["messages"], *_messages(items, policy, before)], policy.forms)
    following = {**body, "messages": messages}
    if "tools" in body:
        if not may_call:
            following["tool_choice"] = "none"
        elif body.get("tool_choice", "auto") not in ("auto", "none"):
            following["tool_choice"] = "auto"
    return following


def answer_message(items: Iterable[Object], tools: ToolTable, policy: Policy, calls_before: int) -> Object:
    """Return the message that later requests have for an answer of the model, given its items; an empty one if they have none.
    `calls_before` are in the messages before it."""
    messages = in_forms(_messages([with_chat_name(item, tools) for item in items], policy, calls_before), policy.forms)
    return next((message for message in messages if message["role"] == "assistant"), {})


def _messages(items: Sequence[Object], policy: Policy, calls_before: int) -> list[Object]:
    report = LossReport()
    entries = entries_at(items, "output")
    calls = match_calls(entries, CallItemReader(NO_TOOLS, report), report)
    return ItemReader(policy, calls, report, calls_before=calls_before).later_messages(entries)


def with_nudge(body: Mapping[str, Any], parts: Sequence[Object | RunCall], policy: Policy) -> dict[str, Any]:
    """Return the chat request that has the model go on from a turn that ended early: `body`, what the model said, and one user
    message, which nobody but the model ever sees. Without it the request may be the last one again, and a server may take what
    the model said for the beginning of its answer. The same tools stay offered, forced or not: none was called."""
    answer = [part for part in parts if isinstance(part, RunCall) or part["type"] in ("message", "reasoning")]
    nudge = {"type": "message", "role": "user", "content": GO_ON}
    following = with_turn(body, [*answer, nudge], policy)
    if "tool_choice" in body:
        following["tool_choice"] = body["tool_choice"]
    return following


def with_approved(
    body: Mapping[str, Any], approved: Sequence[RunCall], policy: Policy, *, may_call: bool = True
) -> dict[str, Any]:
    """Return the chat request with the results of calls that the client has approved: where the calls stand, or after all
    other messages if they were summarised meanwhile. Without `may_call` the model has to answer now."""
    results = {call.call_id: call.result for call in approved}
    messages: list[Object] = []
    for message in body["messages"]:
        result = results.pop(message.get("tool_call_id", ""), None) if message["role"] == "tool" else None
        messages.append(message if result is None else {**message, "content": result})
    rest = [call for call in approved if call.call_id in results]
    answered = {**body, "messages": messages}
    if "tools" in body and not may_call:
        answered["tool_choice"] = "none"
    return with_turn(answered, rest, policy) if rest else answered
