"""The store is unavailable for a while: what needs it is refused, the rest goes on, and it recovers without help."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.simulator.state import FAULT_COUNTS
from responses_gateway.state import Sqlite
from responses_gateway.state.interfaces import Sql, StoreUnavailable
from tests.ports import free_port
from tests.server.generation.test_takeover import stuck
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run, until
from tests.state.database_servers import PostgresServer
from tests.state.test_live_log import assert_whole, ended, start, stream, written
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("quiet_store")


async def assert_gone(served: Served, name: str) -> None:
    """Assert that stored responses cannot be read or continued, and that what needs no store is answered."""
    assert_error(await ask(served, "GET", f"/v1/responses/{name}"), 503)
    assert_error(await post(served, previous_response_id=name), 503)
    assert_error(await post(served, background=True, stream=False), 503)
    assert_error(await ask(served, "POST", "/v1/conversations", json={}), 503)
    assert (await post(served, store=False)).final["status"] == "completed"
    for streamed in (True, False):
        answer = await post(served, stream=streamed)
        response = answer.final if streamed else answer.json
        assert (response["status"], response["store"]) == ("completed", False)


async def assert_there(served: Served, name: str | None) -> None:
    if name is not None:
        assert (await ask(served, "GET", f"/v1/responses/{name}")).status == 200
        assert (await post(served, previous_response_id=name)).final["store"] is True
    await ended(served, await start(served, "scenario: plain"))


def database(served: Served) -> Sqlite:
    store = served.parts.store
    assert store is not None
    assert isinstance(store.database, Sqlite)
    return store.database


async def limit_pages(sqlite: Sqlite, pages: int) -> None:
    """Let the file grow to so many pages at most; one that is larger keeps its size."""
    await sqlite.run(lambda sql: sql.execute(f"PRAGMA max_page_count = {pages}").fetchall())


def test_postgresql_is_restarted(own_postgres: PostgresServer) -> None:
    async def test() -> None:
        url = own_postgres.fresh_database()
        async with serving(create_app()) as backend, gateway(backend, store=url) as served:
            first = (await post(served)).final["id"]
            running = await start(served, "tokens: 60 tps: 60")
            following = asyncio.create_task(stream(served, running))
            await written(served, running, 25)
            await asyncio.to_thread(own_postgres.stop)
            await assert_gone(served, first)
            await asyncio.to_thread(own_postgres.start)
            await assert_there(served, first)
            response = await ended(served, running)
            assert response["status"] == "completed"
            assert_whole(await following, response)

    run(test())


def test_postgresql_comes_back_after_the_end(own_postgres: PostgresServer) -> None:
    # The model finishes long before: the end waits for the store.
    async def test() -> None:
        url = own_postgres.fresh_database()
        async with serving(create_app()) as backend, gateway(backend, store=url) as served:
            running = await start(served, "tokens: 20 tps: 100")
            await asyncio.to_thread(own_postgres.stop)
            await until(lambda: not served.parts.in_flight.activities, "the model has finished")
            await asyncio.to_thread(own_postgres.start)
            response = await ended(served, running)
            assert response["status"] == "completed"
            assert_whole(await stream(served, running), response)

    run(test())


def test_connections_to_a_server_that_writes_nothing_are_not_kept(own_postgres: PostgresServer) -> None:
    """As when its name leads to a standby for a while: that keeps a connection open, and never writes."""

    async def test() -> None:
        url = own_postgres.fresh_database()
        async with serving(create_app()) as backend, gateway(backend, store=url) as served:
            first = (await post(served)).final["id"]
            with psycopg.connect(url, autocommit=True) as operator:
                operator.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
                operator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
                for _ in range(10):  # on each connection
                    assert_error(await post(served, background=True, stream=False), 503)
                operator.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
            for _ in range(10):
                await assert_there(served, first)

    run(test())


def test_the_end_of_a_response_does_not_wait_for_a_database_that_hangs(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with serving(create_app()) as backend, gateway(backend, store=postgres_url) as served:
            first = (await post(served)).final["id"]
            monkeypatch.setattr("responses_gateway.server.generation.responses.STORE_LIMIT", 0.2)
            with psycopg.connect(postgres_url) as other:
                other.execute("LOCK TABLE responses IN ACCESS EXCLUSIVE MODE")
                final = (await post(served)).final
                assert (final["status"], final["store"]) == ("completed", False)
            await assert_there(served, first)

    run(test())


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Have another program hold the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def read_one(sql: Sql) -> None:
    sql.execute("SELECT 1").fetchone()


async def assert_all_fail(sqlite: Sqlite, number: int) -> None:
    outcomes = await asyncio.gather(*(sqlite.run(read_one) for _ in range(number)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * number


def test_what_waits_for_a_file_that_another_program_holds_fails_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)
    path = tmp_path / "x.sqlite3"
    waits = 0
    patience: list[str] = []

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            nonlocal waits
            waits += statement == "BEGIN IMMEDIATE"
            patience.extend(statement.split("busy_timeout = ")[1:])
            return super().execute(statement, *parameters)

    async def test() -> None:
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
        sqlite = Sqlite(path)
        await sqlite.open()
        with held(path):
            before = waits
            await assert_all_fail(sqlite, 200)
            assert waits - before <= 2
            assert patience == ["200"]  # from now on, each waits no longer than that
        await sqlite.run(read_one)
        assert patience == ["200", "50"]
        await sqlite.close()

    run(test())


def test_what_waits_for_a_file_that_cannot_be_opened_because_it_is_held_fails_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was replaced by another one, which another program has at the time."""
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)
    path = tmp_path / "x.sqlite3"
    opened = 0
    connect = sqlite3.connect

    def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        nonlocal opened
        opened += 1
        return connect(*arguments, **options)

    async def test() -> None:
        sqlite = Sqlite(path)
        await sqlite.open()
        path.rename(tmp_path / "old.sqlite3")
        with held(path):
            monkeypatch.setattr(sqlite3, "connect", counted)
            await assert_all_fail(sqlite, 50)
            assert opened <= 2
        await sqlite.run(read_one)
        await sqlite.close()

    run(test())


