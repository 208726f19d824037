"""Write `docs/configuration.md` from the settings and the table of names in `docs/parsers.md` from the formats, so that they
cannot go stale (`make docs`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from proxy.reference import Knob, reference
from proxy.settings import CONFIG_VARIABLE, flag, variable
from proxy.stream.formats import REASONING, TOOLS
from proxy.stream.formats.format import (
    Elements,
    JsonArguments,
    JsonEnvelope,
    Literal,
    Parameters,
    PythonCalls,
    Reasoning,
    Tools,
)

PARSERS = Path(__file__).parents[1] / "docs" / "parsers.md"
BEGIN = "<!-- names: written by `make docs` from proxy/stream/formats/names.py -->"
END = "<!-- /names -->"
TARGET = Path(__file__).parents[1] / "docs" / "configuration.md"

#: How the arguments of a call are written.
_NOTATIONS: dict[type, str] = {
    JsonArguments: "JSON",
    JsonEnvelope: "JSON",
    Parameters: "tags",
    Elements: "elements",
    Literal: "a notation of its own",
    PythonCalls: "Python",
}

INTRODUCTION = f"""\
<!-- Written by `make docs` from proxy/settings.py; edit that. -->

# Configuration

Every setting can be given in three ways. Where two of them name the same setting, the earlier in this list wins:

1. a flag: `responses-proxy serve {flag("port")} 9001`;
2. an environment variable: `{variable("port")}=9001`;
3. a key of a YAML file named by `--config FILE` or `{CONFIG_VARIABLE}`: `port: 9001`.

The names follow from each other: `idle_timeout` in the file is `{flag("idle_timeout")}` and
`{variable("idle_timeout")}`. A switch has two flags, `{flag("metrics")}` and `--no-metrics`. A list is a repeated
flag, a YAML list, or one variable with commas or in JSON. An empty variable counts as absent. Times are in seconds.

A name that does not exist is an error, wherever it stands. `responses-proxy serve --print-config` prints the settings
in force as a YAML file, without secrets.

```yaml
backend: http://gpu-server:8000
host: 0.0.0.0
log_format: json
idle_timeout: 600
models:                      # a mapping has no flag: it is JSON in a variable
  "qwen3-coder*":
    tool_call_parser: qwen3_coder
  "qwen3*":
    reasoning_parser: qwen3
    tool_call_parser: hermes
```
"""


def render() -> str:
    """The whole document: a table for each section of the settings."""
    parts = [INTRODUCTION]
    for title, knobs in groupby(reference(), key=lambda knob: knob.section):
        parts.append(f"\n## {title}\n\n| setting | values | default | meaning |\n|---|---|---|---|\n")
        parts.extend(_row(knob) for knob in knobs)
    return "".join(parts)


def _row(knob: Knob) -> str:
    values = knob.kind if knob.kind.isupper() else " ".join(f"`{value}`" for value in knob.kind.split("|"))
    default = knob.default if knob.default == "none" else f"`{knob.default}`"
    return f"| `{knob.name}` | {values} | {default} | {knob.description} |\n"


def with_names(document: str) -> str:
    """`docs/parsers.md` with the table of names as it should be. Raises `ValueError` where a marker comment is missing."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + "\n".join([BEGIN, "", *_names(), "", END]) + after


def _names() -> list[str]:
    lines = ["| name | as `reasoning_parser` | as `tool_call_parser` |", "|---|---|---|"]
    for name in sorted(REASONING.keys() | TOOLS.keys()):
        reasoning, tools = REASONING.get(name), TOOLS.get(name)
        lines.append(f"| `{name}` | {_reasoning(reasoning) if reasoning else ''} | {_tools(tools) if tools else ''} |")
    return lines


def _reasoning(part: Reasoning) -> str:
    if part.channels is not None:
        return _codes(part.channels.opens)
    if not part.opens:
        return "leaves it in the text"
    return f"{_codes((part.opens[0], part.closes[0]))}{', opened' if part.implicit else ''}"


def _tools(part: Tools) -> str:
    if part.channels is not None:
        return f"{_codes(part.channels.opens)}, JSON"
    opens = [*(block.opens[0] for block in part.blocks), *(call.opens[0] for call in part.calls)]
    calls = [*(call for block in part.blocks for call in block.calls), *part.calls, *part.bare]
    places = [_codes(opens)] if opens else []
    places += ["the beginning of the answer"] if part.bare else []
    return f"{' or '.join(places)}, {_NOTATIONS[type(calls[0].arguments)]}"


def _codes(markers: Iterable[str]) -> str:
    """Markers as inline code; a backtick among them wants longer fences around it."""
    shown = (f"```` {marker.strip()} ````" if "`" in marker else f"`{marker}`" for marker in dict.fromkeys(markers))
    return " ".join(shown).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(render(), encoding="utf-8")
    PARSERS.write_text(with_names(PARSERS.read_text(encoding="utf-8")), encoding="utf-8")
