"""Where the gateway listens, and with how many processes."""

from __future__ import annotations

from pathlib import Path

from pydantic import ByteSize, Field

from proxy.settings.section import Section

#: `host: unix:/run/gateway.sock` listens on a Unix socket.
UNIX = "unix:"


class ListeningSettings(Section):
    """Where the gateway listens."""

    title = "Listening"

    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; `0.0.0.0` for all. `unix:/path` is a Unix socket, which has no port.",
    )
    port: int = Field(default=9000, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one.")
    operations_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="A port of its own for operators: `/metrics` and `/admin/` are there and no longer on `port`; `/health` "
        "and `/ready` are on both. 0 takes a free one.",
    )
    operations_host: str | None = Field(
        default=None,
        description="Address of `operations_port`, if not `host`; a `host` that is a Unix socket means `127.0.0.1`.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file of a certificate and those that sign it: serve HTTPS, on both ports. A rolling restart reads it "
        "anew.",
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file of the certificate's key, without a password; if it is not in `tls_cert` itself."
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Processes that serve, about one for each CPU core. More than one run under a parent that replaces those "
        "that die; SIGUSR2 to the parent replaces all of them without losing a request.",
    )
    websocket: bool = Field(
        default=True, description="Serve `GET /v1/responses` as a WebSocket. Off, it answers 426 and clients stay with HTTP."
    )
    max_body_bytes: ByteSize = Field(
        default=ByteSize(100 * 1024 * 1024),
        gt=0,
        description="Largest request body, after decompression. A number of bytes, or with a unit (`100MiB`).",
    )
