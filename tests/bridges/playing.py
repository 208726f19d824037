"""Plays all scenarios through one bridge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.bridges.backend import ENDLESS, MARK, Backend
from tests.bridges.judging import Answer, Verdict, judge
from tests.bridges.official_sdk import sdk_error
from tests.bridges.scenarios import Scenario

# Bridges that try again and again are not waited for longer, as no client does.
_ANSWER_WITHIN = 30.0
# A client that leaves: how long the backend may go on generating.
_STOPPED_WITHIN = 20.0


@dataclass
class Found:
    """What came of one bridge.

    `unreadable`: the exceptions of OpenAI's SDK, by scenario. `stopped`: whether the backend was stopped when the client left.
    `first_byte`: seconds until the first byte, where the first token came after three.
    """

    version: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    first_byte: float | None = None


def request_for(name: str, model: str, tools: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the request that a client sends to get the stream of this name."""
    content = [{"type": "input_text", "text": f"Please play {MARK}{name}"}]
    message = {"type": "message", "role": "user", "content": content}
    request: dict[str, Any] = {"model": model, "input": [message], "stream": True, "store": False}
    return request | ({"tools": list(tools)} if tools else {})


async def play(url: str, model: str, backend: Backend, scenarios: Sequence[Scenario], found: Found) -> None:
    """Play the scenarios one after the other, then leave one stream in the middle."""
    async with aiohttp.ClientSession(headers={"authorization": "Bearer none"}) as session:
        for scenario in scenarios:
            answer = await _ask(session, url, request_for(scenario.name, model, scenario.tools))
            found.answers[scenario.name] = answer
            found.verdicts[scenario.name] = judge(answer, scenario.truth, refused=scenario.status != 200)
            if (error := await asyncio.to_thread(sdk_error, answer)) is not None:
                found.unreadable[scenario.name] = error
            if scenario.delay:
                found.first_byte = answer.first_byte
        found.stopped = await _stops(session, url, request_for(ENDLESS, model), backend)


async def _ask(session: aiohttp.ClientSession, url: str, request: dict[str, Any]) -> Answer:
    began = time.monotonic()
    status = 0
    body = b""
    first_byte = None
    problem = ""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN), session.post(url, json=request) as response:
            status = response.status
            first_byte = time.monotonic() - began
            async for piece in response.content.iter_any():
                body += piece
    except TimeoutError:
        problem = f"no end within {_ANSWER_WITHIN:.0f} s"
    except aiohttp.ClientError:
        problem = "the connection is cut"
    return Answer(status, body, first_byte, problem)


async def _stops(session: aiohttp.ClientSession, url: str, request: dict[str, Any], backend: Backend) -> bool:
    """Leave an endless stream once it runs, and tell whether the backend is left, too."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN), session.post(url, json=request) as response:
            async for _ in response.content.iter_any():
                if backend.endless:
                    break
    except (TimeoutError, aiohttp.ClientError):
        return False
    return await backend.left_within(_STOPPED_WITHIN)
