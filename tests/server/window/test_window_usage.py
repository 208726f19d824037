"""Usage by day, key and model: counted for each response, stored for all processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.request_log.usage import DAYS_KEPT
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import SimulatorOptions, serving
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.usage import today
from tests.server.gateway_process import program
from tests.server.running_gateway import Reachable, ask, assert_error, post, run, simulated
from tests.server.window.looking import KEY, bearer, look
from tests.server.window.test_window_workers import WORKERS, asked_of_both

OPTIONS = SimulatorOptions(models=("m", "n"))
CLIENTS = {"alice": "sk-alice-has-a-long-key", "bob": "sk-bob-has-a-long-key"}
KEYS: dict[str, Any] = {"api_keys": {name: {"hash": [hash_of(key)]} for name, key in CLIENTS.items()}, "admin_key": KEY}


async def usage(served: Reachable, days: int = 7) -> Any:
    answer = await look(served, f"usage?days={days}", headers=bearer())
    assert answer.status == 200, answer.body
    return answer.json


async def used(served: Reachable) -> dict[tuple[str, str], int]:
    """Return the number of requests by key and model."""
    return {(row["key"], row["model"]): row["requests"] for row in (await usage(served))["rows"]}


def test_what_each_key_and_model_used_is_shown_and_outlives_the_gateway(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {**KEYS, "store": str(tmp_path / "responses.sqlite3")}
        async with simulated(OPTIONS, **settings) as served:
            for name, model in (("alice", "m"), ("alice", "m"), ("alice", "n"), ("bob", "n")):
                await post(served, model=model, input="hi", headers=bearer(CLIENTS[name]))
            await post(served, model="m", input="hi", headers=bearer("sk-nobody"))
            await ask(served, "POST", "/v1/responses", data=b"{", headers=bearer(CLIENTS["bob"]))
        async with simulated(OPTIONS, **settings) as served:
            answer = await post(served, model="n", input="tokens: 20 tps: 2000", headers=bearer(CLIENTS["bob"]))
            found = await usage(served)
            assert {(row["key"], row["model"]): row["requests"] for row in found["rows"]} == {
                ("alice", "m"): 2, ("alice", "n"): 1, ("bob", "n"): 2,
            }  # fmt: skip
            assert len(found["days"]) == 7
            today = found["days"][-1]
            assert today["requests"] == 5
            for name in ("input_tokens", "output_tokens", "reasoning_tokens"):
                assert today[name] == sum(row[name] for row in found["rows"])
            assert today["output_tokens"] > 4 * today["reasoning_tokens"] / 2 > 0
            assert answer.final["usage"]["output_tokens"] < today["output_tokens"]

    run(test())


def test_without_a_store_usage_lasts_as_long_as_the_process() -> None:
    async def test() -> None:
        for _ in range(2):
            async with simulated(OPTIONS, **KEYS) as served:
                await post(served, model="m", input="hi", headers=bearer(CLIENTS["alice"]))
                assert await used(served) == {("alice", "m"): 1}

    run(test())


def test_usage_waits_for_a_store_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated(OPTIONS, admin_key=KEY, store="memory") as served:
            store = served.parts.store
            assert store is not None
            run_work = store.database.run

            async def fail(_: Any) -> Any:
                raise StoreUnavailable("gone")

            await post(served, model="m", input="hi", store=False)
            monkeypatch.setattr(store.database, "run", fail)
            day = today()
            assert [amounts[0] for amounts in (await served.parts.accounts.usage.unstored(day, day, ["key"])).values()] == [1]
            monkeypatch.setattr(store.database, "run", run_work)
            assert (await usage(served))["days"][-1]["requests"] == 1
            assert await served.parts.accounts.usage.unstored(day, day, ["key"]) == {}

    run(test())


@pytest.mark.parametrize("days", ["", "0", "31", "-7", "7x", "9" * 99])
def test_other_periods_are_refused(days: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            assert "7, 30, 90" in assert_error(await look(served, f"usage?days={days}"), 400, "invalid_value")

    run(test())


@pytest.mark.slow
def test_the_workers_are_summed_in_the_store(tmp_path: Path) -> None:
    async def test() -> None:
        flags = (*WORKERS, "--store", str(tmp_path / "responses.sqlite3"))
        async with serving(create_simulator()) as backend, program("--backend", backend, *flags) as running:
            number = len(await asked_of_both(running))
            assert await used(running) == {("", "simulator"): number}

    run(test())


def test_days_that_are_long_past_are_forgotten() -> None:
    async def test() -> None:
        async with simulated() as served:
            counted = served.parts.accounts.usage.counted
            counted[today() - DAYS_KEPT, "", "m"] = [1, 1, 1, 1, 1]
            counted[today() - DAYS_KEPT - 1, "", "m"] = [1, 1, 1, 1, 1]
            assert len(await served.parts.accounts.usage.unstored(0, today(), ["day"])) == 1
            assert len(served.parts.accounts.usage.counted) == 1

    run(test())
