"""Work on long requests is done one at a time: however many of them one key sends, those of another do not wait for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import Answer, ask, run, simulated, until

GREEDY = "rp_greedy-0123456789"
MODEST = "rp_modest-0123456789"
KEYS = {"greedy": hash_of(GREEDY), "modest": hash_of(MODEST)}
MANY = 16
TEXTS = [{"role": "user", "content": [{"type": "input_text", "text": f"message {number} of many"}]} for number in range(6_000)]
RESPONSES: dict[str, Any] = {"model": "simulator", "input": TEXTS, "store": False}
MESSAGES: dict[str, Any] = {
    "model": "simulator",
    "max_tokens": 8,
    "messages": [{"role": "user", "content": [{"type": "text", "text": text["content"][0]["text"]}]} for text in TEXTS],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)], ids=["responses", "messages"]
)
def test_many_long_requests_of_one_key_do_not_keep_another_waiting(path: str, body: dict[str, Any]) -> None:
    async def test() -> None:
        async with simulated(api_keys=KEYS) as served:
            ended: list[str] = []

            async def send(name: str, key: str) -> None:
                answer: Answer = await ask(served, "POST", path, json=body, headers={"Authorization": f"Bearer {key}"})
                assert answer.status == 200
                ended.append(name)

            asking = [asyncio.create_task(send("greedy", GREEDY)) for _ in range(MANY)]
            await until(lambda: ended)
            await send("modest", MODEST)
            assert len(ended) <= MANY - 4, "it was served after the others"
            await asyncio.gather(*asking)

    run(test())
