"""Random walks through what outlives one stream: responses in any way, chains, conversations, lanes, agents that repeat their
history, clients that leave, stores that fail, and several things at once. A model of what was said judges each step."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.state import StoreUnavailable
from tests.server.resources.api_walk import Walk
from tests.server.resources.walked_model import NOTHING, TOOLS, Item, Known, Said, WalkedBackend, results_of, said_in
from tests.server.running_gateway import TERMINALS, Answer, Served, events_of, gateway, run
from tests.server.scripted_backend import backend, text_stream
from tests.state.database_servers import RedisServer, postgres_running, redis_running
from tests.thoroughness import REPEATABLE, THOROUGH
from tests.waiting import until

STEPS = 150 if THOROUGH else 40
SEEDS = 12 if THOROUGH else 1
# Larger than the smallest body that is compared with earlier ones.
RULES = "rules " * 6000


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """Start an empty server."""
    with redis_running() as server:
        yield server


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Start a server with an empty database."""
    with postgres_running() as server:
        yield server.fresh_database()


class RacingWalk(Walk):
    """A walk where several things happen at once, or something is amiss."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._agents: list[tuple[str, list[Item], Known | None]] = []

    async def race(self) -> None:
        """Do several things at once to a response that hangs."""
        known = self.some(list(self.hanging))
        if known is None:
            return
        path = f"responses/{known.id}"
        after = self.chance.choice([-1, 0, 1, 3])
        following = {
            "model": "m",
            "input": "hi",
            "max_output_tokens": NOTHING,
            "store": False,
            "previous_response_id": known.id,
        }
        ways: dict[str, Callable[[], Awaitable[Answer]]] = {
            "cancel": lambda: self.ask(known.tenant, "POST", f"{path}/cancel"),
            "delete": lambda: self._deleted(known),
            "read": lambda: self.ask(known.tenant, "GET", path),
            "follow": lambda: self.ask(known.tenant, "GET", f"{path}?stream=true&starting_after={after}"),
            "list": lambda: self.ask(known.tenant, "GET", f"{path}/input_items"),
            "continue": lambda: self.ask(known.tenant, "POST", "responses", json=following),
        }
        names = self.chance.choices(list(ways), k=self.chance.randint(2, 6))
        self.note(f"race {names}", known)
        if not {"cancel", "delete"} & set(names) or self.chance.random() < 0.3:
            known.plan.gate.set()
        answers = await asyncio.gather(*(ways[name]() for name in names))
        await self.end(known)
        by_name = list(zip(names, answers, strict=True))
        assert sum(name == "delete" and answer.status == 200 for name, answer in by_name) == known.deleted
        for name, answer in by_name:
            assert answer.status == 200 or name == "continue" or known.deleted, (name, answer)
            if name == "cancel" and not known.deleted:
                assert answer.body.decode() == known.final
            if name == "follow" and not known.deleted:
                assert known.events is not None
                assert events_of(answer.body) == known.events[after + 1 :]

    async def _deleted(self, known: Known) -> Answer:
        known.deleted = True
        return await self.ask(known.tenant, "DELETE", f"responses/{known.id}")

    async def several(self) -> None:
        """Make several responses at once."""
        self.log.append("several")
        await asyncio.gather(*(self.respond() for _ in range(self.chance.randint(2, 5))))

    async def leave(self) -> None:
        """Leave in the middle of an answer: the backend is free, and nothing is stored, unless streams outlive clients."""
        known, body = self.request(["new", "previous"])
        plan = known.plan
        if plan.fate == "refuses":
            return
        plan.waits_at = self.chance.randrange(len(plan.pieces))
        body |= {"stream": self.chance.random() < 0.7}
        self.note(f"leave (waits at {plan.waits_at})", known, body)
        asking = asyncio.create_task(self.ask(known.tenant, "POST", "responses", json=body))
        await plan.waits.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        goes_on = self.resumable and body["stream"]
        self.unnamed += goes_on or plan.model_had_finished
        if goes_on:
            plan.gate.set()
        await until(lambda: not plan.running, "the backend is free")

    async def agent(self) -> None:
        """Let an agent go on that repeats its whole history byte for byte, or names its last response; or go back, or start."""
        chance = self.chance
        if not self._agents or (len(self._agents) < 3 and chance.random() < 0.2):
            self._agents.append((chance.choice("ab"), [{"role": "developer", "content": f"{len(self._agents)} {RULES}"}], None))
        place = chance.randrange(len(self._agents))
        tenant, items, last = self._agents[place]
        if chance.random() < 0.15 and len(items) > 4:
            items = items[: chance.randrange(2, len(items))]
            last = None
        plan = self.plan()
        new = results_of(said_in(items), plan.mark)
        if not new or chance.random() < 0.3:
            new.append({"role": "user", "content": f"Do {plan.mark}"})
        body: Item = {"model": "m", "tools": TOOLS, "max_output_tokens": plan.limit, "input": [*items, *new]}
        body |= {"stream": chance.random() < 0.7, "store": chance.random() < 0.7}
        known = Known("", tenant, [], said_in(body["input"]), plan)
        if last is not None and last.is_there and chance.random() < 0.4:
            body |= {"previous_response_id": last.id, "input": new}
            known = Known("", tenant, said_in(items), said_in(new), plan)
        self.note(f"agent {place}", known, body)
        if await self.create(known, body):
            await self.check(known)
            if known.json["status"] == "completed":
                self._agents[place] = (tenant, [*items, *new, *known.json["output"]], known)

    async def compact(self) -> None:
        """Have a chain summed up, and go on from its summary."""
        parent = self.some([each for each in self.known if each.final and each.is_there])
        if parent is None:
            return
        plan = self.plan()
        plan.fate = "ends"
        plan.pieces = text_stream(f"Said {plan.mark}")
        new: list[Item] = [*results_of(parent.said, plan.mark), {"role": "user", "content": f"Sum up {plan.mark}"}]
        known = Known("", parent.tenant, list(parent.said), said_in(new), plan)
        body: Item = {"model": "m", "previous_response_id": parent.id, "max_output_tokens": plan.limit}
        self.note("compact", known, body)
        body |= {"input": [*new, {"type": "compaction_trigger"}], "stream": self.chance.random() < 0.5}
        if await self.create(known, body):
            await self.check(known)

    async def expire(self) -> None:
        """Let a response expire."""
        store = self.gateways[-1].parts.store
        known = self.some([each for each in self.known if each.final and each.is_there and each not in self.hanging])
        if known is not None and store is not None:
            self.note("expire", known)
            known.deleted = True
            expiry = "UPDATE responses SET expires_at = 1 WHERE id = ?"
            await store.database.run(lambda sql: sql.execute(expiry, (known.id,)).rowcount)
            await store.upkeep.clean_up()
            await self.check(known)

    async def outage(self) -> None:
        """Let the store fail some transactions: the answer does not say that more is stored than is."""
        if self.hanging:  # those who follow them would notice
            return
        known, body = self.request(["new", "previous", "resend"])
        body |= {"stream": self.chance.random() < 0.5}
        self.note("outage", known, body)
        first = self.chance.randrange(5)
        self.unnamed += 1
        with self._failing(range(first, first + self.chance.randint(1, 3))):
            created = await self.create(known, body, may=[503])
        if created:
            await self.check(known)

    @contextmanager
    def _failing(self, numbers: range) -> Iterator[None]:
        """Have the transactions of these numbers fail."""
        databases = [served.parts.store.database for served in self.gateways if served.parts.store is not None]
        count = iter(range(1_000_000))

        def failing(run: Any) -> Any:
            async def sometimes(work: Any) -> Any:
                if next(count) in numbers:
                    raise StoreUnavailable("gone")
                return await run(work)

            return sometimes

        for database in databases:
            database.run = failing(database.run)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for database in databases:
                del database.run

    # ---- connections -------------------------------------------------------------------------------------------------

    async def talk(self) -> None:
        """Send requests over one connection, in lanes at the same time, which continue each other."""
        tenant = self.chance.choice("ab")
        url = self.chance.choice(self.gateways).url
        own: list[Known] = []
        headers = {"Authorization": f"Bearer key-{tenant}"}
        async with self.session.ws_connect(f"{url}/v1/responses", headers=headers, max_msg_size=0) as socket:
            for _ in range(self.chance.randint(1, 4)):
                own += await self._exchange(socket, tenant, own)
        for known in own:
            await self.check(known)

    async def _exchange(self, socket: aiohttp.ClientWebSocketResponse, tenant: str, own: list[Known]) -> list[Known]:
        """Ask in several lanes, and return the responses."""
        asked: dict[str, Known] = {}
        for lane in self.chance.sample(["x", "y", "z"], self.chance.randint(1, 3)):
            plan = self.plan()
            if plan.fate in ("refuses", "breaks"):  # after which what it continues is forgotten
                continue
            parent = self.some(own) if self.chance.random() < 0.7 else None
            said: list[Said] = [] if parent is None else parent.said
            new = [*results_of(said, plan.mark), {"role": "user", "content": f"Do {plan.mark}"}]
            known = Known("", tenant, list(said), said_in(new), plan, stored=self.chance.random() < 0.5)
            if parent is not None and known.stored and not parent.stored:  # it is stored with all that it continues
                known.said, known.sent = [], [*known.said, *known.sent]
            body: Item = {"model": "m", "tools": TOOLS, "max_output_tokens": plan.limit, "input": new, "store": known.stored}
            body |= {"stream_id": lane, "previous_response_id": None if parent is None else parent.id}
            self.note("talk", known, body)
            asked[lane] = known
            await socket.send_str(json.dumps({"type": "response.create", **body}))
        missing = dict(asked)
        while missing:
            text = await socket.receive_str()
            event = json.loads(text)
            if event["type"] in TERMINALS:
                known = missing.pop(event["stream_id"])
                self.settle(known, _object_behind(text, '"response":'))
                self.known.append(known)
            assert event["type"] != "error", event
        return list(asked.values())

    async def step(self) -> None:
        """Do something."""
        steps = {
            self.respond: 8, self.begin: 4, self.release: 1, self.cancel: 1, self.delete: 1.5, self.race: 2, self.several: 1,
            self.converse: 1.5, self.remove_item: 1, self.leave: 1, self.agent: 3, self.compact: 1, self.expire: 0.5,
            self.outage: 1, self.talk: 1.5,
        }  # fmt: skip
        await self.chance.choices(list(steps), list(steps.values()))[0]()


def _object_behind(text: str, name: str) -> str:
    """Return the JSON of the object behind a name."""
    rest = text.partition(name)[2]
    return rest[: json.JSONDecoder().raw_decode(rest)[1]]


async def walk(seed: int, gateways: int, **settings: Any) -> None:
    """Walk so many steps in front of so many gateways."""
    chance = random.Random(seed)
    walked = WalkedBackend()
    resumable = chance.random() < 0.5
    settings["on_disconnect"] = "continue" if resumable else "abort"
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(backend(walked.play))
        served: list[Served] = [await stack.enter_async_context(gateway(behind.url, **settings)) for _ in range(gateways)]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        walk = RacingWalk(chance, walked, served, session, resumable=resumable)
        try:
            for _ in range(STEPS):
                await walk.step()
            await walk.finish()
        except BaseException:
            print(f"seed {seed}:", *walk.log, sep="\n  ")
            for plan in walked.plans.values():
                plan.gate.set()
            raise


@pytest.fixture(autouse=True)
def _quiet_store() -> Iterator[None]:
    """Ignore the errors that a failing store provokes: they are not defects."""
    logger = logging.getLogger("responses_gateway")
    expected = lambda record: record.getMessage() not in ("the store fails", "store is back", "not stored")  # noqa: E731
    logger.addFilter(expected)
    yield
    logger.removeFilter(expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_gateway(seed: int) -> None:
    run(walk(_seed(seed), 1, store="memory"), "uvloop")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_gateways_with_a_file(seed: int, tmp_path: Path) -> None:
    run(walk(_seed(seed), 2, store=str(tmp_path / "x.sqlite3")), "uvloop")


@pytest.mark.skipif(not THOROUGH, reason="it takes servers a while")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_gateways_with_servers(seed: int, postgres_url: str, redis_server: RedisServer) -> None:
    run(walk(_seed(seed), 2, store=postgres_url, events=redis_server.url), "uvloop")


def _seed(number: int) -> int:
    """Return another seed each time, unless a failure has to belong to a change."""
    return number if REPEATABLE else random.randrange(1 << 30)
