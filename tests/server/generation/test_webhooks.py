"""Webhooks of background responses, read with `webhooks.unwrap` of OpenAI's SDK, on real endpoints."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai import InvalidWebhookSignatureError, OpenAI

from responses_gateway.server.webhooks import sender
from responses_gateway.settings.webhooks import WebhookEndpoint
from responses_gateway.simulator import create_app, serving
from responses_gateway.state import Sqlite
from responses_gateway.state.webhooks import WebhookTable
from tests.server.resources.test_websocket_resource import ENDLESS
from tests.server.running_gateway import Served, ask, gateway, post, run, until

SECRET = "whsec_" + base64.b64encode(os.urandom(24)).decode()
CLIENT = OpenAI(api_key="x", webhook_secret=SECRET)


class Endpoint:
    """A program that takes webhooks: `answer` says with which status."""

    def __init__(self, answer: Callable[[int], int]) -> None:
        self.url = ""
        self.received: list[tuple[dict[str, str], bytes]] = []
        self._answer = answer

    async def handle(self, request: web.Request) -> web.Response:
        self.received.append((dict(request.headers), await request.read()))
        status = self._answer(len(self.received))
        return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 307 else {})

    @property
    def events(self) -> list[tuple[str, str]]:
        """Types and responses of what came, after the SDK has verified it."""
        unwrapped = (CLIENT.webhooks.unwrap(body, headers) for headers, body in self.received)
        return [(event.type, event.data.id) for event in unwrapped if event.type.startswith("response.")]  # type: ignore[union-attr]


@asynccontextmanager
async def listening(answer: Callable[[int], int] = lambda _: 200) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(answer)
    app = web.Application()
    app.router.add_post("/{path:.*}", endpoint.handle)
    async with serving(app) as url:
        endpoint.url = url.removesuffix("/v1") + "/hook"
        yield endpoint


def told(endpoint: Endpoint, **more: Any) -> dict[str, WebhookEndpoint]:
    return {"mine": WebhookEndpoint.model_validate({"url": endpoint.url, "secret": SECRET, "private": True, **more})}


async def background(served: Served, text: str = "scenario: plain", **fields: Any) -> str:
    answer = await post(served, input=text, stream=False, background=True, **fields)
    response_id: str = answer.json["id"]
    return response_id


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "INTERVAL", 0.02)
    monkeypatch.setattr(sender, "DELAYS", (0.0,))


def test_each_end_is_told_once_and_signed() -> None:
    async def test() -> None:
        async with listening() as endpoint, serving(create_app()) as url:
            async with gateway(url, store="memory", webhooks=told(endpoint)) as served:
                done = await background(served)
                cut = await background(served, "scenario: long", max_output_tokens=2)
                failed = await background(served, "fault: status=400")
                stopped = await background(served, ENDLESS)
                await post(served)  # in the foreground: nobody is told
                await ask(served, "POST", f"/v1/responses/{stopped}/cancel")
                await until(lambda: len(endpoint.received) == 4, "all ends were told")
                assert sorted(endpoint.events) == sorted([
                    ("response.completed", done),
                    ("response.incomplete", cut),
                    ("response.failed", failed),
                    ("response.cancelled", stopped),
                ])  # fmt: skip
                headers, body = endpoint.received[0]
                with pytest.raises(InvalidWebhookSignatureError):
                    CLIENT.webhooks.unwrap(body + b" ", headers)
            assert len(endpoint.received) == 4

    run(test())


@pytest.mark.parametrize("status", [500, 307])
def test_what_is_not_taken_is_sent_again_as_the_same_event(status: int) -> None:
    """A redirection is not followed: it is a refusal."""

    async def test() -> None:
        async with listening(lambda number: status if number < 3 else 204) as endpoint, serving(create_app()) as url:
            async with gateway(url, store="memory", webhooks=told(endpoint)) as served:
                await background(served)
                await until(lambda: len(endpoint.received) == 3, "it was sent three times")
            assert len({(headers["webhook-id"], body) for headers, body in endpoint.received}) == 1
            assert len(endpoint.events) == 3

    run(test())


def test_a_private_address_is_asked_only_if_the_settings_say_so() -> None:
    async def test() -> None:
        async with listening() as endpoint, listening() as other, serving(create_app()) as url:
            both = {**told(endpoint), "public": told(other, private=False)["mine"]}
            async with gateway(url, store="memory", webhooks=both) as served:
                await background(served)
                await until(lambda: endpoint.received, "the allowed one was told")
            assert other.received == []

    run(test())


def test_another_process_tells_what_the_first_one_could_not(tmp_path: Path) -> None:
    async def test() -> None:
        store = str(tmp_path / "store.sqlite3")
        async with listening(lambda _: 503) as down, serving(create_app()) as url:
            async with gateway(url, store=store, webhooks=told(down)) as served:
                response_id = await background(served)
                await until(lambda: down.received, "it was tried")
            async with listening() as up, gateway(url, store=store, webhooks=told(up)) as one:
                async with gateway(url, store=store, webhooks=told(up)):
                    more = [await background(one) for _ in range(5)]
                    await until(lambda: len(up.received) >= 6, "all were told")
                assert sorted(up.events) == sorted(("response.completed", each) for each in [response_id, *more])

    run(test())


def test_one_taker_at_a_time() -> None:
    """A row that was taken belongs to its taker until the lease ends; one of a response that does not exist is never due."""

    async def test() -> None:
        database = Sqlite(None)
        await database.open()
        now = 1000.0
        table = WebhookTable(database, lambda: now)
        await table.announce("resp_1", ["mine", "other"])
        assert await table.take("mine", 4, 60) == []
        insert = (
            "INSERT INTO responses (id, tenant, created_at, expires_at, status, head, tail, input_end, output_end, background) "
            "VALUES ('resp_1', '', 0, 9e9, 'completed', '', '', 0, 0, 1)"
        )
        await database.run(lambda sql: sql.execute(insert))
        (notice,) = await table.take("mine", 4, 60)
        assert await table.take("mine", 4, 60) == []
        now += 61
        (again,) = await table.take("mine", 4, 60)
        assert (again.id, again.attempts, again.ended_at) == (notice.id, 1, notice.ended_at)
        await table.delivered(again)
        now += 61
        assert await table.take("mine", 4, 60) == []
        assert len(await table.take("other", 4, 60)) == 1
        await database.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    "endpoint",
    [
        {"url": "ftp://x/", "secret": SECRET},
        {"url": "https://user:password@x/", "secret": SECRET},
        {"url": "https://x/", "secret": "whsec_%%%"},
        {"url": "https://x/", "secret": "short"},
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"expected|secret"):
        WebhookEndpoint.model_validate(endpoint)
