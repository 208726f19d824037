"""What is kept, where and for how long."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from proxy.settings.section import Section

#: How the URL of a log of running responses begins.
EVENT_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")


class StorageSettings(Section):
    """What is kept, where and for how long."""

    title = "Stored responses"

    store: str = Field(
        default="auto",
        description="Where responses and conversations are kept: the path of a SQLite file, `auto` for one in the user's "
        "state folder (`$XDG_STATE_HOME`, or `~/.local/state`), the URL of a PostgreSQL database "
        "(`postgresql://user@host/name`, its password better in `PGPASSWORD`), `memory`, or `none` to keep nothing.",
    )
    store_days: Annotated[float, Field(allow_inf_nan=False)] = Field(
        default=30, gt=0, description="How many days a response is kept, and a conversation that nobody continues."
    )

    events: str = Field(
        default="store",
        description="Where the events of running responses are (background, `on_disconnect: continue`): `store`, or the URL of "
        "a Redis or Valkey server (`redis://:password@host:6379/0`, `rediss://`, `valkey://`, `unix://`), for replicas whose "
        "clients follow and cancel each other's responses often. When a response has ended, its events are in the store.",
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

    @field_validator("events")
    @classmethod
    def _check_events(cls, value: str) -> str:
        if value != "store" and not value.startswith(EVENT_SCHEMES):
            raise ValueError("neither `store` nor the URL of a Redis or Valkey server (redis://host:6379/0)")
        return value
