"""Records of exchanges that are more than a request and its answer: what they build on, what is sealed, who else is asked,
and by which way they came. They replay like any other."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.request.input import item_reader
from responses_gateway.server.recording.recorder import PATTERN
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from tests.commands.test_replay import run
from tests.server import running_gateway
from tests.server.generation.test_background import ended, start
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Answer, Served, ask, gateway, post, simulated, until

SEALED: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "store": False}
LONG = [
    {"role": "user", "content": "Count the sheep. " * 500},
    {"role": "assistant", "content": "There are many."},
    {"role": "user", "content": "scenario: plain go on"},
]
SHORTER: dict[str, Any] = {"input": LONG, "context_management": [{"type": "compaction", "compact_threshold": 1000}]}
TRIGGER = [{"role": "user", "content": "hello"}, {"type": "compaction_trigger"}]


async def continued(served: Served) -> None:
    first = (await post(served, input="My name is Ada.")).final
    for stream in (False, True):
        await post(served, input="And now?", previous_response_id=first["id"], stream=stream)


async def in_a_conversation(served: Served) -> None:
    items = [{"type": "message", "role": "user", "content": "I am Ada."}]
    made = await ask(served, "POST", "/v1/conversations", json={"items": items})
    for _ in range(2):
        assert (await post(served, input="Again.", conversation=made.json["id"])).final["status"] == "completed"


async def by_reference(served: Served) -> None:
    [*_, message] = (await post(served)).final["output"]
    await post(served, input=[{"type": "item_reference", "id": message["id"]}, {"role": "user", "content": "Go on."}])


async def sealed(served: Served) -> None:
    thought = (await post(served, input="scenario: reasoning", **SEALED)).final["output"]
    hidden = [{key: value for key, value in item.items() if key != "content"} for item in thought if "summary" in item]
    assert hidden
    await post(served, input=[{"role": "user", "content": "Think."}, *hidden, {"role": "user", "content": "And?"}], **SEALED)


async def in_the_background(served: Served) -> None:
    await ended(served, (await start(served))["id"])
    await post(served, background=True)


async def compacted(served: Served) -> None:
    short: Answer = await ask(served, "POST", "/v1/responses/compact", json={"model": "simulator", "input": LONG})
    await post(served, input=[*short.json["output"], {"role": "user", "content": "Go on."}])
    assert [item["type"] for item in (await post(served, input=TRIGGER)).final["output"]] == ["compaction"]


async def compacted_by_itself(served: Served) -> None:
    assert (await post(served, **SHORTER)).final["output"][0]["type"] == "compaction"


async def over_a_websocket(served: Served) -> None:
    async with connect(served) as socket:
        first = await socket.ask("warm up", generate=False)
        second = await socket.ask("scenario: reasoning", previous_response_id=first["id"], **SEALED)
        await socket.ask("scenario: plain", previous_response_id=second["id"])
        await socket.ask("fault: drop")
        await socket.error("fault: status=429")
        await socket.error("hi", background=True)
        await socket.error("hi", previous_response_id="resp_nobody_knows")


#: What is done, and how many records come of it.
PLAYS: dict[str, tuple[Callable[[Served], Awaitable[None]], int]] = {
    play.__name__: (play, records)
    for play, records in (
        (continued, 3),
        (in_a_conversation, 2),
        (by_reference, 2),
        (sealed, 2),
        (in_the_background, 2),
        (compacted, 3),
        (compacted_by_itself, 2),
        (over_a_websocket, 7),
    )
}


def records_of(play: Callable[[Served], Awaitable[None]], folder: Path, **settings: Any) -> list[Path]:
    async def test() -> None:
        async with simulated(record=folder, **{"store": "memory", **settings}) as served:
            await play(served)

    running_gateway.run(test())
    return sorted(folder.glob(PATTERN))


@pytest.mark.parametrize("name", PLAYS)
def test_each_is_kept_and_replays_identically(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play, records = PLAYS[name]
    assert len(records_of(play, tmp_path)) == records
    assert run(tmp_path) == 0, capsys.readouterr().out


def test_so_does_a_session_of_which_nothing_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(records_of(over_a_websocket, tmp_path, store="none")) == 7
    assert run(tmp_path) == 0, capsys.readouterr().out


def test_the_family_of_a_model_behind_an_alias_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its markup is read by the name that the backend has for it, which is no part of the request."""

    async def test() -> None:
        simulator = SimulatorOptions(models=("qwen3",), dialect=DIALECTS["vllm-raw"])
        async with serving(create_app(simulator)) as url:
            backends = {"one": {"url": url, "aliases": {"mine": "qwen3"}}}
            parsers = {"reasoning_parser": "auto", "tool_call_parser": "auto"}
            async with gateway(backends=backends, record=tmp_path, **parsers) as served:
                await post(served, model="mine")

    running_gateway.run(test())
    assert run(tmp_path) == 0, capsys.readouterr().out


def test_a_history_that_is_read_otherwise_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records_of(continued, tmp_path)
    messages = item_reader.ItemReader.messages

    def without_reasoning(self: item_reader.ItemReader, *given: Any) -> Any:
        return [{name: text for name, text in message.items() if name != "reasoning"} for message in messages(self, *given)]

    monkeypatch.setattr(item_reader.ItemReader, "messages", without_reasoning)
    assert run(tmp_path) == 1
    out = capsys.readouterr().out
    assert out.count(": different (request)") == 2
    assert out.count(": identical, ") == 1


def test_what_only_the_store_knows_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def nobody_knows_it(served: Served) -> None:
        assert (await post(served, previous_response_id="resp_gone")).status == 400

    records_of(nobody_knows_it, tmp_path)
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "HTTP 400" in out
    assert "not compared: it was refused for a reason that is not in the record: Previous response with id 'resp_gone'" in out


def test_the_settings_are_those_at_the_beginning(tmp_path: Path) -> None:
    """A gateway may adapt to its backend while an exchange is under way."""

    async def test() -> None:
        async with simulated(SimulatorOptions(tokens_per_second=200), record=tmp_path) as served:
            socket_settings = served.parts.live.current.settings
            async with connect(served) as socket:
                await socket.send("tokens: 20")
                await until(lambda: served.parts.in_flight.activities, "it runs")
                served.parts.live.use(socket_settings.model_copy(update={"reasoning_events": "spec"}))
                await socket.rest()

    running_gateway.run(test())
    (path,) = tmp_path.glob(PATTERN)
    assert json.loads(path.read_text().splitlines()[0])["settings"]["reasoning_events"] == "openai"


def test_numbers_that_are_none_in_json_stay_as_they_came(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            body = b'{"model": "simulator", "input": "hi", "temperature": 1e999}'
            assert (await ask(served, "POST", "/v1/responses", data=body)).status == 400

    running_gateway.run(test())
    assert run(tmp_path) == 0
