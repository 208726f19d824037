"""Responses in the background: polled, streamed from anywhere, cancelled, and failed when their worker dies."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.responses import Creation
from responses_gateway.simulator import COUNTERS, create_app, serving
from tests.judges import judge_stream
from tests.log_lines import log_lines
from tests.server.process.test_shutdown import program
from tests.server.running_gateway import (
    TERMINALS,
    Answer,
    RawClient,
    Served,
    ask,
    assert_error,
    body_of,
    events_of,
    gateway,
    post,
    run,
    simulated,
    until,
)
from tests.server.scripted_backend import HEAD, Connection, backend, text_stream

KEY = {"Authorization": "Bearer key-a"}
OTHER = {"Authorization": "Bearer key-b"}
ENDLESS = "scenario: long tokens: 5000 tps: 100"


async def start(served: Any, text: str = "scenario: plain", **fields: Any) -> dict[str, Any]:
    answer = await post(served, input=text, background=True, stream=False, **fields)
    assert answer.status == 200, answer.body
    response: dict[str, Any] = answer.json
    return response


async def get(served: Any, name: str, query: str = "", headers: dict[str, str] | None = None) -> Answer:
    return await ask(served, "GET", f"/v1/responses/{name}{query}", headers=headers)


async def cancel(served: Any, name: str, headers: dict[str, str] | None = None) -> Answer:
    return await ask(served, "POST", f"/v1/responses/{name}/cancel", headers=headers)


async def ended(served: Any, name: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    while True:
        response: dict[str, Any] = (await get(served, name, headers=headers)).json
        if response["status"] not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.01)


async def begun(served: Any, name: str) -> str:
    """Return the status once it is not queued any more."""
    while True:
        status = str((await get(served, name)).json["status"])
        if status != "queued":
            return status
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("background", [True, False])
def test_a_sampled_stream_that_runs_on_its_own_is_judged_from_its_first_event(background: bool) -> None:
    """The metrics have no violation, and neither has the log, which the gateway of a test looks at."""

    async def test() -> None:
        async with simulated(store="memory", invariant_sampling=1.0, on_disconnect="continue") as served:
            if background:
                await ended(served, (await start(served, "scenario: demo"))["id"])
            else:
                await post(served, input="scenario: demo")
            await until(lambda: served.metric("sampled_streams_total") == 1)
            assert b"invariant_violations_total{" not in (await ask(served, "GET", "/metrics")).body

    run(test())


def test_it_answers_at_once_and_ends_by_itself() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            queued = await start(served)
            assert (queued["status"], queued["background"], queued["output"]) == ("queued", True, [])
            response = await ended(served, queued["id"])
            assert (response["status"], response["id"]) == ("completed", queued["id"])
            streamed = await get(served, queued["id"], "?stream=true")
            assert streamed.final == response
            assert [event["type"] for event in streamed.events][:3] == [
                "response.created", "response.queued", "response.in_progress",
            ]  # fmt: skip
            follow_up = await post(served, previous_response_id=queued["id"], input="go on")
            assert follow_up.final["status"] == "completed"

    run(test())


def test_a_stream_can_be_taken_up_at_any_event() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            streamed = await post(served, input="scenario: reasoning", background=True)
            assert judge_stream(streamed.body) == []
            name = streamed.final["id"]
            events = streamed.events
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            for after in range(-1, len(events)):
                rest = await get(served, name, f"?stream=true&starting_after={after}")
                assert rest.events == events[after + 1 :]
                assert rest.body.endswith(b"data: [DONE]\n\n")
            for after in ("9" * 19, "9" * 5000):
                assert (await get(served, name, f"?stream=true&starting_after={after}")).events == []
            for after in ("-5", "-" + "9" * 5000):
                assert (await get(served, name, f"?stream=true&starting_after={after}")).events == events

    run(test())


def test_several_readers_follow_a_running_response() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await start(served, "tokens: 400"))["id"]
            bodies = [await reader for reader in [get(served, name, "?stream=true") for _ in range(3)]]
            assert len({body.body for body in bodies}) == 1
            assert bodies[0].final == (await get(served, name)).json

    run(test())


def test_a_client_that_leaves_ends_nothing() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await post(served, input=ENDLESS, background=True)
            await until(lambda: served.parts.background and served.parts.background.running, "it runs on")
            assert served.parts.background is not None
            (name,) = served.parts.background.running
            assert (await get(served, name)).json["status"] in ("queued", "in_progress")
            await cancel(served, name)

    run(test())


def test_a_response_that_is_cancelled_is_no_failure_of_the_backend() -> None:
    async def test() -> None:
        simulator = create_app()
        with log_lines() as written:
            async with serving(simulator) as url, gateway(url, store="memory", access_log=True) as served:
                name = (await start(served, ENDLESS))["id"]
                await until(lambda: simulator[COUNTERS].running, "the backend is at work")
                await cancel(served, name)
                await until(lambda: served.metric("requests_in_flight") == 0, "it has ended")
                counted = [
                    served.metric("requests_total", model=model, outcome="cancelled", stream="false", api="responses")
                    for model in ("simulator", "unknown")
                ]
                assert sum(counted) == 1
                assert served.metric("backend_errors_total", kind="server_error") == 0
        (line,) = written("response")
        assert (line["level"], line["outcome"], line.get("code")) == ("info", "cancelled", None)

    run(test())


def test_cancelling_frees_the_backend() -> None:
    async def test() -> None:
        simulator = create_app()
        async with serving(simulator) as url, gateway(url, store="memory") as served:
            name = (await start(served, ENDLESS, headers=KEY))["id"]
            await until(lambda: simulator[COUNTERS].running, "the backend is at work")
            assert_error(await cancel(served, name, OTHER), 404)
            cancelled = await cancel(served, name, KEY)
            assert (cancelled.json["status"], cancelled.json["error"]) == ("cancelled", None)
            await until(lambda: not simulator[COUNTERS].running, "the backend is free")
            assert (await cancel(served, name, KEY)).json == cancelled.json
            stream = await get(served, name, "?stream=true", KEY)
            assert [event["type"] for event in stream.events if event["type"] in TERMINALS] == ["response.failed"]

    run(test())


def test_what_was_finished_cannot_be_cancelled() -> None:
    """Cancel after the model has stopped while the stream is still open: stream and response agree."""

    async def hanging(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*text_stream("done")[:-1])
        await connection.lost

    async def test() -> None:
        async with backend(hanging) as behind, gateway(behind.url, store="memory") as served:
            name = (await start(served))["id"]
            (creation,) = served.parts.in_flight.activities
            assert isinstance(creation, Creation)
            await until(lambda: creation.translator.lifecycle.turn.finish_reason, "it has stopped")
            answer = (await cancel(served, name)).json
            assert answer["status"] == "completed"
            assert served.parts.store is not None
            stored = await served.parts.store.responses.get("", name)
            assert stored is not None
            assert stored.status == "completed"
            assert (await get(served, name, "?stream=true")).final == answer

    run(test())


def test_deleting_ends_it() -> None:
    async def test() -> None:
        simulator = create_app()
        async with serving(simulator) as url, gateway(url, store="memory") as served:
            name = (await start(served, ENDLESS))["id"]
            following = asyncio.create_task(get(served, name, "?stream=true"))
            await until(lambda: simulator[COUNTERS].running, "the backend is at work")
            assert (await ask(served, "DELETE", f"/v1/responses/{name}")).status == 200
            assert b"[DONE]" not in (await following).body  # what is not there any more has no end
            await until(lambda: not simulator[COUNTERS].running, "the backend is free")
            assert_error(await get(served, name), 404)

    run(test())


def test_it_is_in_progress_for_who_asks() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await start(served, ENDLESS))["id"]
            assert await begun(served, name) == "in_progress"
            assert (await cancel(served, name)).json["status"] == "cancelled"

    run(test())


def test_what_the_backend_refuses_is_a_failed_response() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await start(served, "scenario: plain fault: status=429"))["id"]
            response = await ended(served, name)
            assert response["status"] == "failed"
            assert response["error"]["message"]

    run(test())


def test_what_cannot_be_done() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            assert_error(await post(served, background=True, store=False), 400, "unsupported_parameter")
            foreground = (await post(served)).final["id"]
            assert_error(await cancel(served, foreground), 400, "not_cancellable")
            assert_error(await cancel(served, "resp_x"), 404)
            name = (await start(served, ENDLESS))["id"]
            assert_error(await post(served, previous_response_id=name), 400, "previous_response_not_ready")
            assert_error(await get(served, name, "?stream=true&starting_after=x"), 400, "invalid_value")
            await cancel(served, name)

    run(test())


def test_a_gateway_that_stops_ends_what_runs(tmp_path: Path) -> None:
    async def test() -> None:
        path = str(tmp_path / "x.sqlite3")
        async with serving(create_app()) as url:
            async with gateway(url, store=path, drain_timeout=0.05) as served:
                name = (await start(served, ENDLESS))["id"]
                await served.parts.in_flight.drain(asyncio.Event(), 0.05)
            async with gateway(url, store=path) as served:
                response = (await get(served, name)).json
                assert (response["status"], "shutting down" in response["error"]["message"]) == ("failed", True)

    run(test())


def test_two_gateways_share_a_store(tmp_path: Path) -> None:
    """Made on one, continued, read, followed and cancelled on the other."""

    async def test() -> None:
        path = str(tmp_path / "x.sqlite3")
        simulator = create_app()
        async with serving(simulator) as url, gateway(url, store=path) as one, gateway(url, store=path) as two:
            first = (await post(one)).final
            assert (await get(two, first["id"])).json == first
            assert (await post(two, previous_response_id=first["id"])).final["status"] == "completed"
            name = (await start(one, "tokens: 200 tps: 400"))["id"]
            followed = await get(two, name, "?stream=true")
            assert followed.final == (await get(one, name)).json
            name = (await start(one, ENDLESS))["id"]
            assert (await cancel(two, name)).json["status"] == "cancelled"
            await until(lambda: not simulator[COUNTERS].running, "the backend is free")

    run(test())


@pytest.mark.slow
def test_what_a_killed_gateway_ran_is_reported_as_failed(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "x.sqlite3"
        async with (
            serving(create_app()) as url,
            program(url, "--store", str(path)) as dying,
            gateway(url, store=str(path)) as served,
        ):
            name = (await start(Served(f"http://127.0.0.1:{dying.port}", served.parts), ENDLESS))["id"]
            dying.process.kill()
            await dying.process.wait()
            assert (await get(served, name)).json["status"] in ("queued", "in_progress")
            with sqlite3.connect(path) as connection:  # a quarter of a minute later
                connection.execute("UPDATE responses SET alive_until = alive_until - 30")
            connection.close()
            response = (await get(served, name)).json
            assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
            assert "stopped before it ended" in response["error"]["message"]
            stream = (await get(served, name, "?stream=true")).body
            assert judge_stream(stream) == []
            events = events_of(stream)
            assert events[-1]["type"] == "response.failed"
            assert json.loads(json.dumps(events[-1]["response"])) == response

    run(test())


def test_no_event_stores_the_instructions_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(store=str(tmp_path / "store")) as served:
            response = await start(served, "scenario: slow", instructions="Do this. " * 5000)
            await ended(served, response["id"])
        with closing(sqlite3.connect(tmp_path / "store")) as database:
            stored = database.execute("SELECT sum(length(data)) FROM events").fetchone()[0]
        assert 0 < stored < 20_000

    run(test())


def test_a_broken_stream_can_be_taken_up_where_it_broke() -> None:
    """Set `on_disconnect: continue`: a foreground stream outlives its connection."""

    pieces = text_stream("One,", " two,", " three,", " four.")
    left = asyncio.Event()

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*pieces[:2])
        await left.wait()
        connection.send(*pieces[2:])
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, store="memory", on_disconnect="continue") as served:
            client = await RawClient.connect(served)
            await client.post()
            await client.read_until(b" two,")
            before = events_of(body_of(client.received))
            assert [event["type"] for event in before][:2] == ["response.created", "response.in_progress"]
            name, last = before[0]["response"]["id"], before[-1]["sequence_number"]
            client.close()
            left.set()
            rest = await get(served, name, f"?stream=true&starting_after={last}")
            assert [event["sequence_number"] for event in rest.events] == list(range(last + 1, last + 1 + len(rest.events)))
            assert judge_stream(body_of(client.received) + rest.body) == []
            final = rest.events[-1]["response"]
            assert (final["background"], final["status"]) == (False, "completed")
            assert final["output"][0]["content"][0]["text"] == "One, two, three, four."
            assert final == (await get(served, name)).json
            assert_error(await cancel(served, name), 400, "not_cancellable")

    run(test())


def test_errors_stay_http_errors_when_streams_outlive_their_clients() -> None:
    async def test() -> None:
        async with simulated(store="memory", on_disconnect="continue") as served:
            assert_error(await post(served, input="scenario: plain fault: status=429"), 429)
            assert (await post(served, input="scenario: plain fault: drop=text")).final["status"] == "failed"
            assert (await post(served, store=False)).final["status"] == "completed"

    run(test())
