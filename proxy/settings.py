"""Every knob of the gateway, typed, in one place.

A value comes from the first of these that names it: a flag of `responses-proxy serve`, an environment variable
`RESPONSES_PROXY_<FIELD>`, the YAML file named by `--config` or `RESPONSES_PROXY_CONFIG`, the default written here.
The fields below are also the source of `--help` and of `docs/configuration.md`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

ENV_PREFIX = "RESPONSES_PROXY_"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"


_VERSION_SEGMENT = re.compile(r"v\d+[a-z0-9]*")

#: A password in the URL of a database.
_PASSWORD = re.compile(r"(://[^:/@]*:)[^@]*@")

Seconds = Annotated[float, Field(allow_inf_nan=False)]
#: YAML 1.1 reads a bare `yes` and `no` as true and false.
_FROM_YAML = BeforeValidator(lambda value: ("no", "yes")[value] if isinstance(value, bool) else value)
YesNo = Annotated[Literal["auto", "yes", "no"], _FROM_YAML]


class SettingsError(Exception):
    """A setting is wrong. The message names each one as the user wrote it, one per line, and never repeats a value."""


class ModelParsers(BaseModel):
    """How the text of some models is parsed. What is None is as the settings of the same names have it for all models."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    opened_thinking: YesNo | None = None
    rescue: bool | None = None


