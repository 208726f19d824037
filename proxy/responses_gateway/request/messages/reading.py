"""Read a Messages body: the Responses request that asks for the same, and what that cannot express; and what becomes of each
part of a body, as data, with the losses of the translation in this protocol's words."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

import msgspec

from responses_gateway.request.fields import (
    Object,
    object_list,
    objects,
    optional_object,
    optional_text,
    required_object,
    text,
    too_long,
)
from responses_gateway.request.loss_report import Kind, Loss, LossReport
from responses_gateway.request.messages.content import ContentReader
from responses_gateway.request.messages.conversation import Conversation
from responses_gateway.request.messages.places import Places
from responses_gateway.request.messages.tools import CLIENT_TOOLS, SERVER_TOOLS, ToolReader
from responses_gateway.request.messages.turns import NO_SYSTEM, NO_TOOLS, ReadSystem, ReadTools, ReadTurns, turns_end
from responses_gateway.request.policy import Policy
from responses_gateway.request.safeguards import read_safeguards
from responses_gateway.wire.added_fields import EFFORTS, LIMIT, AddedField, AddedFields
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.json_text import same_list
from responses_gateway.wire.messages import UNTHREADED, MessagesRequest, Thinking
from responses_gateway.wire.requests import ResponsesRequest

# Parameters for Anthropic's own machinery: a model here answers the same without them, so that strict mode lets them pass.
MACHINERY = frozenset({
    "safeguards", "service_tier", "cache_control", "speed", "inference_geo", "betas", "diagnostics", "fallbacks", "fallback",
})  # fmt: skip
# The names of losses that the translation of the items reports -> names of the Messages API.
_NAMES: dict[tuple[Kind, str], tuple[Kind, str]] = {
    ("parameter", "max_output_tokens"): ("parameter", "max_tokens"),
    ("parameter", "reasoning.effort"): ("parameter", "thinking"),
    ("parameter", "text.format"): ("parameter", "output_config.format"),
    ("parameter", "stop"): ("parameter", "stop_sequences"),
    ("item", "message"): ("content", "text"),
    ("item", "reasoning"): ("content", "thinking"),
    ("item", "function_call"): ("content", "tool_use"),
    ("item", "function_call_output"): ("content", "tool_result"),
    ("content", "input_image"): ("content", "image"),
    ("content", "input_file"): ("content", "document"),
    ("content", "tool_output_media"): ("content", "image"),
    ("content", "call_id"): ("content", "tool_use"),
    ("content", "arguments"): ("content", "tool_use"),
    ("content", "order"): ("content", "tool_result"),
    ("tool", "function"): ("tool", "custom"),
}
# What the reading of a Messages body itself reports; the rest is in the table of the Responses API, under the names above.
MESSAGES_LOSSES = (
    Loss("parameter", "model", "adapted", "an unknown name that begins with claude or anthropic means the default model"),
    Loss("parameter", "max_tokens", "adapted", "reduced to what the context has room for, or the backend takes"),
    Loss("parameter", "thinking", "adapted", "off is as little as it can for a model that always thinks, and not shown"),
    Loss("parameter", "thinking", "ignored", "if the backend takes no effort; turned off, it is not shown in any case"),
    Loss("parameter", "tool_choice", "ignored", "without tools, for one that was left out, or not enforced by the backend"),
    Loss("parameter", "context_management", "ignored", "all messages are sent"),
    Loss("parameter", "metadata", "adapted", "requests of one user go to the same backend"),
    Loss("parameter", "output_config", "ignored", "fields other than effort and format"),
    Loss("parameter", "output_config.format", "adapted", "without `strict`, if the backend refuses that"),
    Loss("parameter", "safeguards", "adapted", "with a judge of the gateway: each call of an answer has a verdict"),
    Loss("parameter", "unknown", "ignored", "any other parameter"),
    Loss("parameter", "input_tokens", "adapted", "estimated, where neither the backend nor a tokenizer can count"),
    *(Loss("parameter", name, "ignored", "for Anthropic's own servers") for name in sorted(MACHINERY)),
    Loss("content", "billing_header", "ignored", "it would change the beginning of every prompt"),
    Loss("content", "late_system", "preserved", "stays in its place, if the settings say that the template takes it"),
    Loss("content", "late_system", "adapted", "else part of the message before it"),
    Loss("content", "redacted_thinking", "ignored", "only Anthropic can read it"),
    Loss("content", "document", "adapted", "its text"),
    Loss("content", "document", "ignored", "a PDF at a URL, or that cannot be read: the model is told so"),
    Loss("content", "tool_result", "ignored", "if the call has a result already"),
    Loss("content", "is_error", "adapted", "the result begins with the word Error, if it does not say so itself"),
    Loss("content", "search_result", "adapted", "sent as text"),
    Loss("content", "tool_reference", "adapted", "sent as text; the tool is declared"),
    Loss("content", "tool_addition", "adapted", "the tool is declared for the whole conversation"),
    Loss("content", "tool_addition", "ignored", "of a tool of an MCP server"),
    Loss("content", "tool_removal", "ignored", "the tool stays offered"),
    Loss("content", "server_tool_use", "adapted", "shown as a function call with its result"),
    Loss("content", "prefill", "preserved", "continued by vLLM; other servers are not asked to"),
    Loss("content", "unknown", "ignored", "unknown types of blocks"),
    Loss("tool", "defer_loading", "adapted", "offered once a tool_reference names it"),
    *(Loss("tool", name, "adapted", "offered as a function") for name in CLIENT_TOOLS),
    *(Loss("tool", name, "ignored", "run by Anthropic's servers alone") for name in SERVER_TOOLS),
    Loss("tool", "unknown", "ignored", "any other type without an input_schema"),
    Loss("tool", "web_search", "preserved", "run by the gateway"),
    Loss("tool", "web_search", "ignored", "if the gateway cannot run it; refused where it is the only tool"),
    Loss("tool", "web_fetch", "adapted", "offered as functions that open a page and find text in it"),
    Loss("tool", "web_fetch", "ignored", "if the gateway cannot run it; refused where it is the only tool"),
    Loss("tool", "declared_again", "ignored", "if a tool of the same name stands before it"),
    Loss("tool", "options", "ignored", "options of a server tool that the gateway's own tool does not have"),
)
# In the names of models that always think: their servers refuse an effort of `none`.
_ALWAYS_THINKS = re.compile("gpt[-_]oss", re.IGNORECASE)
# Budgets of thinking in tokens, below which an effort is enough.
_BUDGETS = ((4096, "low"), (16384, "medium"))
# Fields of the chat request that no client of this API asks for: a format is strict here, a limit has to be sent, so that it is
# as high as a model may ever take, and an effort stands for a budget, or for no thinking at all. One that is named is a hint:
# Claude Code sends it with each request, whatever the model can do. Those of this API alone, because what a server refuses is
# kept for each, and clients may invent any number.
_OWN = AddedField(also=402)  # a limit beyond what is paid for
_NOT_ASKED: AddedFields = {"response_format.json_schema.strict": _OWN, LIMIT: _OWN}
_EFFORT = "reasoning_effort"
_OWN_EFFORT = AddedField(word=True, switch=True)
# What the gateway does itself if the server does not: a message that is not streamed ends at a stop sequence.
_CUT_HERE = {"stop": _OWN}
_FEWEST = 2  # so many messages are always read anew: a question, and the model's answer to it


def in_messages_words(losses: Iterable[Loss], *, says_effort: bool = True) -> list[Loss]:
    """Return losses of the translation under the names of this protocol. How the model is told not to think is no loss for a
    client that says nothing of it; that the backend refuses to be told is one."""
    words: dict[Loss, None] = {}
    for loss in losses:
        renamed = _renamed(loss)
        if says_effort or renamed.name != "thinking" or renamed.outcome == "ignored":
            words[renamed] = None
    return list(words)


@lru_cache(maxsize=1024)  # because most requests have the same few
def _renamed(loss: Loss) -> Loss:
    name = _NAMES.get((loss.kind, loss.name))
    return loss if name is None else Loss(*name, loss.outcome, loss.reason)


class MessagesReading(msgspec.Struct, frozen=True):
    """`request` asks for the same as the body. `places` is where its parts stand in the body. `losses` are what the reading
    itself could not carry over. `policy`: how the request is translated. `turns`: what the next body can be read from. `user`:
    whom the request is for, by the client's own id; empty if it says nothing. `says_effort`: the body says how much the model
    is to think. `safeguards`: what it says of how tool calls are to be judged; None if they are not."""

    request: ResponsesRequest
    places: Places
    losses: list[Loss]
    thinking: Thinking
    policy: Policy
    turns: ReadTurns | None = None
    user: str = ""
    says_effort: bool = True
    safeguards: str | None = None


def read_messages(
    body: MessagesRequest, model: str, policy: Policy, hosted: Container[str] = (), served_as: str = ""
) -> MessagesReading:
    """Read a body for a `model` as `policy` wants it; `hosted` are the kinds of tools that the gateway runs, `served_as` is the
    backend's name of the model, if it differs. Raise `ApiError` 400, naming a field of the body."""
    return _BodyReader(body, policy, hosted).reading(model, served_as, None)