def test_the_disk_is_full(tmp_path: Path) -> None:
    long = "A question that needs room. " * 2000

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store=str(tmp_path / "x.sqlite3")) as served:
            first = (await post(served)).final["id"]
            running = await start(served, "tokens: 60 tps: 60 " + long)
            sqlite = database(served)
            await limit_pages(sqlite, 1)
            answer = await post(served, input=f"scenario: plain {long}")
            assert (answer.final["status"], answer.final["store"]) == ("completed", False)
            assert_error(await post(served, input=long[1:], background=True, stream=False), 503)
            assert (await ask(served, "GET", f"/v1/responses/{first}")).status == 200
            assert (await post(served, store=False)).final["status"] == "completed"
            await limit_pages(sqlite, 1_000_000)
            await assert_there(served, first)
            response = await ended(served, running)
            assert response["status"] == "completed"
            assert_whole(await stream(served, running), response)

    run(test())


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("query_only = 1", "The store of this gateway cannot be written: its operator has to make the file writable."),
        ("max_page_count = 1", "The store of this gateway has no room: its operator has to make some on its disk."),
    ],
)
def test_a_file_that_takes_nothing_more_is_a_matter_of_its_operator(limit: str, message: str, tmp_path: Path) -> None:
    async def test() -> None:
        store = str(tmp_path / "x.sqlite3")
        async with serving(create_app()) as url, gateway(url, store=store) as served:
            first = (await post(served)).final["id"]
            with suppress(StoreUnavailable):  # what is done in one transaction with it is refused already
                await database(served).run(lambda sql: sql.execute(f"PRAGMA {limit}").fetchall())
            large = {"input": "x" * 1_000_000, "background": True, "stream": False}
            assert assert_error(await post(served, large), 503) == message
            if "query_only" in limit:  # then not even a response can be continued
                async with connect(served) as socket:
                    assert (await socket.error(previous_response_id=first))["message"] == message
            assert (await post(served)).final["status"] == "completed"
            async with gateway(url, store=store) as again:  # with another connection, which has no limit
                await assert_there(again, first)

    run(test())


