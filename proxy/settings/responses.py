"""What a client gets where specification, OpenAI and clients disagree."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from proxy.settings.section import Section


class ResponseSettings(Section):
    """What a client gets where specification, OpenAI and clients disagree."""

    title = "Responses to the client"

    reasoning_summary: Literal["mirror", "always", "off"] = Field(
        default="mirror",
        description="`mirror` repeats the reasoning as summary parts when the request asks for a summary: "
        "some clients show nothing else. `always` does so for clients that do not ask, too.",
    )
    reasoning_events: Literal["openai", "spec"] = Field(
        default="openai",
        description="Names of the reasoning events: `response.reasoning_text.*` as OpenAI sends them, or "
        "`response.reasoning.*` as the Open Responses specification has them.",
    )
    refusal: Literal["auto", "part", "text"] = Field(
        default="auto",
        description="How a refusal is sent: as a `refusal` part, or as `text`. "
        "`auto` is `text` for clients known to drop such parts.",
    )
    cut_calls: Literal["auto", "incomplete", "omit"] = Field(
        default="auto",
        description="A tool call cut at the token limit: sent with status `incomplete`, or left out (`omit`). "
        "`auto` is `omit` for clients known to run a call whatever its status.",
    )

    @field_validator("reasoning_summary", mode="before")
    @classmethod
    def _undo_yaml_off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false