def read_known_messages(
    body: MessagesRequest, known: ReadTurns, model: str, policy: Policy, hosted: Container[str] = (), served_as: str = ""
) -> MessagesReading | None:
    """Do as `read_messages` with a body that begins with the messages that are `known`, which are not read again. Return None
    where that may not come to the same. Raise `ApiError` 400."""
    reader = _BodyReader(body, policy, hosted)
    if not known.fits(policy, reader.system, body.messages):
        return None
    reader.resume(known)
    return reader.reading(model, served_as, known)


class _BodyReader:
    """Reads one body. `system`: the texts of its system prompt, and what was reported of it."""

    def __init__(self, body: MessagesRequest, policy: Policy, hosted: Container[str]) -> None:
        """Read what stands before the messages. Raise `ApiError` 400."""
        self._body = body
        self._policy = policy
        self._hosted = hosted
        self._report = LossReport(policy.strict)
        self._places = Places()
        self._content = ContentReader(self._report)
        self._conversation = Conversation(policy, self._report, self._content, self._places)
        self.system = NO_SYSTEM
        if body.mcp_servers or body.container or body.compaction or body.thread:
            _refuse_unavailable(body)
        if body.system is not None:
            self._conversation.system(body.system)
            if len(body.messages) > _FEWEST:
                self.system = ReadSystem(self._conversation.leading.copy(), self._report.losses())
        if not body.messages:
            raise invalid_request("messages: at least one message is required.", "messages", "invalid_value")
        if len(body.messages) > policy.max_input_items:
            raise too_long("messages", len(body.messages), policy.max_input_items, "messages")

    def resume(self, known: ReadTurns) -> None:
        """Go on behind messages that are known."""
        self._conversation.resume(known.conversation)
        self._report.repeat(known.losses)

    def reading(self, model: str, served_as: str, known: ReadTurns | None) -> MessagesReading:
        """Read the rest of the body, behind the messages that are known. Raise `ApiError` 400."""
        body = self._body
        report = self._report
        conversation = self._conversation
        turns = self._messages(known)
        tools = self._tools(known) if body.tools or body.tool_choice or self._content.defined else NO_TOOLS
        if turns is not None:
            turns = msgspec.structs.replace(turns, tools=tools)
        wanted = optional_text(body.output_config, "effort", "output_config") if body.output_config else None
        thinking, effort = _effort(body, wanted, served_as or model, self._policy, report)
        request = self._request(model, effort, tools)
        user = optional_text(body.metadata, "user_id", "metadata") or "" if body.metadata else ""
        if user or body.context_management or body.output_config:
            _report_used(body, user, report)
        extra = body.model_extra
        if extra:
            _report_unused(extra, report)
        if conversation.prefilled:
            report.preserved("content", "prefill")
        own_fields = _own_fields(effort, wanted, self._policy)
        policy = msgspec.structs.replace(
            self._policy,
            continues_last_message=conversation.prefilled,
            separate_web_tools=True,
            own_fields=own_fields if body.stream else {**own_fields, **_CUT_HERE},
        )
        says_effort = body.thinking is not None or wanted is not None
        safeguards = read_safeguards(extra["safeguards"]) if extra and "safeguards" in extra else None
        losses = report.losses()
        return MessagesReading(request, self._places, losses, thinking, policy, turns, user, says_effort, safeguards)

    def _request(self, model: str, effort: str | None, tools: ReadTools) -> ResponsesRequest:
        body = self._body
        conversation = self._conversation
        fields: Object = {"model": model, "input": conversation.items, "store": False, **tools.fields}
        for name, value in (
            ("instructions", "\n\n".join(conversation.leading) if conversation.leading else None),
            ("max_output_tokens", body.max_tokens or None),
            ("generate", False if body.max_tokens == 0 else None),
            ("temperature", body.temperature),
            ("top_p", body.top_p),
            ("reasoning", None if effort is None else {"effort": effort}),
            ("text", _text(body) if body.output_config or body.output_format else None),
            ("stream", body.stream),
            ("stop", [stop for stop in body.stop_sequences if stop] or None if body.stop_sequences else None),
            ("top_k", body.top_k or None),
        ):
            if value is not None:
                fields[name] = value
        return ResponsesRequest(**fields)

    def _messages(self, known: ReadTurns | None) -> ReadTurns | None:
        """Read the messages behind those that are known; return what the next request can go on from."""
        conversation = self._conversation
        messages = object_list(self._body.messages, "messages")
        begin = 0 if known is None else known.messages
        end = turns_end(messages, begin) if len(messages) > _FEWEST else None
        turns = known
        for index in range(begin, len(messages)):
            if index == end and (read := conversation.read()) is not None:
                losses = self._report.losses()[len(self.system.losses) :]
                turns = ReadTurns(end, self._policy, self.system, read, losses)
            conversation.message(messages[index], f"messages[{index}]")
        conversation.finish()
        return turns

    def _tools(self, known: ReadTurns | None) -> ReadTools:
        """Read the tools, unless they are those that are known."""
        body = self._body
        content = self._content
        source = (body.tool_choice, list(content.referenced), content.defined, self._hosted)
        if known is not None and known.tools.given == source and same_list(body.tools, known.tools.declared):
            self._places.tools = list(known.tools.places)
            self._report.repeat(known.tools.losses)
            return known.tools
        reported = self._report.size
        reader = ToolReader(self._hosted, self._places, self._report)
        fields = reader.read(body.tools or [], body.tool_choice, content.referenced, content.defined)
        return ReadTools(body.tools, source, fields, self._places.tools, self._report.losses()[reported:])


