"""The playhead over a finished source: how fast it goes, where it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from brrrtop.session.analyze import analyze
from brrrtop.session.replay import WATCHABLE_S, Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source

SHORT = Path(__file__).parents[1] / "recordings" / "promises" / "dataloader-stall.brrr"


@pytest.mark.parametrize("speed", [None, 1.0, 0.25])
def test_a_speed_that_was_asked_for_is_the_speed(speed: float | None) -> None:
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


def test_a_short_file_has_one_verdict_wherever_the_playhead_is() -> None:
    source = open_source(str(SHORT))
    replay = Replay(Session(source, keep_ns=None), clock=lambda: 0.0)
    whole = analyze(open_source(str(SHORT)))
    assert whole.estimate is not None
    for share in (0.05, 0.4, 1.0):
        replay.seek(share)
        shown = replay.advance()
        assert shown.estimate is not None
        assert shown.estimate.account == whole.estimate.account
        assert shown.advisories == whole.advisories
        assert shown.progress == pytest.approx(share, abs=0.01)
    source.close()
