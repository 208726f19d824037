"""Calls of custom tools whose input does not match the tool's grammar: counted, and corrected once where that is wanted.

The backend is asked in a small conversation of its own: here is the grammar, here is the input, write it again. What it answers
is judged like the first input, and only an input that matches takes the place of what the model wrote.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from proxy.backend.served_models import Route
from proxy.request.grammar.lark_reader import UnknownGrammar
from proxy.request.grammar.regex import regex_of
from proxy.server.custom_tools.grammar_check import Verdict
from proxy.stream.deferred_calls import JudgedTranslator
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.errors import ApiError
from proxy.wire.tools import Grammar

if TYPE_CHECKING:
    from proxy.server.generation.gateway import Gateway

#: An input longer than this is not corrected, in characters: it would cost as much as the answer did.
LONGEST_REPAIRED = 64 * 1024
#: Tokens of a correction, thoughts included: so many, and one for each character of the input up to the limit.
_TOKENS, _MOST_TOKENS = 2048, 32 * 1024
_ANSWER_LIMIT = 4 * 1024 * 1024
#: Responses whose inputs wait to be judged for the metrics alone; those above it are not judged.
_MOST_COUNTING = 100
#: How often to look whether a verdict is still wanted, in seconds.
_LOOK_AGAIN = 0.5
_FENCED = re.compile(r"\s*```[^\n`]*\n(.*?\n?)```\s*", re.DOTALL)

Send = Callable[[bytes], None]


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


async def settle(gateway: Gateway, translator: Translator, headers: Mapping[str, str], send: Send) -> None:
    """Give a verdict on every call that waits for one; `send` gets the events that were held.

    `headers` go to the backend. To be called when the backend's answer is complete; does nothing if no call waits.
    """
    if not isinstance(translator, JudgedTranslator):
        return
    while (waiting := translator.awaiting) is not None:
        correcting = asyncio.create_task(_corrected(gateway, translator, *waiting, headers))
        try:
            # A time limit or the end of the gateway may end the response meanwhile: then nobody waits for a verdict.
            while translator.awaiting is waiting and not correcting.done():
                await asyncio.wait({correcting}, timeout=_LOOK_AGAIN)
        finally:
            correcting.cancel()
            await asyncio.wait({correcting})
        if translator.awaiting is waiting:
            send(translator.judge(correcting.result()))


def count_later(gateway: Gateway, translator: Translator | None) -> None:
    """Judge the inputs of a response that has ended, for the metrics alone, where no verdict was awaited."""
    if not isinstance(translator, JudgedTranslator) or not translator.grammars or translator.waits:
        return
    if len(gateway.counting) < _MOST_COUNTING:
        task = asyncio.create_task(_count(gateway, translator))
        gateway.counting.add(task)
        task.add_done_callback(gateway.counting.discard)


async def _count(gateway: Gateway, translator: JudgedTranslator) -> None:
    for item in translator.output:
        if not item.startswith('{"type":"custom_tool_call"') or '"status":"completed"' not in item:
            continue
        call = json.loads(item)
        grammar = translator.grammar_of(call["name"], call.get("namespace"))
        if grammar is not None:
            verdict = await gateway.judge.check(grammar, call["input"])
            _book(gateway, call["name"], verdict.outcome, verdict.reason)


async def _corrected(
    gateway: Gateway, translator: JudgedTranslator, name: str, text: str, headers: Mapping[str, str]
) -> str | None:
    """The input that shall take the place of this one; None if it may stay, or if there is no better one."""
    grammar = translator.grammars[name]
    verdict = await gateway.judge.check(grammar, text)
    if verdict.outcome != "invalid":
        _book(gateway, name, verdict.outcome, verdict.reason)
        return None
    better = await _first_valid(gateway, grammar, _unwrapped(text))
    if better is None and len(text) <= LONGEST_REPAIRED:
        answer = await _ask(gateway, translator.model, _prompt(name, grammar, text, verdict), len(text), grammar, headers)
        better = await _first_valid(gateway, grammar, _readings(answer))
    _book(gateway, name, "unrepaired" if better is None else "repaired", verdict.reason)
    return better


async def _first_valid(gateway: Gateway, grammar: Grammar, texts: Iterator[str]) -> str | None:
    for text in texts:
        if (await gateway.judge.check(grammar, text)).outcome == "valid":
            return text
    return None


def _book(gateway: Gateway, name: str, outcome: str, reason: str) -> None:
    gateway.metrics.count(gateway.metrics.custom_tool_inputs, outcome)
    if outcome != "valid":
        logs.logger().debug("custom tool input", extra=logs.fields(tool=name, outcome=outcome, reason=reason))


# ---- the question ------------------------------------------------------------------------------------------------------


def _prompt(name: str, grammar: Grammar, text: str, verdict: Verdict) -> str:
    return (
        f"The input of a call of the tool `{name}` does not match the grammar of the tool. Write the input again so that it "
        "matches, and change nothing else about it. Answer with the input alone: no explanation, no code fence.\n\n"
        f"<grammar syntax={json.dumps(grammar.syntax)}>\n{grammar.definition}\n</grammar>\n\n"
        f"<problem>\n{verdict.reason}\n</problem>\n\n"
        f"<input>\n{text}\n</input>"
    )


async def _ask(gateway: Gateway, model: str, prompt: str, length: int, grammar: Grammar, headers: Mapping[str, str]) -> str:
    """What the backend answers; empty if it does not, in time and to the end."""
    settings = gateway.settings
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": False,
        settings.max_tokens_field: min(_TOKENS + length, _MOST_TOKENS),
    }
    constraint = _constraint(grammar) if settings.custom_tool_grammar != "describe" else None
    try:
        async with asyncio.timeout(settings.repair_timeout):
            if constraint is not None:
                # Only vLLM knows this field. Others ignore it, or refuse the request: then without it.
                answer = await _completion(gateway, {**body, "structured_outputs": constraint}, headers)
                if answer is not None:
                    return answer
            return await _completion(gateway, body, headers) or ""
    except (ApiError, TimeoutError, msgspec.DecodeError) as error:
        logs.logger().debug("custom tool input not repaired", extra=logs.fields(reason=str(error) or "it took too long"))
        return ""


def _constraint(grammar: Grammar) -> dict[str, str]:
    """vLLM's `structured_outputs` that lets the model write nothing else."""
    try:
        return {"regex": regex_of(grammar)}
    except UnknownGrammar:
        return {"grammar" if grammar.syntax == "lark" else "regex": grammar.definition}


