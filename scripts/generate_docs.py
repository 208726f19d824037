"""Write the generated parts of docs/ (`make docs`): `configuration.md` from the settings, `translation.md` from the tables of
the translation, the table of names in `parsers.md` from the formats, that of metrics in `observability.md` from the metrics,
that of rules in `checking.md` from their levels. Also have all pages install extras in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from api_tables import answers
from generated_section import updated

from responses_gateway.conformance.levels import LEVELS, MESSAGE_RULES, RULES
from responses_gateway.conformance.rules import SHAPES
from responses_gateway.extras import install_command
from responses_gateway.parsers import REASONING, TOOLS
from responses_gateway.parsers.format import (
    ChannelFormat,
    JsonArguments,
    JsonEnvelope,
    NestedElements,
    PythonCalls,
    ReasoningFormat,
    RelaxedObject,
    TaggedParameters,
    ToolFormat,
)
from responses_gateway.request.loss_report import Loss
from responses_gateway.request.parameters.parameters import SAMPLING
from responses_gateway.request.support import support
from responses_gateway.server.features.standard import FEATURES
from responses_gateway.server.metrics import METRICS
from responses_gateway.settings import CONFIG_VARIABLE, flag, variable
from responses_gateway.settings.reference import SettingInfo, reference

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PARSERS = ROOT / "docs" / "parsers.md"
BEGIN = "<!-- names: written by `make docs` from proxy/responses_gateway/parsers/families/ -->"
END = "<!-- /names -->"
OBSERVABILITY = ROOT / "docs" / "observability.md"
METRICS_BEGIN = "<!-- metrics: written by `make docs` from the metrics in the code -->"
METRICS_END = "<!-- /metrics -->"
CHECKING = ROOT / "docs" / "checking.md"
MESSAGE_RULES_BEGIN = "<!-- message rules: written by `make docs` from proxy/responses_gateway/conformance/levels.py -->"
MESSAGE_RULES_END = "<!-- /message rules -->"
RULES_BEGIN = "<!-- rules: written by `make docs` from proxy/responses_gateway/conformance/levels.py -->"
RULES_END = "<!-- /rules -->"
TARGET = ROOT / "docs" / "configuration.md"
TRANSLATION = ROOT / "docs" / "translation.md"
_INSTALL = re.compile(r"pip install '(?:\.|responses-gateway)\[(?P<extra>\w+)\]'")

# Names of the notations for the arguments of a call.
_NOTATIONS: dict[type, str] = {
    JsonArguments: "JSON",
    JsonEnvelope: "JSON",
    TaggedParameters: "tags",
    NestedElements: "elements",
    RelaxedObject: "its own notation",
    PythonCalls: "Python",
}

INTRODUCTION = f"""\
<!-- Written by `make docs` from settings/; edit that. -->

# Configuration

This page lists every setting of `responses-gateway serve`. A setting can be given in three ways; if several give the same
one, the first in this list takes precedence:

1. a flag: `responses-gateway serve {flag("port")} 9001`;
2. an environment variable: `{variable("port")}=9001`;
3. a key of a YAML file named by `--config FILE` or `{CONFIG_VARIABLE}`: `port: 9001`.

The names correspond: `idle_timeout` in the file is `{flag("idle_timeout")}` and
`{variable("idle_timeout")}`. A boolean has two flags, `{flag("relay")}` and `--no-relay`. A list is given
as a repeated flag, a YAML list, or a variable with commas or in JSON. A mapping has no flag. An empty variable counts as
absent. Times are in seconds.

Unknown names are errors in all three places. `responses-gateway serve --print-config` prints the settings in effect as a
YAML file, without secrets.