def _refuse_unavailable(body: MessagesRequest) -> None:
    """Raise `ApiError` 400 for what would change the answer and cannot be done here."""
    for name, value in (("mcp_servers", body.mcp_servers), ("container", body.container), ("compaction", body.compaction)):
        if value:
            raise invalid_request(f"{name}: not supported by this gateway.", name, "unsupported_parameter")
    if body.thread:  # a client that is not told so sends no more than its new messages
        raise invalid_request("thread: the gateway keeps no conversations of this API.", "thread", UNTHREADED)


def _effort(
    body: MessagesRequest, wanted: str | None, model: str, policy: Policy, report: LossReport
) -> tuple[Thinking, str | None]:
    """Return what becomes of the thoughts, and how much the model is to think, given the effort that is `wanted`. Without
    `thinking` it is not to think, as in the older versions of this API: titles and classifiers have few tokens."""
    thinking = body.thinking
    kind = "disabled" if thinking is None else text(thinking, "type", "thinking")
    if thinking is None or kind == "disabled":
        return "hidden", _least_effort(model, policy, report)
    display: Thinking = "empty" if thinking.get("display") == "omitted" else "shown"
    if wanted is not None or kind != "enabled":
        return display, wanted
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        message = "thinking.budget_tokens: a number of tokens is expected."
        raise invalid_request(message, "thinking.budget_tokens", "invalid_value")
    return display, next((effort for most, effort in _BUDGETS if budget < most), "high")


