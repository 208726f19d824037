"""Inputs of custom tools that do not match the tool's grammar: counted, and corrected once if the settings say so.

The backend is asked in a small conversation of its own: here is the grammar, here is the input, write it again. Its answer is
checked like the first input, and only an input that matches takes the place of what the model wrote."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.short_answers import Completion, ask
from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.request.grammar.lark_reader import UnknownGrammar
from responses_gateway.request.grammar.regex import regex_of
from responses_gateway.server.custom_tools.grammar_check import GrammarChecker
from responses_gateway.settings import Settings
from responses_gateway.stream.lifecycle.needs import Verdict
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import Counter
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.tools import Grammar

CUSTOM_TOOL_INPUTS = Counter(
    "custom_tool_inputs_total",
    "Inputs of custom tools that have a grammar: valid, invalid, repaired, unrepaired, or skipped (not checked).",
    ("outcome",),
)
# An input longer than this is not corrected, in characters: it would cost as much as the answer did.
LONGEST_REPAIRED = 64 * 1024
# Tokens of a correction, reasoning included: so many, and one for each character of the input, up to the limit.
_TOKENS = 2048
_MOST_TOKENS = 32 * 1024
# For a correction, because the client waits for it; then the input is passed on as it was.
SECONDS_OF_A_REPAIR = 60.0
# Responses whose inputs wait to be checked for the metrics alone; further ones are not checked.
_MOST_COUNTING = 100
# How often to look whether a correction is still wanted, in seconds.
_LOOK_AGAIN = 0.5
_FENCED = re.compile(r"\s*```[^\n`]*\n(.*?\n?)```\s*", re.DOTALL)

Send = Callable[[bytes], None]


class InputRepair:
    """Counts and corrects inputs for all responses of a process."""

    def __init__(self, pool: Pool, metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._checker = GrammarChecker()
        self._counting: KeptTasks[None] = KeptTasks()

    async def settle(self, translator: Translator, settings: Settings, headers: Mapping[str, str], send: Send) -> None:
        """Decide on every call that waits; `send` gets the events that were held, `headers` go to the backend. To be called
        when the backend's answer is complete."""
        options = translator.options
        while isinstance(waiting := translator.needs, Verdict):
            if waiting.unclosed:
                accepted = await self._accepts(options, waiting)
                if translator.needs is waiting:
                    send(translator.judge(None) if accepted else translator.refuse())
                continue
            correcting = asyncio.create_task(self._corrected(options, settings, waiting, headers))
            try:
                # A time limit or the end of the gateway may end the response meanwhile.
                while translator.needs is waiting and not correcting.done():
                    await asyncio.wait({correcting}, timeout=_LOOK_AGAIN)
            finally:
                correcting.cancel()
                await asyncio.wait({correcting})
            if translator.needs is waiting:
                send(translator.judge(correcting.result()))

    def count_later(self, translator: Translator, options: StreamOptions) -> None:
        """Check the inputs of a response that has ended, for the metrics alone, unless its calls have waited for that."""
        if options.judged or len(self._counting) >= _MOST_COUNTING:
            return
        self._counting.begin(self._count_inputs(translator.response.output, options))

    def close(self) -> None:
        """Stop counting."""
        self._counting.cancel()

    async def _count_inputs(self, output: list[str], options: StreamOptions) -> None:
        for item in output:
            call = msgspec.json.decode(item)
            if call["type"] != "custom_tool_call" or call["status"] != "completed":
                continue
            grammar = options.grammar_of(call["name"], call.get("namespace"))
            if grammar is not None:
                result = await self._checker.check(grammar, call["input"])
                self._count(call["name"], result.outcome, result.reason)

    async def _accepts(self, options: StreamOptions, waiting: Verdict) -> bool:
        """Tell whether an input that the model did not close matches the grammar all the same. It is never corrected: what is
        missing would be made up."""
        name, text, _ = waiting
        result = await self._checker.check(options.grammars[name], text)
        if options.judged or result.outcome != "valid":  # else `count_later` counts it
            self._count(name, result.outcome, result.reason)
        return result.outcome == "valid"

    async def _corrected(
        self, options: StreamOptions, settings: Settings, waiting: Verdict, headers: Mapping[str, str]
    ) -> str | None:
        """Return the input that takes the place of the one that waits; None if it may stay, or if there is no better one."""
        name, text, _ = waiting
        grammar = options.grammars[name]
        result = await self._checker.check(grammar, text)
        if result.outcome != "invalid":
            self._count(name, result.outcome, result.reason)
            return None
        better = await self._first_valid(grammar, _unwrapped(text))
        if better is None and len(text) <= LONGEST_REPAIRED:
            prompt = _prompt(name, grammar, text, result.reason)
            answer = await self._ask(options.model, prompt, len(text), grammar, settings, headers)
            better = await self._first_valid(grammar, _readings(answer))
        self._count(name, "unrepaired" if better is None else "repaired", result.reason)
        return better

    async def _first_valid(self, grammar: Grammar, texts: Iterator[str]) -> str | None:
        for text in texts:
            if (await self._checker.check(grammar, text)).outcome == "valid":
                return text
        return None

    def _count(self, name: str, outcome: str, reason: str) -> None:
        self._metrics.count(CUSTOM_TOOL_INPUTS, outcome)
        if outcome != "valid":
            logs.logger().debug("custom tool input", extra=logs.fields(tool=name, outcome=outcome, reason=reason))

    async def _ask(
        self, model: str, prompt: str, length: int, grammar: Grammar, settings: Settings, headers: Mapping[str, str]
    ) -> str:
        """Return the backend's answer; empty unless it comes in time and whole."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            settings.max_tokens_field: min(_TOKENS + length, _MOST_TOKENS),
        }
        constraint = _constraint(grammar) if settings.custom_tool_grammar != "describe" else None
        try:
            async with asyncio.timeout(SECONDS_OF_A_REPAIR):
                if constraint is not None:
                    # Only vLLM knows this field. Others ignore it, or refuse the request: then it is left out.
                    answer = await self._completion({**body, "structured_outputs": constraint}, headers)
                    if answer is not None:
                        return answer
                return await self._completion(body, headers) or ""
        except (ApiError, TimeoutError) as error:
            logs.logger().debug("custom tool input not repaired", extra=logs.fields(reason=str(error) or "it took too long"))
            return ""

    async def _completion(self, body: dict[str, Any], headers: Mapping[str, str]) -> str | None:
        """Return the text of a whole answer, empty if it was cut; None if the backend refuses the request as wrong."""
        try:
            answer = await ask(self._pool, body, headers, Route(body["model"]), Completion)
        except ApiError as error:
            if error.status == 400:
                return None
            raise
        return answer.text if answer.stopped else ""


def _prompt(name: str, grammar: Grammar, text: str, problem: str) -> str:
    return (
        f"The input of a call of the tool `{name}` does not match the grammar of the tool. Write the input again so that it "
        "matches, and change nothing else about it. Answer with the input alone: no explanation, no code fence.\n\n"
        f"<grammar syntax={json.dumps(grammar.syntax)}>\n{grammar.definition}\n</grammar>\n\n"
        f"<problem>\n{problem}\n</problem>\n\n"
        f"<input>\n{text}\n</input>"
    )


def _constraint(grammar: Grammar) -> dict[str, str]:
    """Return the `structured_outputs` of vLLM that let the model write nothing else."""
    try:
        return {"regex": regex_of(grammar)}
    except UnknownGrammar:
        return {"grammar" if grammar.syntax == "lark" else "regex": grammar.definition}


def _unwrapped(text: str) -> Iterator[str]:
    """Yield the text without the code fence around it, which is the most frequent mistake of models."""
    fenced = _FENCED.fullmatch(text)
    if fenced is not None:
        yield fenced[1]
        yield fenced[1].rstrip("\n")


def _readings(answer: str) -> Iterator[str]:
    """Yield what the model may have meant by its answer, without what it was asked to leave out."""
    text = answer.rpartition("</think>")[2]
    if not text.strip():
        return
    yield text
    yield from _unwrapped(text)
    stripped = text.strip("\n")
    yield stripped
    yield stripped + "\n"
