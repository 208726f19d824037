"""`file_search` through the front door: a tool of an MCP server searches, the model cites what it found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.hosted.model import DOCS, calls, model, says
from tests.server.running_gateway import assert_error, post, run

TOOL: dict[str, Any] = {"type": "file_search", "vector_store_ids": ["vs_manuals"], "max_num_results": 2}
TOOLS = {"vs_manuals": "docs/search"}


@pytest.mark.parametrize("include", [True, False])
def test_the_model_searches_and_cites(include: bool) -> None:
    async def test() -> None:
        turns = calls(("file_search", {"queries": ["gear", "oil"]})), says("Use gear 1. 【2】 Done.")
        async with model(*turns, mcp_servers=DOCS, file_search_tools=TOOLS) as (served, talking):
            more = {"include": ["file_search_call.results"]} if include else {}
            answer = (await post(served, tools=[TOOL], **more)).final
            searched, message = answer["output"]
            assert (searched["type"], searched["queries"], searched["status"]) == (
                "file_search_call",
                ["gear", "oil"],
                "completed",
            )
            found = searched.get("results")
            assert (found is not None) is include
            assert not include or [(result["file_id"], result["text"]) for result in found] == [
                ("doc-0", "gear 0"),
                ("doc-1", "gear 1"),
            ]
            part = message["content"][0]
            assert part["text"] == "Use gear 1. Done."
            (citation,) = part["annotations"]
            assert citation == {"type": "file_citation", "file_id": "doc-1", "filename": "Manual 1", "index": 11}
            shown = talking.requests[1]["messages"][-1]["content"]
            assert shown.startswith("【1】 Manual 0\ngear 0")
            assert served.metric("hosted_calls_total", tool="file_search", outcome="completed") == 1

    run(test())


def test_a_store_that_nobody_searches_is_on_record() -> None:
    async def test() -> None:
        async with model(says("Hi."), mcp_servers=DOCS, file_search_tools=TOOLS) as (served, talking):
            answer = await post(served, tools=[{**TOOL, "vector_store_ids": ["vs_other"]}])
            assert [item["type"] for item in answer.final["output"]] == ["message"]
            assert "tools" not in talking.requests[0]
            assert "file_search" in answer.headers["x-responses-gateway-losses"]

    run(test())


def test_what_is_wrong_is_named() -> None:
    async def test() -> None:
        async with model(says("Hi."), mcp_servers=DOCS, file_search_tools=TOOLS) as (served, _):
            answer = await post(served, tools=[{**TOOL, "max_num_results": 100}])
            assert "tools[0].max_num_results" in assert_error(answer, 400, "invalid_value")

    run(test())