def _own_fields(effort: str | None, wanted: str | None, policy: Policy) -> AddedFields:
    """Return the fields that no client asks for, given the effort that is sent, and the one that was named."""
    if effort is None or effort != wanted:
        return {**_NOT_ASKED, _EFFORT: _OWN_EFFORT}
    return {**_NOT_ASKED, f"{_EFFORT}={effort}": _OWN_EFFORT} if effort in EFFORTS and not policy.strict else _NOT_ASKED


def _least_effort(model: str, policy: Policy, report: LossReport) -> str | None:
    """Return the effort of a model that is not to think; None if its backend cannot be told."""
    if policy.reasoning_effort == "drop":
        report.ignored("parameter", "thinking", "the backend cannot turn it off; it is not shown", "thinking", matters=False)
        return None
    if _ALWAYS_THINKS.search(model) is None:
        return "none"
    report.adapted("parameter", "thinking", "this model always thinks: as little as it can, and it is not shown")
    return "low"


def _text(body: MessagesRequest) -> Object | None:
    """Return the format of the answer, which has no name here and is always to be kept to."""
    path = "output_config.format"
    layout = optional_object(body.output_config or {}, "format", "output_config")
    if layout is None:
        path = "output_format"
        layout = body.output_format
    if layout is None:
        return None
    if text(layout, "type", path) != "json_schema":
        raise invalid_request(f"{path}.type: 'json_schema' is expected.", f"{path}.type", "invalid_value")
    return {"format": {"type": "json_schema", "schema": required_object(layout, "schema", path), "strict": True}}


