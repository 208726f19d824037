"""Whatever a backend sends, and however the response is asked for: what is stored is what was streamed, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from responses_gateway.conformance.checker import frames
from responses_gateway.simulator import serving
from tests.server.running_gateway import TERMINALS, Served, ask, gateway, post, run
from tests.stream.stream_player import DONE, finish
from tests.stream.test_stream_properties import Delta, chunks, scripts
from tests.thoroughness import examples
from tests.waiting import PATIENCE

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
# How the backend's stream ends: as it should, cut, in an error, in garbage, or before its time.
ENDINGS = {
    "stop": [finish(), DONE],
    "length": [finish("length"), DONE],
    "filter": [finish("content_filter"), DONE],
    "cut": [],
    "done without a reason": [DONE],
    "error": [b'data: {"error":{"message":"out of memory","code":500}}\n\n'],
    "garbage": [b"data: {no json\n\n"],
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)

Events = list[str]


async def over_http(served: Served, body: dict[str, Any]) -> Events:
    return [frame.data for frame in frames((await post(served, body)).body) if frame.data != "[DONE]"]


async def in_the_background(served: Served, body: dict[str, Any]) -> Events:
    return await over_http(served, {**body, "background": True})


async def outliving_the_client(served: Served, body: dict[str, Any]) -> Events:
    return await over_http(served, body)


async def over_a_websocket(served: Served, body: dict[str, Any]) -> Events:
    events: Events = []
    async with aiohttp.ClientSession() as session, session.ws_connect(served.url + "/v1/responses", max_msg_size=0) as socket:
        await socket.send_str(json.dumps({"type": "response.create", "model": "simulator", **body}))
        while not events or json.loads(events[-1])["type"] not in TERMINALS:
            events.append(await socket.receive_str(timeout=PATIENCE))
    return events


@pytest.mark.slow
@pytest.mark.parametrize("way", [over_http, in_the_background, outliving_the_client, over_a_websocket])
def test_what_is_stored_is_what_was_streamed(way: Any) -> None:
    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(scripts(), st.sampled_from(sorted(ENDINGS)), TEXTS, st.booleans())
    def holds(deltas: list[Delta], ending: str, said: str, sealed: bool) -> None:
        backend = web.Application()

        async def answer(_request: web.Request) -> web.Response:
            return web.Response(body=b"".join([*chunks(deltas), *ENDINGS[ending]]), content_type="text/event-stream")

        said += "\u2028\x85"  # which stand as escapes in events

        async def test() -> None:
            backend.router.add_post("/v1/chat/completions", answer)
            asked: dict[str, Any] = {"input": said, "instructions": said, "metadata": {"said": said}, "tools": [TOOL]}
            if sealed:
                asked["include"] = ["reasoning.encrypted_content"]
            keeps = "continue" if way is outliving_the_client else "abort"
            async with serving(backend) as url, gateway(url, store="memory", on_disconnect=keeps) as served:
                events = await way(served, asked)
                last = events[-1].partition('"response":')[2][:-1]
                name = json.loads(last)["id"]
                stored = await ask(served, "GET", f"/v1/responses/{name}")
                assert stored.body.decode() == last
                assert items(events) == ",".join(done(events))
                again = (await ask(served, "GET", f"/v1/responses/{name}?stream=true")).body
                assert done([frame.data for frame in frames(again)]) == done(events)
                assert last in again.decode()
                store = served.parts.store
                assert store is not None
                kept = await store.responses.get("", name)
                assert kept is not None
                history = await store.histories.items(kept.end)
                assert history[1:] == [json.loads(item) for item in done(events)]

        run(test())

    holds()


def done(events: Events) -> list[str]:
    """Return the items of the done events, byte for byte."""
    return [event.partition('"item":')[2][:-1] for event in events if '"type":"response.output_item.done"' in event[:60]]


def items(events: Events) -> str:
    """Return the output of the final response, byte for byte."""
    whole = ",".join(done(events))
    rest = events[-1].partition('"output":[')[2]
    assert rest.startswith(f"{whole}]")
    return whole
