"""The backends and their models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from responses_gateway.settings.section import Details, HeaderKey, Seconds, Section, TextList, backend_url, only

# It appears in metrics and in paths.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\[\]-]{0,127}")
# Routers refuse requests with an underscore in a header's name.
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_OWN_HEADERS = frozenset(
    {
        "accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type",
        "expect", "host", "te", "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "x-request-id",
        "x-session-token",
    }
)  # fmt: skip
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
PLACEHOLDERS = ("conversation", "key", "model", "service_tier", "team")
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252}):[0-9]{1,5}")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SERVICE = re.compile(rf"({_LABEL}/)?{_LABEL}")
_API = re.compile(r"https://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?")


# In the environment and on the command line numbers are texts.
Continuations = Annotated[
    Literal["auto", 0, 1, 2],
    BeforeValidator(lambda value: int(value) if isinstance(value, str) and value.isdecimal() else value),
]


def check_header(name: str, template: str) -> None:
    """Raise ValueError for a header that cannot be sent, or a placeholder that there is not."""
    if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise ValueError("a header's name must have only letters, digits and dashes, and not be one that the gateway sets")
    unknown = [placeholder for placeholder in _PLACEHOLDER.findall(template) if placeholder not in PLACEHOLDERS]
    if unknown:
        raise ValueError(f"there is no placeholder {{{unknown[0][:30]}}}; choose one of: {', '.join(PLACEHOLDERS)}")
    if not template.isascii() or not template.isprintable():
        raise ValueError("the value of a header must consist of printable ASCII characters")


def check_backend_name(name: object) -> str:
    """Return a valid name. Raises ValueError for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("the name of a backend must consist of at most 128 letters, digits and . _ - :")
    return name


class BackendOptions(Details):
    """What can be said of one backend, or of all members of a pool."""

    api_key: HeaderKey = None  # replaces `backend_api_key`
    # patterns of the models that it serves; empty for those that it lists itself
    models: TextList = Field(default=[])
    aliases: dict[str, str] = Field(default={})  # a name that clients use -> the backend's name of that model
    max_concurrency: int | None = Field(default=None, ge=1)  # replaces the general setting
    # its share of the requests, relative to other backends
    weight: float = Field(default=1, gt=0, le=1000, allow_inf_nan=False)
    continue_answers: Continuations | None = None  # replaces the general setting
    forward_authorization: bool = True  # False: a client's `Authorization` is never sent to it
    # as which kind of server it is told of sessions: their ids, and how urgent a request is
    session_hints: Literal["vllm", "sglang", "dynamo"] | None = None
    # many servers behind one URL (llm-d, production-stack); auto: where it shows
    router: bool | Literal["auto"] = "auto"


class BackendDetails(BackendOptions):
    """One backend with its own settings."""

    url: Annotated[str, AfterValidator(backend_url)]


# The fields of a pool that say where its members are, and those that belong to one of them alone.
_SOURCES: dict[str, tuple[str, ...]] = {
    "dns": ("interval",),
    "file": ("interval",),
    "kubernetes": ("port", "api", "credentials"),
}


# The name of a port, or its number.
PortName = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value, json_schema_input_type=str | int)
]


class BackendPool(BackendOptions):
    """Backends that come and go: where they are found, and what holds for each of them."""

    dns: str | None = None  # `name:port`
    file: TextList | None = None  # paths, or patterns of paths
    # `namespace/service`, or a service of the gateway's own namespace
    kubernetes: Annotated[str | None, only(_SERVICE.fullmatch, "expected the name of a service, or namespace/service")] = None
    interval: float = Field(default=5, ge=0.1, le=3600, allow_inf_nan=False)  # seconds between two looks
    port: PortName = ""  # name or number of the service's port
    api: str | None = None  # URL of the API server, if the gateway does not run in the cluster
    credentials: Path | None = None  # folder with `token`, `ca.crt` and `namespace`
    scheme: Literal["http", "https"] = "http"
    path: str = "/v1"

    @field_validator("dns")
    @classmethod
    def _check_name(cls, value: str | None) -> str | None:
        if value is not None and (not _HOST_AND_PORT.fullmatch(value) or not 0 < int(value.rpartition(":")[2]) < 65_536):
            raise ValueError("expected a name and a port, like vllm.models.svc.cluster.local.:8000")
        return value

    @field_validator("api")
    @classmethod
    def _check_api(cls, value: str | None) -> str | None:
        if value is not None and not _API.fullmatch(value):
            raise ValueError("expected the URL of an API server, like https://10.0.0.1:6443")
        return None if value is None else value.rstrip("/")

    @field_validator("path")
    @classmethod
    def _check_path(cls, value: str) -> str:
        return urlsplit(backend_url(f"http://host/{value.strip('/')}")).path

    @model_validator(mode="after")
    def _check_source(self) -> BackendPool:
        names = [name for name in _SOURCES if getattr(self, name)]
        if len(names) != 1:
            detail = f" ({' and '.join(names)} are given)" if names else ""
            raise ValueError(f"a pool needs exactly one of `dns`, `file` and `kubernetes`{detail}")
        for name in sorted({field for fields in _SOURCES.values() for field in fields} & self.model_fields_set):
            if name not in _SOURCES[names[0]]:
                raise ValueError(f"`{name}` has no effect with `{names[0]}`")
        return self


