"""MCP servers in the settings."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from responses_gateway.settings.section import Details, HttpUrl, TextList, each
from responses_gateway.wire.mcp import LABEL

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ToolSelection(Details):
    """Some tools of a server: by name, and by what the server says about whether they change something."""

    tool_names: TextList | None = None
    read_only: bool | None = None

    @model_validator(mode="after")
    def _check(self) -> ToolSelection:
        if self.tool_names is None and self.read_only is None:
            raise ValueError("expected tool_names or read_only")
        return self


def _selection(value: object) -> object:
    """Read a list of names as the selection of these tools."""
    return {"tool_names": value} if isinstance(value, str | list) else value


Selection = Annotated[ToolSelection, BeforeValidator(_selection, json_schema_input_type=str | list[str] | ToolSelection)]


class ApprovalRules(Details):
    """The tools whose calls need the approval of the client, and those whose calls never do."""

    always: Selection | None = None
    never: Selection | None = None


class McpServerDetails(Details):
    """One MCP server: one that is reached at a URL, or a program that the gateway runs. `${NAME}` in a value of `headers` or
    `env` stands for the environment variable of the gateway."""

    url: HttpUrl | None = None
    command: str | None = None
    args: list[str] = Field(default=[])
    env: dict[str, SecretStr] = Field(default={})
    cwd: str | None = None
    transport: Literal["auto", "http", "sse", "stdio"] = "auto"
    headers: dict[str, SecretStr] = Field(default={})
    # what clients may do with it
    require_approval: Literal["always", "never"] | ApprovalRules | None = None
    allowed_tools: Selection | None = None
    description: str | None = None
    # True: the `authorization` of a request is sent to it
    forward_authorization: bool = False

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, content in value.items():
            text = content.get_secret_value()
            if not _HEADER.fullmatch(name) or not text.isascii() or not text.isprintable():
                raise ValueError("the name and the value of a header must be printable ASCII")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> McpServerDetails:
        if (self.url is None) == (self.command is None):
            raise ValueError("expected either url or command")
        if self.command is None and (self.args or self.env or self.cwd or self.transport == "stdio"):
            raise ValueError("args, env, cwd and transport: stdio need command")
        if self.url is None and (self.headers or self.forward_authorization or self.transport in ("http", "sse")):
            raise ValueError("headers, forward_authorization and transport: http or sse need url")
        return self


# By the labels of the servers.
McpServersByLabel = Annotated[
    dict[str, McpServerDetails],
    each(LABEL.fullmatch, "a label must begin with a letter and have at most 64 letters, digits, dashes and underscores"),
]
