"""Where the gateway listens, with how many processes, and its time limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import ByteSize, Field

from responses_gateway.settings.section import Seconds, Section, only

# `host: unix:/run/gateway.sock` listens on a Unix socket.
UNIX = "unix:"


class ListeningSettings(Section):
    """Where the gateway listens."""

    title = "Listening"

    host: Annotated[str, only(bool, "expected an address, like 127.0.0.1, or 0.0.0.0 for all")] = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for all of IPv4, `::` for all. `unix:/path` is a Unix socket, which has no port."""
    port: int = Field(default=9000, ge=0, le=65535)
    """TCP port to listen on; 0 chooses a free one."""
    operations_port: int | None = Field(default=None, ge=0, le=65535)
    """Separate port for operators: serves `/metrics`, `/admin/` and `/ui/` instead of `port`. 0 chooses a free one."""
    operations_host: str | None = None
    """Address of `operations_port`. Default: `host`, or `127.0.0.1` if that is a Unix socket."""
    tls_cert: Path | None = None
    """PEM file with a certificate and its chain, to serve HTTPS on both ports. `responses-gateway reload` and a rolling restart
    read it again."""
    tls_key: Path | None = None
    """PEM file with the private key, without a password, unless it is in `tls_cert`."""
    workers: int = Field(default=1, ge=1, le=256)
    """Number of processes, about one per CPU core. Several run under a parent. SIGUSR2 replaces all of them without losing a
    request."""
    websocket: bool = True
    """Serve `GET /v1/responses` as a WebSocket. If disabled, it answers 426 and clients use HTTP."""
    max_body_bytes: ByteSize = Field(default=ByteSize(100 * 1024 * 1024), gt=0)
    """Maximum size of a request body after decompression, in bytes or with a unit (`100MiB`). All bodies in one process
    together may have ten times that size; beyond that, the largest one still being received is refused with 503."""
    known_history_bytes: ByteSize = Field(default=ByteSize(64 * 1024 * 1024))
    """Memory of one process for the histories of recent requests. An agent sends its whole history with each turn, or continues
    it by `previous_response_id`; the part that is known is not read and translated again. This applies to histories of 32 KiB
    to 4 MiB; each takes four to six times its size. 0 turns this off."""


class TimingSettings(Section):
    """Time limits."""

    title = "Time limits, in seconds"

    connect_timeout: Seconds = Field(default=10, gt=0)
    """Maximum time for connecting to the backend."""
    header_grace: Seconds = Field(default=5, ge=0)
    """How long to wait for the backend's status before answering 200 and starting the stream. Afterwards an error of the
    backend becomes a `response.failed`. 0 answers at once."""
    idle_timeout: Seconds = Field(default=300, gt=0)
    """Maximum time without data from the backend: then the response fails or, if no data has arrived yet, goes to another
    backend. A client that reads nothing for so long is disconnected."""
    keepalive_comment: Seconds = Field(default=10, ge=0)
    """Silence after which an SSE comment is sent, so that proxies do not close the stream. 0 for never."""
    keepalive_event: Seconds = Field(default=15, ge=0)
    """Silence after which `response.in_progress` is repeated, for clients that ignore comments. 0 for never."""
    drain_delay: Seconds = Field(default=0, ge=0)
    """How long to continue accepting requests after SIGTERM, while `/ready` already answers 503: as long as a load balancer
    needs to notice."""
    drain_timeout: Seconds = Field(default=30, ge=0)
    """How long running responses may continue after SIGTERM before they fail."""
