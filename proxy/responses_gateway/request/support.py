"""The possible outcomes of every part of a request, as data.

The table in the documentation is generated from it, and tests compare every loss report with it."""

from __future__ import annotations

from responses_gateway.request.input.calls import CALL_ITEMS, OUTPUT_ITEMS
from responses_gateway.request.input.item_reader import READ_ELSEWHERE, SILENT_ITEMS
from responses_gateway.request.input.template_forms import FORMED
from responses_gateway.request.loss_report import Loss
from responses_gateway.request.parameters.parameters import PARAMETERS
from responses_gateway.request.tools.declarations import HOSTED_TOOLS, hosted_reason
from responses_gateway.request.tools.plain_tools import SIMPLIFIED
from responses_gateway.wire.hosted_kinds import HOSTED

_ITEMS = (
    Loss("item", "message", "preserved", "of any role; null and missing content is empty"),
    Loss("item", "late_system_message", "adapted", "sent as a user message marked with tags, or as configured"),
    Loss("item", "reasoning", "preserved", "sent back with the assistant message that follows it"),
    Loss("item", "reasoning", "ignored", "without readable text, if no message follows, or if the backend refuses it"),
    *(Loss("item", kind, form.outcome, form.reason) for kind, form in CALL_ITEMS.items()),
    *(Loss("item", kind, form.outcome, form.reason) for kind, form in OUTPUT_ITEMS.items()),
    *(Loss("item", kind, "ignored", "if the call has been answered already") for kind in OUTPUT_ITEMS),
    Loss("item", "function_call", "adapted", "a call without output is given one"),
    Loss("item", "async_call", "adapted", "without output, a hint says that it comes later; a later output repeats the call"),
    Loss("item", "tool_search_call", "ignored", "if another server ran the search"),
    Loss("item", "mcp_approval_request", "ignored", "if the client has not decided"),
    *(Loss("item", kind.item.type, "ignored", f"if {kind.unread}") for kind in HOSTED.values() if kind.unread),
    *READ_ELSEWHERE.values(),
    Loss("item", "agent_message", "adapted", "sent as a user message marked with tags"),
    Loss("item", "unpaired_output", "adapted", "a named `function_call_output` without `call_id`: as `agent_message`"),
    Loss("item", "compaction_trigger", "adapted", "sent as a user message that asks for a summary, if so configured"),
    Loss("item", "compaction_trigger", "rejected", "otherwise"),
    Loss("item", "item_reference", "preserved", "replaced by the stored item; unknown ids are refused"),
    Loss("item", "mcp_list_tools", "preserved", "if tools of the server are offered"),
    Loss("item", "mcp_approval_response", "preserved", "if tools of MCP servers are offered"),
    *(Loss("item", name, "ignored", reason) for name, reason in SILENT_ITEMS.items()),
    Loss("item", "unknown", "ignored"),
)

_TOOLS = (
    Loss("tool", "function", "preserved", "with the empty `properties` and `items` that servers insist on"),
    SIMPLIFIED,
    Loss("tool", "custom", "adapted", "offered as a function with one string argument"),
    Loss("tool", "custom_grammar", "preserved", "sent as a pattern, if possible and if the backend is known to enforce it"),
    Loss("tool", "custom_grammar", "adapted", "otherwise: explained to the model, and checked"),
    Loss("tool", "custom_grammar", "ignored", "if it is too long, or if grammars are disabled"),
    Loss("tool", "namespace", "adapted", "offered as functions named namespace__name"),
    Loss("tool", "local_shell", "adapted", "offered as a function"),
    Loss("tool", "local_shell", "ignored", "inside a namespace"),
    Loss("tool", "shell", "adapted", "offered as a function, whose description names the `skills` of a `local` one"),
    Loss("tool", "shell", "rejected", "with a container as its environment (`container_auto`, `container_reference`)"),
    Loss("tool", "shell", "ignored", "inside a namespace"),
    Loss("tool", "apply_patch", "adapted", "offered as a function"),
    Loss("tool", "apply_patch", "ignored", "inside a namespace"),
    Loss("tool", "tool_search", "adapted", "offered as a function, if the client runs it"),
    Loss("tool", "tool_search", "ignored", "if the server would have to run it: all tools are offered at once"),
    *(Loss("tool", name, "preserved", "run by the gateway, if so configured") for name in HOSTED),
    *(Loss("tool", name, "ignored", hosted_reason(name)) for name in HOSTED_TOOLS),
    Loss("tool", "encrypted_arguments", "adapted", "the arguments are plain text, and calls say so"),
    Loss("tool", "declared_again", "ignored", "a later declaration of the same name with other contents"),
    Loss("tool", "defer_loading", "adapted", "the tool is offered at once"),
    Loss("tool", "allowed_callers", "ignored", "if only programs may call it: the model may call it itself"),
    Loss("tool", "async", "adapted", "the model learns that results come later, and goes on without them"),
    Loss("tool", "output_schema", "ignored", "chat servers do not support it"),
    Loss("tool", "unknown", "ignored"),
)

_CONTENT = (
    Loss("content", "input_text", "preserved"),
    Loss("content", "output_text", "preserved", "without annotations and log probabilities"),
    Loss("content", "phase", "ignored", "of an assistant message"),
    Loss("content", "prompt_cache_breakpoint", "ignored", "the backend decides what it caches"),
    Loss("content", "refusal", "adapted", "sent back as text"),
    Loss("content", "input_image", "preserved", "as a URL or a data URL"),
    Loss("content", "input_image", "adapted", "detail levels that chat servers do not support are sent as high"),
    Loss("content", "input_image", "ignored", "in a system or developer message; of past turns, if only text is taken"),
    Loss("content", "input_file", "preserved", "as a file part with file_data"),
    Loss("content", "input_file", "adapted", "PDFs and texts as text, files for code as paths; few servers fetch file_url"),
    Loss("content", "input_file", "ignored", "in a system or developer message"),
    Loss("content", "file_detail", "ignored", "chat servers support it for images only"),
    Loss("content", "input_audio", "preserved"),
    Loss("content", "input_audio", "ignored", "in a system or developer message"),
    Loss("content", "input_video", "preserved", "as a video_url part"),
    Loss("content", "input_video", "ignored", "in a system or developer message"),
    Loss("content", "computer_screenshot", "ignored", "in a system or developer message"),
    Loss("content", "encrypted_content", "ignored", "it was encrypted by another server"),
    Loss("content", "encrypted_content", "adapted", "in a message between agents, if it is plain text"),
    Loss("content", "file_id", "rejected", "file ids cannot be resolved"),
    Loss("content", "tool_output_media", "adapted", "moved into a user message after the tool messages"),
    Loss("content", "arguments", "adapted", "call arguments that are not a JSON object are replaced by {}"),
    Loss("content", "call_id", "adapted", "a call id that is used twice is numbered"),
    Loss("content", "order", "adapted", "an output apart from its call joins it, a note the last"),
    FORMED,
)


def support() -> list[Loss]:
    """Return every parameter, item, tool and content part, with each possible outcome and its reason."""
    parameters = (Loss("parameter", parameter.name, parameter.outcome, parameter.note) for parameter in PARAMETERS)
    return [*parameters, *_ITEMS, *_TOOLS, *_CONTENT]
