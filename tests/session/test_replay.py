"""The playhead over a finished source: how fast it goes, where it stops."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import brrrtop.data
from brrrtop.advisories import context
from brrrtop.analysis.estimate import Analysis
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.session.replay import WATCHABLE_S, Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.whatif.price import SimulatedEdits, simulate_edits
from tests.recorded import analyzed

SHORT = Path(__file__).parents[1] / "recordings" / "promises" / "dataloader-stall.brrr"
YOUNG = Path(__file__).parents[1] / "recordings" / "runs" / "imagenet_j4.brrr"
DEMO = Path(brrrtop.data.__path__[0]) / "demos" / "input-bound.brrr"


@pytest.mark.parametrize("speed", [None, 1.0, 0.25])
def test_a_speed_that_was_asked_for_is_the_speed(speed):
    source = open_source(str(SHORT))
    now_s = 0.0
    replay = Replay(Session(source, keep_ns=None), speed=speed, clock=lambda: now_s)
    span = replay.span
    stretched = span.duration_ns / 1e9 / WATCHABLE_S
    assert stretched < 1, "a short recording, or this proves nothing"
    assert replay.advance().speed == (stretched if speed is None else speed)
    now_s = 2 * WATCHABLE_S if speed is None else span.duration_ns / 1e9 / speed
    assert replay.advance().progress == 1.0
    source.close()


def test_a_short_file_has_one_verdict_wherever_the_playhead_is():
    source = open_source(str(SHORT))
    replay = Replay(Session(source, keep_ns=None), clock=lambda: 0.0)
    whole = analyze(open_source(str(SHORT)))
    for share in (0.05, 0.4, 1.0):
        replay.seek(share)
        shown = replay.advance()
        assert shown.estimate.account == whole.estimate.account
        assert shown.advisories == whole.advisories
        assert shown.progress == pytest.approx(share, abs=0.01)
    source.close()


def test_the_last_seconds_move_at_each_look_and_the_run_once_a_second():
    with closing(open_source(str(YOUNG))) as source:
        session, span = Session(source), source.span
        assert span is not None
        looks = [session.advance(span.t0_ns + at * 500_000_000) for at in range(1, 24)]
    runs = [one.run for one in looks if one.run is not None and one.estimate is not None]
    moved = [a.now.account != b.now.account for a, b in pairwise(runs) if a.now and b.now]
    assert all(moved) and len(moved) > 12
    assert len({run.span for run in runs}) <= len(runs) / 2 + 3  # and where a burst was judged
    assert runs[-1].duration_ns > 10_000_000_000


def test_a_playhead_that_went_back_knows_what_was_before():
    source = open_source(str(DEMO))
    replay = Replay(Session(source, keep_ns=None), clock=lambda: 0.0)
    shares = [n / 20 for n in range(1, 15)]
    played = {share: _shown_at(replay, share) for share in shares}
    again = _shown_at(replay, 0.35)
    assert again.events and again.events == played[0.35].events
    assert again.history == played[0.35].history
    onward = _shown_at(replay, shares[-1])
    assert onward.events == played[shares[-1]].events, "nothing twice, and nothing at another time"
    assert onward.history == played[shares[-1]].history
    source.close()


def _shown_at(replay: Replay, share: float) -> Snapshot:
    replay.seek(share)
    return replay.advance()


def test_a_run_that_grows_around_one_burst_prices_it_again_where_its_steps_change(monkeypatch):
    """Advice follows the run: at the end it is that of the report, however the host's pace was at the burst."""
    priced: list[Analysis] = []

    def count(judged: Analysis, *earlier: SimulatedEdits | None) -> SimulatedEdits | None:
        priced.append(judged)
        return simulate_edits(judged, *earlier)

    monkeypatch.setattr(context, "simulate_edits", count)
    with closing(open_source(str(YOUNG))) as source:
        session = Session(source)
        times = range(source.span.t0_ns, source.span.t1_ns, 500_000_000)
        shown = [session.advance(now_ns) for now_ns in times]
    assert len({one.whatif[0].saves for one in shown if one.whatif}) > session.verdicts
    assert len(priced) >= session.verdicts > 0
    for before, after in pairwise(priced):
        moved = after.estimate.steps.step_ns / before.estimate.steps.step_ns - 1
        assert before.facts is not after.facts or abs(moved) >= context.SAME_PACE
    now = {one.edit: one.saves for one in analyzed(YOUNG).whatif}
    assert {one.edit: one.saves for one in shown[-1].whatif} == pytest.approx(now, abs=0.015)


def test_a_burst_is_judged_once_the_marks_of_its_steps_have_come():
    with closing(open_source(str(DEMO.with_name("phases.brrr")))) as source:
        session, begin_ns = Session(source), source.span.t0_ns
        session.in_view = True
        steps = []
        for half_s in range(190, 206):
            shown = session.advance(begin_ns + half_s * 500_000_000)
            steps.append(shown.picture.step if shown.picture else None)
        assert None not in steps and session.verdicts == 2
