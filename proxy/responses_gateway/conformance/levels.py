"""The rules of a stream of the Responses API, and of one of the Messages API: what each demands, and what follows where it is
broken.

A rule has one of three levels. `breaks`: a client in use raises an exception, or its user gets something else than the model
said. `spec`: no client is known to mind, but the Open Responses specification demands it and OpenAI does it (of the Messages
API: Anthropic documents it). `stricter`: OpenAI does otherwise in streams that were recorded, or neither the specification nor
a client asks for it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

Level: TypeAlias = Literal["breaks", "spec", "stricter"]
# From the worst to the mildest.
LEVELS: tuple[Level, ...] = get_args(Level)

Rule: TypeAlias = Literal[
    # one event
    "malformed", "event_name", "sequence", "sequence_gap",
    # the order of the stream
    "created", "in_progress", "terminal_missing", "after_terminal", "done_marker",
    # the response
    "identity", "response_changed", "status", "snapshot_output", "terminal_output", "encrypted_content", "incomplete_details",
    "error", "completed_at", "usage", "usage_sum",
    # items
    "output_index", "item_id", "item_overlap", "call_overlap", "item_not_open", "item_status", "reasoning_status",
    "item_changed", "item_unfinished", "list_unfinished", "incomplete_item", "added_empty", "call_id", "search_call_id",
    "call_name", "blank_message",
    # parts and their text
    "part_index", "part_kind", "part_not_open", "item_parts", "empty_delta", "text_mismatch", "delta_missing", "done_missing",
    "annotations",
    # calls of hosted tools
    "hosted_steps",
]  # fmt: skip
MessageRule: TypeAlias = Literal[
    # one event, the order of the stream
    "message_malformed", "message_event_name", "message_start", "message_identity", "message_end", "message_after_end",
    "message_marker", "message_usage", "stop_reason", "stop_sequence", "message_error",
    # content blocks
    "block_index", "block_overlap", "block_not_open", "block_unfinished", "block_start", "block_kind", "block_empty",
    "block_delta", "signature", "tool_id", "tool_name", "result_id",
]  # fmt: skip


class Demand(NamedTuple):
    """What a rule demands, the level of the rule, and why it has that level."""

    level: Level
    text: str
    reason: str


# The closed lists of rules: metric labels are taken from here. The rules of the Responses API.
RULES: dict[Rule, Demand] = {
    "malformed": Demand("breaks", "An event is a JSON object with a type and the fields of that type; a blank line ends it.",
        "OpenAI's Python SDK and the AI SDK raise; without the blank line no client sees it."),
    "event_name": Demand("spec", "The `event:` line is the type of the event.",
        "Clients read the type in the JSON."),
    "sequence": Demand("spec", "Each event has a `sequence_number`, larger than the one before.",
        "`starting_after` depends on it; clients do not compare it."),
    "sequence_gap": Demand("stricter", "Sequence numbers are 0, 1, 2 and so on.",
        "Nothing depends on it."),
    "created": Demand("breaks", "`response.created` comes first, once; `response.queued` may come before or after it.",
        "OpenAI's SDKs raise without it."),
    "in_progress": Demand("spec", "`response.in_progress` comes before the first item, and before the end.",
        "Clients do not wait for it."),
    "terminal_missing": Demand("breaks", "The stream ends with a completed, incomplete or failed response.",
        "OpenAI's Python SDK raises, Codex repeats the request."),
    "after_terminal": Demand("breaks", "Nothing follows the terminal event or `[DONE]`.",
        "The AI SDK appends late text to the message; others lose what comes."),
    "done_marker": Demand("stricter", "`data: [DONE]` ends the stream.",
        "OpenAI does not send it."),
    "identity": Demand("breaks", "The response has an id, which stays the same, a model and a time of creation.",
        "OpenAI's SDKs raise when the id changes, the AI SDK without the others."),
    "response_changed": Demand("stricter", "The model and the time of creation stay the same.",
        "No client compares them."),
    "status": Demand("spec", "The status of the response is that of its event.",
        "Clients go by the event."),
    "snapshot_output": Demand("breaks", "Until the response ends, it contains the items that are done so far.",
        "The npm package `openai` 6 raises if items vanish."),
    "terminal_output": Demand("breaks", "The output of the final response is what was streamed.",
        "OpenAI's SDKs return this output."),
    "encrypted_content": Demand("stricter", "`encrypted_content` and `fingerprint` are the same in the final response.",
        "OpenAI encrypts anew for the final response."),
    "incomplete_details": Demand("breaks", "An incomplete response, and no other, has a reason.",
        "The AI SDK raises, or reports another reason for the end."),
    "error": Demand("breaks", "A failed response, and no other, has an error, whose `code` and `message` are strings.",
        "The AI SDK raises; Codex decides by the code whether to repeat."),
    "completed_at": Demand("stricter", "A completed response, and no other, has a time of completion.",
        "OpenAI's responses had none until the end of 2025."),
    "usage": Demand("breaks", "Usage has whole numbers of input, output and total tokens.",
        "The AI SDK raises; Codex repeats the request."),
    "usage_sum": Demand("stricter", "The numbers of tokens add up, and details are no larger than what they are part of.",
        "Clients pass them on."),
    "output_index": Demand("breaks", "Items are numbered from 0 as they begin, and their events carry that number.",
        "OpenAI's SDKs raise."),
    "item_id": Demand("breaks", "Each item has a unique id, which all of its events carry.",
        "The npm package `openai` raises, the AI SDK loses text."),
    "item_overlap": Demand("breaks", "A message, or reasoning, is done before another item begins.",
        "Codex gives deltas to the item that began last, and shows a message twice."),
    "call_overlap": Demand("stricter", "A call, or a list of tools, is done before another item begins.",
        "OpenAI has the tools of several MCP servers listed at once."),
    "item_not_open": Demand("breaks", "Only an item that has begun, and is not done, has events.",
        "OpenAI's SDK for Node.js raises; the AI SDK runs a call twice if it is done twice."),
    "item_status": Demand("spec", "An item is in progress, then completed or incomplete; a hosted call may be failed.",
        "Clients do not look at them."),
    "reasoning_status": Demand("stricter", "Reasoning has a status.",
        "OpenAI's has none."),
    "item_changed": Demand("breaks", "The type and the role of an item stay the same.",
        "OpenAI's SDKs raise when the type changes."),
    "item_unfinished": Demand("breaks", "Each item that begins is done before the response ends.",
        "OpenAI's SDKs raise; Codex loses the text or the call."),
    "list_unfinished": Demand("stricter", "Each list of MCP tools that begins is done before the response ends.",
        "OpenAI leaves out some if there are several."),
    "incomplete_item": Demand("spec",
        "An incomplete item is the last one, unless it is a call; its response is neither completed nor steered.",
        "Clients do not look at it."),
    "added_empty": Demand("breaks", "The text fields of an item or a part are empty at its beginning, not null.",
        "OpenAI's SDKs raise; so does the AI SDK if arguments are null."),
    "call_id": Demand("breaks", "Each call has a unique `call_id`, which stays the same.",
        "OpenAI's SDKs raise when it changes."),
    "search_call_id": Demand("stricter", "The `call_id` of a search, if it has one, is unique.",
        "OpenAI's hosted tool search has null."),
    "call_name": Demand("breaks", "A call has its name from the beginning, and keeps it.",
        "`@ai-sdk/open-responses` calls a tool without a name."),
    "blank_message": Demand("stricter", "There is no message without text between reasoning and a call.",
        "Nothing forbids it."),
    "part_index": Demand("breaks", "The parts of an item are numbered from 0.",
        "OpenAI's SDKs raise."),
    "part_kind": Demand("breaks", "Parts, deltas and done events suit their item.",
        "OpenAI's SDKs raise."),
    "part_not_open": Demand("breaks", "Text comes only for a part that has begun and is not done.",
        "OpenAI's SDKs raise; the AI SDK appends the text."),
    "item_parts": Demand("breaks", "The final item has the parts that were streamed.",
        "The AI SDK shows only what was streamed."),
    "empty_delta": Demand("stricter", "A delta has text.",
        "Clients do not mind."),
    "text_mismatch": Demand("breaks", "The deltas of a text add up to the text of its done event, of its part and of its item.",
        "Some clients show the deltas, others the final text."),
    "delta_missing": Demand("spec", "The arguments of a call also come as deltas.",
        "Clients take the arguments of the done event."),
    "done_missing": Demand("spec", "Text has its done event, and so has its part.",
        "Clients do not wait for them."),
    "annotations": Demand("breaks", "Annotations are numbered from 0, lie within the text so far, and are in the final part.",
        "The npm package `openai` raises if a number is missing."),
    "hosted_steps": Demand("stricter", "A hosted call has all events of its progress, in order.",
        "Clients do not wait for them."),
}  # fmt: skip

# Those of the Messages API. The reasons are what Claude Code 2.1 and Anthropic's SDKs were seen to do.
MESSAGE_RULES: dict[MessageRule, Demand] = {
    "message_malformed": Demand("breaks", "An event is a JSON object with a type and its fields; a blank line ends it.",
        "The SDKs raise."),
    "message_event_name": Demand("breaks", "The `event:` line is the type of the event.",
        "The SDKs see no event without it; Claude Code asks again without streaming."),
    "message_start": Demand("breaks", "`message_start` comes first, once.",
        "Claude Code asks again without streaming; the npm package raises at a second one."),
    "message_identity": Demand("breaks", "A message begins with an id, the role, a model, and empty content.",
        "The SDKs return these; Claude Code merges answers by the id."),
    "message_end": Demand("breaks", "The stream ends with `message_delta` and `message_stop`, or with one `error`.",
        "The npm package raises; the Python SDK returns half a message without an error."),
    "message_after_end": Demand("breaks", "Nothing follows `message_stop` or `error`.",
        "The SDKs raise, or add to a message that was returned."),
    "message_marker": Demand("spec", "There is no `data: [DONE]`.",
        "Anthropic sends none. Clients skip it."),
    "message_usage": Demand("breaks", "`message_start` and `message_delta` have whole numbers of input and output tokens.",
        "The SDKs raise where usage is missing; Claude Code compacts the conversation by these numbers."),
    "stop_reason": Demand("breaks", "`message_delta` has a known reason: `tool_use` if, and only if, there is a call.",
        "Claude Code asks for the missing call; agents run calls by this reason. A message that was cut says so instead."),
    "stop_sequence": Demand("spec", "The stop sequence is named if, and only if, it was the reason.",
        "Anthropic documents it."),
    "message_error": Demand("breaks", "An `error` event has an error, whose `type` and `message` are strings.",
        "By the type the SDKs choose the exception, and Claude Code whether it asks again."),
    "block_index": Demand("breaks", "Blocks are numbered from 0.",
        "The Python SDK raises at a gap, the npm package loses the text."),
    "block_overlap": Demand("breaks", "A block is stopped before another one starts.",
        "Clients in use give text to the block that started last."),
    "block_not_open": Demand("breaks", "Only a block that has started, and is not stopped, has events.",
        "Claude Code takes the answer for malformed, and asks for the rest."),
    "block_unfinished": Demand("breaks", "Each block is stopped before `message_delta`.",
        "Claude Code loses a block that is not."),
    "block_start": Demand("breaks", "A text, a thought and a call start with empty fields; an unknown block has a type.",
        "Claude Code drops what is in them; the Python SDK raises where they are missing."),
    "block_kind": Demand("breaks", "Deltas suit their block.",
        "Claude Code asks again without streaming."),
    "block_empty": Demand("spec", "A block of text has text.",
        "Anthropic refuses empty texts in the next request."),
    "block_delta": Demand("stricter", "A delta of text or of a thought has text.",
        "Anthropic's have. Clients do not mind."),
    "signature": Demand("spec", "A thought ends with its signature, once, which is not empty.",
        "Anthropic's do; clients return it with the thought."),
    "tool_id": Demand("breaks", "Each call has a unique id.",
        "Claude Code loses one of two results."),
    "tool_name": Demand("breaks", "A call starts with its name.",
        "No client can run it otherwise."),
    "result_id": Demand("breaks", "A result of a server's tool names a call before it.",
        "Anthropic refuses the message in the next request."),
}  # fmt: skip
_LEVELS: dict[str, Level] = {rule: demand.level for rule, demand in (*RULES.items(), *MESSAGE_RULES.items())}


class Violation(NamedTuple):
    """A broken rule (of `RULES` or `MESSAGE_RULES`), the index of the event that broke it (from 0), and what was seen."""

    rule: Rule | MessageRule
    event: int
    detail: str

    @property
    def level(self) -> Level:
        """How much it matters."""
        return _LEVELS[self.rule]


def counts_at(severity: Level, level: Level) -> bool:
    """Tell whether a violation of one level counts for somebody who checks at another."""
    return LEVELS.index(severity) <= LEVELS.index(level)
