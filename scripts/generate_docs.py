"""Write `docs/configuration.md` from the settings, so that the reference cannot go stale (`make docs`)."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from proxy.reference import Knob, reference
from proxy.settings import CONFIG_VARIABLE, flag, variable

TARGET = Path(__file__).parents[1] / "docs" / "configuration.md"

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


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(render(), encoding="utf-8")
