"""What becomes of each part of a Messages body, as data, and the losses of its translation in this protocol's words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from responses_gateway.request.loss_report import Kind, Loss
from responses_gateway.request.messages.client_tools import CLIENT_TOOLS
from responses_gateway.request.messages.tools import SERVER_TOOLS

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
    Loss("parameter", "max_tokens", "adapted", "reduced to what the context has room for"),
    Loss("parameter", "thinking", "adapted", "off is as little as it can for a model that always thinks, and not shown"),
    Loss("parameter", "thinking", "ignored", "if the backend takes no effort; turned off, it is not shown in any case"),
    Loss("parameter", "tool_choice", "ignored", "without tools, for one that was left out, or not enforced by the backend"),
    Loss("parameter", "context_management", "ignored", "what is in the request is sent"),
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
