"""A program that trains in two loops: edits are simulated on the steps of one, and win of its time."""

from pathlib import Path

from msgspec.structs import replace

from brrrtop.ledger.ledger import Ledger
from brrrtop.model.run import Stretch
from brrrtop.model.tables import Span
from brrrtop.session.verdict import analyses, verdict, whole
from tests.recorded import timeline_of

RECORDING = Path(__file__).parents[1] / "recordings" / "runs" / "late_loader.brrr"


def test_edits_are_simulated_on_the_loop_with_most_time():
    timeline = timeline_of(RECORDING)
    shown = analyses(timeline, whole(timeline))[0]
    bursts = shown.facts.window.observed or ()
    run = Ledger().run(timeline, shown.estimate.device.device_id, timeline.newest_ns or 0)
    assert run is not None and run.train is not None and len(bursts) == 2
    cut_ns = (bursts[0].t1_ns + bursts[1].t0_ns) // 2
    undivided = verdict(timeline, shown, run=run)
    halves = tuple(replace(run.train, share=run.train.share / 2, where=w) for w in ("a()", "b()"))
    parts = Span(run.span.t0_ns, cut_ns), Span(cut_ns, run.span.t1_ns)
    run = replace(run, phases=halves, stretches=tuple(map(Stretch, parts, range(2))))
    split = verdict(timeline, shown, run=run)
    assert undivided.sample is shown and split.sample is not None
    held = split.sample.facts.window.observed or ()
    assert held and all(one.t1_ns <= cut_ns for one in held)
    batch = {row.edit: row for row in split.advice.whatif}["double-batch"]
    assert 0 < batch.saves <= run.phases[0].share
    first = replace(run, phases=halves[::-1], stretches=tuple(map(Stretch, parts, (1, 0))))
    later = verdict(timeline, shown, run=first).sample
    assert later is not None and (later.facts.window.observed or ())[0].t0_ns >= cut_ns
