"""The tool `image_generation`: a backend makes the image, and the item has it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiohttp import web
from openai.types.responses.response_output_item import ImageGenerationCall

from responses_gateway.hosted.images.generation import LONGEST_IMAGE, read_image
from responses_gateway.hosted.interface import ToolFailure
from tests.judges import judge_stream
from tests.server.hosted.model import Handler, model
from tests.server.running_gateway import Served, ask, assert_error, post, run
from tests.server.scripted_backend import chunk, text_stream

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()
TOOL: dict[str, Any] = {"type": "image_generation", "size": "1024x1536", "quality": "high", "partial_images": 2}
SETTINGS = {"image_generation_model": "painter"}
ORDER = ["response.image_generation_call.in_progress", "response.image_generation_call.generating"]


def calls(arguments: dict[str, Any]) -> list[bytes]:
    function = {"name": "generate_image", "arguments": json.dumps(arguments)}
    delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    return [chunk(delta), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


def painting(asked: list[dict[str, Any]], answer: dict[str, Any], status: int = 200) -> dict[str, Handler]:
    async def paint(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response(answer, status=status)

    return {"/v1/images/generations": paint}


async def draw(served: Served, **fields: Any) -> Any:
    return await post(served, model="m", input="a cat, please", tools=[TOOL], **fields)


def test_a_backend_makes_the_image_and_the_item_has_it() -> None:
    async def test() -> None:
        asked: list[dict[str, Any]] = []
        made = {"created": 1, "data": [{"b64_json": PNG, "revised_prompt": "A grey cat."}], "quality": "high"}
        turns = (calls({"prompt": "a cat"}), text_stream("Here it is."))
        async with model(*turns, paths=painting(asked, made), store="memory", **SETTINGS) as (served, talking):
            answer = await draw(served)
            final = answer.final
            assert [item["type"] for item in final["output"]] == ["image_generation_call", "message"]
            item = final["output"][0]
            assert ImageGenerationCall.model_validate(item).result == PNG
            assert {name: item[name] for name in ("status", "output_format", "revised_prompt", "size", "quality")} == {
                "status": "completed",
                "output_format": "png",
                "revised_prompt": "A grey cat.",
                "size": "1024x1536",
                "quality": "high",
            }
            assert item["id"].startswith("ig_")
            kinds = [event["type"] for event in answer.events]
            assert [kind for kind in kinds if "image" in kind] == [*ORDER, "response.image_generation_call.completed"]
            assert asked == [
                {
                    "model": "painter",
                    "prompt": "a cat",
                    "n": 1,
                    "response_format": "b64_json",
                    "size": "1024x1536",
                    "quality": "high",
                }
            ]
            # The model is told of it, without the image.
            told = talking.requests[1]["messages"][-1]
            assert (told["role"], PNG in json.dumps(talking.requests[1])) == ("tool", False)
            # What is stored has it, and is streamed alike.
            stored = await ask(served, "GET", f"/v1/responses/{final['id']}")
            assert stored.json["output"] == final["output"]
            again = await post(served, model="m", previous_response_id=final["id"], input="thanks")
            assert again.final["status"] == "completed"
            before = talking.requests[1]["messages"]
            assert talking.requests[2]["messages"][: len(before)] == before

    run(test())


@pytest.mark.parametrize("stored", [True, False])
def test_later_turns_know_of_an_image_and_do_not_see_it(stored: bool) -> None:
    """Else the model knows nothing of what the user wants to have changed."""

    async def test() -> None:
        turns = (calls({"prompt": "a cat"}), text_stream("Here it is."))
        async with model(*turns, paths=painting([], {"data": [{"b64_json": PNG}]}), store="memory", **SETTINGS) as (
            served,
            talking,
        ):
            final = (await draw(served, store=stored)).final
            asked = {"role": "user", "content": "Make it blue."}
            if stored:
                await post(served, model="m", previous_response_id=final["id"], input=[asked], tools=[TOOL])
            else:
                await post(served, model="m", store=False, input=[*final["output"], asked], tools=[TOOL])
            messages = talking.requests[2]["messages"]
            made, told = messages[-4:-2]
            assert json.loads(made["tool_calls"][0]["function"]["arguments"]) == {"prompt": "a cat"}
            assert (told["role"], "image was" in told["content"]) == ("tool", True)
            assert PNG not in json.dumps(messages)

    run(test())


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        ({"error": {"message": "size is wrong", "type": "x", "code": None}}, 400, "size is wrong"),
        ({"data": []}, 200, "no image"),
        ({"data": [{"url": "http://10.0.0.1/cat.png"}]}, 200, "no image"),
        ({"data": [{"b64_json": "bm90IGFuIGltYWdl"}]}, 200, "not an image"),
    ],
)
def test_a_server_of_images_that_fails_is_told_to_the_model(answer: dict[str, Any], status: int, told: str) -> None:
    async def test() -> None:
        turns = (calls({"prompt": "a cat"}), text_stream("It did not work."))
        async with model(*turns, paths=painting([], answer, status), **SETTINGS) as (served, talking):
            response = await draw(served)
            item = response.final["output"][0]
            assert (item["status"], item["result"]) == ("failed", None)
            assert [event["type"] for event in response.events if "image" in event["type"]] == ORDER
            assert judge_stream(response.body) == []
            assert told in talking.requests[1]["messages"][-1]["content"]

    run(test())


def test_a_wrong_key_for_the_server_of_images_is_told_as_that() -> None:
    """It was told as a server that cannot be reached."""

    async def test() -> None:
        turns = (calls({"prompt": "a cat"}), text_stream("It did not work."))
        refused = painting([], {"error": {"message": "no such key: sk-1"}}, 401)
        async with model(*turns, paths=refused, backend_api_key="sk-1", **SETTINGS) as (served, talking):
            await draw(served)
            told = talking.requests[1]["messages"][-1]["content"]
            assert ("does not accept the gateway's own key" in told, "sk-1" in told) == (True, False)

    run(test())


def test_what_images_have_cost_is_told_as_their_server_counts_it() -> None:
    """Clients bill by it; it was zero, whatever the server said."""

    async def test() -> None:
        usage = {
            "input_tokens": 50, "input_tokens_details": {"text_tokens": 40, "image_tokens": 10}, "output_tokens": 1000,
            "total_tokens": 1050,
        }  # fmt: skip
        made = {"data": [{"b64_json": PNG}], "usage": usage}
        turns = (calls({"prompt": "a cat"}), calls({"prompt": "a dog"}), text_stream("Here."))
        async with model(*turns, paths=painting([], made), store="memory", **SETTINGS) as (served, _):
            final = (await draw(served)).final
            assert final["tool_usage"]["image_gen"] == {
                "input_tokens": 100, "input_tokens_details": {"image_tokens": 20, "text_tokens": 80}, "output_tokens": 2000,
                "output_tokens_details": {"image_tokens": 2000, "text_tokens": 0}, "total_tokens": 2100,
            }  # fmt: skip
            stored = await ask(served, "GET", f"/v1/responses/{final['id']}")
            assert stored.json["tool_usage"] == final["tool_usage"]

    run(test())


@pytest.mark.parametrize("usage", [None, {}, [], {"input_tokens": "many", "output_tokens": -5}, {"input_tokens_details": []}])
def test_counts_that_say_nothing_are_none(usage: Any) -> None:
    assert read_image(json.dumps({"data": [{"b64_json": PNG}], "usage": usage}).encode(), {})[1] is None


def test_an_image_that_is_too_large_is_not_kept() -> None:
    body = json.dumps({"data": [{"b64_json": "A" * (LONGEST_IMAGE + 1)}]}).encode()
    with pytest.raises(ToolFailure, match="too large"):
        read_image(body, {})


def test_without_the_setting_the_tool_is_not_offered_and_wrong_options_are_named() -> None:
    async def test() -> None:
        async with model(text_stream("No.")) as (served, talking):
            answer = await draw(served)
            assert "tool:image_generation" in answer.headers["x-responses-gateway-losses"]
            assert "tools" not in talking.requests[0]
            strict = await post(served, model="m", input="a cat", tools=[TOOL])
            assert strict.final["status"] == "completed"
        async with model(text_stream("No."), **SETTINGS) as (served, talking):
            wrong = await post(served, model="m", input="a cat", tools=[{**TOOL, "size": 1024}])
            assert_error(wrong, 400, "invalid_type")
            assert wrong.json["error"]["param"] == "tools[0].size"
            assert talking.requests == []

    run(test())
