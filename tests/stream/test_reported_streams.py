"""The chat streams of public bug reports: however their bytes are cut, a client sees the same.

What it sees is compared with the right values in `tests/server/reports`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from responses_gateway.request import Policy, translate
from responses_gateway.wire.requests import parse_request
from responses_gateway.wire.tools import ToolTable
from tests.data_folder import DATA
from tests.server.reports.chat_server import payload_of
from tests.server.reports.doors import body_of
from tests.stream.stream_player import complaints, substance
from tests.stream.stream_player import translate as answered

pytestmark = pytest.mark.untraced  # because other tests run the same lines

Json = dict[str, Any]


def streams() -> Iterator[Any]:
    """Yield each answer that is a stream of chunks, and the short form of the request that it answers."""
    for case in json.loads((DATA / "report_cases.json").read_text())["cases"]:
        answers = case.get("backend", {}).get("answers", [])
        for number, answer in enumerate(answers):
            if "turns" not in case and "events" in answer:
                yield pytest.param(answer["events"], case.get("request", {}), id=f"{case['id']}-{number}")


def tools_of(request: Json) -> ToolTable:
    """Return the tools of a request in short."""
    tools = body_of("responses", {"tools": request.get("tools", [])}, []).get("tools", [])
    return translate(parse_request({"model": "m", "input": "hi", "tools": tools}), Policy()).tools


@pytest.mark.parametrize(("events", "sent"), list(streams()))
def test_the_cut_of_the_body_changes_nothing(events: list[Any], sent: Json) -> None:
    pieces = [piece for piece in map(payload_of, events) if isinstance(piece, bytes)]
    tools = tools_of(sent)
    seen = answered(pieces, tools=tools)
    assert complaints(seen) == []
    halves = [half for piece in pieces for half in (piece[: len(piece) // 2], piece[len(piece) // 2 :])]
    for cut in ([b"".join(pieces)], halves):
        assert substance(answered(cut, tools=tools)) == substance(seen)
