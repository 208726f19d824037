"""What a server refuses in one request, and takes in others: more images than it wants, calls where no tools are offered, tools
that may not be called."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from responses_gateway.request.tools.plain_tools import other_tools
from responses_gateway.server.generation.upstream import second_form
from tests.server.generation.test_refused_requests import INTERRUPTED, refusing, say, served_by
from tests.server.reports.chat_server import Json
from tests.server.running_gateway import RawClient, run, until
from tests.waiting import PATIENCE


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


def test_an_agent_that_sums_up_its_session_need_not_offer_the_tools_that_it_has_called() -> None:
    message = "The toolConfig field must be defined when using toolUse and toolResult content blocks."  # Bedrock
    rules = [
        {"if": {"has": "tools"}, "answer": {"events": [{"delta": {"content": "ok"}}, {"finish": "stop"}]}},
        refusing("messages[].tool_calls", {"status": 400, "json": {"error": {"message": message}}}),
    ]

    async def test() -> None:
        async with served_by(rules) as (served, (server,)):
            summed_up = await say(served, "responses", input=INTERRUPTED)
            assert (summed_up.known["status"], summed_up.known["losses"]) == ("completed", 'adapted="content:turns"')
            assert "[Called f: {}]" in json.dumps(server.requests[-1]["messages"])
            # Where tools are offered, calls stay what they are.
            await say(served, "responses", input=INTERRUPTED, tools=["f"])
            assert [message["role"] for message in server.requests[-1]["messages"]] == ["user", "assistant", "tool", "user"]

    run(test())


def test_a_client_that_leaves_while_another_form_is_looked_for_leaves_no_request_at_the_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    going_on = threading.Event()

    def slow_look(*arguments: Any) -> Any:
        looked.append(1)
        if len(looked) > 1:  # by then the request has been sent in another form
            going_on.wait(PATIENCE)
        return other_tools(*arguments)

    monkeypatch.setattr(second_form, "other_tools", slow_look)
    message = "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    rules = [{"if": {"has": "messages"}, "answer": {"status": 400, "json": {"error": {"message": message}}}}]

    async def test() -> None:
        async with served_by(rules) as (served, (server,)):
            client = await RawClient.connect(served)
            await client.post(input=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi."}] * 2)
            await until(lambda: len(looked) == 2, "the second refusal is looked at")
            assert len(server.requests) > 1
            client.reset()
            only = served.parts.pool.members.only
            await until(lambda: not served.parts.in_flight.activities, "the request has ended")
            going_on.set()
            assert only is not None
            assert only.in_flight == 0

    run(test())


def image_from(call_id: str, data: str) -> list[Json]:
    """Return the call of a tool, and the image that it has brought."""
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    call = {"type": "function_call", "call_id": call_id, "name": "view_image", "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": call_id, "output": [image]}]


@pytest.mark.parametrize(("settings", "answered"), [({}, True), ({"tool_call_parser": "hermes"}, False)])
def test_where_no_tool_may_be_called_a_server_that_takes_no_such_choice_is_asked_without_tools(
    settings: Json, answered: bool
) -> None:
    async def test() -> None:
        refusal = {"status": 400, "json": {"error": {"message": "Thinking mode does not support this tool_choice"}}}
        rules = [{"if": {"value": {"tool_choice": choice}}, "answer": refusal} for choice in ("none", "auto")]
        async with served_by(rules, **settings) as (served, (server,)):
            for door, choice in (("responses", "none"), ("messages", {"type": "none"})):
                outcome = await say(served, door, tools=["f"], tool_choice=choice)
                assert outcome.known["status"] == ("completed" if answered else "failed")
                assert "losses" not in outcome.known
                assert ("tools" in server.requests[-1]) is not answered  # which the model has to see where we read its calls

    run(test())
