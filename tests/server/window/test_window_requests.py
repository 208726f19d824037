"""What the window tells of requests: the list, the shape of a stream, and its contents where it is recorded."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.request_log.recent_requests import REMEMBERED
from responses_gateway.server.generation.responses import Creation
from responses_gateway.server.window import worker_view
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import DIALECTS, SimulatorOptions
from tests.server.ended_requests import ended_facts
from tests.server.generation.test_background import ended as ended_in_the_background
from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, answering, backend, chunk, refusing, streaming
from tests.server.window.looking import KEY, bearer, ended, last_ended, look, picture_in_which, pictures, running

SECRET = "the quick brown fox is confidential"
SLOW = "tokens: 400 tps: 100"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def details(served: Served, summary: dict[str, Any], what: str = "", method: str = "GET", **request: Any) -> Any:
    answer = await look(served, f"requests/{summary['id']}{what}", method, **request)
    assert answer.status == 200, answer.body
    return answer.json


async def record_of(served: Served, summary: dict[str, Any], folder: Path) -> Path:
    """Return the file of a recorded request, once it is written."""
    assert (await look(served, f"requests/{summary['id']}/record")).status == 200
    return folder / str(summary["record"])


def is_private(folder: Path) -> bool:
    return folder.stat().st_mode & 0o077 == 0


# ---- the list ---------------------------------------------------------------------------------------------------------


def test_a_request_is_shown_while_it_runs_and_after_its_end() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")]}}
        options = SimulatorOptions(models=("m",))
        async with simulated(options, api_keys=keys, admin_key=KEY) as served:
            headers = bearer("sk-alice-has-a-long-key")
            asking = asyncio.create_task(post(served, model="m", input=SLOW, stream=True, headers=headers))

            def streams(picture: dict[str, Any]) -> bool:
                return any(summary.get("chunks", 0) > 5 for summary in running(picture))

            (summary,) = running(await picture_in_which(served, streams, headers=bearer()))
            assert (summary["outcome"], summary["model"], summary["key"]) == ("running", "m", "alice")
            assert summary["first_token"] > 0
            assert [(item["type"], item["closed"]) for item in summary["items"]] == [("text", None)]
            response_id = (await asking).final["id"]
            (after,) = await last_ended(served, headers=bearer())
            assert (after["id"], after["response_id"]) == (summary["id"], response_id)
            assert (after["outcome"], after["output_tokens"]) == ("completed", 401)
            (item,) = after["items"]
            assert (item["type"], item["closed"] > item["opened"]) == ("message", True)

    run(test())


def test_each_end_is_told_once_to_each_visitor() -> None:
    async def test() -> None:
        async with simulated() as served, aclosing(pictures(served)) as seen:
            await anext(seen)
            ids = []
            for _ in range(3):
                await post(served, input="hi")
                async for picture in seen:
                    ids += [summary["id"] for summary in ended(picture)]
                    if ended(picture):
                        break
            await anext(seen)
            assert len(ids) == len(set(ids)) == 3

    run(test())


def test_a_refused_request_is_shown_with_its_error() -> None:
    async def test() -> None:
        body = json.dumps({"error": {"message": "no such thing", "code": "odd"}}).encode()
        async with backend(refusing(400, body)) as behind, gateway(behind.url) as served:
            await post(served, model="m", input="hi")
            await ask(served, "POST", "/v1/responses", data=b"{")
            first, second = await last_ended(served, 2)
            assert (first["outcome"], first["status"], first["model"]) == ("rejected", 400, "m")
            assert (second["outcome"], second["code"]) == ("rejected", "invalid_json")

    run(test())


def test_a_relayed_request_is_one_row_that_says_how_it_ended() -> None:
    whole = streaming(chunk({"content": "hi"}), chunk({}, "stop"), b"data: [DONE]\n\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    plays = {
        "completed": whole,
        "failed": answering(head),  # the body breaks off
        "rejected": refusing(404, b'{"error": {"message": "no such model", "code": "not_found"}}'),
    }

    async def test(outcome: str) -> None:
        async with backend(plays[outcome]) as behind, gateway(behind.url, adapt=False) as served:
            body = {"model": "m", "messages": [{"role": "user", "content": SECRET}]}
            with suppress(aiohttp.ClientError):
                await ask(served, "POST", "/v1/chat/completions", json=body)
            (row,) = await last_ended(served)
            assert row["outcome"] == outcome
            assert row["path"].endswith("/v1/chat/completions")
            assert row.get("api") == ("chat" if row["kept_as"] == "relayed" else None)
            assert (await details(served, row))["outcome"] == outcome
            assert SECRET not in json.dumps(row)

    for outcome in plays:
        run(test(outcome))


def test_a_relayed_request_is_shown_while_it_runs_with_its_session() -> None:
    waits = asyncio.Event()

    async def play(connection: Connection) -> None:
        await waits.wait()
        waits.clear()
        connection.write(HEAD)
        connection.send(*(chunk({"content": word}) for word in ("one", " two")))
        await waits.wait()
        connection.send(b"data: [DONE]\n\n")
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, adapt=False) as served:
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": SECRET}]}
            headers = {"x-session-id": "one session"}
            sent = asyncio.create_task(ask(served, "POST", "/v1/chat/completions", json=body, headers=headers))
            (row,) = running(await picture_in_which(served, running))
            assert (row["kept_as"], row["outcome"], row["model"], row["chunks"]) == ("relayed", "running", "m", 0)
            assert (await details(served, row))["outcome"] == "running"
            waits.set()
            (row,) = running(
                await picture_in_which(served, lambda picture: [each for each in running(picture) if each["chunks"]])
            )
            assert (row["session"], row["chunks"]) == ("one session", 2)
            (session,) = (await look(served, "sessions")).json["data"]
            assert (session["session"], session["running"], session["requests"]) == ("one session", True, 0)
            waits.set()
            assert (await sent).status == 200
            (row,) = await last_ended(served)
            assert row["outcome"] == "completed"
            assert running(await picture_in_which(served, lambda _: True)) == []

    run(test())


def test_a_request_that_is_refused_before_a_response_begins_is_a_row_with_its_reason() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")], "requests_per_minute": 1}}
        async with simulated(api_keys=keys, admin_key=KEY, max_body_bytes=1024, relay=False) as served:
            alice = bearer("sk-alice-has-a-long-key")
            await post(served, headers={"originator": "somebody"})
            await post(served, input="hi", headers=alice)
            await post(served, input="hi", headers=alice)
            await ask(served, "GET", "/v1/nowhere", headers=alice)
            await ask(served, "POST", "/responses", json={}, headers=alice)
            await ask(served, "GET", "/favicon.ico", headers=alice)
            found = sorted(await last_ended(served, 5, headers=bearer()), key=lambda one: one["started"])
            shown = [(one.get("path"), one.get("status"), one.get("code"), one.get("key"), one["outcome"]) for one in found]
            assert shown == [
                ("POST /v1/responses", 401, "invalid_api_key", None, "rejected"),
                (None, None, None, "alice", "completed"),
                ("POST /v1/responses", 429, "rate_limit_exceeded", "alice", "rejected"),
                ("GET /v1/nowhere", 404, "not_found", "alice", "rejected"),
                ("POST /responses", 404, "not_found", "alice", "rejected"),
            ]
            assert found[0]["client"] == "somebody"
            assert "API key" in found[0]["error"]
            assert "base URL" in found[4]["error"]
            assert (await details(served, found[0], headers=bearer()))["status"] == 401

    run(test())


def test_a_body_that_is_too_large_and_a_gateway_that_stops_are_rows_with_their_reason() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1024) as served:
            await post(served, input="x" * 2000)
            served.parts.in_flight.state = State.DRAINING
            await post(served, input="hi")
            served.parts.in_flight.state = State.SERVING  # a visitor could see nothing else
            found = await last_ended(served, 2)
            assert [(one["status"], one["outcome"]) for one in found] == [(413, "rejected"), (503, "failed")]

    run(test())


def test_only_so_many_requests_are_remembered() -> None:
    async def test() -> None:
        async with simulated() as served:
            history = served.parts.responses.reports.history
            assert history is not None
            for number in range(REMEMBERED + 5):
                history.add([ended_facts(str(number))])
            assert len(await last_ended(served)) == REMEMBERED
            assert_error(await look(served, "requests/0"), 404, "not_found")

    run(test())


def test_losses_repairs_usage_and_times_are_in_the_details() -> None:
    async def test() -> None:
        pieces = [chunk({"role": "assistant", "reasoning": "hm"}), chunk({"content": "yes"})]
        usage = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
        call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": ""}}]}
        last = [chunk(call), chunk({}, "tool_calls"), chunk(usage=usage), b"data: [DONE]\n\n"]
        async with backend(streaming(*pieces, *last)) as behind, gateway(behind.url) as served:
            await post(served, model="m", input="hi", tools=[WEATHER], truncation="auto", prompt_cache_retention="24h")
            found = await details(served, (await last_ended(served))[0])
            assert [item["type"] for item in found["items"]] == ["reasoning", "message", "function_call"]
            assert found["repairs"] == {"empty_arguments": 1}
            assert {loss["outcome"] for loss in found["losses"]} <= {"adapted", "ignored"}
            assert found["losses"]
            assert (found["input_tokens"], found["output_tokens"]) == (7, 4)
            assert sum(found["tokens"].values()) == 4

    run(test())


# ---- without a record -------------------------------------------------------------------------------------------------


def test_without_a_record_there_are_steps_and_no_contents() -> None:
    async def test() -> None:
        options = SimulatorOptions(models=("m",))
        async with simulated(options) as served:
            asking = asyncio.create_task(post(served, model="m", input=f"{SECRET} {SLOW}", stream=True, instructions=SECRET))
            (summary,) = running(await picture_in_which(served, lambda picture: any(map(_has_begun, running(picture)))))
            seen: dict[str, Any] = {"steps": []}
            while not seen["steps"]:
                seen = await details(served, summary, "/live-steps")
            step = seen["steps"][0]
            assert (step["call"], step["chunks"] > 0, step["bytes"] > 0) == ("feed", True, True)
            assert {event["type"] for event in step["events"]} == {"response.output_text.delta"}
            more = await details(served, summary, f"/live-steps?after={seen['steps'][-1]['number']}")
            assert all(each["number"] > seen["steps"][-1]["number"] for each in more["steps"])
            everything = json.dumps([seen, more, await details(served, summary)])
            assert "fox" not in everything
            answer = (await asking).final["output"][0]["content"][0]["text"]
            everything += json.dumps([await last_ended(served), await details(served, summary, "/live-steps")])
            assert not any(word in everything for word in answer.split() if len(word) > 12)
            for method, what in (("GET", "contents"), ("GET", "steps"), ("GET", "record"), ("POST", "replay")):
                assert_error(await look(served, f"requests/{summary['id']}/{what}", method), 404, "not_found")

    run(test())


def test_so_does_a_response_that_outlives_its_gateway(tmp_path: Path) -> None:
    """Its calls go into its journal as well."""

    async def test() -> None:
        options = SimulatorOptions(models=("m",), dialect=DIALECTS["vllm"])
        settings: dict[str, Any] = {"store": str(tmp_path / "x.sqlite3"), "continue_answers": 1, "adapt": False}
        async with simulated(options, **settings) as served:
            begun = (await post(served, model="m", input="tokens: 60 tps: 60", background=True, stream=False)).json
            (summary,) = running(await picture_in_which(served, lambda picture: any(map(_has_begun, running(picture)))))
            (creation,) = served.parts.in_flight.activities
            assert isinstance(creation, Creation)
            assert creation.prepared.continuable.journal is not None
            seen: dict[str, Any] = {"steps": []}
            while not seen["steps"]:
                seen = await details(served, summary, "/live-steps")
            assert seen["steps"][0]["call"] == "feed"
            assert (await ended_in_the_background(served, begun["id"]))["status"] == "completed"

    run(test())


def _has_begun(summary: dict[str, Any]) -> bool:
    return summary.get("chunks", 0) > 3


def test_nothing_is_noted_before_somebody_looks_and_after_everybody_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(worker_view, "WATCH_TIMEOUT", 0.05)
        async with simulated(SimulatorOptions(models=("m",))) as served:
            asking = asyncio.create_task(post(served, model="m", input=SLOW, stream=True))
            (summary,) = running(await picture_in_which(served, lambda picture: any(map(_has_begun, running(picture)))))
            (creation,) = served.parts.in_flight.activities
            translator = creation.translator  # type: ignore[attr-defined]
            assert translator.tape is None
            await details(served, summary, "/live-steps")
            assert translator.tape is not None
            await until(lambda: translator.tape is None, "nothing is noted any more")
            assert (await asking).final["status"] == "completed"

    run(test())


# ---- with a record ----------------------------------------------------------------------------------------------------


def test_a_recorded_request_is_shown_as_it_came_and_as_it_was_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input=SECRET, instructions="Be brief.")
            (summary,) = await last_ended(served)
            found = await details(served, summary, "/contents")
            assert json.loads(found["request"]["text"])["input"] == SECRET
            sent = json.loads(found["chat"]["text"])["messages"]
            assert sent == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SECRET}]

    run(test())


@pytest.mark.parametrize("odd", [b'"\\ud83d"', b"[" * 5000 + b"]" * 5000], ids=["half a character", "deep"])
def test_a_recorded_request_is_shown_whatever_json_it_and_its_chunks_have(odd: bytes, tmp_path: Path) -> None:
    async def test() -> None:
        piece = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}}], "more": ' + odd + b"}\n\n"
        async with backend(streaming(piece, chunk({}, "stop"))) as behind, gateway(behind.url, record=tmp_path) as served:
            body = b'{"model": "m", "input": "hi", "stream": true, "safety_identifier": ' + odd + b"}"
            await ask(served, "POST", "/v1/responses", data=body, headers={"Content-Type": "application/json"})
            await post(served, stream=True)
            for summary in await last_ended(served, 2):
                assert '"hi"' in (await details(served, summary, "/contents"))["request"]["text"]
                for what in ("/answer", "/steps"):
                    await details(served, summary, what)

    run(test())


def test_the_time_line_shows_which_chunks_became_which_events_and_what_was_held(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": '{"city":'}}
    rest = {"index": 0, "function": {"arguments": '"Rome"}'}}
    other = {"index": 1, "id": "d", "function": {"name": "get_weather", "arguments": '{"city":"Lima"}'}}
    text = chunk({"content": "Let me look. \n"})
    pieces = [
        text[:40],
        text[40:],
        chunk({"tool_calls": [call]}),
        chunk({"tool_calls": [other]}),
        chunk({"tool_calls": [rest]}),
        chunk({}, "tool_calls") + b"data: [DONE]\n\n",
    ]

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        for piece in pieces:
            connection.send(piece)
            await asyncio.sleep(0.02)
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, record=tmp_path) as served:
            answer = await post(served, model="m", input="hi", tools=[WEATHER], stream=True)
            (summary,) = await last_ended(served)
            steps = (await details(served, summary, "/steps"))["steps"]
            shown = [event["data"] for step in steps for event in step["events"]]
            assert shown == answer.events
            fed = [step for step in steps if step["call"] == "feed"]
            assert (fed[0]["chunks"], fed[0]["events"], fed[0]["held"]) == ([], [], ["partial_chunk"])
            assert fed[1]["chunks"][0]["choices"][0]["delta"]["content"] == "Let me look. \n"
            assert fed[1]["events"][-1]["data"]["delta"] == "Let me look."
            assert fed[1]["held"] == ["white_space"]
            assert fed[3]["events"] == []
            assert fed[3]["held"] == ["open_call"]
            added = [event["type"] for event in fed[4]["events"]]
            assert added.count("response.output_item.added") == 1
            assert not any(step["differs"] for step in steps)
            later = await details(served, summary, f"/steps?after={len(steps) - 1}")
            assert [step["number"] for step in later["steps"]] == [len(steps)]

    run(test())


def test_the_answer_of_a_recorded_request_is_put_together(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input="scenario: demo What is the weather?", tools=[WEATHER], stream=True)
            (summary,) = await last_ended(served)
            answer = await details(served, summary, "/answer")
            assert [item["type"] for item in answer["items"]] == ["reasoning", "message", "function_call"]
            reasoning, message, call = answer["items"]
            assert "look out of a window" in reasoning["content"][0]["text"]
            assert message["content"][0]["text"].startswith("Let me check that")
            assert (call["name"], call["status"]) == ("get_weather", "completed")
            assert answer["error"] is None

    run(test())


def test_the_answer_of_a_running_request_is_shown_as_far_as_it_is_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("m",)), record=tmp_path) as served:
            asking = asyncio.create_task(post(served, model="m", input=SLOW, stream=True))
            (summary,) = running(await picture_in_which(served, lambda picture: any(map(_has_begun, running(picture)))))
            (item,) = (await details(served, summary, "/answer"))["items"]
            assert item["status"] == "in_progress"
            whole = (await asking).final["output"][0]["content"][0]["text"]
            assert 0 < len(item["so_far"]) < len(whole)
            assert whole.startswith(item["so_far"])

    run(test())


def test_an_open_window_records_from_the_start() -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            await post(served, input="hi", stream=False)
            (summary,) = await last_ended(served)
            answer = await details(served, summary, "/answer")
            assert answer["items"][-1]["content"][0]["text"].startswith("You said")

    run(test())


def test_a_repair_is_shown_where_it_was_made(tmp_path: Path) -> None:
    async def test() -> None:
        call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": ""}}]}
        async with (
            backend(streaming(chunk(call), chunk({}, "tool_calls"), b"data: [DONE]\n\n")) as behind,
            gateway(behind.url, record=tmp_path) as served,
        ):
            await post(served, model="m", input="hi", tools=[WEATHER], stream=True)
            steps = (await details(served, (await last_ended(served))[0], "/steps"))["steps"]
            assert [step["repairs"] for step in steps if step["repairs"]] == [{"empty_arguments": 1}]

    run(test())


def test_a_recorded_request_is_shown_while_it_runs(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("m",)), record=tmp_path) as served:
            asking = asyncio.create_task(post(served, model="m", input=f"{SECRET} {SLOW}", stream=True))
            (summary,) = running(await picture_in_which(served, lambda picture: any(map(_has_begun, running(picture)))))
            assert json.loads((await details(served, summary, "/contents"))["request"]["text"])["input"].startswith(SECRET)
            assert len((await details(served, summary, "/steps"))["steps"]) > 3
            assert (await asking).final["status"] == "completed"

    run(test())


def test_the_record_can_be_downloaded_and_replayed(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input="hi")
            (summary,) = await last_ended(served)
            file = await record_of(served, summary, tmp_path)
            record = await look(served, f"requests/{summary['id']}/record")
            assert record.body == file.read_bytes()
            assert record.headers["content-disposition"] == f'attachment; filename="{file.name}"'
            done = await details(served, summary, "/replay", "POST")
            assert (done["identical"], done["ending"], done["differences"]) == (True, "response.completed", [])

    run(test())


def test_a_replay_shows_what_this_version_does_differently(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input="hi")
            (summary,) = await last_ended(served)
            file = await record_of(served, summary, tmp_path)
            file.write_text(file.read_text().replace("response.completed", "response.concluded"))
            done = await details(served, summary, "/replay", "POST")
            assert not done["identical"]
            assert [found["place"] for found in done["differences"]] == ["events"]
            steps = (await details(served, summary, "/steps"))["steps"]
            assert [step["differs"] for step in steps].count(True) == 1

    run(test())


def test_a_record_that_is_gone_or_spoilt_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input="hi")
            (summary,) = await last_ended(served)
            file = await record_of(served, summary, tmp_path)
            file.write_text("{}")
            assert_error(await look(served, f"requests/{summary['id']}/steps"), 409, "unusable_record")
            file.unlink()
            assert_error(await look(served, f"requests/{summary['id']}/steps"), 404, "not_found")

    run(test())


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    mcp = {"type": "mcp", "server_label": "files", "server_url": "http://files.test/", "authorization": "mcp-bearer-secret"}

    async def test() -> None:
        async with simulated(record=tmp_path, backend_api_key="sk-of-the-backend", admin_key=KEY) as served:
            await post(served, input="hi", tools=[mcp], headers=bearer("sk-of-the-client"))
            (summary,) = await last_ended(served, headers=bearer())
            shown = [await look(served, "backends", headers=bearer()), await look(served, headers=bearer())]
            for what in ("", "/contents", "/steps", "/record"):
                shown.append(await look(served, f"requests/{summary['id']}{what}", headers=bearer()))
            whole = b"".join(answer.body for answer in shown)
            assert b"redacted" in whole
            for secret in (b"mcp-bearer-secret", b"sk-of-the-backend", b"sk-of-the-client", KEY.encode()):
                assert secret not in whole

    run(test())


# ---- recording for a while --------------------------------------------------------------------------------------------


def test_requests_can_be_recorded_for_some_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def records() -> list[Path]:
        return list(tmp_path.glob("responses-gateway-records-*"))

    async def test() -> None:
        async with simulated(admin_key=KEY) as served:

            async def record(minutes: Any) -> Any:
                return await look(served, "recording", "POST", json={"minutes": minutes}, headers=bearer())

            await post(served, input="before")
            assert (await record(5)).json["until"] > 0
            await post(served, input="meanwhile")
            assert (await record(0)).json == {"always": False, "until": 0.0, "on": False}
            await post(served, input="afterwards")
            before, meanwhile, afterwards = await last_ended(served, 3, headers=bearer())
            assert (before["record"], afterwards["record"]) == (None, None)
            found = await details(served, meanwhile, "/contents", headers=bearer())
            assert json.loads(found["request"]["text"])["input"] == "meanwhile"
            (folder,) = records()
            assert is_private(folder)
            for wrong in (-1, 1e9, "5", None, [1]):
                assert_error(await record(wrong), 400, "invalid_value")

    run(test())
    assert records() == []


def test_a_gateway_that_records_everything_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(admin_key=KEY, record=tmp_path) as served:
            assert (await look(served, headers=bearer())).json["recording"] == {"always": True, "until": None, "on": True}
            refused = await look(served, "recording", "POST", json={"minutes": 5}, headers=bearer())
            assert_error(refused, 409, "already_recording")

    run(test())


# ---- backends and plots -----------------------------------------------------------------------------------------------


def test_backends_are_shown_with_what_was_found_out_about_them() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("m",))) as served:
            served.parts.autoconfiguration.begin()
            await until(lambda: served.parts.autoconfiguration.finished, "the backend was examined")
            (backend_,) = (await look(served, "backends")).json
            assert (backend_["healthy"], backend_["breaker"], backend_["in_flight"]) == (True, "closed", 0)
            assert backend_["probed"]["model"] == "m"
            assert backend_["probed"]["calls"] == "parsed"

    run(test())


def test_a_backend_is_examined_as_doctor_does() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("m",))) as served:
            (backend_,) = (await look(served, "backends")).json
            found = (await look(served, f"backends/{backend_['name']}/examine", "POST")).json
            assert {row["ability"] for row in found["rows"]} >= {"stream", "tool calls", "usage in the stream"}
            assert found["server"].startswith("vLLM")
            assert_error(await look(served, "backends/none/examine", "POST"), 404, "not_found")

    run(test())


@pytest.mark.slow
def test_plots_count_what_happened() -> None:
    async def test() -> None:
        async with simulated() as served:
            for _ in range(3):
                await post(served, input="tokens: 20 tps: 2000")
            await ask(served, "POST", "/v1/responses", data=b"{")
            found: dict[str, Any] = {}
            await until(lambda: served.parts.responses.reports.history.intervals, "an interval")  # type: ignore[union-attr]
            while sum(interval["output_tokens"] for interval in found.get("intervals", ())) < 60:
                found = (await look(served, "plots")).json
            outcomes: dict[str, int] = {}
            for interval in found["intervals"]:
                assert interval["began"] % 10 == 0
                for outcome, number in interval["outcomes"].items():
                    outcomes[outcome] = outcomes.get(outcome, 0) + number
            assert outcomes == {"completed": 3, "rejected": 1}
            assert sum(sum(interval["first_token"]) for interval in found["intervals"]) == 3
            assert sum(sum(interval["gaps"]) for interval in found["intervals"]) >= 3
            assert len(found["intervals"][0]["gaps"]) == len(found["gap_buckets"]) + 1

    run(test())


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 30])
def test_a_wrong_number_of_a_step_is_refused(after: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            assert_error(await look(served, f"requests/x-1/live-steps?after={after}"), 400, "invalid_value")

    run(test())


@pytest.mark.parametrize("name", ["x-1", "..%2f..-1", "-", "x"])
def test_a_request_that_is_not_known_is_not_found(name: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            assert_error(await look(served, f"requests/{name}"), 404, "not_found")

    run(test())
