"""`/admin/usage`: what was used, for those who have the admin key."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from responses_gateway.state.usage import AMOUNTS
from tests.request.test_decisions_reading import CHOICE, PREDICATE
from tests.server.gateway_process import SEVERAL, fresh_connections, program, statuses_of_some
from tests.server.resources.test_decisions import deciding
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, simulated, until

ADMIN = "admin-0123456789abcdef"
ALICE = "rp_alice-0123456789"
SETTINGS: dict[str, Any] = {
    "admin_key": ADMIN, "teams": {"red": {}}, "api_keys": {"alice": {"hash": hash_of(ALICE), "team": "red"}},
}  # fmt: skip

WITH_QUOTA = {**SETTINGS, "api_keys": {"alice": {"hash": hash_of(ALICE), "tokens_per_day": 10**6}}}


async def export(served: Served, query: str, key: str = ADMIN, **headers: str) -> Answer:
    return await ask(served, "GET", f"/admin/usage?{query}", headers={"Authorization": f"Bearer {key}", **headers})


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["auto", "off"])
@pytest.mark.parametrize("store", ["file", "none"])
def test_all_workers_are_summed_with_and_without_the_window(store: str, ui: str, tmp_path: Path) -> None:
    async def test() -> None:
        place = str(tmp_path / "x.sqlite3") if store == "file" else "none"
        flags = (*SEVERAL, "--no-adapt", "--store", place, "--ui", ui, "--admin-key", ADMIN)
        async with serving(create_app()) as backend, program("--backend", backend, *flags) as running:
            await running.says("worker ready", 2)
            assert await statuses_of_some(running, 40) == {"completed"}
            headers = {"Authorization": f"Bearer {ADMIN}"}
            async with fresh_connections() as session:
                for _ in range(8):
                    async with session.get(f"{running.url}/admin/usage?by=day", headers=headers) as answer:
                        assert [row["requests"] for row in (await answer.json())["data"]] == [40]

    run(test())


@pytest.mark.parametrize("ui", ["auto", "off"])
@pytest.mark.parametrize("store", ["memory", "none"])
def test_usage_by_team_and_model_as_json_and_as_csv(store: str, ui: str) -> None:
    async def test() -> None:
        async with simulated(store=store, ui=ui, **SETTINGS) as served:
            usage = (await post(served, headers={"Authorization": f"Bearer {ALICE}"})).final["usage"]
            answer = await export(served, "by=team,model,key")
            row = {
                "team": "red",
                "model": "simulator",
                "key": "alice",
                "requests": 1,
                "cached_tokens": 0,
                "reasoning_tokens": 0,
            }
            row |= {"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]}
            row["reasoning_tokens"] = usage["output_tokens_details"]["reasoning_tokens"]
            assert answer.json["data"] == [row]
            for text in (
                await export(served, "by=day,team&format=csv"),
                await export(served, "by=day,team", Accept="text/csv"),
            ):
                assert text.headers["content-type"].startswith("text/csv")
                rows = list(csv.DictReader(io.StringIO(text.body.decode())))
                assert [(found["team"], found["requests"]) for found in rows] == [("red", "1")]
                assert list(rows[0]) == ["day", "team", *AMOUNTS]
            assert (await export(served, "from=2001-01-01&to=2001-12-31")).json["data"] == []

    run(test())


@pytest.mark.parametrize("model", ["=1+2", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_cell_of_the_csv_is_a_formula(model: str) -> None:
    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            await post(served, model=model, headers={"Authorization": f"Bearer {ALICE}"})
            text = await export(served, "by=model&format=csv")
            assert [row["model"] for row in csv.DictReader(io.StringIO(text.body.decode(), newline=""))] == [f"'{model}"]
            assert (await export(served, "by=model")).json["data"][0]["model"] == model

    run(test())


def of_alice(**amounts: int) -> dict[str, Any]:
    return {"key": "alice", **dict.fromkeys(AMOUNTS, 0), **amounts}


@pytest.mark.parametrize("settings", [SETTINGS, WITH_QUOTA], ids=["without", "quota"])
@pytest.mark.parametrize("fields", [{}, {"stream": True, "stream_options": {"include_usage": True}}])
def test_a_relayed_chat_is_counted(settings: dict[str, Any], fields: dict[str, Any]) -> None:
    async def test() -> None:
        async with simulated(store="memory", **settings) as served:
            chat = {"model": "simulator", "messages": [{"role": "user", "content": "tokens: 150 tps: 100000"}], **fields}
            headers = {"Authorization": f"Bearer {ALICE}"}
            answer = await ask(served, "POST", "/v1/chat/completions", json=chat, headers=headers)
            said = answer.json if not fields else next(event for event in reversed(answer.events) if event.get("usage"))
            used = said["usage"]
            cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            reasoning = (used.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
            row = of_alice(
                requests=1,
                input_tokens=used["prompt_tokens"],
                output_tokens=used["completion_tokens"],
                cached_tokens=cached,
                reasoning_tokens=reasoning,
            )
            assert (await export(served, "by=key,model")).json["data"] == [{**row, "model": "simulator"}]
            if settings is WITH_QUOTA:
                assert served.parts.store is not None
                charges = await served.parts.store.database.run(
                    lambda sql: sql.execute("SELECT DISTINCT tokens FROM quota_counters").fetchall()
                )
                assert charges == [(used["total_tokens"],)]

    run(test())


def test_decisions_are_counted_as_one_request() -> None:
    async def test() -> None:
        async with deciding(store="memory", **SETTINGS) as (served, _, _):
            body = {"model": "m", "input": "My invoice is wrong again!", "questions": [PREDICATE, CHOICE]}
            answer = await ask(served, "POST", "/v1/decisions", json=body, headers={"Authorization": f"Bearer {ALICE}"})
            assert answer.json["usage"]["total_tokens"] == 202
            row = of_alice(requests=1, input_tokens=200, output_tokens=2, cached_tokens=180)
            assert (await export(served, "by=key,model")).json["data"] == [{**row, "model": "m"}]

    run(test())


def test_a_summary_of_the_context_belongs_to_the_key_that_needed_it() -> None:
    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            headers = {"Authorization": f"Bearer {ALICE}"}
            asked = [{"role": role, "content": "words " * 2000} for role in ("user", "assistant", "user")]
            management = [{"type": "compaction", "compact_threshold": 1000}]
            response = (await post(served, input=asked, context_management=management, headers=headers)).final
            assert response["output"][0]["type"] == "compaction"
            (row,) = (await export(served, "by=key")).json["data"]
            assert (row["key"], row["requests"]) == ("alice", 2)

    run(test())


@pytest.mark.slow
def test_a_gateway_that_is_killed_has_stored_what_was_used(tmp_path: Path) -> None:
    store = tmp_path / "x.sqlite3"
    rarely = "from responses_gateway.server.generation.request_log import usage; usage._INTERVAL = 3600.0"

    def rows() -> list[Any]:
        with closing(sqlite3.connect(store)) as database:
            return database.execute("SELECT requests FROM token_usage").fetchall()

    async def test() -> None:
        async with serving(create_app()) as url:
            async with program("--backend", url, "--store", str(store), first=rarely) as killed:
                assert (await post(killed)).final["status"] == "completed"
                await until(rows, "it is stored")
                killed.process.kill()
                await killed.process.wait()
            async with gateway(url, store=str(store), admin_key=ADMIN) as served:
                (row,) = (await export(served, "by=model")).json["data"]
                assert (row["model"], row["requests"]) == ("simulator", 1)

    run(test())


def test_wrong_questions_and_keys_are_refused() -> None:
    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            assert_error(await export(served, "", key=ALICE), 401, "invalid_api_key")
            ranges = ("from=yesterday", "to=9999-99-99", "from=2026-02-30", "from=", "from=2026-02-02&to=2026-02-01")
            for query in (*ranges, "by=hash", "by=key,key", "format=xml"):
                assert_error(await export(served, query), 400, "invalid_value")

    run(test())
