"""A baseline is marked or loaded, and what comes after it is compared with it."""

from pathlib import Path

import pytest

from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import Comparison
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.session.baseline import baseline_of
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from tests.session.runs import GEMM, SGEMM, T0_NS, Run

MS = 1_000_000
LOOK_NS = 1000 * MS


def played(session: Session, from_ns: int, to_ns: int) -> Snapshot:
    """Looks once a second, as a screen does; the last of them."""
    snapshot = None
    for now_ns in [*range(from_ns + LOOK_NS, to_ns, LOOK_NS), to_ns]:
        snapshot = session.advance(now_ns)
    assert snapshot is not None
    return snapshot


def changed(first: Run, then: dict[str, object], steps: int = 250) -> tuple[Comparison, Snapshot]:
    """Marks at the end of a run, goes on with something changed, and compares."""
    marked_ns = first.now_ns
    first.steps(steps, **then)  # type: ignore[arg-type]
    session = Session(first.source(), keep_ns=None)
    played(session, T0_NS, marked_ns)
    session.mark()
    last = played(session, marked_ns, first.now_ns)
    assert last.comparison is not None
    return last.comparison, last


def test_a_cured_loader_is_compared_with_what_was_promised():
    result, last = changed(Run().steps(100, wait_us=20_000), {})
    assert result.per_step
    assert result.before_ns == pytest.approx(34 * MS, rel=0.02)
    assert result.after_ns == pytest.approx(14 * MS, rel=0.02)
    assert result.says.startswith("2.4") and "× faster" in result.says
    won = {change.name: change.won_ns for change in result.buckets}
    assert won["idle: input"] == pytest.approx(20 * MS, rel=0.03)
    kept = {one.kind: one for one in result.promises}["dataloader-stall"]
    assert kept.won_share == pytest.approx(20 / 34, abs=0.02)
    assert kept.promised_share is not None and kept.promised_share >= 0.95 * 20 / 34
    assert last.baseline is not None and last.baseline.label.startswith("marked")


def test_nothing_of_the_baselines_own_window_counts_as_after():
    run = Run().steps(300, wait_us=20_000)
    marked_ns = run.now_ns
    run.steps(40)
    session = Session(run.source(), keep_ns=None)
    played(session, T0_NS, marked_ns)
    session.mark()
    last = played(session, marked_ns, run.now_ns)
    assert last.estimate is not None and last.estimate.span.t0_ns < marked_ns
    assert last.comparison.after_ns == pytest.approx(14 * MS, rel=0.05)


def test_until_two_whole_steps_came_there_is_nothing_to_say():
    run = Run().steps(300)
    marked_ns = run.now_ns
    run.steps(1)
    session = Session(run.source(), keep_ns=None)
    played(session, T0_NS, marked_ns)
    session.mark()
    last = session.advance(run.now_ns)
    assert last.baseline is not None and last.comparison is None


def test_before_a_verdict_nothing_can_be_marked():
    session = Session(Run().source(), keep_ns=None)
    with pytest.raises(BrrrtopError, match="nothing has been judged"):
        session.mark()
    session.advance(T0_NS)
    with pytest.raises(BrrrtopError, match="nothing has been judged"):
        session.mark()


def test_a_mark_outlives_a_seek_and_a_second_mark_replaces_it():
    run = Run().steps(300, wait_us=20_000).steps(700)
    replay = Replay(Session(run.source(), keep_ns=None), clock=lambda: 0.0)
    replay.seek(0.3)
    replay.advance()
    assert "WAITS FOR DATA" in replay.mark_baseline()
    replay.seek(1.0)
    there = replay.advance()
    assert there.comparison is not None and there.comparison.speedup == pytest.approx(2.43, 0.02)
    replay.seek(0.1)
    assert replay.advance().baseline is there.baseline
    replay.seek(1.0)
    replay.advance()
    assert "COMPUTE" in replay.mark_baseline()
    again = replay.advance()
    assert again.baseline is not there.baseline and again.comparison is None


def test_a_run_is_compared_with_an_earlier_run_of_another_process():
    before = analyze(Run().steps(100, wait_us=20_000).source())
    run = Run(T0_NS - 10**12).steps(100)
    session = Session(run.source(), baseline=baseline_of(before, "before.brrr"))
    last = session.advance(run.now_ns)
    assert last.comparison.speedup == pytest.approx(34 / 14, rel=0.05)


def test_a_restarted_run_is_compared_by_all_its_steps_and_not_by_those_of_a_burst():
    folder = Path(__file__).parents[2] / "screenshots" / "session"
    before = analyze(open_source(str(folder / "before.brrr")))
    source = open_source(str(folder / "after.brrr"))
    session = Session(source, keep_ns=None, baseline=baseline_of(before, "before.brrr"))
    at_ns = source.span.t0_ns
    while at_ns < source.span.t1_ns:
        at_ns += 1_000_000_000
        last = session.advance(at_ns)
    assert last.comparison.speedup == pytest.approx(277 / 50.4, rel=0.05)
    assert last.comparison.steps[1] > 400, "3 of them were traced, of 36.9 ms"


def test_two_short_steps_are_enough_beside_a_baseline_of_long_ones():
    before = analyze(Run().steps(10, wait_us=2_000_000).source())
    run = Run().steps(4)
    session = Session(run.source(), baseline=baseline_of(before, "before.brrr"))
    assert session.advance(run.now_ns).comparison is not None


def test_sixteen_bit_products_are_noticed():
    result, last = changed(Run().steps(100, SGEMM, 12_000), {"products": GEMM})
    assert any("fp32 to bf16" in one for one in result.changes)
    assert any(event.kind == "change" and "fp32 to bf16" in event.says for event in last.events)