class Settings(BaseSettings):
    """The settings of one gateway, frozen. Times are in seconds, sizes in bytes.

    Building one directly takes the arguments and the defaults alone; `load` also reads the environment and a file.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    backend: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="URL of a Chat Completions server, with or without `/v1`.",
    )
    backend_api_key: SecretStr | None = Field(
        default=None,
        description="Key sent to the backend. Without it the client's own `Authorization` is passed on. "
        "Better in the environment than in a flag, which every process can read.",
    )
    adapt: bool = Field(
        default=False,
        description="Examine the backend at the start, as `responses-proxy doctor` does, and take the settings that fit it "
        "(names of fields, parsers) where none are given.",
    )
    forward_authorization: bool = Field(
        default=True,
        description="Pass the client's `Authorization` header on to the backend when there is no `backend_api_key`.",
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
    store: str = Field(
        default="auto",
        description="Where responses and conversations are kept: the path of a SQLite file, `auto` for one in the user's "
        "state folder (`$XDG_STATE_HOME`, or `~/.local/state`), the URL of a PostgreSQL database "
        "(`postgresql://user@host/name`, its password better in `PGPASSWORD`), `memory`, or `none` to keep nothing.",
    )
    store_days: Annotated[float, Field(allow_inf_nan=False)] = Field(
        default=30, gt=0, description="How many days a response is kept, and a conversation that nobody continues."
    )

    on_disconnect: Literal["abort", "continue"] = Field(
        default="abort",
        description="What happens to a streamed response when its client leaves: `abort` frees the backend at once, `continue` "
        "lets stored ones run on, to be taken up for an hour with `GET /v1/responses/{id}?stream=true&starting_after=N`.",
    )
    seal_key: SecretStr | None = Field(
        default=None,
        description="Secret with which compacted histories and encrypted reasoning are sealed, the same for all replicas. "
        "Without it a key is made once and kept in the store; without a store it lasts as long as the process.",
    )

    host: str = Field(default="127.0.0.1", description="Address to listen on; `0.0.0.0` for all.")
    port: int = Field(default=9000, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one.")
    websocket: bool = Field(
        default=True, description="Serve `GET /v1/responses` as a WebSocket. Off, it answers 426 and clients stay with HTTP."
    )
    max_body_bytes: ByteSize = Field(
        default=ByteSize(100 * 1024 * 1024),
        gt=0,
        description="Largest request body, after decompression. A number of bytes, or with a unit (`100MiB`).",
    )

    connect_timeout: Seconds = Field(default=10, gt=0, description="Longest wait for a connection to the backend.")
    header_grace: Seconds = Field(
        default=5,
        ge=0,
        description="How long to wait for the backend's status before answering 200 and opening the stream. Within it "
        "an error of the backend is an HTTP error, after it a `response.failed`. 0 answers at once.",
    )
    idle_timeout: Seconds = Field(default=300, gt=0, description="Longest silence of the backend before the response fails.")
    keepalive_comment: Seconds = Field(
        default=10, ge=0, description="Silence after which an SSE comment keeps proxies from closing the stream. 0 for never."
    )
    keepalive_event: Seconds = Field(
        default=15,
        ge=0,
        description="Silence after which `response.in_progress` is repeated, for clients that count events alone. 0 for never.",
    )
    drain_timeout: Seconds = Field(
        default=30, ge=0, description="How long running responses may go on after SIGTERM before they are ended as failed."
    )

    system_messages: Literal["merge", "keep"] = Field(
        default="merge",
        description="`merge` makes one leading system message of the instructions and the first system and developer "
        "messages, as most chat templates demand; `keep` leaves each as a system message of its own.",
    )
    late_developer: Literal["user", "system", "merge"] = Field(
        default="user",
        description="Role of a system or developer message that comes after the first user message; "
        "`merge` moves its text up into the leading system message.",
    )
    user_messages: Literal["keep", "merge"] = Field(
        default="keep",
        description="`merge` makes user messages in a row one message, for templates that insist on alternating roles.",
    )
    reasoning_field: Literal["reasoning", "reasoning_content", "both", "none"] = Field(
        default="reasoning",
        description="Field of an assistant message in which earlier reasoning goes back to the backend.",
    )
    reasoning_effort: Literal["map", "pass", "drop"] = Field(
        default="map",
        description="`map` fits `reasoning.effort` to what chat servers know, `pass` sends it as it is, `drop` never.",
    )
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = Field(
        default="max_completion_tokens",
        description="Field of the chat request that carries `max_output_tokens`; older servers know only `max_tokens`.",
    )
    reasoning_parser: str = Field(
        default="none",
        description="Name of the reasoning markup in the text of a backend that does not parse it: the names of vLLM's "
        "`--reasoning-parser`, `auto` (from the model's name, or the first markers seen), or `none`.",
    )
    tool_call_parser: str = Field(
        default="none",
        description="Name of the tool-call markup in the text of a backend that does not parse it: the names of vLLM's "
        "`--tool-call-parser`, `auto`, or `none`.",
    )
    token_ids: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Ask the backend for the ids of its tokens (`return_token_ids`, vLLM), to count each item exactly and to "
        "tell markers from text that looks like them. `auto` asks vLLM servers whose markup is parsed here.",
    )
    opened_thinking: YesNo = Field(
        default="auto",
        description="Whether the chat template ends inside an open reasoning block, for `reasoning_parser`. "
        "`auto` takes what is usual for the family.",
    )
    rescue: bool = Field(
        default=False,
        description="Look for markup that leaked through the parsers of the backend (`<tool_call>` or `</think>` in the "
        "text), and turn it into items. What was rescued is counted in a metric.",
    )
    models: dict[str, ModelParsers] = Field(
        default={},
        description="The four settings above for some models: patterns of model names (`*` stands for anything, case does not "
        "matter) with what differs for them. The first pattern that fits counts. See [docs/parsers.md](parsers.md).",
    )
    forward: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="Parameters of the request that this backend understands as they are and gets, where they would "
        "otherwise be ignored (for example `service_tier`). May be given several times.",
    )
    forward_unknown: bool = Field(default=False, description="Send parameters that the gateway does not know to the backend.")
    strict: bool = Field(
        default=False,
        description="Answer 400 where a parameter, an item or a tool would otherwise be ignored.",
    )

    reasoning_summary: Literal["mirror", "off"] = Field(
        default="mirror",
        description="`mirror` repeats the reasoning as summary parts when the request asks for a summary: "
        "some clients show nothing else.",
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

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="One line of text, or one JSON object, per record.")
    access_log: bool = Field(default=True, description="Log one line per request.")
    metrics: bool = Field(default=True, description="Serve Prometheus metrics at `/metrics`.")
    invariant_sampling: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Fraction of streams that are checked against the laws of a Responses stream while they are sent; "
        "violations are counted in a metric.",
    )
    record: Path | None = Field(
        default=None,
        description="Folder in which each exchange is kept as one file, for `responses-proxy replay` and for bug reports: "
        "request, bytes of the backend, events sent. Keys are left out, the conversation is not.",
    )
    record_limit: ByteSize = Field(
        default=ByteSize(1024**3), gt=0, description="Most bytes that all files in `record` may have; the oldest are deleted."
    )
    uvloop: bool = Field(default=True, description="Run on uvloop where it is installed.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments alone, so that `Settings(...)` in a test or a program is what it says, whatever the environment."""
        return (init_settings,)

    @field_validator("backend", "forward", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            try:
                return json.loads(value)
            except json.JSONDecodeError as error:
                raise ValueError(f"not a JSON list: {error.msg}") from None
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("backend")
    @classmethod
    def _normalise_backends(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(map(backend_url, value)))

    @field_validator("reasoning_summary", mode="before")
    @classmethod
    def _undo_yaml_off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false


def backend_url(text: str) -> str:
    """The base URL of a Chat Completions server, without a slash at the end: `/v1` is added unless it names a version.

    Raises ValueError for a URL without scheme or host, and for one with credentials, a query or a fragment: those would
    end up in logs. The message does not repeat them.
    """
    text = text.strip()
    if "://" not in text:
        raise ValueError(f"a backend is a URL: did you mean http://{text.rpartition('@')[2]} ?")
    try:
        url = urlsplit(text)
        _ = url.port  # parsed on access, raises for one that is no number
    except ValueError:
        raise ValueError("not a valid URL") from None
    if url.scheme not in ("http", "https"):
        raise ValueError(f"a backend is reached over http or https, not {url.scheme}")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError("no user, password, query or fragment in a backend's URL: put its key into backend_api_key")
    if not url.hostname:
        raise ValueError("the URL names no host")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    if not _VERSION_SEGMENT.fullmatch(path.rpartition("/")[2]):
        path += "/v1"
    return urlunsplit((url.scheme, url.netloc, path, "", ""))


def describe(settings: Settings) -> str:
    """The settings as a YAML document that `--config` reads back, except that secrets are shown as `**********`."""
    values = settings.model_dump(mode="json")
    values["store"] = _PASSWORD.sub(r"\1**********@", values["store"])
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def suggestion(name: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` for the closest of the known names, empty when none is close."""
    closest = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {closest[0]}?)" if closest else ""


def flag(field: str) -> str:
    """The flag of a field: `keepalive_event` is `--keepalive-event`."""
    return "--" + field.replace("_", "-")


def variable(field: str) -> str:
    """The environment variable of a field."""
    return ENV_PREFIX + field.upper()