```yaml
backend: http://gpu-server:8000
host: 0.0.0.0
log_format: json
idle_timeout: 600
models:                      # a mapping; in a variable it is JSON
  "qwen3-coder*":
    tool_call_parser: qwen3_coder
  "qwen3*":
    reasoning_parser: qwen3
    tool_call_parser: hermes
```
"""


def render() -> str:
    """Return `docs/configuration.md`, with a table for each section of the settings."""
    parts = [INTRODUCTION]
    for title, settings in groupby(reference(), key=lambda setting: setting.section):
        parts.append(f"\n## {title}\n\n")
        parts.extend(_row(setting) for setting in settings)
    return "".join(parts)


def _row(setting: SettingInfo) -> str:
    values = setting.kind if setting.kind.isupper() else " ".join(f"`{value}`" for value in setting.kind.split("|"))
    told = [] if setting.kind == "true|false" else [values]
    told += [] if setting.default == "none" else [f"default `{setting.default}`"]
    return f'- <a id="{setting.name}"></a>`{setting.name}` ({"; ".join(told)}): {setting.description}\n'


def with_install_commands(document: str) -> str:
    """Return a page in which extras are installed from where the gateway is: its checkout, or the package index."""
    return _INSTALL.sub(lambda command: install_command(command["extra"]), document)


def with_names(document: str) -> str:
    """Return `docs/parsers.md` with its table of names up to date. Raises `ValueError` if a marker comment is missing."""
    return updated(document, "\n".join([BEGIN, "", *_names(), "", END]))


def with_metrics(document: str) -> str:
    """Return `docs/observability.md` with its table of metrics up to date. Raises `ValueError` if a marker is missing."""
    return updated(document, "\n".join([METRICS_BEGIN, "", *_metrics(), "", METRICS_END]))


def with_rules(document: str) -> str:
    """Return `docs/checking.md` with its table of rules up to date. Raises `ValueError` if a marker comment is missing."""
    lines = []
    for level in LEVELS:
        lines += [f"Level `{level}`, and why:", ""]
        lines += [f"- `{rule}`: {demand.text} ({demand.reason})" for rule, demand in RULES.items() if demand.level == level]
        lines.append("")
    document = updated(document, "\n".join([RULES_BEGIN, "", *lines, RULES_END]))
    lines = []
    for level in LEVELS:
        named = [(name, demand) for name, demand in MESSAGE_RULES.items() if demand.level == level]
        lines += [f"Level `{level}`:", "", *(f"- `{name}`: {demand.text}" for name, demand in named), ""]
    return updated(document, "\n".join([MESSAGE_RULES_BEGIN, "", *lines, MESSAGE_RULES_END]))


def _metrics() -> list[str]:
    lines = []
    for metric in (*METRICS, *(metric for feature in FEATURES for metric in feature.metrics)):
        labels = f"; {', '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
        kind = type(metric).__name__.lower()
        lines.append(f"- `responses_gateway_{metric.name}` ({kind}{labels}): {metric.text}")
    return lines


def _names() -> list[str]:
    lines = ["| name | as `reasoning_parser` | as `tool_call_parser` |", "|---|---|---|"]
    for name in sorted(REASONING.keys() | TOOLS.keys()):
        reasoning = REASONING.get(name)
        tools = TOOLS.get(name)
        lines.append(f"| `{name}` | {_reasoning(reasoning) if reasoning else ''} | {_tools(tools) if tools else ''} |")
    return lines


def _reasoning(part: ReasoningFormat) -> str:
    if part.channels is not None:
        return _headers(part.channels)
    if not part.opens:
        return "leaves it in the text"
    return f"{_codes((part.opens[0], part.closes[0]))}{', opened' if part.implicit else ''}"


def _headers(channels: ChannelFormat) -> str:
    return _codes(marker for marker in channels.opens if marker not in channels.messages)


def _tools(part: ToolFormat) -> str:
    if part.channels is not None and part.channels.arguments is not None:
        return f"{_headers(part.channels)}, JSON"
    opens = [*(block.opens[0] for block in part.blocks), *(call.opens[0] for call in part.calls)]
    calls = [*(call for block in part.blocks for call in block.calls), *part.calls, *part.bare]
    places = [_codes(opens)] if opens else []
    places += ["the beginning of the answer"] if part.bare else []
    return f"{' or '.join(places)}, {_NOTATIONS[type(calls[0].arguments)]}"


def _codes(markers: Iterable[str]) -> str:
    """Write markers as inline code, with longer fences around one that has a backtick."""
    shown = (f"```` {marker.strip()} ````" if "`" in marker else f"`{marker}`" for marker in dict.fromkeys(markers))
    return " ".join(shown).replace("|", "\\|")


TRANSLATED = """\
<!-- Written by `make docs` from request/support.py, request/parameters/parameters.py and conformance/rules.py. Edit those. -->

# How requests and answers are translated

A Responses request can say more than a chat request. Each of its parts has one of these outcomes:

| outcome | |
|---|---|
| preserved | carried over with its meaning |
| adapted | carried over in another form |
| ignored | not carried over |
| rejected | answered with an error 400 |

