"""What the translation carries, as data: the documentation's table is generated from here, and the tests hold every loss
report against it."""

from __future__ import annotations

from proxy.request.input.conversation import SILENT_ITEMS
from proxy.request.loss_report import Loss
from proxy.request.parameters.parameters import PARAMETERS
from proxy.request.tools.declarations import HOSTED_TOOLS

_ITEMS = (
    Loss("item", "message", "preserved", "user, assistant, system and developer messages"),
    Loss("item", "late_system_message", "adapted", "sent as a user message with a marker around it, or as the policy says"),
    Loss("item", "reasoning", "preserved", "sent back with the assistant message that follows it"),
    Loss("item", "reasoning", "ignored", "where it holds no readable text, or no message follows it"),
    Loss("item", "function_call", "preserved", "a tool call of the assistant message"),
    Loss("item", "function_call", "adapted", "a call without output is given one"),
    Loss("item", "function_call_output", "preserved", "a tool message"),
    Loss("item", "function_call_output", "ignored", "where the call has been answered already"),
    Loss("item", "custom_tool_call", "adapted", "shown as a function call"),
    Loss("item", "custom_tool_call_output", "preserved", "a tool message"),
    Loss("item", "custom_tool_call_output", "ignored", "where the call has been answered already"),
    Loss("item", "local_shell_call", "adapted", "shown as a function call"),
    Loss("item", "local_shell_call_output", "preserved", "a tool message"),
    Loss("item", "local_shell_call_output", "ignored", "where the call has been answered already"),
    Loss("item", "shell_call", "adapted", "shown as a function call"),
    Loss("item", "shell_call_output", "adapted", "shown as text"),
    Loss("item", "shell_call_output", "ignored", "where the call has been answered already"),
    Loss("item", "apply_patch_call", "adapted", "shown as a function call"),
    Loss("item", "apply_patch_call_output", "adapted", "shown as text"),
    Loss("item", "apply_patch_call_output", "ignored", "where the call has been answered already"),
    Loss("item", "tool_search_call", "adapted", "shown as a function call"),
    Loss("item", "tool_search_call", "ignored", "where another server ran the search"),
    Loss("item", "tool_search_output", "adapted", "its tools are declared, and named in a tool message"),
    Loss("item", "tool_search_output", "ignored", "where the call has been answered already"),
    Loss("item", "computer_call", "adapted", "shown as a function call"),
    Loss("item", "computer_call_output", "adapted", "the screenshot follows in a user message"),
    Loss("item", "computer_call_output", "ignored", "where the call has been answered already"),
    Loss("item", "mcp_call", "adapted", "shown as a function call with its output"),
    Loss("item", "code_interpreter_call", "adapted", "shown as a function call with its logs"),
    Loss("item", "file_search_call", "adapted", "shown as a function call with its results"),
    Loss("item", "file_search_call", "ignored", "where it carries no results"),
    Loss("item", "program", "adapted", "shown as a function call"),
    Loss("item", "program_output", "adapted", "shown as text"),
    Loss("item", "program_output", "ignored", "where the call has been answered already"),
    Loss("item", "configuration_update", "preserved", "goes before reasoning.effort and text.format of the request"),
    Loss("item", "additional_tools", "adapted", "its tools are declared for the whole request"),
    Loss("item", "agent_message", "adapted", "sent as a user message with a marker around it"),
    Loss("item", "compaction_trigger", "adapted", "sent as a user message that asks for a summary, if so configured"),
    Loss("item", "compaction_trigger", "rejected", "otherwise"),
    Loss("item", "item_reference", "preserved", "stands for the stored item; unknown ids are refused"),
    *(Loss("item", name, "ignored", reason) for name, reason in SILENT_ITEMS.items()),
    Loss("item", "unknown", "ignored", "any other type"),
)