def _report_used(body: MessagesRequest, user: str, report: LossReport) -> None:
    """Report the parameters of which not all can be done."""
    if user:
        report.adapted("parameter", "metadata", "requests of one user go to the same backend")
    if body.context_management:
        # A prompt below an edit's threshold is answered alike, and one that does not fit is refused as it is without edits.
        edits = objects(body.context_management, "edits", "context_management")
        kinds = [optional_text(edit, "type", f"context_management.edits[{index}]") or "" for index, edit in enumerate(edits)]
        matters = any(kind.startswith("compact_") for kind in kinds)
        report.ignored("parameter", "context_management", "all messages are sent", "context_management", matters=matters)
    if body.output_config:
        others = [name for name in body.output_config if name not in ("effort", "format")]
        if others:
            path = f"output_config.{others[0]}"
            report.ignored("parameter", "output_config", f"not known: {', '.join(others)[:100]}", path)


def _report_unused(extra: Mapping[str, object], report: LossReport) -> None:
    """Report the fields that mean nothing here."""
    names = [name for name, value in extra.items() if value is not None]
    for name in MACHINERY.intersection(names):
        report.ignored("parameter", name, "for Anthropic's own servers", name, matters=False)
    unknown = [name for name in names if name not in MACHINERY]
    if unknown:
        report.ignored("parameter", "unknown", f"not known here: {', '.join(unknown)[:200]}", unknown[0])
