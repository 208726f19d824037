"""What a crowd saw, as figures: a row for each phase of a run, and the sum of it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.crowd import NEVER, Answer, Crowd


@dataclass(frozen=True)
class Sample:
    """One look at the gateway: CPU time so far in microseconds and resident memory in KB, of all its processes. `around`:
    resident memory of what else runs, by name."""

    at: float
    cpu_us: float
    rss_kb: float
    open_streams: int
    around: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """The time from one step to the next, with the answers that ended in it. Times are seconds of one clock."""

    name: str
    began: float
    ended: float
    answers: list[Answer]
    samples: list[Sample]


@dataclass(frozen=True)
class Summary:
    """A whole run. `fairness` is Jain's index over the tokens that each client got: 1.0 if all got as many, 1/n if one had
    all. `never` are streams that were cut, wrong or unlawful, `needless` answers that came to nothing before the client saw a
    token, with examples in `complaints`. Memory in MB; `memory_mb` of all processes, by name: before, at most, afterwards."""

    answers: int
    completed: int
    verdicts: dict[str, int]
    tokens: int
    fairness: float
    never: int
    needless: int
    idle_mb: float
    peak_mb: float
    kb_per_stream: float
    cpu_us_per_token: float
    memory_mb: dict[str, tuple[float, float, float]]
    complaints: list[str] = field(default_factory=list)

    def text(self) -> str:
        """A few lines for a person."""
        ended = ", ".join(f"{count:,} {verdict}" for verdict, count in self.verdicts.items())
        lines = [
            f"{self.answers:,} answers: {ended}; {self.tokens:,} tokens; fairness {self.fairness:.3f}",
            f"gateway: {self.cpu_us_per_token:.0f} us of CPU for a token; {self.idle_mb:.0f} MB idle, "
            f"{self.peak_mb:.0f} MB at most, {self.kb_per_stream:.0f} KB for a stream",
            f"{self.needless} came to nothing before their client saw a token",
            "MB before, at most and afterwards: "
            + "; ".join(f"{name} {a:.0f}, {b:.0f}, {c:.0f}" for name, (a, b, c) in self.memory_mb.items()),
        ]
        return "\n".join(lines + [f"  {complaint}" for complaint in self.complaints])


def figures_of(phase: Phase, due: float) -> dict[str, float | str | dict[str, int]]:
    """The row of a phase; `due` are the tokens per second of a stream. Times are in ms, CPU in parts of one core."""
    completed = [answer for answer in phase.answers if answer.verdict == "completed" and answer.first is not None]
    seconds = phase.ended - phase.began
    cpu = phase.samples[-1].cpu_us - phase.samples[0].cpu_us if len(phase.samples) > 1 else 0.0
    measured = phase.samples[-1].at - phase.samples[0].at if len(phase.samples) > 1 else 1.0
    first = [1000 * ((answer.first or answer.asked) - answer.asked) for answer in completed]
    return {
        "phase": phase.name,
        "seconds": seconds,
        "streams": max((sample.open_streams for sample in phase.samples), default=0),
        "verdicts": dict(Counter(answer.verdict for answer in phase.answers)),
        "needless": sum(answer.needless for answer in phase.answers),
        "tokens_per_second": sum(answer.tokens for answer in phase.answers) / seconds,
        "first_token_p50": percentile(first, 50),
        "first_token_p99": percentile(first, 99),
        "pace_p50": percentile([answer.pace(due) for answer in completed], 50),
        "pace_p1": percentile([answer.pace(due) for answer in completed], 1),
        "gap_p99": percentile([1000 * answer.gap for answer in completed], 99),
        "cpu": cpu / 1e6 / measured,
        "rss_mb": max((sample.rss_kb for sample in phase.samples), default=0.0) / 1024,
    }


def table(phases: Sequence[Phase], due: float) -> str:
    """The phases as a table in Markdown."""
    lines = [
        "| phase | s | streams | answers | needless | tokens/s | first token p50, p99 | pace p50, p1 | gap p99 | CPU | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for phase in phases:
        row = figures_of(phase, due)
        verdicts = ", ".join(
            f"{count} {verdict}" for verdict, count in sorted(Counter(a.verdict for a in phase.answers).items())
        )
        cells = [
            row["phase"],
            f"{row['seconds']:.0f}",
            row["streams"],
            verdicts or "none",
            row["needless"],
            f"{row['tokens_per_second']:.0f}",
            f"{row['first_token_p50']:.0f}, {row['first_token_p99']:.0f} ms",
            f"{row['pace_p50']:.2f}, {row['pace_p1']:.2f}",
            f"{row['gap_p99']:.0f} ms",
            f"{row['cpu']:.2f}",
            f"{row['rss_mb']:.0f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(crowd: Crowd, samples: Sequence[Sample]) -> Summary:
    """The sum of a run; `samples` are in the order of time, the first before any load."""
    verdicts = Counter(answer.verdict for answer in crowd.answers)
    tokens = sum(crowd.tokens)
    idle, peak = samples[0].rss_kb, max(sample.rss_kb for sample in samples)
    most = max((sample.open_streams for sample in samples), default=0)
    never = [answer for answer in crowd.answers if answer.verdict in NEVER]
    needless = [answer for answer in crowd.answers if answer.needless]
    return Summary(
        answers=len(crowd.answers),
        completed=verdicts["completed"],
        verdicts=dict(verdicts.most_common()),
        tokens=tokens,
        fairness=fairness(crowd.tokens),
        never=len(never),
        needless=len(needless),
        idle_mb=idle / 1024,
        peak_mb=peak / 1024,
        kb_per_stream=(peak - idle) / most if most else 0.0,
        cpu_us_per_token=(samples[-1].cpu_us - samples[0].cpu_us) / tokens if tokens else 0.0,
        memory_mb={"gateway": _course([sample.rss_kb for sample in samples])}
        | {name: _course([sample.around[name] for sample in samples]) for name in samples[0].around},
        complaints=[f"{answer.verdict}: {answer.detail}" for answer in never[:3] + needless[:3]],
    )


def _course(kilobytes: Sequence[float]) -> tuple[float, float, float]:
    """At first, at most and at last, in MB."""
    return kilobytes[0] / 1024, max(kilobytes) / 1024, kilobytes[-1] / 1024


def fairness(shares: Sequence[float]) -> float:
    """Jain's index of so many shares."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0
