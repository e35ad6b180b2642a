"""A live session over a stand-in agent and gauges, on a clock of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from brrrtop.model.snapshot import Snapshot
from brrrtop.scheduling.burst import Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.recording import RecordingWriter
from collectors.protocol.frames import Frame, Kind
from collectors.vocabulary import Metric, StatusCode
from tests.live.agents import SECOND, FakeAgent, FakeFeed, FakeLoad, gauges

START_NS = 1_700_000_000 * SECOND


TICK_NS = SECOND // 4


class Bench:
    """A live source with everything around it faked, on one clock."""

    def __init__(self, *, agent: bool = True, path: Path | None = None) -> None:
        self.now_ns = START_NS
        self.agent = FakeAgent(START_NS) if agent else None
        self.feed = FakeFeed()
        self.load = FakeLoad()
        self.source = LiveSource(
            self.agent, 4711, [self.feed], self.load,  # type: ignore[arg-type]
            RecordingWriter(path) if path else None, lambda: self.now_ns,
        )  # fmt: skip
        self.control(Governor(Limits()))

    def control(self, governor: Governor, shapes: bool | None = None) -> None:
        """Everything behind the source, anew."""
        self.controller = Controller(self.source, governor, shapes)
        self.session = Session(self.source)
        member = alone(self.controller, self.session)
        self.driver = Live([member], now_ns=lambda: self.now_ns)

    def tick(self) -> None:
        self.now_ns += TICK_NS
        if self.agent is not None and not self.agent.closed:
            self.agent.move_to(self.now_ns)
        sm, power = (Metric.SM_ACTIVE, 0.7), (Metric.POWER_WATT, 500.0)
        self.feed.pending.append(gauges(self.now_ns - 1, sm, power))

    def read(self, seconds: float) -> list[Frame]:
        """All frames of that time."""
        frames: list[Frame] = []
        for _ in range(int(seconds * SECOND / TICK_NS)):
            self.tick()
            self.controller.poll()
            frames += self.source.frames(self.now_ns)
        return frames

    def watch(self, seconds: float) -> list[tuple[int, Snapshot]]:
        """Snapshots of that time, with the time of each."""
        watch = []
        for _ in range(int(seconds * SECOND / TICK_NS)):
            self.tick()
            watch.append((self.now_ns, self.driver.advance()))
        return watch


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.source.close()


def kinds(frames: list[Frame]) -> set[int]:
    return {frame.kind for frame in frames}


def statuses(frames: list[Frame]) -> dict[str, object]:
    """All that was said on the status line, later words over earlier ones."""
    text: dict[str, object] = {}
    for frame in frames:
        if frame.kind == Kind.STATUS:
            text.update(frame.body)
    return text


CODES = {
    "ready": StatusCode.READY,
    "tracing": StatusCode.TRACING,
    "waiting": StatusCode.GPU_UNTOUCHED,
}


def say(bench: Bench, state: str, says: str, code: StatusCode | None = None) -> list[Frame]:
    code = code or CODES.get(state, StatusCode.CUPTI_FAILED)
    body = {"by": "agent", "state": state, "code": code.value, "says": says, "cupti": None}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    return bench.read(1)
