"""Recordings of public programs against their own clocks."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.ledger.account import SHORT_NS, Bursts
from brrrtop.ledger.ledger import CLOSED_NS, OPEN_NS, Ledger
from brrrtop.ledger.verdict import UNSURE, of_run
from brrrtop.model.run import PhaseKind
from brrrtop.session.analyze import analyze, read
from brrrtop.session.session import Session
from brrrtop.session.verdict import analyses
from brrrtop.sources.registry import open_source

RUNS = Path(__file__).resolve().parents[1] / "recordings" / "runs"
IMAGENET = RUNS / "imagenet_jpeg.brrr"
WAITS = 0.82
"""Of the training time, by the program's own clock (Data / Time of its log)."""


def test_a_run_that_waits_for_its_data_is_told_so():
    shown = analyze(open_source(IMAGENET))
    assert (shown.estimate.regime, shown.estimate.cause) == ("overhead", "input")
    assert shown.estimate.account.idle_ns["input"] / shown.run.duration_ns == pytest.approx(
        WAITS, abs=0.05
    )
    first = shown.advisories[0]
    assert first.kind == "dataloader-stall" and first.saves == pytest.approx(WAITS, abs=0.05)
    kinds = [one.kind for one in shown.run.phases]
    assert kinds == [PhaseKind.TRAIN, PhaseKind.EVALUATION, PhaseKind.SAVING]
    assert [one.where.split("() ")[0] for one in shown.run.phases] == [
        "train", "run_validate", "save_checkpoint",
    ]  # fmt: skip
    witness = shown.run.witness
    assert witness.active_counter == pytest.approx(witness.active_account, abs=0.05)
    # Its bursts waited 12 % of their time, the run 78 %: without the waits steps are alike.
    assert witness.step_ns_traced == pytest.approx(witness.step_ns_marks, rel=0.15)
    lines = shown.run.lines
    assert lines[0].share == max(one.share for one in lines)
    assert sum(one.share for one in lines) == pytest.approx(1, abs=0.2)
    assert ".py:" in next(one for one in lines if one.waits > 0.3).place


def test_time_that_bursts_measured_is_sure_beside_few_samples():
    path = (
        Path(__file__).resolve().parents[2] / "brrrtop" / "data" / "demos" / "unpinned-copies.brrr"
    )
    shown = analyze(open_source(path))
    assert shown.estimate is not None and shown.estimate.cause == "exposed_copy"
    assert shown.estimate.confidence > 0.9
    (analysis,) = analyses(read(open_source(path)), shown.run.span)
    for part, sure in ((0.8, True), (0.5, False)):  # so long are traced steps beside all
        step_ns = shown.run.witness.step_ns_marks
        seen = replace(shown.run.witness, step_ns_traced=part * step_ns)
        judged = of_run(analysis, replace(shown.run, witness=seen))
        assert (judged.confidence > UNSURE) is sure


def test_a_burst_whose_change_of_phase_is_told_a_moment_later_is_not_judged_again():
    timeline = read(open_source(RUNS / "resnet18_slow4.brrr"))
    span = max(timeline.observed, key=lambda one: one.duration_ns)
    cut, bursts = np.array([(span.t0_ns + span.t1_ns) // 2]), Bursts()
    first, again, later = (
        bursts.within(timeline, span, 0, cut + at) for at in (0, 3_000_000, SHORT_NS)
    )
    assert len(first) == len(again) == len(later) > 1
    assert all(a is b for a, b in zip(first, again, strict=True))
    assert first[1].span != later[1].span


def test_live_and_after_say_the_same():
    source = open_source(IMAGENET)
    session = Session(source)
    span = source.span
    for part in range(1, 21):
        played = session.advance(span.t0_ns + span.duration_ns * part // 20)
    played = session.advance(span.t1_ns)
    after = analyze(open_source(IMAGENET))
    assert played.run.account == after.run.account
    rows = [{row.edit: row.saves for row in one.whatif} for one in (played, after)]
    assert rows[0] == pytest.approx(rows[1], abs=0.01)


def test_a_long_run_is_kept_as_sums_that_say_the_same():
    """A recording of 61 s, looked at as if only so much of it could be looked at at once."""
    path = Path(__file__).resolve().parents[2] / "brrrtop" / "data" / "demos" / "input-bound.brrr"
    timeline = read(open_source(path))
    timeline.sort()
    whole, parts = Ledger(), Ledger(open_ns=OPEN_NS // 6, closed_ns=CLOSED_NS // 6)
    last = timeline.newest_ns - timeline.newest_ns % 1024  # as floats can say
    once = whole.run(timeline, 0, last)
    for now_ns in np.linspace(timeline.first_ns + 10**9, last, 30).astype(int).tolist():
        often = parts.run(timeline, 0, now_ns)
    assert often.duration_ns == once.duration_ns == often.account.duration_ns
    assert often.steps == once.steps and often.traced_ns == once.traced_ns
    for name in ("compute_ns", "memory_ns"):
        assert getattr(often.account, name) == pytest.approx(getattr(once.account, name), rel=0.02)
    assert often.account.idle_ns["input"] == pytest.approx(once.account.idle_ns["input"], rel=0.02)