_TOOLS = (
    Loss("tool", "function", "preserved"),
    Loss("tool", "custom", "adapted", "offered as a function with one string argument"),
    Loss("tool", "custom_grammar", "preserved", "sent as a pattern, if it can be one and the backend is known to enforce them"),
    Loss("tool", "custom_grammar", "adapted", "otherwise: explained to the model, and checked"),
    Loss("tool", "custom_grammar", "ignored", "if it is too long, or grammars are switched off"),
    Loss("tool", "namespace", "adapted", "offered as functions named namespace__name"),
    Loss("tool", "local_shell", "adapted", "offered as a function"),
    Loss("tool", "local_shell", "ignored", "inside a namespace"),
    Loss("tool", "shell", "adapted", "offered as a function"),
    Loss("tool", "shell", "ignored", "with a container as its environment"),
    Loss("tool", "apply_patch", "adapted", "offered as a function"),
    Loss("tool", "apply_patch", "ignored", "inside a namespace"),
    Loss("tool", "tool_search", "adapted", "offered as a function, if the client runs it"),
    Loss("tool", "tool_search", "ignored", "if the server would have to run it: all tools are offered at once"),
    *(Loss("tool", name, "ignored", "hosted tools are not run here") for name in HOSTED_TOOLS),
    Loss("tool", "declared_again", "ignored", "another declaration of the same name: the first one counts"),
    Loss("tool", "defer_loading", "adapted", "the tool is offered at once"),
    Loss("tool", "allowed_callers", "ignored", "where only programs may call it: the model may call it itself"),
    Loss("tool", "async", "ignored", "chat servers do not know it"),
    Loss("tool", "output_schema", "ignored", "chat servers do not know it"),
    Loss("tool", "unknown", "ignored", "any other type"),
)

_CONTENT = (
    Loss("content", "input_text", "preserved"),
    Loss("content", "output_text", "preserved", "annotations and log probabilities are left behind"),
    Loss("content", "phase", "ignored", "of an assistant message"),
    Loss("content", "prompt_cache_breakpoint", "ignored", "the backend decides what it caches"),
    Loss("content", "refusal", "adapted", "sent back as text"),
    Loss("content", "input_image", "preserved", "as a URL or a data URL"),
    Loss("content", "input_image", "adapted", "detail levels that chat servers do not know are sent as high"),
    Loss("content", "input_image", "ignored", "in a system or developer message"),
    Loss("content", "input_file", "preserved", "as a file part with file_data"),
    Loss("content", "input_file", "adapted", "file_url is sent in the file part; few chat servers fetch it"),
    Loss("content", "input_file", "ignored", "in a system or developer message"),
    Loss("content", "file_detail", "ignored", "chat servers know it of images only"),
    Loss("content", "input_audio", "preserved"),
    Loss("content", "input_audio", "ignored", "in a system or developer message"),
    Loss("content", "input_video", "preserved", "as a video_url part"),
    Loss("content", "input_video", "ignored", "in a system or developer message"),
    Loss("content", "computer_screenshot", "ignored", "in a system or developer message"),
    Loss("content", "encrypted_content", "ignored", "it was encrypted by another server"),
    Loss("content", "encrypted_content", "adapted", "in a message between agents, where it is text that nobody encrypted"),
    Loss("content", "file_id", "rejected", "file ids cannot be resolved"),
    Loss("content", "tool_output_media", "adapted", "moved into a user message after the tool messages"),
    Loss("content", "arguments", "adapted", "arguments of a call that are no JSON object are replaced by {}"),
    Loss("content", "call_id", "adapted", "a call id that is used twice is numbered"),
    Loss("content", "order", "adapted", "an output that comes apart from its call is moved to it"),
)


def support() -> list[Loss]:
    """Every parameter, item, tool and content part, with each outcome that it can have and why."""
    parameters = (Loss("parameter", parameter.name, parameter.outcome, parameter.note) for parameter in PARAMETERS)
    return [*parameters, *_ITEMS, *_TOOLS, *_CONTENT]
