"""`serve --record`: what is kept of an exchange, what is left out, and how much there may be."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from responses_gateway.own_folder import OwnFolder
from responses_gateway.server.process.reloading import Reloading
from responses_gateway.server.recording import recorder
from responses_gateway.server.recording.recorder import PATTERN, Recorder
from responses_gateway.server.recording.recording import REDACTED
from responses_gateway.settings import Settings
from responses_gateway.simulator import SimulatorOptions
from tests.server.running_gateway import RawClient, ask, gateway, post, run, simulated
from tests.server.scripted_backend import HEAD, Connection, backend, chat_stream, chunk, refusing, streaming
from tests.waiting import PATIENCE

MCP = {
    "type": "mcp",
    "server_label": "files",
    "server_url": "http://files.test/",
    "authorization": "mcp-bearer-secret",  # events repeat it to the client
    "headers": {"x-team": "mcp-header-secret"},
}


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob(PATTERN))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def line(path: Path, key: str) -> dict[str, Any]:
    return next(entry for entry in lines_of(path) if key in entry)


def test_an_exchange_is_one_file_with_both_sides_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        pieces = chat_stream()
        async with backend(streaming(*pieces)) as behind, gateway(behind.url, record=tmp_path / "kept") as served:
            answer = await post(served, input="Wie geht's?", headers={"originator": "codex_exec", "X-Initiator": "agent"})
        (path,) = records(tmp_path / "kept")
        head = line(path, "record")
        end = line(path, "end")["end"]
        assert head["headers"]["originator"] == "codex_exec"
        assert head["headers"]["x-initiator"] == "agent"
        assert head["versions"]["responses-gateway"]
        assert head["settings"]["system_messages"] == "merge"
        assert line(path, "request")["request"]["input"] == "Wie geht's?"
        assert line(path, "chat")["chat"]["messages"] == [{"role": "user", "content": "Wie geht's?"}]
        calls = [entry for entry in lines_of(path) if "call" in entry]
        assert "".join(entry["data"] for entry in calls if entry["call"] == "feed").encode() == b"".join(pieces)
        assert "".join(entry["sent"] for entry in calls).encode() == answer.body
        times = [entry["at"] for entry in calls]
        assert times == sorted(times)
        assert end == {"outcome": "completed", "error": None, "truncated": False}

    run(test())


def test_the_borders_of_reads_are_kept_even_inside_a_character(tmp_path: Path) -> None:
    event = chunk({"content": "é"}).replace(b"\\u00e9", "é".encode())
    cut = event.index("é".encode()) + 1

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        for piece in (event[:cut], event[cut:], chunk({}, "stop"), b"data: [DONE]\n\n"):
            connection.send(piece)
            await asyncio.sleep(0.02)
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, record=tmp_path) as served:
            assert (await post(served)).final["status"] == "completed"

    run(test())
    (path,) = records(tmp_path)
    first = next(entry for entry in lines_of(path) if entry.get("call") == "feed")
    assert set(first["data"]) == {"base64"}


@pytest.mark.parametrize(
    ("fields", "outcome", "status"),
    [
        ({"stream": False}, "completed", None),
        ({"input": "fault: drop"}, "failed", None),
        ({"input": "fault: drop", "stream": False}, "failed", 502),
        ({"input": "fault: status=429"}, "rejected", 429),
        ({"input": 5}, "rejected", 400),
        ({"max_output_tokens": 4}, "incomplete", None),
    ],
)
def test_every_ending_is_kept(tmp_path: Path, fields: dict[str, Any], outcome: str, status: int | None) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, **fields)

    run(test())
    (path,) = records(tmp_path)
    end = line(path, "end")["end"]
    assert end["outcome"] == outcome
    assert (end["error"] or {}).get("status") == status


def test_a_body_that_is_no_json_is_kept_as_it_came(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            assert (await ask(served, "POST", "/v1/responses", data=b'{"model": ')).status == 400

    run(test())
    (path,) = records(tmp_path)
    assert line(path, "request")["request"] == {"not_json": '{"model": '}


def test_a_client_that_leaves_is_kept_too(tmp_path: Path) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "Hel"}))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, record=tmp_path) as served:
            client = await RawClient.connect(served)
            await client.post()
            await client.read_until(b"output_text.delta")
            client.close()

    run(test())
    (path,) = records(tmp_path)
    assert line(path, "end")["end"]["outcome"] == "client_disconnected"


def test_without_the_setting_nothing_is_recorded(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated() as served:
            recorder = served.parts.responses.recorder
            assert recorder is None or not recorder.always
            await post(served)

    run(test())
    assert list(tmp_path.iterdir()) == []


# ---- what is left out -------------------------------------------------------------------------------------------------


def test_no_key_gets_into_a_record(tmp_path: Path) -> None:
    async def test() -> None:
        echoing = refusing(401, b'{"error": {"message": "wrong key: sk-of-the-operator, not client-secret-key"}}')
        async with (
            backend(echoing) as behind,
            gateway(behind.url, record=tmp_path, backend_api_key="sk-of-the-operator") as served,
        ):
            headers = {
                "Authorization": "Bearer client-secret-key",
                "Cookie": "session=cookie-secret",
                "X-Api-Key": "header-key",
            }
            await post(served, headers=headers, metadata={"password": "my-own-secret"})

    run(test())
    (path,) = records(tmp_path)
    text = path.read_text()
    assert "wrong key" in text
    for secret in ("sk-of-the-operator", "client-secret-key", "cookie-secret", "header-key", "my-own-secret"):
        assert secret not in text


def test_a_key_that_came_with_other_settings_gets_into_no_record_either(tmp_path: Path) -> None:
    async def test() -> None:
        echoing = refusing(401, b'{"error": {"message": "wrong key: sk-the-first-one, or sk-the-second-one"}}')
        async with (
            backend(echoing) as behind,
            gateway(behind.url, record=tmp_path, backend_api_key="sk-the-first-one") as served,
        ):
            await post(served)
            Reloading(served.parts).apply(Settings(backend=[behind.url], backend_api_key=SecretStr("sk-the-second-one")))
            await post(served)

    run(test())
    _, second = records(tmp_path)
    text = second.read_text()
    assert "wrong key" in text
    assert "sk-the-first-one" not in text
    assert "sk-the-second-one" not in text


def test_the_password_of_redis_and_what_backends_are_sent_get_into_no_record(tmp_path: Path) -> None:
    pytest.importorskip("redis", reason="the Redis driver is not installed")
    settings: dict[str, Any] = {"events": "redis://:redis-secret@127.0.0.1:1/0", "backend_headers": {"X-Auth": "header-secret"}}

    async def test() -> None:
        async with simulated(record=tmp_path, **settings) as served:
            assert (await post(served)).final["status"] == "completed"

    run(test())
    (path,) = records(tmp_path)
    text = path.read_text()
    assert "redis-secret" not in text
    assert "header-secret" not in text


def test_the_keys_of_mcp_servers_are_left_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, tools=[MCP])

    run(test())
    (path,) = records(tmp_path)
    assert "mcp-bearer-secret" not in path.read_text()
    assert "mcp-header-secret" not in path.read_text()
    (tool,) = line(path, "request")["request"]["tools"]
    assert tool["headers"] == {"x-team": REDACTED}
    assert tool["server_url"] == MCP["server_url"]


def test_a_short_secret_is_found_where_events_repeat_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, tools=[{**MCP, "authorization": 'p"w'}])

    run(test())
    (path,) = records(tmp_path)
    events = "".join(entry["sent"] for entry in lines_of(path) if "call" in entry)
    assert '"authorization":"p' not in events


def test_a_parameter_that_is_called_like_a_secret_is_none(tmp_path: Path) -> None:
    properties = {"password": {"type": "string"}, "headers": {"type": "object", "description": "HTTP headers"}}
    tool = {"type": "function", "name": "login", "parameters": {"type": "object", "properties": properties}}

    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, tools=[tool])

    run(test())
    (path,) = records(tmp_path)
    assert line(path, "request")["request"]["tools"][0]["parameters"]["properties"] == properties


def test_where_the_gateway_stands_is_left_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served)

    run(test())
    (path,) = records(tmp_path)
    assert str(tmp_path) not in path.read_text()
    assert "backend" not in line(path, "record")["settings"]


def test_only_the_owner_can_read_a_record(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path / "kept") as served:
            await post(served)

    run(test())
    (path,) = records(tmp_path / "kept")
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700


# ---- how much there may be --------------------------------------------------------------------------------------------


def test_what_a_killed_gateway_has_recorded_is_deleted_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        first = Recorder(Settings())
        first.record_for(300)
        living = first.folder()
        killed = OwnFolder("responses-gateway-records-")
        (killed.path / "exchange-1.jsonl").write_text("what somebody wrote to a model")
        os.close(killed.lock)
        async with backend(streaming(*chat_stream())) as behind, gateway(behind.url):
            pass
        assert living is not None
        assert os.listdir(tmp_path) == [living.name]
        first.close()
        assert os.listdir(tmp_path) == []

    run(test())


def test_a_long_exchange_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.recording.recording.EXCHANGE_LIMIT", 20_000)

    async def test() -> None:
        async with simulated(SimulatorOptions(tokens_per_second=5000), record=tmp_path) as served:
            answer = await post(served, input="tokens: 3000")
            assert answer.final["status"] == "completed"
            assert len(answer.body) > 40_000

    run(test())
    (path,) = records(tmp_path)
    assert line(path, "end")["end"]["truncated"] is True
    assert path.stat().st_size < 40_000


def test_a_request_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.recording.recording.EXCHANGE_LIMIT", 1000)

    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            assert (await post(served, input="x" * 2000)).final["status"] == "completed"

    run(test())
    (path,) = records(tmp_path)
    assert [next(iter(entry)) for entry in lines_of(path)] == ["record", "end"]


def test_the_oldest_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.recording.recorder.RECORDS_LIMIT", 100_000)
    other = tmp_path / "notes.txt"
    other.write_text("mine " * 20_000)

    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            for number in range(6):
                await post(served, input=f"number {number}")

    run(test())
    kept = [line(path, "request")["request"]["input"] for path in records(tmp_path)]
    assert 0 < len(kept) < 6
    assert kept == [f"number {number}" for number in range(6)][-len(kept) :]
    assert sum(path.stat().st_size for path in records(tmp_path)) <= 100_000
    assert other.exists()


def test_a_record_that_another_worker_deletes_costs_no_other(tmp_path: Path) -> None:
    gone = tmp_path / "exchange-0.jsonl"
    gone.symlink_to(tmp_path / "deleted")  # is listed, and is not there

    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input="hi")

    run(test())
    gone.unlink()
    assert [line(path, "request")["request"]["input"] for path in records(tmp_path)] == ["hi"]


def test_a_slow_disk_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    works = threading.Event()
    opens = os.open

    def slow(path: os.PathLike[str] | str, flags: int, mode: int = 0o777) -> int:
        works.wait(PATIENCE)
        return opens(path, flags, mode)

    monkeypatch.setattr(os, "open", slow)
    settings = Settings(record=tmp_path)
    keeper = recorder.Recorder(settings)
    for _ in range(recorder.MAX_WAITING + 5):
        keeper.keep(keeper.begin({}, settings))
    works.set()
    keeper.close()
    assert len(records(tmp_path)) == recorder.MAX_WAITING
    assert caplog.text.count("the disk is too slow") == 5


def test_a_disk_that_stays_too_slow_does_not_fill_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "MAX_WAITING", 0)
    settings = Settings(record=tmp_path)
    keeper = recorder.Recorder(settings)
    for _ in range(200):
        keeper.keep(keeper.begin({}, settings))
    keeper.close()
    assert caplog.text.count("the disk is too slow") < 20


def test_an_exchange_that_ends_after_the_gateway_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(record=tmp_path)
    keeper = recorder.Recorder(settings)
    keeper.close()
    keeper.keep(keeper.begin({}, settings))
    assert "the gateway has stopped" in caplog.text


def test_a_full_disk_does_not_harm_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)

    async def test() -> None:
        settings = Settings(backend=["http://unused.test"], record=tmp_path)
        keeper = recorder.Recorder(settings)
        keeper.keep(keeper.begin({}, settings))
        await asyncio.to_thread(keeper.close)

    run(test())
    assert records(tmp_path) == []
    assert "exchange not recorded" in caplog.text