class BackendSettings(Section):
    """The backends and their models."""

    title = "Backends"

    backend: Annotated[TextList, AfterValidator(lambda urls: list(dict.fromkeys(map(backend_url, urls))))] = Field(default=[])
    """URL of a Chat Completions server, with or without `/v1`. Can be repeated: a request goes to a backend that serves its
    model. See [docs/backends.md](backends.md)."""
    backends: dict[str, BackendDetails] = Field(default={})
    """Backends by name, with details: `url`, `api_key`, `models` (patterns of the models that it serves), `aliases` (a client's
    name of a model to the backend's), `max_concurrency`, `weight`, `continue_answers`, `forward_authorization`, `router` (many
    servers behind one URL; `auto`: if it looks like one), `session_hints` (`vllm`, `sglang` or `dynamo`: the hints it gets
    about sessions)."""
    backend_headers: dict[str, str] = Field(default={})
    """Headers of requests for an answer, by name, with placeholders: `{conversation}`, `{key}`, `{team}`, `{service_tier}`,
    `{model}`. A header whose placeholder has no value is left out. See [docs/backends.md](backends.md#routers)."""
    pools: dict[str, BackendPool] = Field(default={})
    """Backends that come and go, by the name of their pool. Each has one source: `dns` (`name:port`), `file` (paths or patterns
    of files in Prometheus' `file_sd` form) or `kubernetes` (`namespace/service`); with it `interval`, `port`, `api`,
    `credentials`, and for all members `scheme`, `path` and the details of `backends`. See
    [docs/backends.md](backends.md#backends-that-come-and-go)."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Maximum simultaneous requests to a backend; further ones wait. Unlimited by default. Divided among the workers, at least
    1 each."""
    queue_size: int = Field(default=100, ge=0)
    """Maximum requests that wait for the same backends; further ones are answered with 429. Divided among the workers."""
    queue_timeout: Seconds = Field(default=30, gt=0)
    """Maximum time that a request waits; after that it is answered with 503."""
    retries: int = Field(default=2, ge=0)
    """How many times a request is sent to another backend if it fails before the client has received any output."""
    continue_answers: Continuations = "auto"
    """How many times an answer that breaks off is continued at another vLLM backend; background responses also outlive a
    restart of the gateway. `auto`: once, if all servers of a model list the same checkpoint (`root`) and context; with a number
    you vouch for it. See [docs/resilience.md](resilience.md#answers-that-go-on-elsewhere)."""
    health_interval: Seconds = Field(default=10, gt=0)
    """Interval of the checks of health and models, if there are several backends."""
    load_interval: Seconds = Field(default=0, ge=0)
    """How often several vLLM servers are asked for their running and waiting requests (in their metrics), so that gateways in
    front of the same servers do not all choose the same one; 0: never."""
    breaker_failures: int = Field(default=5, ge=1)
    """Consecutive failures after which one of several backends gets no requests for a while."""
    breaker_time: Seconds = Field(default=10, gt=0)
    """Duration of that pause at first; it doubles each time the backend fails again."""
    backend_api_key: HeaderKey = None
    """Key sent to the backend. Without it the client's own `Authorization` is forwarded, unless it is one of `api_keys`. Prefer
    the environment to the flag."""
    adapt: bool = True
    """Examine the backend once it answers, with a few small requests, and choose and log values for settings that are not given
    (names of fields, parsers). See [docs/doctor.md](doctor.md)."""
    forward_authorization: bool = True
    """Forward the client's `Authorization` to the backend if neither `backend_api_key` nor `api_keys` is set. Unless you set
    this yourself, keys of OpenAI and Anthropic go only to these providers."""
    tokenizer: str | None = None
    """The model's tokenizer, for counting tokens if the backend does not: a folder with `tokenizer.json` and the chat template,
    the file itself, or a model in the local Hugging Face cache. Nothing is downloaded. Requires the extra `tokenizer`; with the
    extra `transformers` also sentencepiece, tiktoken and tekken files."""
    trust_remote_code: bool = False
    """Run the Python code in the folder of `tokenizer` (Kimi). It can do whatever the gateway can: read it first."""
    model_table: Path | None = None
    """YAML file that describes the models to Codex: modalities, reasoning levels, base prompt and more. See
    [docs/codex.md](codex.md#the-model-table)."""

    @field_validator("backend_headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, template in value.items():
            check_header(name, template)
        return value

    @field_validator("backends", "pools")
    @classmethod
    def _check_names(cls, value: dict[str, BackendOptions], info: ValidationInfo) -> dict[str, BackendOptions]:
        for name in value:
            check_backend_name(name)
            if name in info.data.get("backends", {}):
                raise ValueError(f"a pool and a backend have the same name {name}")
        return value
