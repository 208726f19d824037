"""What is measured, and what the project promises about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# The variant of a gateway that stores what it answers, and of one whose streams can be resumed as well.
STORED = "stored"
RESUMABLE = "resumable"
# The variants of a gateway with two vLLM servers: the second goes on with the answers of one that dies.
FLEET = "fleet"
CONTINUED = "continued"
# The variant of a gateway that is asked for a rollout: it keeps the ids and log probabilities of all tokens.
RECORDED = "recorded"
# What no other backend can go on with: the grammar would begin anew.
_WITH_SCHEMA = {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {}}}}}
# The variant of a gateway through whose window somebody looks.
WATCHED = "watched"
# The variant of a gateway with all that it can do about the turns and calls of weak models.
AGENT = "agent"
# The usual gateway, asked at /v1/messages.
MESSAGES = "messages"


@dataclass(frozen=True)
class Scenario:
    """A load: `streams` connections that each ask `repeats` times for the answer `model` (its grammar: see text.h).

    `together`: both targets are loaded at the same time, so that both see the same machine; else one after the other,
    `pairs` times in a round. `per_answer`: the unit of cost is a whole answer, not a token. `variant`: not the gateway beside
    the relay, but a gateway that does more; `messages` is the usual one at `/v1/messages`. `beside`: what is in the relay's
    place if it is not the relay but the usual gateway, or another variant: `raw` looks for markup in the text,
    `tokens` re-tokenizes it as well, `watched` shows all streams to a visitor of its window, `continued` could go on with them
    at another backend (beside a gateway with the same backends that could not), `recorded` keeps their tokens (beside the
    same). `stored` stands beside the relay: a gateway with a SQLite store. `agent` does what helps weak models. `resumable`
    stands beside `stored`: its streams outlive their clients (`on_disconnect: continue`), and several tokens may reach the
    client in one read. `fields`: what else both are asked.
    """

    name: str
    model: str
    streams: int
    repeats: int = 1
    together: bool = False
    per_answer: bool = False
    variant: str = ""
    beside: Literal["relay", "gateway"] = "relay"
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def pairs(self) -> int:
        """How often a round loads both. Short loads in turn are easily disturbed: several pairs, of which the median."""
        return 1 if self.together else 5

    @property
    def tokens(self) -> int:
        """Tokens of one answer."""
        return int(self.model.split(":")[1])

    @property
    def interval_ms(self) -> int:
        """Milliseconds between tokens; 0 if they come at once."""
        fields = self.model.split(":")
        return int(fields[2].removesuffix("ms")) if len(fields) > 2 else 0

    @property
    def paced(self) -> bool:
        """Whether tokens come one by one: only then pace and latency mean something."""
        return self.interval_ms > 0

    @property
    def coalesces(self) -> bool:
        """Whether the gateway may put several tokens into one write: arguments are sent when they are whole."""
        return self.variant in (RESUMABLE, AGENT)

    @property
    def units(self) -> int:
        """Units of cost in one answer."""
        return 1 if self.per_answer else self.tokens


# Streams of 50 tokens per second last 4 s; bursts are repeated until they cost enough CPU to be measured.
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("paced64", "paced:200:20ms", 64, together=True),
        Scenario("messages64", "paced:200:20ms", 64, together=True, variant=MESSAGES),
        Scenario("paced256", "paced:200:20ms", 256, together=True),
        Scenario("mix64", "mix:200:20ms", 64, together=True),
        Scenario("raw64", "paced:200:20ms", 64, together=True, variant="raw", beside="gateway"),
        Scenario("tokens64", "paced:200:20ms", 64, together=True, variant="tokens", beside="gateway"),
        Scenario("watched64", "paced:200:20ms", 64, together=True, variant=WATCHED, beside="gateway"),
        Scenario("continued64", "paced:200:20ms", 64, together=True, variant=CONTINUED, beside="gateway"),
        Scenario(
            "uncontinued64", "paced:200:20ms", 64, together=True, variant=CONTINUED, beside="gateway", fields=_WITH_SCHEMA
        ),
        Scenario("recorded64", "paced:200:20ms", 64, together=True, variant=RECORDED, beside="gateway"),
        Scenario("agent64", "paced:200:20ms", 64, together=True, variant=AGENT, beside="gateway"),
        Scenario("agentcalls64", "mix:200:20ms", 64, together=True, variant=AGENT, beside="gateway"),
        Scenario("resumable64", "paced:200:20ms", 64, together=True, variant=RESUMABLE, beside="gateway"),
        Scenario("burst1", "burst:1000", 1, repeats=40),
        Scenario("long1", "burst:100000", 1),
        Scenario("burst32", "burst:500", 32, repeats=4),
        Scenario("request", "burst:1", 8, repeats=60, per_answer=True),
        Scenario("messages", "burst:1", 8, repeats=60, per_answer=True, variant=MESSAGES, beside="gateway"),
        Scenario(
            "uncontinued", "burst:1", 8, repeats=60, per_answer=True, variant=CONTINUED, beside="gateway", fields=_WITH_SCHEMA
        ),
        Scenario("recorded", "burst:1", 8, repeats=60, per_answer=True, variant=RECORDED, beside="gateway"),
        Scenario("agent", "burst:1", 8, repeats=60, per_answer=True, variant=AGENT, beside="gateway"),
        Scenario("stored", "burst:1", 8, repeats=60, per_answer=True, variant=STORED),
        Scenario("resumable", "burst:1", 8, repeats=60, per_answer=True, variant=RESUMABLE, beside="gateway"),
    )
}
MEMORY = Scenario("memory", "paced:12:500ms", 200, together=True)
WARM_UP = Scenario("warm-up", "burst:200", 8, repeats=10)


@dataclass(frozen=True)
class Promise:
    """A figure that must not exceed `target`; `aim` is where we want to be."""

    figure: str
    meaning: str
    target: float
    aim: float
    unit: str = "x"


PROMISES = (
    Promise("cpu/paced64", "CPU per chunk, 64 streams of 50 tokens/s", 0.90, 0.80),
    Promise("cpu/messages64", "the same at /v1/messages", 0.90, 0.80),
    Promise("cpu/paced256", "CPU per chunk, 256 streams of 50 tokens/s", 0.90, 0.80),
    Promise("cpu/raw64", "CPU per chunk where the gateway looks for markup, beside one that does not", 1.3, 1.1),
    Promise("cpu/tokens64", "the same with re-tokenization", 1.6, 1.3),
    Promise("cpu/watched64", "CPU per chunk while somebody looks through the window", 1.25, 1.1),
    Promise("cpu/continued64", "CPU per chunk of an answer that could be continued", 1.15, 1.1),
    Promise("cpu/uncontinued64", "CPU per chunk of an answer that could not be continued, where others can", 1.05, 1.0),
    Promise("cpu/recorded64", "CPU per chunk of a rollout whose tokens are kept", 1.10, 1.05),
    Promise("cpu/agent64", "CPU per chunk with all that helps weak models", 1.05, 1.0),
    Promise("cpu/agentcalls64", "the same for thought, text and a call", 1.05, 1.0),
    Promise("cpu/agent", "the same, of a request for one token", 1.05, 1.0),
    Promise("cpu/burst1", "CPU per chunk, one stream at full speed", 2.3, 1.6),
    Promise("cpu/long1", "the same for an answer of 100,000 tokens", 2.3, 1.6),
    Promise("cpu/burst32", "CPU per chunk, 32 streams at full speed", 2.3, 1.6),
    Promise("cpu/request", "CPU of a request for one token", 2.3, 1.5),
    Promise("cpu/messages", "the same at /v1/messages, beside /v1/responses", 1.0, 0.9),
    Promise("cpu/stored", "the same where the answer is stored", 3.0, 2.0),
    Promise("cpu/resumable64", "CPU per chunk of a stream that can be resumed, beside one that is only stored", 1.3, 1.2),
    Promise("added_p99/paced64", "latency added to a token (p99), 64 streams", 1.2, 1.2),
    Promise("memory", "resident memory of an open stream", 60, 30, "KB"),
)
