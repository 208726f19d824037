"""Tools that the gateway runs itself."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, field_validator

from proxy.settings.section import Seconds, Section

_MCP_TOOL = re.compile(r"mcp:[^/\s]+/\S+")
# YAML 1.1 reads an unquoted `off` as false.
_OffOrName = Annotated[str, BeforeValidator(lambda value: "off" if value is False else value)]


class Hosted(Section):
    """Tools that the gateway runs itself."""

    title = "Hosted tools"

    code_interpreter: _OffOrName = Field(
        default="off",
        description="Where Python code of the model runs: `off`, `sandbox` (WebAssembly in a child process, needs Python 3.12 "
        "or later with the extra `sandbox`), or a tool of an MCP server as `mcp:LABEL/TOOL`. See docs/hosted-tools.md.",
    )
    code_interpreter_python: str | None = Field(
        default=None,
        description="Python that runs the sandbox: the path of an interpreter, version 3.12 or later, for which pyeryx is "
        "installed. By default the one that runs the gateway.",
    )
    code_interpreter_timeout: Seconds = Field(
        default=30, gt=0, le=3600, description="Maximum time for one run of code. Then it is stopped, and loses its variables."
    )
    code_interpreter_memory_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2),
        ge=64 * 1024**2,
        le=2 * 1024**3,
        description="Maximum memory of a container: the code's variables and its files together.",
    )
    code_interpreter_output_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024),
        ge=1024,
        le=16 * 1024**2,
        description="Maximum output of one run, for the model and the client. Of more, the beginning and the end are kept. "
        "Code that prints 64 times as much is stopped.",
    )
    code_interpreter_idle: Seconds = Field(
        default=1200, gt=0, description="Time after which a container that is not used ends, with its variables and files."
    )
    code_interpreter_containers: int = Field(
        default=16,
        ge=1,
        le=1000,
        description="Maximum number of containers of one process of the gateway. One key may have half of them. Where there is "
        "no room for a new one, the one that was not used for longest ends.",
    )

    @field_validator("code_interpreter")
    @classmethod
    def _check_code_interpreter(cls, value: str) -> str:
        if value not in ("off", "sandbox") and not _MCP_TOOL.fullmatch(value):
            raise ValueError("expected off, sandbox, or mcp:LABEL/TOOL")
        return value
