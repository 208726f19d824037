"""Faults of an answer, as data, and how a request asks for them.

A *spec* is a list of words separated by commas, spaces or `+`; each is `name` or `name=value` (`name-value` where a model name
has no room for `=`). It is given in the header `x-simulator-fault`, after `fault:` in the last user message, or after `sim-`
in the model name. Positions count chunks from 0 (after the role chunk); `half`, the default, is the middle of the answer, and
`reasoning`, `text` or `call` the middle of the first such part.

| word | effect |
|---|---|
| `status=N` | refuse with this HTTP status, in the server's wording; with `retry-after=S` the header of that name |
| `overflow=MAKE` | 400, context too long, worded as vllm, sglang, llamacpp, ollama or openai do |
| `reset` | cut the connection before the headers |
| `slow-headers=S`, `delay=S` | wait before the headers; before the first token |
| `drop=P`, `eof=P` | cut the connection at a position; end the body there without finish reason or `[DONE]` |
| `abort=P` | the finish reason `abort` at a position, with a token, as vLLM sends it when it is stopped |
| `error=P` | an error chunk and `[DONE]` at a position, as vLLM does when its engine dies |
| `malformed=P` | a chunk that is not JSON at a position; the stream continues |
| `silence=S` | nothing for S seconds in the middle |
| `no-done`, `no-finish` | leave out `[DONE]`; the finish reason |
| `length=N`, `filter=P` | finish reason `length` after N tokens; `content_filter` at a position |
| `once`, `times=N`, `step=N` | the faults happen only the first (first N) times for a message; only after N tool results |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from responses_gateway.simulator.dialect import Server
from responses_gateway.simulator.errors import WORDINGS

_POSITIONS = ("half", "reasoning", "text", "call")


@dataclass(frozen=True)
class Faults:
    """The faults of one answer; None or False: it does not happen. Durations are in seconds."""

    status: int | None = None
    retry_after: str | None = None
    overflow: Server | None = None
    reset: bool = False
    slow_headers: float = 0.0
    delay: float = 0.0
    drop: str | None = None
    eof: str | None = None
    abort: str | None = None
    error: str | None = None
    malformed: str | None = None
    silence: float = 0.0
    no_done: bool = False
    no_finish: bool = False
    length: int | None = None
    filter: str | None = None
    times: int | None = None  # how often the faults happen for one message; None for always
    step: int | None = None

    def __bool__(self) -> bool:
        return self != Faults()


# Words that take a number, with its default.
_NUMBERS = {"status": 500, "slow_headers": 2, "delay": 2, "silence": 2, "length": 16, "times": 1, "step": 0}
_FLAGS = ("reset", "no_done", "no_finish")
_POSITIONAL = ("drop", "eof", "abort", "error", "malformed", "filter")
NAMES = frozenset(field.name.replace("_", "-") for field in fields(Faults)) | {"once"}


def parse_faults(spec: str) -> Faults:
    """Parse a spec. Raises `ValueError` for an unknown word or an invalid value."""
    values: dict[str, object] = {}
    for word in filter(None, re.split(r"[\s,+]+", spec.strip().lower())):
        name, value = _split(word)
        values["times" if name == "once" else name] = _value(name, value)
    return Faults(**values)  # type: ignore[arg-type]  # _value gives each field its type


def _split(word: str) -> tuple[str, str | None]:
    name, separator, value = word.partition("=")
    if name not in NAMES and not separator:
        name, separator, value = word.rpartition("-")
    if name not in NAMES:
        raise ValueError(f"unknown fault {word!r}; known: {', '.join(sorted(NAMES))}")
    return name.replace("-", "_"), value if separator else None


def _value(name: str, value: str | None) -> object:
    if name == "once":
        return 1
    if name in _FLAGS:
        return True
    if name in _NUMBERS:
        number = _NUMBERS[name] if value is None else float(value)
        return float(number) if name in ("slow_headers", "delay", "silence") else int(number)
    if name in _POSITIONAL:
        if value is not None and not value.isdigit() and value not in _POSITIONS:
            raise ValueError(f"invalid position {value!r} (a number of chunks, or one of {', '.join(_POSITIONS)})")
        return value or "half"
    if name == "overflow" and value is not None and value not in WORDINGS:
        raise ValueError(f"unknown wording {value!r} (one of {', '.join(WORDINGS)})")
    return value or {"overflow": "vllm", "retry_after": "1"}[name]
