"""Measure what a stored response takes, by the kind of traffic, and write the table in docs/sizing.md.

    python -m bench.stored                     print the table
    python -m bench.stored --write             and write it into docs/sizing.md
    python -m bench.stored --requests FOLDER   measure recorded requests as well: JSON files, each with a `body`

A gateway in front of its own simulator stores responses in a SQLite file. What the first ones take is not counted: the figures
are what the store grows by.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import processes
from bench.programs import HarnessError

SIZING = Path(__file__).parents[1] / "docs" / "sizing.md"
_BEGIN = "<!-- stored responses: written by `python -m bench.stored --write` -->"
_END = "<!-- /stored responses -->"
_FIRST = 20  # responses before the measurement
_MEASURED = 100
# After so many turns an agent begins a new conversation.
_TURNS = 20
_WORDS = ["open", "file", "error", "value", "the", "of", "test", "return", "line", "server", "name", "list", "is", "not"]
_random = random.Random(1)  # the same texts each time

Body = dict[str, Any]


def words(length: int) -> str:
    """Return a text of about so many characters."""
    text = " ".join(f"{_random.choice(_WORDS)}{_random.randrange(1000)}" for _ in range(length // 8 + 1))
    return text[:length]


INSTRUCTIONS = words(36_000)
TOOLS = [
    {
        "type": "function",
        "name": f"tool_{number}",
        "description": words(700),
        "parameters": {"type": "object", "properties": {}},
    }
    for number in range(20)
]


class Kind(NamedTuple):
    """A kind of traffic: its name in the table, and a function that makes the next request of the answers so far."""

    name: str
    next: Callable[[list[Body]], Body]


def question(_answers: list[Body]) -> Body:
    """Return a short question without a history."""
    return {"model": "sim-long+tps=100000+tokens=100", "input": words(200)}


def chat_turn(answers: list[Body]) -> Body:
    """Return the next turn of a conversation, by the id of the previous response."""
    previous = answers[-1]["id"] if answers else None
    return {"model": "sim-long+tps=100000+tokens=500", "input": words(500), "previous_response_id": previous}


def agent_turn(answers: list[Body]) -> Body:
    """Return the next turn of an agent, which sends everything each time: instructions, tools, the whole conversation."""
    begun = answers[len(answers) // _TURNS * _TURNS :]
    history = [item for answer in begun for item in (answer["asked"], *answer["output"])]
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words(1500)}]}
    return {"model": "sim-long+tps=100000+tokens=250", "instructions": INSTRUCTIONS, "tools": TOOLS, "input": [*history, asked]}


def in_background(answers: list[Body]) -> Body:
    """Return the same, to run in the background: its events are stored as well."""
    return agent_turn(answers) | {"background": True}


KINDS = [
    Kind("a question of 200 characters, 100 tokens of output", question),
    Kind("a turn of 500 characters by `previous_response_id`, 500 tokens of output", chat_turn),
    Kind("an agent's turn: 52 KB of instructions and tools and the whole conversation each time, 1.5 KB of it new, 250 tokens "
         "of output", agent_turn),
    Kind("the same in the background, with its events", in_background),
]  # fmt: skip


def recorded(folder: Path) -> Kind:
    """Return the traffic of recorded requests, one after the other, with their elided texts filled in."""
    read = [json.loads(path.read_text(encoding="utf-8")).get("body") for path in sorted(folder.glob("*.json"))]
    bodies = [body for body in read if isinstance(body, dict) and body.get("input") and "type" not in body]

    def next_body(answers: list[Body]) -> Body:
        body = bodies[len(answers) % len(bodies)]
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words(500)}]}
        return body | {
            "model": "sim-long+tps=100000+tokens=250",
            "store": True,
            "stream": False,
            "input": [*body["input"], said],
        }

    return Kind(f"{len(bodies)} recorded requests in turn, 0.5 KB of each new, 250 tokens of output", next_body)


def measured(kind: Kind, client: http.client.HTTPConnection, file: Path) -> float:
    """Return the bytes that a response takes. Raises `HarnessError` if one fails."""
    answers: list[Body] = []
    before = 0
    for number in range(_FIRST + _MEASURED):
        if number == _FIRST:
            before = _bytes_in(file)
        body = kind.next(answers)
        answer = _answered(client, body)
        asked = body["input"]
        answers.append(answer | {"asked": asked[-1] if isinstance(asked, list) else asked})
    return (_bytes_in(file) - before) / _MEASURED


def _answered(client: http.client.HTTPConnection, body: Body) -> Body:
    answer = _ask(client, "POST", "/v1/responses", json.dumps(body))
    while answer["status"] in ("queued", "in_progress"):
        time.sleep(0.02)
        answer = _ask(client, "GET", f"/v1/responses/{answer['id']}")
    if answer["status"] != "completed" or not answer["store"]:
        raise HarnessError(f"not answered, or not stored: {answer['status']}")
    return answer


def _ask(client: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> Body:
    client.request(method, path, body, {"Content-Type": "application/json"})
    answer = client.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise HarnessError(f"{method} {path} was answered with {answer.status}: {data[:200]!r}")
    found: Body = json.loads(data)
    return found


def _bytes_in(file: Path) -> int:
    pragmas = "pragma_page_count, pragma_freelist_count, pragma_page_size"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        return int(store.execute(f"SELECT (page_count - freelist_count) * page_size FROM {pragmas}").fetchone()[0])


@contextmanager
def _gateway(file: Path) -> Iterator[http.client.HTTPConnection]:
    port = processes.free_port()
    command = [
        sys.executable,
        "-m",
        "responses_gateway",
        "serve",
        "--simulator",
        "--no-adapt",
        "--port",
        str(port),
        "--store",
        str(file),
    ]
    with processes.target("gateway", "responses", command, port), closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    ) as client:  # fmt: skip
        yield client


def table(figures: dict[str, float]) -> str:
    """Return the table: what a response takes, and what a month of them."""
    lines = ["| a response | takes | a million of them | a day of one per second |", "|---|---|---|---|"]
    for name, size in figures.items():
        lines.append(f"| {name} | {size / 1000:.1f} KB | {size / 1000:.1f} GB | {size * 86_400 / 1e9:.2f} GB |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/sizing.md")
    parser.add_argument("--requests", type=Path, metavar="FOLDER", help="measure the recorded requests in this folder as well")
    options = parser.parse_args()
    figures = {}
    for kind in [*KINDS, *([recorded(options.requests)] if options.requests else [])]:
        with tempfile.TemporaryDirectory() as folder, _gateway(Path(folder) / "store.sqlite3") as client:
            figures[kind.name] = measured(kind, client, Path(folder) / "store.sqlite3")
    found = table(figures)
    print(found)
    if options.write:
        text = SIZING.read_text(encoding="utf-8")
        before, _, rest = text.partition(_BEGIN)
        SIZING.write_text(f"{before}{_BEGIN}\n\n{found}\n\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
