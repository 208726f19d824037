"""How long what may take."""

from __future__ import annotations

from pydantic import Field

from proxy.settings.section import Seconds, Section


class TimingSettings(Section):
    """How long what may take."""

    title = "Time limits, in seconds"

    connect_timeout: Seconds = Field(default=10, gt=0, description="Longest wait for a connection to the backend.")
    header_grace: Seconds = Field(
        default=5,
        ge=0,
        description="How long to wait for the backend's status before answering 200 and opening the stream. Within it "
        "an error of the backend is an HTTP error, after it a `response.failed`. 0 answers at once.",
    )
    idle_timeout: Seconds = Field(
        default=300,
        gt=0,
        description="Longest silence of the backend before the response fails (or, if nothing of it came, is asked of another "
        "backend), and of a client that takes nothing of what is there for it before it is dropped.",
    )
    keepalive_comment: Seconds = Field(
        default=10, ge=0, description="Silence after which an SSE comment keeps proxies from closing the stream. 0 for never."
    )
    keepalive_event: Seconds = Field(
        default=15,
        ge=0,
        description="Silence after which `response.in_progress` is repeated, for clients that count events alone. 0 for never.",
    )
    drain_delay: Seconds = Field(
        default=0,
        ge=0,
        description="How long to go on taking requests after SIGTERM, while `/ready` says 503 already: as long as a load "
        "balancer needs to see that.",
    )
    repair_timeout: Seconds = Field(
        default=60, gt=0, description="Longest wait for the correction of a custom tool's input (`repair_custom_tools`)."
    )
    drain_timeout: Seconds = Field(
        default=30, ge=0, description="How long running responses may go on after SIGTERM before they are ended as failed."
    )
