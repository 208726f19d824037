"""One line for each HTTP request, whatever became of it, and its count. That of a response tells of its request, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import aiohttp
import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.telemetry import logs
from tests.log_lines import Line, log_lines
from tests.server.running_gateway import RawClient, Reachable, ask, post, run, simulated, until

KEY = "a-key-of-a-client-that-is-long-enough"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[Line]]]:
    """Return the lines of HTTP requests and responses that were written so far."""
    with log_lines() as written:
        yield lambda: written("response") + written("request")


async def metrics_of(served: Reachable) -> str:
    return (await ask(served, "GET", "/metrics")).body.decode()


def test_every_request_has_a_line_with_the_usual_fields(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with simulated(access_log=True, api_keys={"alice": hash_of(KEY)}) as served:
            allowed = {"Authorization": f"Bearer {KEY}"}
            answer = await post(served, headers={**allowed, "X-Request-Id": "my-id"})
            await ask(served, "GET", "/v1/models?key=secret", headers=allowed)
            await ask(served, "POST", "/v1/chat/completions", headers=allowed, json={"model": "simulator", "messages": []})
            await ask(served, "GET", "/v1/models")
            await ask(served, "GET", "/nothing", headers=allowed)
            await until(lambda: len(lines()) == 5, "five lines")
            streamed, models, relayed, refused, missing = lines()
            expected = {"method": "POST", "path": "/v1/responses", "status": 200, "client": "127.0.0.1", "key": "alice"}
            assert expected.items() <= streamed.items()
            assert (streamed["message"], streamed["outcome"]) == ("response", "completed")
            assert {line["message"] for line in (models, relayed, refused, missing)} == {"request"}
            assert streamed["request_id"] == "my-id"
            assert streamed["bytes_out"] == len(answer.body)
            assert streamed["bytes_in"] > 0
            assert streamed["seconds"] > 0
            assert (models["path"], models["status"], models["key"]) == ("/v1/models", 200, "alice")
            assert models["bytes_out"] > 100
            assert (relayed["method"], relayed["path"], relayed["key"]) == ("POST", "/v1/chat/completions", "alice")
            assert (refused["path"], refused["status"], refused["code"]) == ("/v1/models", 401, "invalid_api_key")
            assert "key" not in refused
            assert (missing["path"], missing["status"], missing["code"]) == ("/nothing", 404, "not_found")
            assert [line["level"] for line in lines()] == ["info", "info", "info", "warning", "warning"]

    run(test())


def test_who_has_met_a_limit_is_named(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of(KEY), "requests_per_minute": 1}}
        async with simulated(access_log=True, api_keys=keys) as served:
            for _ in range(2):
                await post(served, headers={"Authorization": f"Bearer {KEY}"})
            refused = lines()[-1]
            assert (refused["status"], refused["code"], refused["key"]) == (429, "rate_limit_exceeded", "alice")
            assert refused["level"] == "warning"

    run(test())


def test_probes_and_the_window_leave_no_line_at_the_usual_level(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with simulated(access_log=True) as served:
            for path in ("/health", "/ready", "/metrics", "/ui/", "/ui/api.js", "/ui/api/state"):
                await ask(served, "GET", path)
            await ask(served, "GET", "/v1/models")
            await until(lines, "a line")
            assert [line["path"] for line in lines()] == ["/v1/models"]

    run(test())


def test_a_client_that_left_is_a_499(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with simulated(access_log=True) as served:
            client = await RawClient.connect(served)
            await client.post(model="simulator", input="scenario: plain tps: 5")
            await client.read_until(b"response.output_text.delta")
            client.close()
            await until(lines, "a line")
            (line,) = lines()
            assert (line["path"], line["status"]) == ("/v1/responses", 499)
            assert line["bytes_out"] > 0

    run(test())


@pytest.mark.parametrize("farewell", [True, False])
def test_a_websocket_that_its_client_ends_has_the_status_of_its_handshake(
    farewell: bool, lines: Callable[[], list[Line]]
) -> None:
    async def test() -> None:
        async with simulated(access_log=True) as served:
            async with aiohttp.ClientSession() as session:
                socket = await session.ws_connect(served.url + "/v1/responses")
                await socket.send_json({"type": "response.create", "model": "simulator", "input": "hi"})
                while (await socket.receive_json())["type"] != "response.completed":
                    pass
                if farewell:
                    await socket.close()
            counted = {"method": "GET", "route": "/v1/responses", "status": "101"}
            await until(lambda: served.metric("http_requests_total", **counted) == 1, "the socket has ended")
        assert [line["status"] for line in lines() if line["message"] == "request"] == [101]

    run(test())


def test_what_is_refused_before_a_response_begins_and_what_outlives_its_request_have_lines_of_their_own(
    lines: Callable[[], list[Line]],
) -> None:
    async def test() -> None:
        async with simulated(access_log=True, store="memory") as served:
            await post(served, model=7)
            name = (await post(served, input="hi", background=True, stream=False)).json["id"]
            await until(lambda: len(lines()) == 3, "three lines")
            begun, refused, ended = sorted(lines(), key=lambda line: (line.get("delivery", ""), line["message"]))
            assert (begun["message"], begun["path"], begun["status"]) == ("request", "/v1/responses", 200)
            assert (refused["message"], refused["outcome"], refused["status"]) == ("response", "rejected", 400)
            assert (ended["message"], ended["response_id"], ended["delivery"]) == ("response", name, "detached")
            assert "status" not in ended

    run(test())


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no JSON", "invalid_json"),
        ('{"type": "response.create", "input": "hi"}', "missing_required_parameter"),
        ('{"type": "response.create", "model": "m", "input": "hi", "background": true}', "unsupported_parameter"),
    ],
)
def test_a_message_that_is_refused_has_a_line_and_is_counted(message: str, code: str, lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with simulated(access_log=True) as served, aiohttp.ClientSession() as session:
            async with session.ws_connect(served.url + "/v1/responses") as socket:
                await socket.send_str(message)
                assert (await socket.receive_json())["error"]["code"] == code
            await until(lambda: len(lines()) == 2, "the lines of the message and of the connection")
            counts = re.findall(r'requests_total{.*outcome="rejected".*} (\S+)', await metrics_of(served))
        [refused] = [line for line in lines() if line["message"] == "response"]
        assert (refused["outcome"], refused["code"], counts) == ("rejected", code, ["1.0"])

    run(test())


def test_a_message_that_a_limit_or_its_lane_refuses_has_a_line_as_a_request_has(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of(KEY), "requests_per_minute": 1}}
        message = {"type": "response.create", "model": "simulator", "input": "hi"}
        async with simulated(access_log=True, api_keys=keys) as served, aiohttp.ClientSession() as session:
            headers = {"Authorization": f"Bearer {KEY}"}
            async with session.ws_connect(served.url + "/v1/responses", headers=headers) as socket:
                await socket.send_json(message)
                while (await socket.receive_json())["type"] != "response.completed":
                    pass
                for further in (message, message | {"stream_id": "no name"}):
                    await socket.send_json(further)
                    assert (await socket.receive_json())["type"] == "error"
            await until(lambda: len(lines()) == 4, "the lines of three messages and of the connection")
        first, second = [line for line in lines() if line["message"] == "request"][:2]
        assert (first["status"], first["code"], first["key"]) == (429, "rate_limit_exceeded", "alice")
        assert (second["status"], second["code"], second["key"]) == (400, "invalid_stream_id", "alice")

    run(test())


def test_it_can_be_switched_off(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with simulated() as served:
            await ask(served, "GET", "/v1/models")
            logs.logger().warning("the end")
            assert lines() == []

    run(test())


def test_requests_are_counted_by_route_and_status() -> None:
    async def test() -> None:
        async with simulated() as served:
            await post(served)
            await ask(served, "POST", "/v1/embeddings", json={"model": "simulator"})
            await ask(served, "PROPFIND", "/nothing/secret")
            text = await metrics_of(served)
            counted = re.findall(r"^responses_gateway_http_requests_total\{(.*)\} (\S+)$", text, re.MULTILINE)
            labels = dict(counted)
            assert labels['method="POST",route="/v1/responses",status="200"'] == "1.0"
            assert [each for each in labels if each.startswith('method="POST",route="/v1/{path}"')]
            assert labels['method="other",route="none",status="404"'] == "1.0"
            assert 'responses_gateway_http_request_duration_seconds_count{route="/v1/{path}"} 1.0' in text
            assert "secret" not in text
            assert "_created" not in text

    run(test())
