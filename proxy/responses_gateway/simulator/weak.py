"""A weak model: what open models do wrong inside a turn, each fault at a stated rate, over the script of a good one.

The faults of a conversation follow from the seed, the first line of the user's question and the step of the work, not from what
tools printed, so that a run is repeated exactly. A second answer to the same step (after a reminder, a refused call or a
repeated request) is the same again in half of the cases, and a good one in the others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from responses_gateway.simulator.chat_request import ChatRequest, Tool, message_text, spoken_text
from responses_gateway.simulator.script import CallTool, Say, Script, Step, Think, script

# In percent of the answers, as reports of open models have them; what has 0 happens only where it is asked for.
DEFAULT_RATES: Mapping[str, float] = MappingProxyType(
    {
        "announced": 10,
        "empty": 5,
        "stringified": 5,
        "reasoning_only": 3,
        "finish_without_call": 2,
        "wrong_name": 2,
        "call_in_thought": 1,
        "malformed_call": 1,
        "cut": 1,
        "repeated_call": 0,
        "text_loop": 0,
    }
)
_SAME_AGAIN = 0.5  # the part of second answers that are the same again
_REPEATS = 6  # how often a model that repeats a call does so: once more than clients and gateways put up with
_MOST_ATTEMPTS = 40  # attempts at one step that are told apart, because a client may go on for ever
# What a gateway, a client or an impatient user says for a turn to go on; a real question is longer or says something else.
_REMINDER = re.compile(r"\b(?:continue|go on|carry on|proceed|resume|retry|no visible output|keep going)\b", re.IGNORECASE)
_LONGEST_REMINDER = 600
# How Codex and Claude Code say that they did not run a call.
_REFUSAL = re.compile(
    r"\s*(?:failed to parse function arguments|unsupported (?:custom tool )?call|<tool_use_error>|InputValidationError"
    r"|Error: No such tool)",
    re.IGNORECASE,
)
_ANNOUNCEMENTS = (
    "The next step is clear. Let me open the file and change it:",
    "Now I'll run it to see whether it works.",
    "Next, I will write the file:",
    "Ich sehe mir jetzt die Datei an:",
    "接下来我来修改这个文件：",
)
_LOOP = "I check the file once more. " * 120
# Faults that do not need a good answer with a call, and those that are in the call.
_WITHOUT_CALL = frozenset({"empty", "reasoning_only", "text_loop"})
_OF_THE_CALL = frozenset({"cut", "wrong_name", "stringified", "repeated_call"})


@dataclass(frozen=True)
class WeakModel:
    """Which faults are made. `rates` are in percent of the answers that offer tools, by the names in `DEFAULT_RATES`."""

    seed: int
    rates: Mapping[str, float] = field(default_factory=lambda: DEFAULT_RATES)


def parse_rates(text: str) -> Mapping[str, float]:
    """Parse `NAME=PERCENT,…`: faults that are not named do not happen. Raises `ValueError`."""
    rates: dict[str, float] = {}
    for word in text.split(","):
        name, _, percent = word.strip().partition("=")
        if name not in DEFAULT_RATES:
            raise ValueError(f"unknown fault {name!r}; known: {', '.join(DEFAULT_RATES)}")
        rates[name] = float(percent)
    if min(rates.values()) < 0 or sum(rates.values()) > 100:
        raise ValueError("the rates are percentages, 100 together at most")
    return rates


class Work(NamedTuple):
    """How far a task has come: the request with the results that the model can use, and how often the step was tried."""

    request: ChatRequest
    attempts: int


def work_of(request: ChatRequest) -> Work:
    """Leave out reminders, results that say that a call was refused, and results of repeated calls."""
    kept: list[dict[str, Any]] = []
    made: dict[object, str] = {}
    done: set[str] = set()
    attempts = 0
    for message in request.messages:
        made |= {call.get("id"): json.dumps(call.get("function")) for call in message.get("tool_calls") or ()}
        result = message.get("role") == "tool"
        call = made.get(message.get("tool_call_id"), "") if result else ""
        if (kept and _is_reminder(message)) or (result and (call in done or refuses_a_call(message))):
            attempts += 1
            continue
        if result:
            done.add(call)
            attempts = 0
        elif message.get("role") == "user" and spoken_text(message):
            done.clear()
            attempts = 0
        kept.append(message)
    return Work(ChatRequest({**request.body, "messages": kept}), attempts)


def weakened(good: Script, work: Work, model: WeakModel) -> Script:
    """Return what the weak model says in the place of a good script. It fails only where tools are offered."""
    request = work.request
    if not request.tools or request.body.get("tool_choice") == "none" or request.schema is not None:
        return good
    question = request.question.partition("\n")[0]  # behind it clients say where and when they run
    place = f"{model.seed}\0{question}\0{len(request.tool_results)}"
    fault = _fault(model.rates, place, work.attempts)
    calls = [step for step in good.steps if isinstance(step, CallTool)]
    if fault is None or not (calls or fault in _WITHOUT_CALL):
        return good
    random = Random(f"{place}\0how")
    if fault in _OF_THE_CALL:
        changed = _changed(fault, calls[0], request, random)
        return good if changed is calls[0] else replace(good, steps=(*_others(good), changed))
    return _spoiled(fault, good, calls, random)


def _is_reminder(message: dict[str, Any]) -> bool:
    text = spoken_text(message) if message.get("role") == "user" else ""
    return bool(_REMINDER.search(text)) and len(text) <= _LONGEST_REMINDER and "scenario:" not in text


def refuses_a_call(message: dict[str, Any]) -> bool:
    """Tell whether a client says in a result that it did not run the call."""
    return _REFUSAL.match(message_text(message)) is not None


def _fault(rates: Mapping[str, float], place: str, attempts: int) -> str | None:
    point = Random(place).random() * 100
    fault = None
    for name, rate in rates.items():
        if 0 <= point < rate:
            fault = name
        point -= rate
    if fault == "repeated_call":
        return fault if attempts < _REPEATS else None
    again = (Random(f"{place}\0{number}").random() < _SAME_AGAIN for number in range(min(attempts, _MOST_ATTEMPTS)))
    return fault if all(again) else None


def _others(good: Script) -> tuple[Step, ...]:
    """Return the steps of a script that are no calls."""
    return tuple(step for step in good.steps if not isinstance(step, CallTool))


def _spoiled(fault: str, good: Script, calls: list[CallTool], random: Random) -> Script:
    """Return what the model says with a fault, in the place of a good script, which has these `calls`."""
    match fault:
        case "reasoning_only":
            plan = "I have to call the tool now." if calls else "Everything was done; I only have to say so."
            return script(Think(f"The result is in. {plan}"))
        case "text_loop":
            return script(Say(_LOOP), finish="length")
        case "announced":
            thoughts = [step for step in good.steps if isinstance(step, Think)]
            return script(*thoughts, Say(random.choice(_ANNOUNCEMENTS)))
        case "finish_without_call":
            return replace(good, steps=_others(good), finish="tool_calls")
        case "call_in_thought":
            return script(Think(f"This needs a tool.\n{_markup(calls[0])}"))
        case "malformed_call":
            markup = _markup(calls[0])
            return replace(good, steps=(*_others(good), Say(markup[: len(markup) * 2 // 3])))
        case _:
            return script()


def _changed(fault: str, made: CallTool, request: ChatRequest, random: Random) -> CallTool:
    """Return a call with a fault in the place of the one that a good script makes; that one if there is none to repeat."""
    match fault:
        case "cut":
            return replace(made, arguments=made.arguments[: len(made.arguments) * 2 // 3])
        case "wrong_name":
            names = (f"functions.{made.name}", f"{made.name}:0", made.name.swapcase(), "run_anything")
            return replace(made, name=random.choice(names))
        case "stringified":
            return replace(made, arguments=_stringified(made, request.tool(made.name)))
        case _:
            earlier = [call["function"] for message in request.messages for call in message.get("tool_calls") or ()]
            return CallTool(earlier[-1]["name"], earlier[-1]["arguments"]) if earlier else made


def _stringified(made: CallTool, offered: Tool | None) -> str:
    """Write a number, or a list, as a string; where there is none, all arguments."""
    properties = offered.properties if offered is not None else {}
    arguments = json.loads(made.arguments)
    lists = [name for name, value in arguments.items() if isinstance(value, list | dict)]
    numbers = [name for name, schema in properties.items() if isinstance(schema, dict) and schema.get("type") == "integer"]
    if lists:
        return json.dumps({**arguments, lists[0]: json.dumps(arguments[lists[0]])})
    if numbers:
        return json.dumps({**arguments, numbers[0]: "1" if numbers[0] == "offset" else "10000"})
    return json.dumps(made.arguments)


def _markup(call: CallTool) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'
