"""`/admin/usage`: what was used, for those who have the admin key."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.state.usage import AMOUNTS
from tests.server.running_gateway import Answer, Served, ask, assert_error, post, run, simulated

ADMIN = "admin-0123456789abcdef"
ALICE = "rp_alice-0123456789"
SETTINGS: dict[str, Any] = {
    "admin_key": ADMIN, "teams": {"red": {}}, "api_keys": {"alice": {"hash": hash_of(ALICE), "team": "red"}},
}  # fmt: skip


async def export(served: Served, query: str, key: str = ADMIN, **headers: str) -> Answer:
    return await ask(served, "GET", f"/admin/usage?{query}", headers={"Authorization": f"Bearer {key}", **headers})


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


def test_wrong_questions_and_keys_are_refused() -> None:
    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            assert_error(await export(served, "", key=ALICE), 401, "invalid_api_key")
            ranges = ("from=yesterday", "to=9999-99-99", "from=2026-02-30", "from=", "from=2026-02-02&to=2026-02-01")
            for query in (*ranges, "by=hash", "by=key,key", "format=xml"):
                assert_error(await export(served, query), 400, "invalid_value")

    run(test())
