"""A simulator on a loopback port."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import SimulatorOptions, create_app, serving
from tests.simulator.chat_client import Ask, Reply, post


@pytest.fixture
def ask() -> Ask:
    """Return `ask(message, …)`, which sends a streamed request to a new simulator; other keywords become its fields."""

    def ask_once(
        message: str | list[dict[str, Any]] = "hi",
        *,
        options: SimulatorOptions | None = None,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> Reply:
        messages = [{"role": "user", "content": message}] if isinstance(message, str) else message
        body = {"model": "simulator", "messages": messages, "stream": True, **fields}

        async def play() -> Reply:
            async with serving(create_app(options)) as url, aiohttp.ClientSession() as session:
                return await post(session, f"{url}/v1/chat/completions", body, headers)

        return asyncio.run(play())

    return ask_once
