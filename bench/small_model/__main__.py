"""Forty questions to SmolLM2-135M on llama.cpp, with what the gateway does about weak models off and on.

    python -m bench.small_model         ten minutes on one core; --settings off: half of it

The model is too small to do a task: what is measured are its calls, its markup and its loops. The model and its server have to
be there: scripts/install-small-model. A call is refused if `jsonschema` refuses what the client got."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from bench.processes import free_port, target
from bench.programs import HERE
from bench.small_model.prompts import OPEN, QUESTIONS, TOOLS, conversation
from responses_gateway.stream.text_loops import CHARACTERS, COPIES, period

PYTHON = HERE.parent / ".cache" / "small-model" / "bin" / "python"
# Without `strict` nobody but the gateway reads the markup; with it the server does, since it holds the model to it.
SETTINGS = {
    "off": ["--tool-call-parser", "hermes", "--repair-calls", "off"],
    "on": [
        *("--repair-calls", "safe", "--strict-calls", "on", "--continue-early-ends", "certain"),
        *("--repetition-notice", "--end-text-loops"),
    ],
}
# Enough for a loop to be one: two thousand characters.
_MOST_TOKENS = 800
_COLUMNS = ("calls", "refused", "answers with markup in their text", "that end in a loop", "tokens generated")
_VALIDATORS = {tool["name"]: Draft202012Validator(tool["parameters"]) for tool in TOOLS}


def is_refused(name: str, arguments: str) -> bool:
    """Tell whether a client would refuse a call."""
    try:
        return not _VALIDATORS[name].is_valid(json.loads(arguments))
    except (KeyError, ValueError):
        return True


def repeats(text: str) -> bool:
    """Tell whether a text ends in a loop."""
    piece = period(text[-CHARACTERS:])
    return piece is not None and text.endswith(text[-piece:] * COPIES)


def figures_of(response: dict[str, Any]) -> Counter[str]:
    """Return what an answer adds to the columns that are seen by clients."""
    figures: Counter[str] = Counter()
    for item in response["output"]:
        if item["type"] == "function_call":
            figures["calls"] += 1
            figures["refused"] += is_refused(item["name"], item["arguments"])
        elif item["type"] == "message":
            text = "".join(part.get("text", "") for part in item["content"])
            figures["that end in a loop"] += repeats(text)
            figures["answers with markup in their text"] += "<tool_" in text or "</tool_" in text
    return figures


def _ask(url: str, question: str) -> dict[str, Any]:
    body = {
        "model": "smollm2-135m",
        "input": conversation(question),
        "tools": TOOLS,
        "temperature": 0 if question in OPEN else 0.3,
        "max_output_tokens": _MOST_TOKENS,
    }
    request = urllib.request.Request(f"{url}/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        response: dict[str, Any] = json.load(answer)
    return response


def _counters(url: str) -> dict[str, float]:
    """Return the gateway's counters of what models do, by name and labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    names = "calls_total|repairs_total|turn_outcomes_total|early_ends_total|tokens_total"
    found = re.findall(rf"^responses_gateway_((?:{names})\{{.*\}}) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


@contextmanager
def _model() -> Iterator[int]:
    """Start the model, and in front of it the server that enforces what is strict; give the port of that."""
    with ExitStack() as stack:
        llama, enforcer = free_port(), free_port()
        stack.enter_context(target("llama", "chat", [str(PYTHON), "bench/small_model/llama.py", "--port", str(llama)], llama))
        command = [sys.executable, "-m", "bench.small_model.enforcer", "--llama", f"http://127.0.0.1:{llama}"]
        stack.enter_context(target("enforcer", "chat", [*command, "--port", str(enforcer)], enforcer))
        yield enforcer


def measure(name: str, backend: int, answers: list[dict[str, Any]]) -> Counter[str]:
    """Ask all questions with one of the settings; add to the answers, for who wants to read them."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    figures: Counter[str] = Counter()
    serve = ["-m", "responses_gateway", "serve", "--backend", f"http://127.0.0.1:{backend}/v1", "--port", str(port)]
    command = [sys.executable, *serve, "--no-adapt", "--store", "none", *SETTINGS[name]]
    with target("gateway", "responses", command, port):
        began = time.monotonic()
        for question in QUESTIONS:
            response = _ask(url, question)
            answers.append({"settings": name, "question": question, "output": response["output"]})
            figures += figures_of(response)
        counters = _counters(url)
    figures["tokens generated"] = int(sum(value for key, value in counters.items() if 'kind="output"' in key))
    print(f"{name}: {time.monotonic() - began:.0f} s")
    for key, value in sorted(counters.items()):
        print(f"  {key} {value:.0f}")
    return figures


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.small_model", description=__doc__.partition("\n")[0])
    parser.add_argument("--settings", choices=SETTINGS, action="append")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each answer")
    options = parser.parse_args()
    answers: list[dict[str, Any]] = []
    with _model() as backend:
        rows = {name: measure(name, backend, answers) for name in options.settings or SETTINGS}
    print(f"\n{time.strftime('%Y-%m-%d', time.gmtime())}\n\n| settings | {' | '.join(_COLUMNS)} |")
    print("|" + "---|" * (len(_COLUMNS) + 1))
    for name, figures in rows.items():
        print(f"| {name} | " + " | ".join(f"{figures[column]:,}" for column in _COLUMNS) + " |")
    if options.json is not None:
        options.json.write_text(json.dumps(answers, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