def test_a_postgresql_without_room_is_a_matter_of_its_operator(postgres_url: str) -> None:
    statements = (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE disk_full; END'",
        "CREATE TRIGGER refuse BEFORE INSERT ON responses FOR EACH ROW EXECUTE FUNCTION refuse()",
    )

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store=postgres_url) as served:
            first = (await post(served)).final["id"]
            with psycopg.connect(postgres_url, autocommit=True) as other:
                for statement in statements:
                    other.execute(statement)
                message = assert_error(await post(served, background=True, stream=False), 503)
                assert message == "The store of this gateway has no room: its operator has to make some on its disk."
                assert (await post(served)).final["store"] is False
                other.execute("DROP TRIGGER refuse ON responses")
            await assert_there(served, first)

    run(test())


def test_the_file_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)

    async def test() -> None:
        path = tmp_path / "x.sqlite3"
        async with serving(create_app()) as url, gateway(url, store=str(path)) as served:
            first = (await post(served)).final["id"]
            with held(path):
                await assert_gone(served, first)
                async with connect(served) as socket:
                    assert (await socket.error(previous_response_id=first))["status"] == 503
                    assert (await socket.ask())["status"] == "completed"
                    unsaved = await socket.ask(store=True)
                    assert (unsaved["status"], unsaved["store"]) == ("completed", False)
            await assert_there(served, first)

    run(test())


def test_keys_that_were_made_open_the_gateway_while_the_store_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)
    monkeypatch.setattr("responses_gateway.server.features.client_keys.stored_keys.INTERVAL", 0.02)

    async def test() -> None:
        path = tmp_path / "x.sqlite3"
        settings: dict[str, Any] = {"admin_key": "the-key-of-an-operator", "api_keys": {"alice": hash_of("the-key-of-alice")}}
        headers = {"Authorization": "Bearer the-key-of-an-operator"}
        async with serving(create_app()) as url, gateway(url, store=str(path), **settings) as served:
            made = (await ask(served, "POST", "/admin/keys", headers=headers, json={"name": "bob"})).json
            bob = {"Authorization": f"Bearer {made['key']}"}
            with held(path):
                for method, where in (("GET", ""), ("POST", ""), ("DELETE", "/bob")):
                    refused = await ask(served, method, f"/admin/keys{where}", headers=headers, json={"name": "carol"})
                    assert_error(refused, 503)
                assert (await post(served, headers=bob, store=False)).final["status"] == "completed"
            async with asyncio.timeout(PATIENCE):
                while (await ask(served, "DELETE", "/admin/keys/bob", headers=headers)).status != 200:
                    pass
            assert_error(await post(served, headers=bob, store=False), 401)

    run(test())


def test_a_gateway_stops_though_the_store_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.state.sqlite.BUSY_TIMEOUT", 0.05)

    async def test() -> None:
        path = tmp_path / "x.sqlite3"
        async with serving(create_app()) as url:
            async with gateway(url, store=str(path), drain_timeout=0.05) as served:
                name = await start(served, "scenario: long tokens: 5000 tps: 100")
                await written(served, name, 5)
                other = sqlite3.connect(path, isolation_level=None)
                other.execute("BEGIN EXCLUSIVE")
                async with asyncio.timeout(PATIENCE):
                    await served.parts.in_flight.drain(asyncio.Event(), 0.05)
            other.close()
            async with gateway(url, store=str(path)) as served:
                await lapse(served)
                assert (await ended(served, name))["status"] == "failed"

    run(test())


async def lapse(served: Served) -> None:
    """Let half a minute pass without a heartbeat."""
    store = served.parts.store
    assert store is not None
    await store.database.run(lambda sql: sql.execute("UPDATE responses SET alive_until = alive_until - 30").rowcount)


def test_the_file_is_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "deep" / "x.sqlite3"
        async with serving(create_app()) as url, gateway(url, store=str(path)) as served:
            first = (await post(served)).final["id"]
            shutil.rmtree(path.parent)
            assert_error(await ask(served, "GET", f"/v1/responses/{first}"), 404)
            second = (await post(served)).final["id"]
            await assert_there(served, second)
            assert os.path.exists(path)  # noqa: ASYNC240
        async with serving(create_app()) as url, gateway(url, store=str(path)) as served:
            await assert_there(served, second)

    run(test())


