"""Write what the Helm chart accepts as `settings` into its `values.schema.json`: every setting of the gateway, with its type.

Without arguments: exit with 1 if the file is out of date. With `--write`: update it (`make docs`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from responses_gateway.settings import Settings

TARGET = Path(__file__).parents[1] / "deploy" / "helm" / "responses-gateway" / "values.schema.json"
# What is refused, and what to do: Helm shows the only value that would be accepted, and of a plain `false` nothing that helps.
_SET_BY_THE_CHART = {"enum": ["to be left out: the chart sets it"]}
_REFUSED = {
    **dict.fromkeys(("host", "port", "operations_host"), _SET_BY_THE_CHART),
    "backend_api_key": {"enum": ["to be left out: it is secrets.RESPONSES_GATEWAY_BACKEND_API_KEY"]},
    "seal_key": {"enum": ["to be left out: it is secrets.RESPONSES_GATEWAY_SEAL_KEY"]},
    "admin_key": {"enum": ["to be left out: it is secrets.RESPONSES_GATEWAY_ADMIN_KEY"]},
}
# The pods serve on this port.
_PORT = 9000
# For people, or not of the draft that Helm reads; a format may be wider in the gateway, which checks it again.
_LEFT_OUT = {"title", "description", "default", "format", "examples"}


def settings_schema() -> dict[str, Any]:
    """Return the schema of the chart's `settings`."""
    schema = Settings.model_json_schema()
    properties = {name: _reduced(setting) for name, setting in schema["properties"].items()}
    properties["operations_port"] = {"type": "integer", "minimum": 1, "maximum": 65535, "not": {"const": _PORT}}
    return {
        "type": "object",
        "description": "The settings of docs/configuration.md. Secrets belong in `secrets`; the chart sets the address.",
        "additionalProperties": False,
        "properties": {**properties, **_REFUSED},
    }


def definitions() -> dict[str, Any]:
    """Return the schemas that those of settings name."""
    return {name: _reduced(found) for name, found in Settings.model_json_schema()["$defs"].items()}


def _reduced(schema: Any) -> Any:
    """Return a schema without what is for people."""
    if isinstance(schema, list):
        return [_reduced(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema.replace("#/$defs/", "#/definitions/") if isinstance(schema, str) else schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties":
            kept[name] = {member: _reduced(found) for member, found in value.items()}
        elif name not in _LEFT_OUT:
            kept[name] = _reduced(value)
    if "off" in kept.get("enum", ()):  # which YAML 1.1 reads as false, unless it is quoted
        return {"enum": [*kept["enum"], False]}
    return kept


def updated(document: str) -> str:
    """Return the schema of the values, with that of the settings in force."""
    schema = json.loads(document)
    own = {name: found for name, found in schema["definitions"].items() if name[0].islower()}
    schema["definitions"] = own | definitions()
    schema["properties"]["settings"] = settings_schema()
    return f"{json.dumps(schema, indent=2)}\n"


def main(arguments: list[str]) -> int:
    """Check or write the file; return the exit code."""
    before = TARGET.read_text(encoding="utf-8")
    if "--write" in arguments:
        TARGET.write_text(updated(before), encoding="utf-8")
        return 0
    return int(before != updated(before))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
