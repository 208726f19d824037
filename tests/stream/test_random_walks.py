"""Random walks through all that a stream may go through: answers in any order and form, with any options, while whoever feeds
it does what it needs, steers it, ends a loop or breaks it. The client always gets a stream that keeps the rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from responses_gateway import parsers
from responses_gateway.stream.items.hosted import HostedOptions
from responses_gateway.stream.lifecycle.needs import AnotherTurn, Continue, NotAnswered, RunCalls, Verdict
from responses_gateway.stream.options import CODEX, STANDARD, SUMMARY_READER
from responses_gateway.stream.outcomes import EarlyEnds
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.tools import Grammar, ToolTable
from tests.stream import stream_player
from tests.stream.message_player import judged_message
from tests.stream.stream_player import (
    DONE,
    arguments,
    call,
    chunk,
    event,
    finish,
    judged,
    new_translator,
    refuse,
    text,
    think,
    usage,
)
from tests.stream.test_hosted_calls import TOOLS as HOSTED
from tests.stream.test_hosted_calls import outcome_of
from tests.thoroughness import examples

TOOLS: ToolTable = {**stream_player.TOOLS, **HOSTED}
NAMES = [*TOOLS, "unknown", "Weather"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
DECLARED = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS]
TEXTS = ["Hi", " ", "\n", "Now I open it:", "x [1] y", "【1】", '<tool_call>\n{"na', "</think>"]
TEXTS += ['<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>']
WRITTEN = ["", "{}", '{"a": 1}', '{"a": "x', '{"input": "x"}', '{"input": "x', '{"a": 1}{"a": 2}', "null", "[1]", "x"]
WRITTEN += ['{"query": "q"}', '{"command": ["ls"]}']
ENDS = ["stop", "stop", "tool_calls", "tool_calls", "length", "content_filter", "error", "abort"]
WALKS = 60


class Walk:
    """One response, with options by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_message = chance.random() < 0.3
        self._options = self._any_options()
        self.translator: Translator = new_translator(**self._options)
        self.sent = self.translator.start()
        self._body: list[bytes] = []
        self._turns = 0

    def _any_options(self) -> dict[str, Any]:
        chance = self._chance
        form: dict[str, Any] = {"client": chance.choice([STANDARD, CODEX, SUMMARY_READER]), "summary": chance.random() < 0.4}
        if self.is_message:
            form = {"form": MessageOptions(thinking=chance.choice(["shown", "empty", "hidden"]))}
        rules = CallRules(DECLARED, repairs=chance.random() < 0.5, drops_nulls=self.is_message)
        markup = Markup(partial(parsers.parser, "qwen3", "hermes", schemas={name: {} for name in TOOLS}), thinking_open=False)
        some: dict[str, tuple[float, Callable[[], Any]]] = {
            "early_ends": (0.5, lambda: EarlyEnds(chance.choice(["off", "certain", "all"]), chance.random() < 0.7)),
            "calls": (0.5, lambda: rules),
            "hosted": (0.7, lambda: HostedOptions(frozenset(), "cntr_1")),
            "allowed": (0.1, lambda: frozenset(chance.sample(NAMES, 3))),
            "allowed_later": (0.1, lambda: frozenset(chance.sample(NAMES, 3))),
            "max_calls": (0.2, lambda: chance.randint(0, 2)),
            "parallel_calls": (0.2, lambda: False),
            "grammars": (0.4, lambda: {"patch": Grammar("regex", "x+")}),
            "judged": (0.3, lambda: True),
            "seal": (0.4, lambda: "sealed({})".format),
            "compaction": (0.0 if self.is_message else 0.05, lambda: "sealed({})".format),
            "markup": (0.3, lambda: markup),
        }
        return {"tools": TOOLS, **form, **{name: make() for name, (share, make) in some.items() if chance.random() < share}}

    def _answer(self) -> list[bytes]:
        """Return the body of an answer, cut anywhere."""
        chance = self._chance
        parts: list[bytes] = []
        for _ in range(chance.randint(0, 4)):
            index = chance.randint(0, 2)
            written = chance.choice(WRITTEN)
            at = chance.randint(0, len(written))
            begun = call(index, chance.choice(["a", "b", None]), chance.choice(NAMES), written[:at])
            made = begun + (arguments(index, written[at:]) if written[at:] else b"")
            said = [text(chance.choice(TEXTS)), think(chance.choice(["Hm.", " ", "So <tool_call>"]))]
            count = chance.choice([1, 1, 6])  # more of a text, of which some may be read in a shorter way
            parts.append(chance.choice([*(piece * count for piece in said), refuse("No."), made, made, made]))
        counts = usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)
        ending = [(0.93, finish(chance.choice(ENDS))), (0.6, counts), (0.9, DONE)]
        parts += [part for share, part in ending if chance.random() < share]
        if chance.random() < 0.05:
            error = event({"error": {"message": "bad", "code": chance.choice([400, 429, 500])}})
            parts.insert(chance.randint(0, len(parts)), error)
        body = b"".join(parts) or chunk()
        edges = sorted({0, len(body), *(chance.randint(0, len(body)) for _ in range(chance.randint(0, 5)))})
        return [body[begin:end] for begin, end in pairwise(edges)]

    def _answer_again(self) -> None:
        self._body = self._answer()

    def _interruptions(self) -> None:
        translator = self.translator
        if self._chance.random() < 0.04:
            self.sent += translator.keep_alive()
        if self._chance.random() < 0.015:
            self.sent += translator.stop_after_item("steered")
        if self._chance.random() < 0.01:
            self.sent += translator.cut_short()
        if self._chance.random() < 0.015:
            self.sent += translator.fail(server_error("It broke."))

    def _step(self) -> bytes:
        """Do what the stream needs, and return its events."""
        translator = self.translator
        match translator.needs:
            case None:
                return translator.feed(self._body.pop(0)) if self._body else translator.finish()
            case Verdict():
                return self._chance.choice(
                    [translator.refuse, lambda: translator.judge(None), lambda: translator.judge("xx")]
                )()
            case RunCalls(calls):
                return translator.finish_call(outcome_of(calls[0]))
            case AnotherTurn() if self._turns < 5:
                self._turns += 1
                self._answer_again()
                return translator.next_turn(None, may_call=self._chance.random() < 0.85)
            case NotAnswered() if self._chance.random() < 0.5:
                self._answer_again()
                return translator.ask_again()
            case NotAnswered(error):
                return translator.fail(error)
            case Continue(_, error):
                return translator.fail(error or server_error("It broke."))
        return translator.fail(server_error("The model goes on and on."))

    def go(self) -> None:
        """Take the response to its end."""
        self._answer_again()
        while not self.translator.ended:
            self._interruptions()
            if not self.translator.ended:
                self.sent += self._step()

    def judge(self) -> None:
        """Check what the client got."""
        assert self.translator.defect is None
        if self.is_message:
            judged_message(self.sent, self.translator)
        else:
            judged(self.sent, self.translator, self._options["client"])


@pytest.mark.parametrize("seed", range(examples(160)))
def test_any_walk_ends_in_a_stream_that_keeps_the_rules(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(WALKS):
        walk = Walk(chance)
        walk.go()
        walk.judge()
