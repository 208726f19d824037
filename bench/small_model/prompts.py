"""What the small model is asked: tools, a conversation in which they were called, forty questions."""

from __future__ import annotations

import json
from typing import Any


def _tool(name: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


TOOLS = [
    _tool(
        "get_weather",
        "Get the current weather of a city.",
        ["city"],
        city={"type": "string"},
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
    _tool("read_file", "Read a file.", ["path"], path={"type": "string"}, lines={"type": "integer", "minimum": 1}),
    _tool("add", "Add two numbers.", ["a", "b"], a={"type": "number"}, b={"type": "number"}),
    _tool(
        "remind",
        "Set a reminder.",
        ["text", "minutes"],
        text={"type": "string"},
        minutes={"type": "integer"},
        days={"type": "array", "items": {"type": "string", "enum": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}},
    ),
]
# Without texts of the assistant between them, because a model of this size does what it has seen before.
_SHOWN: list[tuple[str, str, dict[str, Any], str]] = [
    ("What is the weather in Paris?", "get_weather", {"city": "Paris", "unit": "celsius"}, "18 degrees, sunny"),
    ("What is 12 plus 30?", "add", {"a": 12, "b": 30}, "42"),
    ("Show me the first 3 lines of notes.txt", "read_file", {"path": "notes.txt", "lines": 3}, "milk\nbread\neggs"),
    ("Remind me to water the plants in 30 minutes", "remind", {"text": "water the plants", "minutes": 30}, "ok"),
    ("What is 7 plus 8?", "add", {"a": 7, "b": 8}, "15"),
    ("Is it cold in Berlin?", "get_weather", {"city": "Berlin"}, "3 degrees"),
]
# No tool helps with these.
OPEN = (
    "Tell me a story about a city where it always rains.",
    "Write a poem about numbers.",
    "Count to one hundred.",
    "List all words that you know.",
    "Explain what a reminder is.",
    "Write a function that adds two numbers.",
)
QUESTIONS = [
    *(f"What is the weather in {city}?" for city in ("Rome", "Oslo", "Lima", "São Paulo")),
    *(f"How warm is it in {city}, in fahrenheit?" for city in ("Cairo", "Madrid", "Kyoto", "Denver")),
    *(f"What is {a} plus {b}?" for a, b in ((5, 9), (100, 250), (3.5, 4.25), (-7, 12), (1024, 4096))),
    *(f"Add {a} and {b}, please." for a, b in ((8, 1), (66, 34), (15, 15))),
    *(f"Read the file {path}" for path in ("config.yaml", "src/main.py", "C:\\new\\table.txt", "a file.txt")),
    *(f"Show me the first {n} lines of {path}" for n, path in ((5, "log.txt"), (20, "README.md"), (1, "names.csv"))),
    *(f"Remind me to {what} in {n} minutes" for what, n in (("call Ann", 10), ("close the window", 45), ("eat", 5))),
    *(f"Remind me on {days} to {what} in 5 minutes" for days, what in (("Monday", "run"), ("Tuesday and Friday", "swim"))),
    'Remind me to say "hello, world" in 15 minutes',
    "Remind me to write {a: 1} in half an hour",
    "Read notes.txt and settings.json",
    "What is the weather in Paris and in Rome?",
    "What is 2 plus 2, and is it cold in Oslo?",
    "Read the first ten lines of both files",
    *OPEN,
]


def conversation(question: str) -> list[dict[str, Any]]:
    """Return the input of a request that ends in a question."""
    items: list[dict[str, Any]] = []
    for number, (text, name, arguments, output) in enumerate(_SHOWN):
        items += [
            {"role": "user", "content": text},
            {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": json.dumps(arguments)},
            {"type": "function_call_output", "call_id": f"c{number}", "output": output},
        ]
    return [*items, {"role": "user", "content": question}]
