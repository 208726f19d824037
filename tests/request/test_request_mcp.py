"""The tools `mcp`, `file_search` and `web_search` of a request: what they allow, and what is refused, each with its field."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.tools.file_search import read_file_search
from responses_gateway.request.tools.hosted_tools import check_web_search
from responses_gateway.request.tools.mcp import ConfiguredServer, McpAccess, read_mcp_tool, read_mcp_tools
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import FileSearchRequest
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.mcp import ALL_TOOLS, ApprovalPolicy, ListedTool, McpServer, McpToolset, ToolFilter

ACCESS = McpAccess(
    {
        "docs": ConfiguredServer("The manuals", ToolFilter(frozenset({"search", "fetch"})), None),
        "github": ConfiguredServer(forwards_authorization=True),
        "shop": ConfiguredServer(approval=ApprovalPolicy(always=ToolFilter(frozenset({"buy"})))),
    },
    AllowedHosts.read(["mcp.example.com", "tools.internal:9000"]),
)
URL = "https://mcp.example.com/mcp"


def listed(name: str, read_only: bool = False) -> ListedTool:
    return ListedTool(name, None, {}, {"readOnlyHint": True} if read_only else None)


def read(access: McpAccess = ACCESS, **members: Any) -> McpToolset:
    return read_mcp_tool({"type": "mcp", **members}, "tools[0]", access)


def refused(access: McpAccess = ACCESS, **members: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(access, **members)
    assert caught.value.status == 400
    return caught.value


def test_a_server_that_the_request_names() -> None:
    found = read(
        server_label="theirs",
        server_url=URL + "#part",
        server_description="Their tools",
        authorization="token",
        headers={"X-Team": "blue"},
    )
    assert found.server == McpServer("theirs", URL, (("authorization", "Bearer token"), ("x-team", "blue")))
    assert found.description == "Their tools"
    assert found.offers(listed("anything"))
    assert found.needs_approval(listed("anything"))


def test_a_server_of_the_operator() -> None:
    found = read(server_label="docs", allowed_tools=["search", "delete"], require_approval="never")
    assert found.server == McpServer("docs")
    assert found.description == "The manuals"
    assert [name for name in ("search", "fetch", "delete") if found.offers(listed(name))] == ["search"]
    assert not found.needs_approval(listed("search"))


def test_the_authorization_of_a_request_goes_where_the_operator_says() -> None:
    found = read(server_label="github", authorization="Bearer token")
    assert found.server.headers == (("authorization", "Bearer token"),)
    assert refused(server_label="docs", authorization="token").param == "tools[0].authorization"
    assert refused(server_label="github", headers={"X-User": "root"}).param == "tools[0].headers"
    assert read(server_label="docs", authorization="", headers={}).server.headers == ()


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [
        (None, ["read", "write"]),
        (["read"], ["read"]),
        ([], []),
        ({"tool_names": ["write"]}, ["write"]),
        ({"read_only": True}, ["read"]),
        ({"read_only": False}, ["write"]),
        ({"read_only": True, "tool_names": ["write"]}, []),
        ({}, ["read", "write"]),
    ],
)
def test_allowed_tools(allowed: Any, offered: list[str]) -> None:
    found = read(server_label="github", allowed_tools=allowed)
    assert [tool.name for tool in (listed("read", True), listed("write")) if found.offers(tool)] == offered


@pytest.mark.parametrize(
    ("approval", "asked"),
    [
        (None, ["buy"]),
        ("always", ["read", "write", "buy"]),
        ("never", ["buy"]),
        ({"never": {"tool_names": ["read"]}}, ["write", "buy"]),
        ({"always": {"tool_names": ["write"]}}, ["write", "buy"]),
        ({"always": {"tool_names": ["read"]}, "never": {"read_only": True}}, ["read", "write", "buy"]),
        ({"never": {"read_only": True}}, ["write", "buy"]),
        ({"never": {}}, ["read", "write", "buy"]),
        ({"always": {}, "never": {"tool_names": ["read", "write"]}}, ["buy"]),
    ],
)
def test_approvals(approval: Any, asked: list[str]) -> None:
    found = read(server_label="shop", require_approval=approval)
    tools = (listed("read", True), listed("write"), listed("buy"))
    assert [tool.name for tool in tools if found.needs_approval(tool)] == asked


def test_the_operator_decides_where_the_request_says_nothing() -> None:
    access = McpAccess({"docs": ConfiguredServer(approval=ApprovalPolicy(never=ALL_TOOLS))})
    assert not read(access, server_label="docs").needs_approval(listed("search"))
    assert read(access, server_label="docs", require_approval="always").needs_approval(listed("search"))


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({}, "server_label"),
        ({"server_label": 1}, "server_label"),
        ({"server_label": "1st"}, "server_label"),
        ({"server_label": "a b"}, "server_label"),
        ({"server_label": "a" * 65}, "server_label"),
        ({"server_label": "unknown"}, "server_label"),
        ({"server_label": "a", "connector_id": "connector_gmail"}, "connector_id"),
        ({"server_label": "a", "tunnel_id": "tunnel_1"}, "tunnel_id"),
        ({"server_label": "a", "server_url": 1}, "server_url"),
        ({"server_label": "a", "server_url": ""}, "server_url"),
        ({"server_label": "a", "server_url": "https://other.example.com/"}, "server_url"),
        ({"server_label": "a", "server_url": "http://mcp.example.com/"}, "server_url"),
        ({"server_label": "a", "server_url": "https://user:hunter2@mcp.example.com/"}, "server_url"),
        ({"server_label": "a", "server_url": URL + "x" * 3000}, "server_url"),
        ({"server_label": "a", "server_url": URL, "authorization": 1}, "authorization"),
        ({"server_label": "a", "server_url": URL, "authorization": "a\r\nHost: b"}, "authorization"),
        ({"server_label": "a", "server_url": URL, "headers": []}, "headers"),
        ({"server_label": "a", "server_url": URL, "headers": {"X": 1}}, "headers.X"),
        ({"server_label": "a", "server_url": URL, "headers": {"X": "a\r\nY: b"}}, "headers.X"),
        ({"server_label": "a", "server_url": URL, "headers": {"X": "ü"}}, "headers.X"),
        ({"server_label": "a", "server_url": URL, "headers": {"X Y": "a"}}, "headers"),
        ({"server_label": "a", "server_url": URL, "headers": {"": "a"}}, "headers"),
        ({"server_label": "a", "server_url": URL, "headers": {str(n): "a" for n in range(33)}}, "headers"),
        ({"server_label": "a", "server_url": URL, "headers": {"A": "a" * 9000, "B": "b" * 9000}}, "headers"),
        (
            {"server_label": "a", "server_url": URL, "headers": {"authorization": "a"}, "authorization": "b"},
            "authorization",
        ),
        ({"server_label": "docs", "allowed_tools": "search"}, "allowed_tools"),
        ({"server_label": "docs", "allowed_tools": [1]}, "allowed_tools[0]"),
        ({"server_label": "docs", "allowed_tools": ["a"] * 1001}, "allowed_tools"),
        ({"server_label": "docs", "allowed_tools": {"tool_names": "a"}}, "allowed_tools.tool_names"),
        ({"server_label": "docs", "allowed_tools": {"read_only": "a"}}, "allowed_tools.read_only"),
        ({"server_label": "docs", "require_approval": "sometimes"}, "require_approval"),
        ({"server_label": "docs", "require_approval": True}, "require_approval"),
        ({"server_label": "docs", "require_approval": {}}, "require_approval.always"),
        ({"server_label": "docs", "require_approval": {"always": []}}, "require_approval.always"),
        ({"server_label": "docs", "server_description": 1}, "server_description"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], param: str) -> None:
    error = refused(**members)
    assert error.param == f"tools[0].{param}"
    assert "hunter2" not in error.message


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "Connection", "Mcp-Session-Id", "Proxy-Authorization", "X-Forwarded-For"],
)
def test_headers_of_the_connection_cannot_be_set(name: str) -> None:
    assert refused(server_label="a", server_url=URL, headers={name: "1"}).param == "tools[0].headers"


def test_nothing_is_connected_to_unless_the_settings_say_so() -> None:
    error = refused(McpAccess(), server_label="a", server_url=URL)
    assert "mcp_allowed_hosts" in error.message
    assert refused(McpAccess(), server_label="a").param == "tools[0].server_url"


def test_labels_are_unique() -> None:
    tools = [("tools[0]", {"server_label": "docs"}), ("tools[2]", {"server_label": "docs"})]
    assert [found.server.label for found in read_mcp_tools(tools[:1], ACCESS)] == ["docs"]
    with pytest.raises(ApiError) as caught:
        read_mcp_tools(tools, ACCESS)
    assert caught.value.param == "tools[2].server_label"


# file_search


def test_a_file_search_is_read() -> None:
    filters = {
        "type": "and",
        "filters": [{"type": "eq", "key": "year", "value": 2026}, {"type": "in", "key": "team", "value": ["a"]}],
    }
    tool = {
        "vector_store_ids": ["vs_1", "vs_1", "vs_2"],
        "max_num_results": 5,
        "filters": filters,
        "ranking_options": {"ranker": "auto", "score_threshold": 1, "hybrid_search": {"embedding_weight": 1}},
    }
    assert read_file_search(tool, "tools[0]") == FileSearchRequest(
        ("vs_1", "vs_2"), 5, filters, "auto", {"embedding_weight": 1}, 1.0
    )
    assert read_file_search({"vector_store_ids": ["a"]}, "tools[0]") == FileSearchRequest(("a",))


def nested(depth: int) -> dict[str, Any]:
    return {"type": "eq", "key": "a", "value": 1} if depth == 0 else {"type": "or", "filters": [nested(depth - 1)]}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"vector_store_ids": None}, "vector_store_ids"),
        ({"vector_store_ids": []}, "vector_store_ids"),
        ({"vector_store_ids": "vs"}, "vector_store_ids"),
        ({"vector_store_ids": ["vs", 1]}, "vector_store_ids[1]"),
        ({"vector_store_ids": ["vs"] * 11}, "vector_store_ids"),
        ({"max_num_results": 0}, "max_num_results"),
        ({"max_num_results": 51}, "max_num_results"),
        ({"max_num_results": True}, "max_num_results"),
        ({"ranking_options": []}, "ranking_options"),
        ({"ranking_options": {"ranker": 1}}, "ranking_options.ranker"),
        ({"ranking_options": {"score_threshold": 2}}, "ranking_options.score_threshold"),
        ({"ranking_options": {"score_threshold": "1"}}, "ranking_options.score_threshold"),
        ({"filters": []}, "filters"),
        ({"filters": {}}, "filters.type"),
        ({"filters": {"type": "like"}}, "filters.type"),
        ({"filters": {"type": "eq", "value": 1}}, "filters.key"),
        ({"filters": {"type": "eq", "key": "a"}}, "filters.value"),
        ({"filters": {"type": "and"}}, "filters.filters"),
        ({"filters": {"type": "and", "filters": [1]}}, "filters.filters[0]"),
        ({"filters": nested(9)}, "filters" + ".filters[0]" * 8),
    ],
)
def test_what_is_wrong_with_a_file_search_is_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_file_search({"vector_store_ids": ["vs"], **members}, "tools[0]")
    assert (caught.value.status, caught.value.param) == (400, f"tools[0].{param}")


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"filters": "example.com"}, "filters"),
        ({"filters": {"allowed_domains": "example.com"}}, "filters.allowed_domains"),
        ({"filters": {"allowed_domains": [" "]}}, "filters.allowed_domains[0]"),
        ({"filters": {"blocked_domains": ["a.example", {}]}}, "filters.blocked_domains[1]"),
        ({"filters": {"blocked_domains": ["a.example"] * 101}}, "filters.blocked_domains"),
        ({"user_location": "Berlin"}, "user_location"),
        ({"search_context_size": "huge"}, "search_context_size"),
        ({"search_context_size": {}}, "search_context_size"),
    ],
)
def test_what_is_wrong_with_a_web_search_is_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_web_search({"type": "web_search", **members}, "tools[0]")
    assert (caught.value.status, caught.value.param) == (400, f"tools[0].{param}")


def test_a_web_search_with_everything_is_taken() -> None:
    filters = {"allowed_domains": ["example.com"], "blocked_domains": None}
    place = {"type": "approximate", "country": "DE"}
    check_web_search({"filters": filters, "user_location": place, "search_context_size": "low"}, "tools[0]")