@pytest.mark.parametrize("loss", ["deleted", "a folder", "read-only"])
def test_a_trainer_is_told_of_a_store_that_goes_away_and_others_are_not_kept_waiting(loss: str, tmp_path: Path) -> None:
    """What was kept is there when the file is; one that was deleted is an empty one from then on."""
    folder, kept = tmp_path / "state", tmp_path / "kept"
    path = folder / "x.sqlite3"
    headers = {"X-Rollout-Id": "ep1"}
    others: list[tuple[str, float]] = []

    async def beside(served: Served) -> None:
        while True:
            began = time.monotonic()
            answer = await post(served, input="scenario: plain tps: 2000", store=False)
            others.append((answer.final["status"], time.monotonic() - began))

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store=str(path)) as served:
            first = (await post(served, stream=False, headers=headers)).json["id"]
            working = asyncio.create_task(beside(served))
            if loss == "read-only":
                with suppress(StoreUnavailable):  # what is done in one transaction with it is refused already
                    await database(served).run(lambda sql: sql.execute("PRAGMA query_only = 1").fetchall())
            else:
                os.rename(folder, kept)
                if loss == "a folder":
                    os.makedirs(path)
            for method, rest in (("GET", ""), ("GET", "?chain=x"), ("POST", "/reward"), ("DELETE", "")):
                answer = await ask(served, method, f"/rollouts/ep1{rest}", json={"reward": 1})
                message = assert_error(answer, 404 if loss == "deleted" else 503)
                assert ("not found" if loss == "deleted" else "store") in message
            answer = await post(served, stream=False, headers=headers)
            assert answer.status == (200 if loss == "deleted" else 503)
            await until(lambda: len(others) > 5, "others are served")
            await end_tasks(working)
            assert {status for status, _ in others} == {"completed"}
            assert max(seconds for _, seconds in others) < 5
            if loss != "read-only":
                shutil.rmtree(folder)
                os.rename(kept, folder)
                assert [call["id"] for call in (await ask(served, "GET", "/rollouts/ep1")).json["calls"]] == [first]

    run(test())


def test_a_trainer_is_told_that_postgresql_is_read_only(postgres_url: str) -> None:
    """As a standby is, or a server whose disk is full: of a rollout that has calls, too, and of a request without a store."""
    headers = {"X-Rollout-Id": "ep1"}

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store=postgres_url) as served:
            first = (await post(served, stream=False, headers=headers)).json["id"]
            make_read_only(postgres_url, "on")
            for rollout in ("ep1", "ep2"):
                assert_error(await post(served, store=False, stream=False, headers={"X-Rollout-Id": rollout}), 503)
            assert [call["id"] for call in (await ask(served, "GET", "/rollouts/ep1")).json["calls"]] == [first]
            make_read_only(postgres_url, "off")
            second = (await post(served, store=False, stream=False, headers=headers)).json["id"]
            calls = (await ask(served, "GET", "/rollouts/ep1")).json["calls"]
            assert [call["id"] for call in calls] == [first, second]

    run(test())


def make_read_only(url: str, value: str) -> None:
    """Let a database take nothing more, or again; those that are connected connect again."""
    with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as other:
        other.execute(f'ALTER DATABASE "{other.info.dbname}" SET default_transaction_read_only = {value}')
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


def test_the_file_is_damaged_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    kept = tmp_path / "kept"
    path = folder / "x.sqlite3"
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / path.name).write_bytes(b"no database, and long enough to be looked at" * 1000)

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store=str(path)) as served:
            first = (await post(served)).final["id"]
            os.rename(folder, kept)
            os.rename(broken, folder)  # at once, because a new database is made where there is no file
            await assert_gone(served, first)
            os.rename(folder, broken)
            os.rename(kept, folder)
            await assert_there(served, first)

    run(test())


