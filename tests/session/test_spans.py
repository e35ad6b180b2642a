"""Which stretch is judged: the last burst whole, but no more than a window of what has no pauses."""

from __future__ import annotations

import numpy as np
import pytest

from brrrtop.session import spans
from brrrtop.session.timeline import Timeline
from collectors.wire import OBSERVED, Frame, Kind
from tests.session.runs import T0_NS, Run

SECOND = 1_000_000_000


@pytest.mark.parametrize(("tier", "judged_s"), [("bursts", 42), ("continuous", 10)])
def test_tracing_without_pauses_is_judged_by_its_last_window(tier: str, judged_s: int) -> None:
    timeline = Timeline()
    for frame in Run().steps(3_000).frames:
        timeline.add(frame)
    traced = np.array([(T0_NS, T0_NS + 42 * SECOND, 0, 0)], OBSERVED)
    timeline.add(Frame(Kind.OBSERVED, traced, T0_NS + 42 * SECOND))
    timeline.add(Frame(Kind.STATUS, {"tier": tier}, T0_NS + 42 * SECOND))
    span = spans.current(timeline, T0_NS + 50 * SECOND)
    assert span is not None
    assert span.duration_ns == judged_s * SECOND
    assert span.t1_ns == T0_NS + 42 * SECOND
