"""More images than a server takes in one request: the session goes on."""

from __future__ import annotations

import json

from tests.server.generation.test_refused_requests import say, served_by
from tests.server.reports.chat_server import Json
from tests.server.running_gateway import run


def test_a_session_with_more_images_than_a_server_takes_goes_on_with_the_last_one() -> None:
    message = "At most 1 image(s) may be provided in one prompt."  # vLLM, --limit-mm-per-prompt
    rules = [{"if": {"images_above": 1}, "answer": {"status": 400, "json": {"error": {"message": message}}}}]
    looked = [image_from("c1", "QUFB"), image_from("c2", "QkJC")]

    async def test() -> None:
        async with served_by(rules) as (served, (server,)):
            outcome = await say(served, "responses", input=[{"role": "user", "content": "Look."}, *looked[0], *looked[1]])
            assert outcome.known["status"] == "completed"
            assert "content:input_image" in outcome.known["losses"]
            sent = json.dumps(server.requests[-1]["messages"])
            assert ("QUFB" in sent, "QkJC" in sent, "An earlier image was left out" in sent) == (False, True, True)
            # Of a session with fewer, none is left out later.
            await say(
                served, "responses", input=[{"role": "user", "content": "Look."}, *looked[0], {"role": "user", "content": "?"}]
            )
            assert "QUFB" in json.dumps(server.requests[-1]["messages"])

    run(test())


def image_from(call_id: str, data: str) -> list[Json]:
    """Return the call of a tool, and the image that it has brought."""
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    call = {"type": "function_call", "call_id": call_id, "name": "view_image", "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": call_id, "output": [image]}]
