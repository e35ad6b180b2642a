"""The ring forgets the oldest, and what it keeps can be read on its own."""

from __future__ import annotations

import numpy as np

from brrrtop.sources.tee import FrameRing, frame_bytes
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import KERNEL, OBSERVED, Frame, Kind
from tests.live.agents import SECOND


def kernels(t_ns: int, name_id: int, count: int = 100) -> Frame:
    rows = np.zeros(count, KERNEL)
    rows["start_ns"] = t_ns + np.arange(count)
    rows["end_ns"] = rows["start_ns"] + 1
    rows["name_id"] = name_id
    return Frame(Kind.KERNELS, rows, t_ns)


def filled(seconds: int, ring: FrameRing) -> FrameRing:
    """A frame of kernels each second, each with a name of its own."""
    ring.add(Frame(Kind.HELLO, {"wire": 1, "pid": 7}, SECOND))
    ring.add(Frame(Kind.DEVICE, {"device_id": 0, "name": "H200"}, SECOND))
    ring.add(Frame(Kind.DEVICE, {"device_id": 0, "sm_count": 132}, SECOND))
    for second in range(1, seconds + 1):
        t_ns = second * SECOND
        ring.add(Frame(Kind.NAMES, {second: f"kernel {second}"}, t_ns))
        ring.add(kernels(t_ns, second))
        ring.add(Frame(Kind.OBSERVED, np.array([(t_ns, t_ns + 200, 0, 0)], OBSERVED), t_ns))
    return ring


def test_a_ring_with_room_gives_back_what_it_was_given() -> None:
    ring = FrameRing()
    given = [Frame(Kind.HELLO, {"wire": 1}, 1), kernels(2, 1), kernels(3, 1)]
    for frame in given:
        ring.add(frame)
    assert ring.frames() == given


def test_frames_too_old_fall_out() -> None:
    ring = filled(100, FrameRing(keep_ns=10 * SECOND))
    records = [frame for frame in ring.frames() if frame.kind == Kind.KERNELS]
    assert [frame.sent_ns for frame in records] == [s * SECOND for s in range(90, 101)]


def test_the_ring_keeps_no_more_bytes_than_it_may() -> None:
    ring = filled(1000, FrameRing(keep_bytes=100_000))
    kept = [frame for frame in ring.frames() if frame.kind == Kind.KERNELS]
    assert sum(map(frame_bytes, kept)) <= 100_000
    assert len(kept) > 10


def test_what_is_kept_can_be_read_on_its_own() -> None:
    timeline = Timeline()
    for frame in filled(100, FrameRing(keep_ns=10 * SECOND)).frames():
        timeline.add(frame)
    assert timeline.hello["pid"] == 7
    assert timeline.devices[0].name == "H200"
    assert timeline.devices[0].sm_count == 132
    assert "kernel 1" in timeline.names
    assert "kernel 95" in timeline.names
    assert len(timeline.observed) == 11
