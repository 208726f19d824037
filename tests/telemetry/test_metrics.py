"""The metrics of a process: batches, and whole histograms at once."""

from __future__ import annotations

import pytest

from responses_gateway.telemetry.instruments import Counter, Histogram
from responses_gateway.telemetry.metrics import Metrics

BOUNDS = (0.1, 0.5, 1.0)


@pytest.mark.parametrize(
    ("counts", "total"), [((2, 1, 0, 3), 9.25), ((1, 0, 0, 0), 0.0), ((0, 0, 0, 1), 1.5), ((0, 2, 2, 0), 2.0)]
)
def test_many_observations_at_once(counts: tuple[int, ...], total: float) -> None:
    made = Metrics()
    histogram = Histogram("gaps", "Gaps.", BOUNDS, ("model",))
    made.observe_many(histogram, counts, total, "m")
    made.flush()

    def sample(name: str, **labels: str) -> float | None:
        return made.registry.get_sample_value(f"responses_gateway_gaps_{name}", {"model": "m", **labels})

    seen = 0
    for bound, count in zip(("0.1", "0.5", "1.0", "+Inf"), counts, strict=True):
        seen += count
        assert sample("bucket", le=bound) == seen
    assert sample("sum") == pytest.approx(total)


def test_a_sampler_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    made = Metrics()
    counter = Counter("things", "Things.")
    made.samplers.append(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    made.samplers.append(lambda: made.count(counter))
    made.flush()
    assert made.registry.get_sample_value("responses_gateway_things_total") == 1
    assert made.registry.get_sample_value("responses_gateway_defects_total") == 1
    assert [record.getMessage() for record in caplog.records] == ["defect"]


def test_what_was_removed_is_not_shown_again_by_what_was_counted_before() -> None:
    made = Metrics()
    counter = Counter("things", "Things.", ("backend",))
    histogram = Histogram("gaps", "Gaps.", BOUNDS, ("backend",))
    for backend in ("gone", "kept"):
        made.count(counter, backend)
        made.observe(histogram, 0.2, backend)
    made.remove(counter, "gone")
    made.remove(histogram, "gone")
    made.flush()
    samples = [sample for metric in made.registry.collect() for sample in metric.samples]
    assert {sample.labels["backend"] for sample in samples if sample.labels.get("backend")} == {"kept"}
