"""What a session adds up as it goes on, and the step that it draws."""

from pathlib import Path

import numpy as np
import pytest

import brrrtop.data
from brrrtop.cli.files import FromFirstActivity
from brrrtop.model import intervals
from brrrtop.model.snapshot import Snapshot, StepPicture
from brrrtop.session.analyze import analyze
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source

DEMOS = Path(brrrtop.data.__path__[0]) / "demos"
SHORT = Path(__file__).parents[1] / "recordings" / "promises" / "dataloader-stall.brrr"


@pytest.fixture(scope="module")
def watched() -> list[Snapshot]:
    """Half a minute of a trainer that waits for its loader, traced in bursts."""
    session = Session(FromFirstActivity(open_source(str(DEMOS / "input-bound.brrr"))), keep_ns=None)
    begin = session.source.span.t0_ns
    return [session.advance(begin + half * 500_000_000) for half in range(1, 60)]


def test_points_are_of_the_run_twice_a_second_and_hold_the_steps_of_bursts(watched):
    """A burst's own account, drawn over the time around it, called a run that waits compute-bound."""
    history = watched[-1].history
    times = [point.t_ns for point in history]
    assert times == sorted(set(times))
    later = [point for point in history if point.t_ns > times[0] + 5_000_000_000]
    apart = np.diff([point.t_ns for point in later])
    assert np.median(apart) == pytest.approx(5e8, rel=0.05)
    waits = [point.account.idle_ns["input"] / point.account.duration_ns for point in later]
    assert np.median(waits) == pytest.approx(0.93, abs=0.04)
    steps = [ns for point in history for ns in point.steps_ns]
    assert len(steps) >= 8 and np.median(steps) == pytest.approx(115e6, rel=0.25)


def _covered(picture: StepPicture, *names: str) -> int:
    lanes = [picture.lane(name) for name in names]
    bars = [lane.bars for lane in lanes if lane is not None]
    starts, ends = (
        np.concatenate([getattr(one, side) for one in bars]) for side in ("starts_ns", "ends_ns")
    )
    clipped = intervals.clip(starts, ends, picture.span.t0_ns, picture.span.t1_ns)
    return intervals.total(*intervals.merge_unsorted(*clipped))


def test_work_and_gaps_of_a_step_add_up_to_it_and_gaps_have_the_cause(watched):
    picture, estimate = watched[-1].picture, watched[-1].estimate
    work = _covered(picture, "kernels", "copies", "communication")
    gaps = _covered(picture, "gaps")
    length = picture.span.duration_ns
    assert work + gaps == pytest.approx(length, rel=0.01), "gaps under a microsecond are left out"
    bars = picture.lane("gaps").bars
    longest = int((bars.ends_ns - bars.starts_ns).argmax())
    assert picture.kinds[bars.kinds[longest]] == "idle_input"
    assert picture.span in estimate.steps.spans


def test_kernels_know_when_they_were_launched(watched):
    picture = watched[-1].picture
    bars = picture.lane("kernels").bars
    known = bars.launched_ns >= 0
    assert known.mean() > 0.9
    assert (bars.launched_ns[known] <= bars.starts_ns[known]).all()


def test_the_picture_of_a_short_file_is_of_the_step_that_the_playhead_passed():
    source = open_source(str(SHORT))
    replay = Replay(Session(source, keep_ns=None), clock=lambda: 0.0)
    steps = analyze(open_source(str(SHORT))).estimate.steps.spans
    assert len(steps) >= 3
    for number in (1, 3):
        at = steps[number - 1].t1_ns + 1
        replay.seek((at - replay.span.t0_ns) / replay.span.duration_ns)
        assert replay.advance().picture.step == number
    source.close()
