"""The backends, and what is known about their models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from proxy.settings.section import Seconds, Section, TextList
from proxy.settings.urls import backend_url

#: A name for people, metrics and paths.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\[\]-]{0,127}")


def check_backend_name(name: object) -> str:
    """The name, if it is one. Raises ValueError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a backend's name is made of letters, digits and . _ - : and has at most 128 of them")
    return name


class BackendDetails(BaseModel):
    """One backend, with all that can be said about it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(backend_url)]
    #: in place of `backend_api_key`
    api_key: SecretStr | None = None
    #: patterns of the models that it serves; empty for those that it lists
    models: TextList = []
    #: a name that clients use -> the backend's own name for that model
    aliases: dict[str, str] = {}
    #: in place of the setting of this name
    max_concurrency: int | None = Field(default=None, ge=1)
    #: twice the weight is twice the work
    weight: float = Field(default=1, gt=0, le=1000, allow_inf_nan=False)
    #: False: it never gets a client's `Authorization`
    forward_authorization: bool = True


class BackendSettings(Section):
    """The backends, and what is known about their models."""

    title = "Backends"

    backend: TextList = Field(
        default=[],
        description="URL of a Chat Completions server, with or without `/v1`. May be given several times: a request goes to "
        "one that serves its model. See [docs/backends.md](backends.md).",
    )
    backends: dict[str, BackendDetails] = Field(
        default={},
        description="Backends by name, with details: `url`, `api_key`, `models` (patterns of what it serves), `aliases` (the "
        "client's name of a model to the backend's), `max_concurrency`, `weight`, `forward_authorization`.",
    )
    max_concurrency: int | None = Field(
        default=None,
        ge=1,
        description="Requests that a backend gets at once; what comes beyond waits in the gateway. Without it, all go at once. "
        "Several workers share it out, at least 1 for each.",
    )
    queue_size: int = Field(
        default=100,
        ge=0,
        description="How many requests for the same backends wait for one with room; what comes beyond is answered 429. "
        "Several workers share it out.",
    )
    queue_timeout: Seconds = Field(default=30, gt=0, description="How long a request waits at most before it is answered 503.")
    retries: int = Field(
        default=2,
        ge=0,
        description="How often a request that failed before the client saw any of the answer is sent to another backend.",
    )
    health_interval: Seconds = Field(
        default=10, gt=0, description="How often each of several backends is asked whether it is well, and what it serves."
    )
    breaker_failures: int = Field(
        default=5, ge=1, description="Failures in a row after which one of several backends is left alone for a while."
    )
    breaker_time: Seconds = Field(
        default=10, gt=0, description="How long that is the first time; it doubles while the backend fails when tried again."
    )
    backend_api_key: SecretStr | None = Field(
        default=None,
        description="Key sent to the backend. Without it the client's own `Authorization` is passed on, unless that is one "
        "of `api_keys`. "
        "Better in the environment than in a flag, which every process can read.",
    )
    adapt: bool = Field(
        default=True,
        description="Examine the backend once it answers, with five small requests (mostly under 200 tokens generated), "
        "and take the settings that fit it (names of fields, parsers) where none are given. What is taken is logged; requests "
        "that come before are served with the defaults. See [docs/doctor.md](doctor.md).",
    )
    forward_authorization: bool = Field(
        default=True,
        description="Pass the client's `Authorization` header on to the backend when there is no `backend_api_key`, "
        "and no `api_keys`: a key for the gateway is nothing for the backend.",
    )
    tokenizer: str | None = Field(
        default=None,
        description="The model's tokenizer, for counting tokens where the backend does not: a folder that holds "
        "`tokenizer.json` and the chat template, the file itself, or the name of a model in the local Hugging Face cache. "
        "Nothing is downloaded. Needs `pip install 'responses-proxy[tokenizer]'`.",
    )

    model_table: Path | None = Field(
        default=None,
        description="YAML file with what Codex shall know about the models served: modalities, reasoning levels, base prompt "
        "and more (see docs/codex.md). It goes before the table that is shipped.",
    )

    @field_validator("backends")
    @classmethod
    def _check_names(cls, value: dict[str, BackendDetails]) -> dict[str, BackendDetails]:
        for name in value:
            check_backend_name(name)
        return value

    @field_validator("backend")
    @classmethod
    def _normalise_backends(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(map(backend_url, value)))
