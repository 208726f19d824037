"""Webhooks of background responses, read with `webhooks.unwrap` of OpenAI's SDK, on real endpoints."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai import InvalidWebhookSignatureError, OpenAI

from responses_gateway.server.features.webhooks import sender
from responses_gateway.settings.background import WebhookEndpoint
from responses_gateway.simulator import create_app, serving
from responses_gateway.state import ResponseRecord, Sqlite, Store
from responses_gateway.state.webhooks import Notice, WebhookTable
from tests.server.gateway_process import program
from tests.server.resources.test_websocket_resource import ENDLESS
from tests.server.running_gateway import Answer, Reachable, ask, assert_error, gateway, post, run, until

SECRET = "whsec_" + base64.b64encode(os.urandom(24)).decode()
ADMIN = "admin-0123456789abcdef"
CLIENT = OpenAI(api_key="x", webhook_secret=SECRET)


class Endpoint:
    """A program that takes webhooks: `answer` says with which status; it hangs until `hangs` is set, with those of which
    `which` says so."""

    def __init__(self, answer: Callable[[int], int], hangs: asyncio.Event | None, which: Callable[[int], bool]) -> None:
        self.url = ""
        self.received: list[tuple[dict[str, str], bytes]] = []
        self._answer = answer
        self._hangs = hangs
        self._which = which

    async def handle(self, request: web.Request) -> web.Response:
        self.received.append((dict(request.headers), await request.read()))
        number = len(self.received)
        status = self._answer(number)
        if self._hangs is not None and self._which(number):
            await self._hangs.wait()
        return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 307 else {})

    @property
    def events(self) -> list[tuple[str, str]]:
        """Types and responses of what came, after the SDK has verified it."""
        unwrapped = (CLIENT.webhooks.unwrap(body, headers) for headers, body in self.received)
        return [(event.type, event.data.id) for event in unwrapped if event.type.startswith("response.")]  # type: ignore[union-attr]


@asynccontextmanager
async def listening(
    answer: Callable[[int], int] = lambda _: 200,
    hangs: asyncio.Event | None = None,
    which: Callable[[int], bool] = lambda _: True,
) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(answer, hangs, which)
    app = web.Application()
    app.router.add_post("/{path:.*}", endpoint.handle)
    async with serving(app) as url:
        endpoint.url = url.removesuffix("/v1") + "/hook"
        yield endpoint


def told(endpoint: Endpoint, **more: Any) -> dict[str, WebhookEndpoint]:
    return {"mine": WebhookEndpoint.model_validate({"url": endpoint.url, "secret": SECRET, "private": True, **more})}


async def background(served: Reachable, text: str = "scenario: plain", **fields: Any) -> str:
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


def test_an_event_that_hangs_does_not_hold_up_the_others() -> None:
    async def test() -> None:
        answers = asyncio.Event()
        async with (
            listening(hangs=answers, which=lambda number: number == 1) as endpoint,
            serving(create_app()) as url,
            gateway(url, store="memory", webhooks=told(endpoint)) as served,
        ):

            def count(outcome: str) -> float:
                return served.metric("webhook_deliveries_total", endpoint="mine", outcome=outcome)

            hanging = await background(served)
            await until(lambda: endpoint.received, "the first one is being sent")
            others = [await background(served) for _ in range(12)]
            await until(lambda: count("delivered") == 12, "the others were told")
            assert count("failed") == 0  # the first one still hangs
            assert sorted(endpoint.events) == sorted(("response.completed", each) for each in [hanging, *others])
            answers.set()
            await until(lambda: count("delivered") == 13, "and then the first one")

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


def test_a_private_host_may_have_any_name() -> None:
    async def test() -> None:
        async with listening() as endpoint, serving(create_app()) as url:
            written = told(endpoint, url=endpoint.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"))
            async with gateway(url, store="memory", webhooks=written) as served:
                await background(served)
                await until(lambda: endpoint.received, "it was told")

    run(test())


def test_a_table_that_cannot_be_read_does_not_end_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    take = WebhookTable.take
    failed: list[str] = []

    async def fails_once(table: WebhookTable, endpoint: str, most: int, lease: float) -> list[Notice]:
        if not failed:
            failed.append(endpoint)
            raise ValueError("a row that is none")
        return await take(table, endpoint, most, lease)

    monkeypatch.setattr(WebhookTable, "take", fails_once)

    async def test() -> None:
        async with listening() as endpoint, serving(create_app()) as url:
            async with gateway(url, store="memory", webhooks=told(endpoint)) as served:
                await background(served)
                await until(lambda: endpoint.received, "it was told")
            assert len(endpoint.received) == 1

    with pytest.raises(AssertionError, match="a row that is none"):  # the defect is in the log
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


def program_told(endpoint: Endpoint, backend: str, folder: Path) -> tuple[str, str]:
    """Return the flags of a process that tells an endpoint, with a store in this folder."""
    hook = {"url": endpoint.url, "secret": SECRET, "private": True}
    settings = {"store": str(folder / "store"), "backend": [backend], "webhooks": {"mine": hook}, "admin_key": ADMIN}
    config = folder / "gateway.yaml"
    config.write_text(json.dumps(settings))
    return "--config", str(config)


async def until_completed(served: Reachable, response_id: str) -> None:
    while True:
        if (await ask(served, "GET", f"/v1/responses/{response_id}")).json["status"] == "completed":
            return
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["INTERVAL = 3600.0", "LEASE = 0.0"])
def test_a_gateway_that_is_killed_after_the_end_leaves_the_event_to_another_one(tmp_path: Path, change: str) -> None:
    """The first gateway never looks for what is due; or it sends it to an endpoint that hangs, and its lease ends at once."""
    first = f"from responses_gateway.server.features.webhooks import sender; sender.{change}"
    already = int("LEASE" in change)

    async def test() -> None:
        answers = asyncio.Event()
        async with listening(hangs=answers) as endpoint, serving(create_app()) as url:
            async with program(*program_told(endpoint, url, tmp_path), first=first) as killed:
                response_id = await background(killed)
                await until_completed(killed, response_id)
                await until(lambda: len(endpoint.received) == already, "it is being sent")
                killed.process.kill()
                await killed.process.wait()
            answers.set()
            async with gateway(url, store=str(tmp_path / "store"), webhooks=told(endpoint)) as other:
                counted = {"endpoint": "mine", "outcome": "delivered"}
                await until(lambda: other.metric("webhook_deliveries_total", **counted) == 1, "the other one has told it")
            assert endpoint.events == [("response.completed", response_id)] * (already + 1)
            assert len({(headers["webhook-id"], body) for headers, body in endpoint.received}) == 1

    run(test())


async def admin(served: Reachable, method: str, path: str = "", key: str = ADMIN) -> Answer:
    return await ask(served, method, f"/admin/webhooks{path}", headers={"Authorization": f"Bearer {key}"})


async def until_listed(served: Reachable, *states: str) -> list[dict[str, Any]]:
    """Return the deliveries that are listed, once they are in these states."""
    while True:
        deliveries: list[dict[str, Any]] = (await admin(served, "GET")).json["deliveries"]
        if [delivery["state"] for delivery in deliveries] == list(states):
            return deliveries
        await asyncio.sleep(0.01)


def test_operators_see_what_was_not_taken_and_have_it_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "DELAYS", (3600.0,))
    monkeypatch.setattr(sender, "COUNT_INTERVAL", 0.02)

    async def test() -> None:
        async with listening(lambda number: 503 if number == 1 else 200) as endpoint, serving(create_app()) as url:
            hooks = told(endpoint, url=endpoint.url + "?token=hidden")
            async with gateway(url, store="memory", webhooks=hooks, admin_key=ADMIN) as served:
                before = time.time()
                response_id = await background(served)
                await until(lambda: endpoint.received, "it was tried")
                (delivery,) = await until_listed(served, "waiting")
                assert delivery.pop("next_attempt_at") >= before + 3600
                assert delivery == {
                    "id": endpoint.received[0][0]["webhook-id"],
                    "endpoint": "mine",
                    "type": "response.completed",
                    "response_id": response_id,
                    "state": "waiting",
                    "attempts": 1,
                    "last_failure": "status 503",
                }
                listed = await admin(served, "GET")
                assert listed.json["data"] == [
                    {"name": "mine", "url": endpoint.url, "private": True, "waiting": 1, "failed": 0}
                ]
                assert listed.json["has_more"] is False
                assert SECRET.encode() not in listed.body
                assert b"hidden" not in listed.body
                await until(lambda: served.metric("webhook_deliveries_waiting", endpoint="mine") == 1, "one waits")
                assert served.metric("webhook_deliveries_total", endpoint="mine", outcome="failed") == 1

                assert (await admin(served, "POST", f"/{delivery['id']}")).status == 202
                await until_listed(served)
                assert endpoint.events == [("response.completed", response_id)] * 2
                await until(lambda: served.metric("webhook_deliveries_waiting", endpoint="mine") == 0, "nothing waits")
                assert served.metric("webhook_deliveries_total", endpoint="mine", outcome="delivered") == 1
                assert_error(await admin(served, "POST", f"/{delivery['id']}"), 404, "not_found")

    run(test())


@pytest.mark.slow
def test_what_was_given_up_is_kept_and_sent_again_only_for_an_operator(tmp_path: Path) -> None:
    first = "from responses_gateway.server.features.webhooks import sender; sender.MOST_ATTEMPTS = 1; sender.INTERVAL = 0.02"

    async def test() -> None:
        async with listening(lambda number: 503 if number == 1 else 200) as endpoint, serving(create_app()) as url:
            async with program(*program_told(endpoint, url, tmp_path), first=first) as served:
                response_id = await background(served)
                (delivery,) = await until_listed(served, "failed")
                assert (delivery["next_attempt_at"], delivery["last_failure"]) == (None, "status 503")
                (shown,) = (await admin(served, "GET")).json["data"]
                assert (shown["waiting"], shown["failed"]) == (0, 1)
                counted = b'webhook_deliveries_total{endpoint="mine",outcome="given_up"} 1.0'
                assert counted in (await ask(served, "GET", "/metrics")).body
                await served.says("webhook given up")
                assert len(endpoint.received) == 1
                assert (await admin(served, "POST", f"/{delivery['id']}")).status == 202
                await until_listed(served)
            assert endpoint.events == [("response.completed", response_id)] * 2

    run(test())


def test_what_is_being_sent_is_not_sent_twice_and_nothing_is_told_without_the_admin_key() -> None:
    async def test() -> None:
        answers = asyncio.Event()
        async with (
            listening(hangs=answers) as endpoint,
            serving(create_app()) as url,
            gateway(url, store="memory", webhooks=told(endpoint), admin_key=ADMIN) as served,
        ):
            await background(served)
            (delivery,) = await until_listed(served, "sending")
            assert delivery["next_attempt_at"] is None
            assert_error(await admin(served, "POST", f"/{delivery['id']}"), 409, "conflict")
            assert_error(await admin(served, "GET", key="x"), 401, "invalid_api_key")
            assert_error(await admin(served, "POST", f"/{delivery['id']}", key="x"), 401, "invalid_api_key")
            answers.set()
            await until_listed(served)
            assert len(endpoint.received) == 1

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
        ended = ResponseRecord("resp_1", "", now, "completed", "", "", background=True)
        await Store(database, 1e9, lambda: now).responses.save(ended)
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


def test_an_end_is_told_at_once_though_the_clock_was_set_back() -> None:
    async def test() -> None:
        database = Sqlite(None)
        await database.open()
        now = 10_000.0
        table = WebhookTable(database, lambda: now)
        await table.announce("resp_1", ["mine"])
        now -= 7200
        ended = ResponseRecord("resp_1", "", now, "completed", "", "", background=True)
        await Store(database, 1e9, lambda: now).responses.save(ended)
        (left,) = await table.left(1)
        assert (left.state, left.next_attempt_at) == ("waiting", now)
        assert len(await table.take("mine", 4, 60)) == 1
        await database.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    "endpoint",
    [
        {"url": "ftp://x/", "secret": SECRET},
        {"url": "https://user:password@x/", "secret": SECRET},
        {"url": "https://xn--/", "secret": SECRET},
        {"url": "https://x/", "secret": "whsec_%%%"},
        {"url": "https://x/", "secret": "short"},
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"expected|secret|valid URL|no user or password"):
        WebhookEndpoint.model_validate(endpoint)