async def _completion(gateway: Gateway, body: dict[str, Any], headers: Mapping[str, str]) -> str | None:
    """The text of a whole answer, empty if it was cut; None if the backend refuses the request as wrong."""
    route = Route(body["model"])
    async with await gateway.pool.open_chat(msgspec.json.encode(body), lambda _name, _url: headers, route) as chat:
        if chat.status in (400, 422):
            return None
        answer = await chat.read(_ANSWER_LIMIT)
        if chat.status != 200:
            return ""
    choices = msgspec.json.decode(answer, type=_Completion).choices
    if not choices or choices[0].finish_reason != "stop":
        return ""
    return choices[0].message.content or ""


# ---- the answer --------------------------------------------------------------------------------------------------------


def _unwrapped(text: str) -> Iterator[str]:
    """The text without the code fence around it: what models do wrong most often."""
    fenced = _FENCED.fullmatch(text)
    if fenced is not None:
        yield fenced[1]
        yield fenced[1].rstrip("\n")


def _readings(answer: str) -> Iterator[str]:
    """What the model may have meant by its answer, without what it was asked to leave out."""
    text = answer.rpartition("</think>")[2]
    if not text.strip():
        return
    yield text
    yield from _unwrapped(text)
    stripped = text.strip("\n")
    yield stripped
    yield stripped + "\n"
