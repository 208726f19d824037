"""The two C programs of the harness: where they are built and how they are called.

In C because both share the machine with what they measure: in Python they would cost more than the gateway itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).parent
BUILD = HERE.parent / ".cache" / "bench"
# What the Messages API has to be told, for answers that are shorter.
_MAX_TOKENS = 200_000


class HarnessError(RuntimeError):
    """The harness cannot run here; the message says why."""


def compiler() -> str | None:
    """A C compiler's command, or None."""
    return os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)


def build(name: str) -> Path:
    """The program `name`, compiled if it is missing or older than its sources. Raises `HarnessError`."""
    if not sys.platform.startswith("linux"):
        raise HarnessError("the harness needs Linux (epoll, timerfd and per-process CPU clocks)")
    program, sources = BUILD / name, [HERE / f"{name}.c", *HERE.glob("*.h")]
    if program.exists() and program.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
        return program
    command = compiler()
    if command is None:
        raise HarnessError("the load generator is written in C, and there is no compiler: install gcc or clang, or set CC")
    BUILD.mkdir(parents=True, exist_ok=True)
    unfinished = BUILD / f"{name}.{os.getpid()}"
    made = subprocess.run(
        [command, "-O2", "-Wall", "-Wextra", "-o", str(unfinished), str(sources[0])],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise HarnessError(f"{name}.c does not compile:\n{made.stderr}")
    unfinished.rename(program)
    return program


@dataclass(frozen=True)
class Load:
    """What the client asks of one target: `streams` connections to `port`, speaking `chat`, `responses` or
    `messages`."""

    name: str
    protocol: str
    port: int
    streams: int


@dataclass(frozen=True)
class Latency:
    """Microseconds; all zero when nothing was measured."""

    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What the client saw of one target: whole and correct `answers`, `deltas`, the `reads` that brought them, the
    `pace` (1.0 is real time), the latency of a token since its send, the time to an answer's first token, and errors
    by kind."""

    name: str
    answers: int
    deltas: int
    reads: int
    pace: float
    latency: Latency
    first_delta: Latency
    errors: dict[str, int]


def request_body(protocol: str, model: str, tools_too: bool = False, fields: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The JSON that asks for the synthetic answer `model` (see text.h) in the target's language, with these fields, and with
    tools if it needs any."""
    body: dict[str, Any] = {"model": model, "stream": True}
    question = "Say something of the given length."
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    function = {"name": "save", "description": "Save a text.", "parameters": schema}
    messages = [{"role": "user", "content": question}]
    match protocol:
        case "chat":
            body |= {"messages": messages, "stream_options": {"include_usage": True}}
            tools: list[dict[str, Any]] = [{"type": "function", "function": function}]
        case "messages":
            body |= {"messages": messages, "max_tokens": _MAX_TOKENS}
            if model.startswith("mix:"):  # which thinks
                body["thinking"] = {"type": "adaptive"}
            tools = [{"name": "save", "description": "Save a text.", "input_schema": schema}]
        case _:
            body |= {"input": question}
            tools = [{"type": "function", **function}]
    if tools_too or model.startswith("mix:"):
        body["tools"] = tools
    body |= fields
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def drive(
    client: Path,
    model: str,
    loads: list[Load],
    *,
    repeats: int = 1,
    ramp_ms: int = 0,
    timeout_s: int = 60,
    tools_too: bool = False,
    fields: Mapping[str, Any] = MappingProxyType({}),
    when_open: Callable[[], None] | None = None,
) -> dict[str, Outcome]:
    """Load all targets at the same time until every answer is over; the outcomes by name.

    `when_open` is called once every stream has had its first token. Raises `HarnessError` if the client breaks down.
    """
    command = [str(client), model, str(repeats), str(ramp_ms), str(timeout_s)]
    for load in loads:
        body = request_body(load.protocol, model, tools_too, fields)
        command += [load.name, load.protocol, str(load.port), str(load.streams), body]
    report = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line != "open\n":
                report = line
            elif when_open is not None:
                when_open()
    if process.returncode or not report:
        raise HarnessError(f"the load generator ended with status {process.returncode}")
    return {group["name"]: _outcome(group) for group in json.loads(report)["groups"]}


def _outcome(group: dict[str, Any]) -> Outcome:
    return Outcome(
        name=group["name"],
        answers=group["answers"],
        deltas=group["deltas"],
        reads=group["reads"],
        pace=group["pace"],
        latency=_latency(group["latency_us"]),
        first_delta=_latency(group["first_delta_us"]),
        errors={kind: count for kind, count in group["errors"].items() if count},
    )


def _latency(sample: dict[str, float]) -> Latency:
    return Latency(**{name: sample[name] for name in ("p50", "p99", "max") if name in sample})
