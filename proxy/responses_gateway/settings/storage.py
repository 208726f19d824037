"""What is stored, where and for how long."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field, SecretStr, field_validator

from responses_gateway.settings.section import Section, only

# Schemes of the URL of the store.
STORE_SCHEMES = ("postgresql://", "postgres://")
# Schemes of the URL of the event log of running responses.
EVENT_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")
_Events = Annotated[
    str,
    only(
        lambda place: place == "store" or place.startswith(EVENT_SCHEMES),
        "expected `store` or the URL of a Redis or Valkey server (redis://host:6379/0)",
    ),
]


class StorageSettings(Section):
    """What is stored, where and for how long."""

    title = "Stored responses"

    store: str = "auto"
    """Where responses and conversations are stored: the path of a SQLite file, `auto` for one in `$XDG_STATE_HOME` or
    `~/.local/state`, the URL of a PostgreSQL database (`postgresql://user@host/name`, with its password in `PGPASSWORD`),
    `memory`, or `none`."""
    store_days: float = Field(default=30, gt=0, le=1e6)
    """Number of days for which a response is stored, and a conversation after its last use."""
    store_max_bytes: ByteSize | None = Field(default=None, ge=1024 * 1024)
    """Maximum size of the stored data, in bytes or with a unit (`10GB`). Beyond that, what would expire first is deleted, but
    never running responses. By default there is no limit."""
    events: _Events = "store"
    """Where the events of running responses are stored (background, `on_disconnect: continue`): `store`, or the URL of a Redis
    or Valkey server (`redis://:password@host:6379/0`, `rediss://`, `valkey://`, `unix://`), in which replicas also count the
    limits of clients together."""
    on_disconnect: Literal["abort", "continue"] = "abort"
    """What happens to a streamed response when its client disconnects: `abort` frees the backend, `continue` lets stored
    responses run on; for an hour, `GET /v1/responses/{id}?stream=true&starting_after=N` resumes the stream."""
    seal_key: SecretStr | None = None
    """Secret for the encryption of compacted histories and reasoning, and of clients' keys for backends while responses outlive
    their connections, the same for all replicas. By default, secrets are generated: one in the store, or for the lifetime of
    the process if there is none, and one for clients' keys in a file beside a SQLite file."""

    @field_validator("store")
    @classmethod
    def _check_store(cls, value: str) -> str:
        if ("://" in value or value.startswith("sqlite:")) and not value.startswith(STORE_SCHEMES):
            raise ValueError("expected a postgresql:// URL, or the path of a SQLite file: the path alone, not a URL")
        word = value.lower()  # because a file named `None` would keep what nobody wants to be kept
        return word if word in {"auto", "memory", "none"} else value