def test_postgresql_is_restarted_while_a_response_is_taken_over(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next gateway has claimed it, and waits for its backend, which comes last."""
    monkeypatch.setattr("responses_gateway.server.generation.background.takeover.TIMEOUT", PATIENCE)

    async def test() -> None:
        port = free_port()
        options = SimulatorOptions(dialect=DIALECTS["vllm"])
        simulator, later = create_app(options), create_app(options)
        later[FAULT_COUNTS] = simulator[FAULT_COUNTS]
        settings: dict[str, Any] = {"store": own_postgres.fresh_database(), "adapt": False, "continue_answers": 1}
        async with (
            serving(simulator) as url,
            gateway(url, **settings) as one,
            gateway(f"http://127.0.0.1:{port}", **settings, connect_timeout=1) as other,
        ):
            name = await stuck(one)
            background = other.parts.background
            assert background is not None
            await until(lambda: name in background.taken_over)
            await asyncio.to_thread(own_postgres.stop)
            assert_error(await ask(other, "GET", f"/v1/responses/{name}"), 503)
            await asyncio.to_thread(own_postgres.start)
            async with serving(later, port=port):
                response = await ended(other, name)
                assert response["status"] == "completed"
                assert_whole(await stream(other, name), response)
                await one.parts.pool.close()
                await other.parts.pool.close()

    run(test())


def test_a_process_that_is_halted_in_a_transaction_stops_no_other(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction is given up, and repeated when it goes on."""
    postgres = pytest.importorskip("responses_gateway.state.postgres")
    monkeypatch.setattr(postgres, "IDLE_TIMEOUT", 0.5)

    async def test() -> None:
        halted, other = postgres.Postgres(postgres_url), postgres.Postgres(postgres_url)
        await halted.open()
        await other.open()
        begun = threading.Event()
        goes_on = threading.Event()

        def is_halted(sql: Sql) -> int:
            sql.execute("UPDATE version SET number = number + 10")
            begun.set()
            goes_on.wait(PATIENCE)
            return sql.execute("UPDATE version SET number = number").rowcount

        def reads(sql: Sql) -> int:
            return int(sql.execute("UPDATE version SET number = number + 100 RETURNING number").fetchone()[0])

        first = asyncio.create_task(halted.run(is_halted))
        await asyncio.to_thread(begun.wait, PATIENCE)
        number = await asyncio.wait_for(other.run(reads), PATIENCE)
        goes_on.set()
        assert await first == 1
        assert await other.run(reads) == number + 110
        await halted.close()
        await other.close()

    run(test())


class LostCommits:
    """Stands before a PostgreSQL server, and once loses the connection with the answer to a commit: behind a given text."""

    def __init__(self, folder: Path, server: str) -> None:
        self.url = f"postgresql:///postgres?host={folder}&user=postgres"
        self.behind: bytes | None = None
        self._own, self._server = (f"{place}/.s.PGSQL.5432" for place in (folder, server))

    async def start(self) -> asyncio.Server:
        """Listen."""
        return await asyncio.start_unix_server(self._serve, self._own)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_unix_connection(self._server)
        is_next = False

        async def ask() -> None:
            nonlocal is_next
            while data := await reader.read(1 << 16):
                is_next = is_next or (self.behind is not None and self.behind in data)
                questions.write(data)
            questions.close()

        async def answer() -> None:
            while data := await answers.read(1 << 16):
                if is_next and self.behind is not None and b"COMMIT\0" in data:
                    self.behind = None
                    break
                writer.write(data)
            writer.close()

        await asyncio.gather(ask(), answer(), return_exceptions=True)


def test_what_was_committed_is_not_written_twice_though_nobody_said_so(postgres_url: str) -> None:
    """As when another server takes the place of one at this moment."""

    async def test(folder: Path) -> None:
        proxy = LostCommits(folder, postgres_url.partition("host=")[2].partition("&")[0])
        listening = await proxy.start()
        async with serving(create_app()) as url, gateway(url, store=proxy.url) as served:
            name = (await ask(served, "POST", "/v1/conversations", json={})).json["id"]
            items = f"/v1/conversations/{name}/items"
            proxy.behind = b"the marked item"
            added = await ask(served, "POST", items, json={"items": [{"role": "user", "content": "the marked item"}]})
            assert (added.status, proxy.behind) == (200, None)
            assert len((await ask(served, "GET", items)).json["data"]) == 1
            proxy.behind = b"the marked background"
            begun = await start(served, "scenario: plain the marked background")
            assert (await ended(served, begun))["status"] == "completed"
            proxy.behind = b"the marked question"
            answer = (await post(served, input="scenario: plain the marked question")).final
            assert (answer["store"], proxy.behind) == (True, None)
            await assert_there(served, answer["id"])
        listening.close()

    with tempfile.TemporaryDirectory() as folder:  # short, since the path of a socket is limited
        run(test(Path(folder)))
