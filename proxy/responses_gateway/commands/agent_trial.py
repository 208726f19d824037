"""Play the tasks of an agent on a model, through a gateway in this process: its answers are read as a client gets them."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from responses_gateway.commands.agent_tasks import INSTRUCTIONS, MOST_ANSWERS, TASKS, PlayedCall, Task, step_of
from responses_gateway.probing.agent_behaviour import TaskOutcome
from responses_gateway.probing.prober import WHOLE_ANSWER
from responses_gateway.probing.questions import Tell
from responses_gateway.server.app import create_app
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.telemetry.logs import logger

_LIMIT = 4096  # tokens of one answer: a small file, and a thought before it
# With these the gateway does nothing about a model's mistakes.
AS_WRITTEN: Mapping[str, Any] = {"repair_calls": "off", "strict_calls": "off", "continue_early_ends": "off"}
_QUIET = {"store": "none", "access_log": False, "adapt": False, "ui": "off"}


async def play_tasks(
    settings: Mapping[str, Any], *, model: str, api_key: str | None, answer_timeout: float, tell: Tell
) -> list[TaskOutcome]:
    """Play all tasks on the server that the settings name, as they say, and return what came of each. `answer_timeout` is how
    long nothing may come, in seconds; `tell` gets a line for each task, before it is played."""
    key = {} if api_key is None else {"backend_api_key": api_key}
    chosen = Settings(**{**settings, **_QUIET, **key})
    outcomes = []
    async with _gateway(chosen) as gateway:
        for number, task in enumerate(TASKS, 1):
            tell(f"task {number} of {len(TASKS)}: {task.name}")
            outcomes.append(await gateway.play(task, model, answer_timeout * WHOLE_ANSWER))
    return outcomes


class _Gateway:
    """A gateway at `url`, which notes how the turn of each answer has ended."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self._end: str | None = None

    def note(self, _prepared: PreparedRequest, translator: Translator, _facts: RequestFacts) -> Mapping[str, Any]:
        """Take note of an answer that has ended."""
        self._end = translator.lifecycle.turn.outcome
        return {}

    async def play(self, task: Task, model: str, seconds: float) -> TaskOutcome:
        """Play one task to its end. `seconds` is the longest time for one answer."""
        items: list[dict[str, Any]] = [{"role": "user", "content": task.question}]
        rules = CallRules([{"function": tool} for tool in task.tools], repairs=True, drops_nulls=False)
        ends: list[str] = []
        calls: list[str] = []
        repairable = 0
        steps: list[PlayedCall] = []
        problem = None
        for _ in range(MOST_ANSWERS):
            self._end = None
            try:
                answer = await self._answer({"model": model, "input": items, "tools": task.tools}, seconds)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                problem = f"{task.name}: {str(error) or type(error).__name__}"
                break
            ends.append(self._end or "unknown")
            made = [item for item in answer if item["type"] == "function_call"]
            items += answer
            for call in made:
                checked = rules.check(call["name"], call["arguments"], ended=call["status"] == "completed")
                calls.append(checked.label)
                repairable += bool(checked.repairs)
                step = step_of(task, call, None if checked.validity in ("valid", "unchecked") else checked.label)
                steps.append(step)
                items.append({"type": "function_call_output", "call_id": call["call_id"], "output": step.result})
            if not made:
                break
        repeats = len(steps) - len(set(steps))  # of the same call with the same result
        return TaskOutcome(ends, calls, repairable, repeats, problem)

    async def _answer(self, request: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
        """Return the items of an answer. Raise `ValueError` for one that failed, `TimeoutError`."""
        body = {**request, "instructions": INSTRUCTIONS, "max_output_tokens": _LIMIT, "store": False}
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with self._session.post(f"{self._url}/v1/responses", data=json.dumps(body), timeout=timeout) as answer:
            value = json.loads(await answer.read())
        error = value.get("error")
        if error:
            raise ValueError(error["message"])
        items: list[dict[str, Any]] = value["output"]
        return items


@asynccontextmanager
async def _silent_log() -> AsyncIterator[None]:
    """Write no log meanwhile: the report says what went wrong."""
    level = logger().level
    logger().setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger().setLevel(level)


@asynccontextmanager
async def _gateway(settings: Settings) -> AsyncIterator[_Gateway]:
    async with _silent_log(), open_parts(settings) as parts:
        runner = Runner(create_app(parts), shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
                gateway = _Gateway(f"http://{host}:{port}", session)
                parts.responses.additions.tool_notes.append(gateway.note)
                yield gateway
        finally:
            await runner.cleanup()
