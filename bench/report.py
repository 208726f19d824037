"""From rounds to figures: medians of ratios, what was not clean, and which promises are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.programs import Latency, Outcome
from bench.scenarios import PROMISES, Scenario

MIN_PACE = 0.97
MIN_READS_PER_CHUNK = 0.85


@dataclass(frozen=True)
class Measured:
    """One target in one round: what the client saw of it and the CPU it took, in microseconds."""

    outcome: Outcome
    cpu_us: float


@dataclass(frozen=True)
class Round:
    """One round of a scenario: the relay and the gateway, and the latency without either of them (paced only).

    For a scenario with a `variant`, what stands in the relay's place is the gateway, and the variant in the gateway's.
    """

    scenario: Scenario
    relay: Measured
    gateway: Measured
    direct: Latency

    def cost(self, measured: Measured) -> float:
        """Microseconds of CPU per chunk (or per answer); 0 if nothing arrived."""
        units = measured.outcome.answers * self.scenario.units
        return measured.cpu_us / units if units else 0.0

    @property
    def ratio(self) -> float:
        """The gateway's cost as a multiple of the relay's; 0 if one of them has none."""
        relay = self.cost(self.relay)
        return self.cost(self.gateway) / relay if relay else 0.0

    @property
    def flaws(self) -> list[str]:
        """Why the round is not to be trusted: chunks that pile up are handled several at a time, which is cheap."""
        flaws = [f"{m.outcome.name}: {m.outcome.errors}" for m in (self.relay, self.gateway) if m.outcome.errors]
        if not self.scenario.paced:
            return flaws
        for outcome in (self.relay.outcome, self.gateway.outcome):
            if outcome.pace < MIN_PACE:
                flaws.append(f"{outcome.name}: {outcome.pace:.2f} of real time")
            elif outcome is self.gateway.outcome and self.scenario.coalesces:
                continue
            elif reads_per_chunk(outcome, self.scenario) < MIN_READS_PER_CHUNK:
                flaws.append(f"{outcome.name}: {reads_per_chunk(outcome, self.scenario):.2f} reads per chunk")
        return flaws

    @property
    def added_p99_ratio(self) -> float | None:
        """What the gateway adds to a token's way (p99), as a multiple of what the relay adds.

        None when the way without either was not the shortest: then something else disturbed that measurement.
        """
        relay, gateway = (one.outcome.latency.p99 - self.direct.p99 for one in (self.relay, self.gateway))
        return gateway / relay if relay > 0 and gateway > 0 else None


def reads_per_chunk(outcome: Outcome, scenario: Scenario) -> float:
    """How many reads of the client brought one token: about 1 when tokens pass singly."""
    chunks = outcome.answers * scenario.tokens
    return outcome.reads / chunks if chunks else 0.0


def summary(rounds: list[Round]) -> dict[str, Any]:
    """The figures of one scenario: medians over its clean rounds (over all of them when none was clean)."""
    clean = [one for one in rounds if not one.flaws]
    used = clean or rounds
    scenario = rounds[0].scenario
    figures: dict[str, Any] = {
        "scenario": scenario.name,
        "beside": scenario.beside,
        "chunks": sum(one.gateway.outcome.answers * scenario.tokens for one in rounds),
        "rounds": len(rounds),
        "clean_rounds": len(clean),
        "flaws": sorted({flaw for one in rounds for flaw in one.flaws}),
        "relay_us": median(one.cost(one.relay) for one in used),
        "gateway_us": median(one.cost(one.gateway) for one in used),
        "ratio": median(one.ratio for one in used),
        "ratio_min": min(one.ratio for one in used),
        "ratio_max": max(one.ratio for one in used),
        "first_delta_p50": {name: median(getattr(one, name).outcome.first_delta.p50 for one in used) for name in _BOTH},
    }
    if scenario.paced:
        added = [one.added_p99_ratio for one in used if one.added_p99_ratio is not None]
        figures |= {
            "pace": {name: min(getattr(one, name).outcome.pace for one in used) for name in _BOTH},
            "direct": {p: median(getattr(one.direct, p) for one in used) for p in _PERCENTILES},
            "added_p99_ratio": median(added) if added else None,
        } | {
            name: {p: median(getattr(getattr(one, name).outcome.latency, p) for one in used) for p in _PERCENTILES}
            for name in _BOTH
        }
    return figures


_BOTH = ("relay", "gateway")
_PERCENTILES = ("p50", "p99")


def verdicts(summaries: list[dict[str, Any]], memory: dict[str, float] | None) -> list[dict[str, Any]]:
    """Each promise that was measured, with its figure and whether it is kept."""
    figures = {f"cpu/{one['scenario']}": one["ratio"] for one in summaries}
    figures |= {f"added_p99/{one['scenario']}": one["added_p99_ratio"] for one in summaries if one.get("added_p99_ratio")}
    if memory:
        figures["memory"] = memory["gateway_kb"]
    return [
        asdict(promise) | {"measured": figures[promise.figure], "kept": figures[promise.figure] <= promise.target}
        for promise in PROMISES
        if promise.figure in figures
    ]


def tables(summaries: list[dict[str, Any]], memory: dict[str, float] | None, turns: Sequence[dict[str, Any]] = ()) -> str:
    """The report for people, as Markdown tables."""
    parts = [_cpu_table(summaries), _latency_table([one for one in summaries if "pace" in one])]
    if memory:
        parts.append(
            f"Memory of an open stream ({memory['streams']:.0f} open): relay {memory['relay_kb']:.0f} KB, "
            f"gateway {memory['gateway_kb']:.0f} KB. Idle: relay {memory['relay_idle_mb']:.0f} MB, "
            f"gateway {memory['gateway_idle_mb']:.0f} MB."
        )
    parts.append(_turns_table(turns))
    parts.append(_verdict_table(verdicts(summaries, memory)))
    flaws = [f"- {one['scenario']}: {flaw}" for one in summaries for flaw in one["flaws"]]
    parts.append("\n".join(["Rounds that are not clean:", *flaws]) if flaws else "")
    return "\n\n".join(part for part in parts if part)


def _table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _title(one: dict[str, Any]) -> str:
    return f"{one['scenario']} (beside the gateway)" if one["beside"] == "gateway" else str(one["scenario"])


def _cpu_table(summaries: list[dict[str, Any]]) -> str:
    head = ["scenario", "chunks", "relay us", "gateway us", "ratio", "min-max", "real time", "first token ms", "clean"]
    rows = [
        [
            _title(one),
            str(one["chunks"]),
            f"{one['relay_us']:.1f}",
            f"{one['gateway_us']:.1f}",
            f"{one['ratio']:.2f}x",
            f"{one['ratio_min']:.2f}-{one['ratio_max']:.2f}",
            " / ".join(f"{one['pace'][name]:.2f}" for name in _BOTH) if "pace" in one else "",
            " / ".join(f"{one['first_delta_p50'][name] / 1000:.1f}" for name in _BOTH),
            f"{one['clean_rounds']} of {one['rounds']}",
        ]
        for one in summaries
    ]
    return _table(head, rows)


def _latency_table(summaries: list[dict[str, Any]]) -> str:
    head = ["latency, ms", "direct p50 / p99", "relay p50 / p99", "gateway p50 / p99", "added p99"]
    rows = [
        [_title(one)]
        + [f"{one[name]['p50'] / 1000:.2f} / {one[name]['p99'] / 1000:.2f}" for name in ("direct", *_BOTH)]
        + [f"{one['added_p99_ratio']:.2f}x" if one["added_p99_ratio"] else "disturbed"]
        for one in summaries
    ]
    return _table(head, rows)


def _turns_table(turns: Sequence[dict[str, Any]]) -> str:
    head = ["turns stored", "rows", "KB", "read the last, ms", "CPU of a turn, ms"]
    rows = [
        [str(one["turns"]), str(one["rows"]), f"{one['kilobytes']:.0f}", f"{one['read_ms']:.2f}", f"{one['cpu_ms']:.2f}"]
        for one in turns
    ]
    return _table(head, rows)


def _verdict_table(found: list[dict[str, Any]]) -> str:
    head = ["promise", "measured", "target", "aim", ""]
    rows = [
        [
            one["meaning"],
            *(f"{one[key]:.{0 if one['unit'] == 'KB' else 2}f} {one['unit']}" for key in ("measured", "target", "aim")),
            "kept" if one["kept"] else "missed",
        ]
        for one in found
    ]
    return _table(head, rows)
