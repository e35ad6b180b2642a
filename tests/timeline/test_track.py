"""A watch of hours brings frames of a few rows, ten a second: they must not be kept one by one."""

import numpy as np

from brrrtop.model.tables import Gauges, Span
from brrrtop.timeline.columns import MANY, SMALL, Track
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import GAUGE, Frame, Kind
from collectors.vocabulary import Metric

MS = 1_000_000
BEGIN_NS = 1_700_000_000_000_000_000
FRAMES, ROWS = 2000, 3


def gauges(frame: int) -> Gauges:
    times = BEGIN_NS + np.arange(frame * ROWS, (frame + 1) * ROWS) * MS
    return Gauges(times, np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64), times * 1.0)


def test_small_chunks_become_few_and_hold_the_same_rows():
    track = Track(Gauges)
    for frame in range(FRAMES):
        table = gauges(frame)
        track.add(table, table.times_ns, table.times_ns)
    assert len(track.chunks) <= FRAMES * ROWS / SMALL + MANY
    times = track.between(0, 1 << 62).times_ns
    assert times.tolist() == [BEGIN_NS + at * MS for at in range(FRAMES * ROWS)]
    low, high = BEGIN_NS + 1500 * MS, BEGIN_NS + 1600 * MS
    some = track.between(low, high).times_ns
    assert set(range(low, high, MS)) <= set(some.tolist()) and len(some) < FRAMES * ROWS / 2
    track.forget(BEGIN_NS + 3000 * MS)
    kept = track.between(0, 1 << 62).times_ns
    assert kept.max() == times.max() and kept.min() > BEGIN_NS + 1500 * MS


def test_a_window_has_no_reading_of_after_its_end():
    timeline = Timeline()
    for at in range(4 * MANY):
        row = np.array([(BEGIN_NS + at * MS, 50.0, 0, int(Metric.TEMPERATURE_C))], GAUGE)
        timeline.add(Frame(Kind.GAUGES, row, BEGIN_NS + at * MS))
    window = timeline.window(Span(BEGIN_NS + 5 * MS, BEGIN_NS + 9 * MS), 0)
    assert window.gauges.times_ns.tolist() == [BEGIN_NS + at * MS for at in range(5, 9)]
