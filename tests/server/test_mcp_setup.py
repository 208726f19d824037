"""MCP servers in the settings: what becomes of them, and that no secret is repeated."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.hosted.mcp.servers import HttpEndpoint, StdioEndpoint
from responses_gateway.request.tools.mcp import ConfiguredServer, McpAccess
from responses_gateway.server.features.hosted_tools.mcp import mcp_access, mcp_endpoints, open_mcp_servers
from responses_gateway.settings import Settings, SettingsError, describe
from responses_gateway.settings.load import load
from responses_gateway.wire.hosts.mcp_servers import server_complaint
from responses_gateway.wire.mcp import ALL_TOOLS, ApprovalPolicy, ToolFilter

ENVIRONMENT = {"PATH": "/bin", "TOKEN": "hunter2", "OTHER": "not for it"}
FILE = """
mcp_servers:
  github:
    url: https://mcp.example.com/mcp
    headers: {Authorization: "Bearer ${TOKEN}"}
    require_approval: never
    allowed_tools: {read_only: true}
    description: Issues and code
    forward_authorization: true
  files:
    command: node
    args: [server.js, /srv]
    env: {API_KEY: "${TOKEN}", MODE: fast}
    cwd: /srv
    require_approval: {always: delete_file, never: {read_only: true}}
    allowed_tools: [read_file, delete_file]
mcp_allowed_hosts: [mcp.example.org]
file_search_tools: {"*": files/search}
"""


def settings_of(folder: Path, text: str) -> Settings:
    file = folder / "gateway.yaml"
    file.write_text(text, encoding="utf-8")
    return load({}, file, {})


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        settings_of(folder, text)
    return str(caught.value)


def opened(settings: Settings) -> Any:
    async def test() -> Any:
        servers = open_mcp_servers(settings, ENVIRONMENT)
        if servers is not None:
            await servers.close()
        return servers

    return asyncio.run(test())


def test_servers_are_reached_as_the_settings_say(tmp_path: Path) -> None:
    assert mcp_endpoints(settings_of(tmp_path, FILE), ENVIRONMENT) == {
        "github": HttpEndpoint("https://mcp.example.com/mcp", (("Authorization", "Bearer hunter2"),), "auto", False),
        "files": StdioEndpoint("node", ("server.js", "/srv"), {"PATH": "/bin", "API_KEY": "hunter2", "MODE": "fast"}, "/srv"),
    }


def test_requests_may_do_with_them_what_the_settings_say(tmp_path: Path) -> None:
    access = mcp_access(settings_of(tmp_path, FILE))
    assert access.servers == {
        "github": ConfiguredServer("Issues and code", ToolFilter(None, True), ApprovalPolicy(never=ALL_TOOLS), True),
        "files": ConfiguredServer(
            None,
            ToolFilter(frozenset({"read_file", "delete_file"})),
            ApprovalPolicy(ToolFilter(frozenset({"delete_file"})), ToolFilter(None, True)),
        ),
    }
    assert server_complaint("https://mcp.example.org/", access.hosts) is None
    assert mcp_access(Settings()) == McpAccess()


def test_the_environment_may_have_them_too() -> None:
    servers = '{"docs": {"url": "https://mcp.example.com/mcp", "headers": {"X-Key": "hunter2"}}}'
    environ = {"MCP_SERVERS": servers, "MCP_ALLOWED_HOSTS": "a.example, b.example", "FILE_SEARCH_TOOLS": '{"*": "docs/search"}'}
    settings = load({}, None, {f"RESPONSES_GATEWAY_{name}": value for name, value in environ.items()})
    reached = mcp_endpoints(settings)["docs"]
    assert isinstance(reached, HttpEndpoint)
    assert reached.headers == (("X-Key", "hunter2"),)
    assert settings.mcp_allowed_hosts == ["a.example", "b.example"]
    assert settings.file_search_tools == {"*": "docs/search"}


def test_the_line_break_at_the_end_of_a_file_with_a_token_is_no_part_of_a_header(tmp_path: Path) -> None:
    reached = mcp_endpoints(settings_of(tmp_path, FILE), {**ENVIRONMENT, "TOKEN": "hunter2\n"})["github"]
    assert isinstance(reached, HttpEndpoint)
    assert reached.headers == (("Authorization", "Bearer hunter2"),)


def test_no_secret_is_printed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, FILE.replace("${TOKEN}", "hunter2"))
    assert "hunter2" not in describe(settings) + repr(settings) + repr(mcp_endpoints(settings, ENVIRONMENT))


def test_without_settings_there_are_none() -> None:
    assert opened(Settings()) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "mcp_servers: {a: {url: 'https://a', headers: {X: '${GONE}'}}}",
            "mcp_servers: a: headers: the environment variable GONE",
        ),
        ("mcp_allowed_hosts: ['https://a']", "mcp_allowed_hosts: a host is a name"),
        ("file_search_tools: {'*': docs/search}", "file_search_tools needs mcp_servers"),
        ("{mcp_servers: {a: {url: 'https://a'}}, file_search_tools: {vs: b/search}}", "file_search_tools: vs: 'b/search'"),
    ],
)
def test_what_cannot_be_used_is_said_at_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        opened(settings_of(tmp_path, text))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("a: {}", "a: expected either url or command"),
        ("a: {url: 'https://a', command: b}", "a: expected either url or command"),
        ("a: {url: 'https://a', args: [b]}", "a: args, env, cwd and transport: stdio need command"),
        ("a: {command: b, headers: {X: y}}", "a: headers, forward_authorization and transport: http or sse need url"),
        ("a: {url: 'ftp://a'}", "a: url: expected a URL like https://host.example/path"),
        ("a: {url: 'https://u:hunter2@a'}", "a: url: the URL must have no user or password"),
        ("a: {url: 'https://a:b'}", "a: url: not a valid URL"),
        ("a: {url: 'https://a', headers: {X: \"hunter2\\n\"}}", "a: headers: the name and the value of a header"),
        ("a: {url: 'https://a', allowed_tools: {}}", "a: allowed_tools: expected tool_names or read_only"),
        ("a: {urls: 'https://a'}", "a: unknown key urls (did you mean url?)"),
        ("'1': {url: 'https://a'}", "a label must begin with a letter"),
    ],
)
def test_what_is_wrong_with_a_server_is_said_with_its_place(tmp_path: Path, entry: str, said: str) -> None:
    message = complaint(tmp_path, f"mcp_servers: {{{entry}}}")
    assert f"mcp_servers: {said}" in message
    assert "hunter2" not in message


def test_a_tool_for_files_has_a_label(tmp_path: Path) -> None:
    assert "expected the label of an MCP server and the name of its tool" in complaint(
        tmp_path, "file_search_tools: {'*': search}"
    )


def test_the_examples_of_the_document_are_settings(tmp_path: Path) -> None:
    document = (Path(__file__).parents[2] / "docs" / "hosted-tools.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", document, re.DOTALL) if "mcp_servers" in block]
    assert len(blocks) >= 2
    for block in blocks:
        settings = settings_of(tmp_path, block)

        async def test(settings: Settings = settings) -> None:
            servers = open_mcp_servers(settings, {"GITHUB_TOKEN": "token"})
            assert servers is not None
            await servers.close()

        asyncio.run(test())
