"""A trainer with two GPUs: what is said is said of the one that is shown."""

from brrrtop.session.session import Session
from collectors.protocol.frames import Frame, Kind
from tests.memory_source import MemorySource
from tests.session.runs import H200, T0_NS, Run

SECOND = 1_000_000_000
APART = 1 << 20
"""Between the ids of the two GPUs' launches."""


def two_gpus() -> MemorySource:
    """The first waits for its input, the second does not."""
    first, second = Run().steps(300, wait_us=20_000), Run().steps(700)
    frames = [*first.frames, Frame(Kind.DEVICE, {**H200, "device_id": 1}, T0_NS)]
    for frame in second.frames:
        if frame.kind in (Kind.KERNELS, Kind.CALLS):
            frame.body["correlation"] += APART
            if frame.kind == Kind.KERNELS:
                frame.body["device"] = 1
            frames.append(frame)
    return MemorySource(sorted(frames, key=lambda frame: frame.sent_ns))


def test_advice_for_one_gpu_is_not_shown_beside_another():
    session = Session(two_gpus(), keep_ns=None, device_id=0)

    def advised(at_s: float) -> set[str]:
        snapshot = session.advance(T0_NS + int(at_s * SECOND))
        return {one.kind for one in snapshot.advisories}

    advised(4.0)
    assert "dataloader-stall" in advised(4.5)
    session.select_device(1)
    assert "dataloader-stall" not in advised(4.5), "at once, of the same window"
    assert "dataloader-stall" not in advised(5.0)
    session.select_device(0)
    assert "dataloader-stall" in advised(5.0)
