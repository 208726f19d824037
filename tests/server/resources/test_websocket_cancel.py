"""`response.cancel` over a WebSocket: whichever response it means, and whenever it comes."""

from __future__ import annotations

import json

from responses_gateway.simulator import COUNTERS, create_app, serving
from tests.server.resources.test_websocket_resource import ENDLESS, connect
from tests.server.running_gateway import TERMINALS, gateway, run, until


def test_a_response_can_be_cancelled() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, connect(served) as socket:
            await socket.send(ENDLESS)
            await until(lambda: backend[COUNTERS].running, "the backend is at work")
            await socket.raw.send_str('{"type": "response.cancel"}')
            assert (await socket.rest())[-1]["response"]["status"] == "failed"
            await until(lambda: not backend[COUNTERS].running, "the backend is free")
            assert (await socket.ask())["status"] == "completed"

    run(test())


def test_a_cancellation_right_behind_its_request_is_not_lost() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served, connect(served) as socket:
            stored = await socket.ask(store=True)
            await socket.send(ENDLESS, previous_response_id=stored["id"])  # what it continues has to be read first
            await socket.raw.send_str('{"type": "response.cancel"}')
            assert (await socket.rest())[-1]["type"] in ("error", "response.failed")
            await until(lambda: not backend[COUNTERS].running, "the backend is free")
            assert (await socket.ask())["status"] == "completed"

    run(test())


def test_a_cancellation_may_name_its_response() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, connect(served) as socket:
            over = await socket.ask()
            await socket.raw.send_str(json.dumps({"type": "response.cancel", "response_id": over["id"]}))
            assert (await socket.ask())["status"] == "completed"
            await socket.send(ENDLESS)
            running = (await socket.next())["response"]["id"]
            await socket.raw.send_str(json.dumps({"type": "response.cancel", "response_id": over["id"]}))
            for _ in range(50):
                assert (await socket.next())["type"] not in TERMINALS
            await socket.raw.send_str(json.dumps({"type": "response.cancel", "response_id": running}))
            events = [await socket.next()]
            while events[-1]["type"] not in TERMINALS:
                events.append(await socket.next())
            assert events[-1]["response"]["error"]["message"] == "The response was cancelled."

    run(test())
