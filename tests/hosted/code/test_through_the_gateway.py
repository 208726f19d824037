"""`code_interpreter` as a client of the gateway sees it: the stream, the item, the container of the next request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from responses_gateway.simulator import serving
from tests.hosted.code.sandboxes import PYTHON, alive, child_pid, child_pids, needs_sandbox
from tests.server.running_gateway import RawClient, Served, assert_error, gateway, post, run
from tests.server.scripted_backend import chunk
from tests.waiting import until

pytestmark = needs_sandbox


def model() -> web.Application:
    """Return a chat server whose model runs the code that the user gives it, and repeats what it was told of that."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        last = body["messages"][-1]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if last["role"] == "tool":
            pieces = [chunk({"content": f"It said: {last['content']}"}), chunk({}, "stop")]
        else:
            name = body["tools"][0]["function"]["name"]
            arguments = json.dumps({"code": last["content"]})
            call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
            pieces = [chunk({"tool_calls": [call]})]
            for start in range(0, len(arguments), 5):
                more = {"index": 0, "function": {"arguments": arguments[start : start + 5]}}
                pieces.append(chunk({"tool_calls": [more]}))
            pieces.append(chunk({}, "tool_calls"))
        for piece in [*pieces, b"data: [DONE]\n\n"]:
            await response.write(piece)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    return app


@asynccontextmanager
async def serving_code(**settings: Any) -> AsyncIterator[Served]:
    """Serve a gateway with a sandbox, in front of such a model."""
    sandbox = {"code_interpreter": f"sandbox:{PYTHON}"}
    async with serving(model()) as url, gateway(url, adapt=False, **sandbox, **settings) as served:
        yield served


def asking(code: str, container: Any = None) -> dict[str, Any]:
    tool = {"type": "code_interpreter", "container": container or {"type": "auto"}}
    return {"input": code, "tools": [tool], "include": ["code_interpreter_call.outputs"]}


def test_code_runs_within_the_response_and_its_container_goes_on() -> None:
    async def test() -> None:
        async with serving_code() as served:
            code = "x = 6\nprint('é\\x00')\nx * 7"
            answer = await post(served, asking(code))
            item, message = answer.final["output"]
            assert (item["type"], item["status"], item["code"]) == ("code_interpreter_call", "completed", code)
            assert item["outputs"] == [{"type": "logs", "logs": "é\n42"}]
            assert message["content"][0]["text"] == "It said: é\n42"
            deltas = [event["delta"] for event in answer.events if event["type"].endswith("_code.delta")]
            assert "".join(deltas) == code
            assert len(deltas) > 1
            again = await post(served, asking("x", item["container_id"]), stream=False)
            assert again.json["output"][0]["outputs"] == [{"type": "logs", "logs": "6"}]
            assert again.json["output"][0]["container_id"] == item["container_id"]

    run(test())


def test_auto_goes_on_with_the_container_of_the_conversation() -> None:
    async def test() -> None:
        async with serving_code(store="memory") as served:
            first = (await post(served, asking("x = 6"))).final
            second = (await post(served, asking("x"), previous_response_id=first["id"])).final
            assert second["output"][0]["outputs"] == [{"type": "logs", "logs": "6"}]
            other = (await post(served, asking("x"))).final
            assert "NameError" in other["output"][0]["outputs"][0]["logs"]
            assert len(child_pids()) == 2

    run(test())


def test_a_container_that_is_not_there_is_an_error_of_the_request() -> None:
    async def test() -> None:
        async with serving_code() as served:
            answer = await post(served, asking("1", "cntr_guessed"))
            assert "expired" in assert_error(answer, 400, "container_not_found")
            assert answer.json["error"]["param"] == "tools[0].container"

    run(test())


def test_code_that_fails_or_is_stopped_does_not_fail_the_response() -> None:
    async def test() -> None:
        async with serving_code(hosted_call_timeout=2) as served:
            for code, said in (("1 / 0", "ZeroDivisionError"), ("while True: pass", "stopped after 2 seconds")):
                final = (await post(served, asking(code))).final
                assert final["status"] == "completed"
                assert final["output"][0]["status"] == "completed"
                assert said in final["output"][0]["outputs"][0]["logs"]
                assert said in final["output"][1]["content"][0]["text"]

    run(test())


def test_a_client_that_leaves_ends_the_code() -> None:
    async def test() -> None:
        async with serving_code(hosted_call_timeout=3600) as served:
            client = await RawClient.connect(served)
            await client.post(asking("while True: pass"))
            await client.read_until(b"code_interpreter_call.interpreting")
            await until(child_pids)
            pid = child_pid()
            client.close()
            await until(lambda: not alive(pid))

    run(test())
