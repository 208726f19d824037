"""Directives: how a request tells the simulator what to do, in the user message, the model name or headers.

In the last user message: `scenario: NAME`, `fault: SPEC`, `dialect: NAME`, `tps: N` (tokens per second), `tokens: N`
(a long answer). In the model name the same without the words in front, joined by `+`: `sim-agent`, `sim-long+tps=20`,
`sim-drop-5`. In the headers: `x-simulator-fault: SPEC`, and `x-simulator` with the directives that a message could contain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.dialect import DIALECTS
from responses_gateway.simulator.faults import Faults, parse_faults
from responses_gateway.simulator.scenarios import SCENARIOS, choose, is_judgement, is_title_request

_DIRECTIVE = re.compile(r"\b(scenario|fault|dialect|tps|tokens)\s?[:=]\s?([A-Za-z0-9_=.,+-]*[A-Za-z0-9])")
_MODEL_PREFIX = "sim-"


@dataclass(frozen=True)
class Directives:
    """What to do for one request. `scenario` is a name in `SCENARIOS`; None means the server's own setting."""

    scenario: str
    faults: Faults
    dialect: str | None
    tokens_per_second: float | None
    tokens: int | None


def read_directives(request: ChatRequest, model: str, headers: Mapping[str, str]) -> Directives:
    """Read the directives; headers take precedence over the message, the message over the model. `ValueError`: unknown name."""
    directives = _from_model(model)
    if not (is_title_request(request) or is_judgement(request)):  # these quote what the user says, directives included
        directives |= _from_text(request.question)
    directives |= _from_text(headers.get("x-simulator", ""))
    if "x-simulator-fault" in headers:
        directives["fault"] = headers["x-simulator-fault"]
    tokens = directives.get("tokens")
    scenario = directives.get("scenario") or ("long" if tokens else choose(request))
    return Directives(
        scenario=_known(scenario.replace("-", "_"), SCENARIOS, "scenario"),
        faults=parse_faults(directives.get("fault", "")),
        dialect=_known(directives["dialect"], DIALECTS, "dialect") if "dialect" in directives else None,
        tokens_per_second=float(directives["tps"]) if "tps" in directives else None,
        tokens=min(int(tokens), 1_000_000) if tokens else None,
    )


def _from_text(text: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _DIRECTIVE.finditer(text)}


def _from_model(model: str) -> dict[str, str]:
    if not model.startswith(_MODEL_PREFIX):
        return {}
    directives: dict[str, str] = {}
    faults = []
    for word in model[len(_MODEL_PREFIX) :].split("+"):
        name, separator, value = word.partition("=")
        if word.replace("-", "_") in SCENARIOS:
            directives["scenario"] = word
        elif word in DIALECTS:
            directives["dialect"] = word
        elif separator and name in ("tps", "tokens"):
            directives[name] = value
        else:
            faults.append(word)
    return directives | ({"fault": ",".join(faults)} if faults else {})


def _known(name: str, names: Mapping[str, object], what: str) -> str:
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(sorted(names))}")
    return name