The header `x-responses-gateway-losses` lists what was adapted or ignored
(`ignored="tool:web_search", adapted="parameter:reasoning.effort"`); `responses_gateway_losses_total` counts both. With
`strict`, a request is rejected if anything would be ignored that could change the answer. `forward` sends parameters that
would otherwise be ignored.
"""

CALLS = """
## Calls as servers send them

A piece belongs to the call with its id, otherwise with its index. Without both, a name begins a new call, and anything else
belongs to the only unfinished call, or to the one at its position in the chunk. If arguments come at an index that no call has,
indices are no longer used to choose among several calls. Placeholders before the arguments are dropped, names may come in
pieces, repeated calls and arguments count once. A name with a prefix (`functions.`), a tag or blanks around it is the declared
tool if exactly one fits. A call that cannot be decided ends as `incomplete` (the rule: `stream/reading/calls.py`).

Calls whose arguments are in tags: blanks between two parameters are skipped, and other text there ends the call as `incomplete`
([parsers.md](parsers.md#malformed-markup)).

A call that the gateway itself reads from markup is also `incomplete` if its arguments give one name two different values, or
have an expression that could be read only in part; if its name or arguments are given twice and differ; or if another parameter
of its tool stands beside its arguments. A custom tool takes any text. An object without a marker is a call only if it names a
tool of the request. Arguments that are not JSON are sent as the model wrote them, unless `repair_calls` finds one reading:
clients refuse them, and report the error to the model.

A call's `extra_content` (Gemini's `thought_signature`, in LiteLLM's `provider_specific_fields` too) is a member of its item,
or of the `tool_use` block, and goes back as it came, stored or not, also with calls that the gateway runs. If it comes after
the call has begun, it is in `output_item.done`, and in the Messages API the signature of an empty thinking block after the
call. The same holds for OpenRouter's `reasoning_details` of the `reasoning` item, if they contain more than its text (and for
GitHub Copilot's `reasoning_opaque`); those without a text, or after it, are a separate item. In the Messages API they are in
the `signature` of the thinking block, if thinking is shown. Encrypted reasoning contains both, for clients that keep nothing
else.
"""

EVENTS = """
## Events

These are the events in the order of a stream, with their fields besides `type` and `sequence_number`. Events of items also have
`output_index`, and all but `output_item.added` and `.done` have `item_id`. One item is open at a time. The stream ends
with exactly one of `response.completed`, `response.incomplete` and `response.failed`, and `data: [DONE]`.

"""

_FORWARDED = "preserved: if the settings forward it"
# Fields of all events of items, and of all but those that begin and end one.
_IN_ITEMS = ("output_index", "item_id")
_HEADINGS = {
    "parameter": "Parameters",
    "item": "Items of the input",
    "tool": "Tools",
    "content": "Content parts, and other parts of items",
}
_OLDER_NAMES = (
    "Older names of tools mean the same: `web_search_preview` and `web_search_preview_2025_03_11` are `web_search`,\n"
    "`computer_use_preview` is `computer`, which is not run here."
)
# In the order of a stream.
_WHEN = {
    "response.created": "first, as soon as the server has begun to answer",
    "response.queued": "then, for a background response",
    "response.in_progress": "then",
    "response.output_item.added": "an item begins, empty and `in_progress`",
    "response.content_part.added": "a part of a message, or the text of reasoning, begins",
    "response.output_text.delta": "more text",
    "response.output_text.done": "the complete text",
    "response.refusal.delta": "more of a refusal",
    "response.refusal.done": "the complete text",
    "response.reasoning_text.delta": "more reasoning; `response.reasoning.delta` with `reasoning_events: spec`",
    "response.reasoning_text.done": "the complete text",
    "response.content_part.done": "the part ends",
    "response.reasoning_summary_part.added": "the reasoning is repeated for clients that asked for a summary",
    "response.reasoning_summary_text.delta": "more text",
    "response.reasoning_summary_text.done": "the complete text",
    "response.reasoning_summary_part.done": "the part ends",
    "response.function_call_arguments.delta": "more JSON arguments of a function call",
    "response.function_call_arguments.done": "the complete arguments",
    "response.custom_tool_call_input.delta": "more input of a custom tool, as plain text",
    "response.custom_tool_call_input.done": "the complete input",
    "response.output_text.annotation.added": "the preceding text cites a source that a hosted tool found",
    "response.mcp_list_tools.in_progress": "an MCP server is asked for its tools",
    "response.mcp_list_tools.completed": "the server has listed its tools",
    "response.mcp_list_tools.failed": "the server has not listed its tools; the item gives the reason",
    "response.mcp_call.in_progress": "the model calls a tool of an MCP server",
    "response.mcp_call_arguments.delta": "more JSON arguments of the call",
    "response.mcp_call_arguments.done": "the complete arguments; the gateway runs the call",
    "response.mcp_call.completed": "the call succeeded; the item has its `output`",
    "response.mcp_call.failed": "the call failed; the item has the `error`",
    "response.web_search_call.in_progress": "the model searches the web, opens a page or searches within it",
    "response.web_search_call.searching": "the gateway carries out the search",
    "response.web_search_call.completed": "the search is done; the item has the `action`",
    "response.file_search_call.in_progress": "the model searches files",
    "response.file_search_call.searching": "the gateway carries out the search",
    "response.file_search_call.completed": "the search is done; the item has the `results` if they are included",
    "response.image_generation_call.in_progress": "the model asks for an image",
    "response.image_generation_call.generating": "a backend makes it",
    "response.image_generation_call.completed": "it is made; the item has it as its `result`",
    "response.code_interpreter_call.in_progress": "the model writes code",
    "response.code_interpreter_call_code.delta": "more of the code",
    "response.code_interpreter_call_code.done": "the complete code",
    "response.code_interpreter_call.interpreting": "the code runs",
    "response.code_interpreter_call.completed": "the code has run; the item has the `outputs` if they are included",
    "response.compaction.compacting": "the model has begun the summary that a `compaction_trigger` asks for, "
    "or a context above its `compact_threshold` needs; if it fails, the item is never done",
    "response.output_item.done": "the item ends, `completed` or `incomplete` (a call that was cut off, or an item at the "
    "token limit), or `failed` (a hosted call)",
    "response.completed": "the answer is complete",
    "response.incomplete": "the answer was cut off at the token limit or by a content filter, was steered, or the model "
    "stopped in the middle of a call that must not run incomplete",
    "response.failed": "the answer failed; `response.error` gives the reason",
    "response.steer.accepted": "over a WebSocket: the input of a `response.steer` was accepted, and waits",
    "response.steer.pending": "the steer waits for outputs of calls that the client has to send",
    "response.steer.failed": "the steer is returned",
}


def translation() -> str:
    """Return `docs/translation.md`."""
    parts = [TRANSLATED]
    for kind, title in _HEADINGS.items():
        losses = [loss for loss in support() if loss.kind == kind and loss.name not in SAMPLING]
        parts.append(f"\n## {title}\n\n")
        parts.extend(f"- {', '.join(names)}: {told}\n" for told, names in _by_outcomes(losses).items())
        if kind == "parameter":
            names = ", ".join(f"`{name}`" for name in SAMPLING)
            parts.append(f"\nParameters of chat servers that the Responses API does not have are preserved: {names}.\n")
        if kind == "tool":
            parts.append(f"\n{_OLDER_NAMES}\n")
    parts.append(CALLS)
    parts.append(EVENTS)
    parts.extend(f"- `{name}`{_fields(name)}: {when}\n" for name, when in _WHEN.items())
    parts.append(answers())
    return "".join(parts)


def _by_outcomes(losses: list[Loss]) -> dict[str, list[str]]:
    """Return the names that share their outcomes, as text, by these outcomes."""
    found: dict[str, list[str]] = {}
    for name, outcomes in groupby(sorted(losses, key=lambda loss: loss.name), key=lambda loss: loss.name):
        told = "; ".join(f"{loss.outcome}: {loss.reason}" if loss.reason else loss.outcome for loss in outcomes)
        shown = "any other" if name == "unknown" else f"`{name}`"
        found.setdefault(told.replace(_FORWARDED, "preserved by `forward`"), []).append(shown)
    return found


def _fields(event: str) -> str:
    fields = ", ".join(f"`{field}`" for field in SHAPES[event] if field not in _IN_ITEMS)
    return f" ({fields})" if fields else ""


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    for page in PAGES:
        page.write_text(with_install_commands(page.read_text(encoding="utf-8")), encoding="utf-8")
    TARGET.write_text(render(), encoding="utf-8")
    TRANSLATION.write_text(translation(), encoding="utf-8")
    OBSERVABILITY.write_text(with_metrics(OBSERVABILITY.read_text(encoding="utf-8")), encoding="utf-8")
    CHECKING.write_text(with_rules(CHECKING.read_text(encoding="utf-8")), encoding="utf-8")
    PARSERS.write_text(with_names(PARSERS.read_text(encoding="utf-8")), encoding="utf-8")
