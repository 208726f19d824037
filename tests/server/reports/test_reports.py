"""Public bug reports as cases, each played through the gateway's front door, streamed and not (in a brief run, by turns).

`tests/data/report_cases.json` has them: what a client sends, what a server answers, and what has to come out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.data_folder import DATA
from tests.probing.simulated_backend import examined
from tests.server.reports.chat_server import ChatServer, serving
from tests.server.reports.doors import Json, Outcome, body_of, outcome_of
from tests.server.reports.wanted import differences
from tests.server.running_gateway import Served, ask, gateway, run
from tests.thoroughness import THOROUGH

_REPORTS: Json = json.loads((DATA / "report_cases.json").read_text())
_CASES: list[Json] = _REPORTS["cases"]
_PATHS = {"responses": "/v1/responses", "messages": "/v1/messages"}
_MODEL = "m"
# Longer than any markup of a case: all of it in one piece.
_WHOLE = 1 << 16
# How many characters of a case's markup come at a time, by whether the client streams. A brief run plays each case in one way.
_PIECES = {True: (1, 7, _WHOLE), False: (1, 7, _WHOLE)} if THOROUGH else {True: (1, _WHOLE), False: (7,)}
# Cases that come out wrong today, by kind; `kinds` of the file says what each kind is.
OPEN: dict[str, list[str]] = {
    "W12": [],
    "W14": [],
}


def _plays() -> Iterator[Any]:
    known = [case["id"] for case in _CASES]
    wrong = [name for names in OPEN.values() for name in names]
    assert set(wrong) <= set(known)
    for number, case in enumerate(_CASES):
        for streamed in (True, False) if THOROUGH else (number % 2 == 0,):
            mark = [pytest.mark.xfail(strict=True)] if case["id"] in wrong else []
            yield pytest.param(case, streamed, id=f"{case['id']}-{'streamed' if streamed else 'whole'}", marks=mark)


@pytest.mark.parametrize(("case", "streamed"), list(_plays()))
def test_a_case_comes_out_right(case: Json, streamed: bool) -> None:
    answers = case.get("backend", {}).get("answers", [])
    pieces = _PIECES[streamed] if any("markup" in answer for answer in answers) else (_WHOLE,)
    for piece in pieces:
        run(_play(case, piece, streamed=streamed))


async def _play(case: Json, piece: int, *, streamed: bool) -> None:
    """Play all turns of a case. A case's server stands alone: what the gateway learns of it is known to no other case."""
    settings = case.get("settings", {})
    server = _REPORTS["servers"][settings["server"]] if "server" in settings else case.get("backend", {})
    model = server.get("model", _MODEL)
    # A server with one model is examined at the start; with two it is not.
    models = {model: server.get("owned_by", "someone")} | ({} if "server" in settings else {"another": "someone"})
    async with serving(server, models, piece) as chat_server:
        entries = {model: settings["model"]} if "model" in settings else {}
        async with gateway(chat_server.url + "/v1", store="memory", models=entries) as served:
            if "server" in settings:
                await examined(served)
            turns: list[Json] = []
            for turn in case.get("turns", [case]):
                wanted = turn.get("want", {})
                outcome = await _ask(case["door"], served, chat_server, turn.get("request", {}), turns, model, streamed, wanted)
                assert _complaints(wanted, outcome) == []
                turns.append(outcome.turn)
            chat_server.stop()


async def _ask(
    door: str, served: Served, server: ChatServer, request: Json, turns: list[Json], model: str, streamed: bool, wanted: Json
) -> Outcome:
    before = len(server.requests)
    body = {"model": model, "stream": streamed, **body_of(door, request, turns)}
    answer = await asyncio.wait_for(ask(served, "POST", _PATHS[door], json=body), wanted.get("max_seconds", 20))
    outcome = outcome_of(door, answer, streamed=streamed)
    outcome.known["requests"] = len(server.requests) - before
    outcome.known["sent"] = server.requests[-1] if len(server.requests) > before else None
    return outcome


def _complaints(wanted: Json, outcome: Outcome) -> list[str]:
    plain = {name: value for name, value in wanted.items() if name not in ("any_of", "max_seconds")}
    complaints = list(differences(plain, outcome.known))
    choices = wanted.get("any_of", [])
    if choices and not any(not list(differences(choice, outcome.known)) for choice in choices):
        complaints += [complaint for choice in choices for complaint in differences(choice, outcome.known)]
    return complaints
