"""The log of a live session, a person's marks in it, stands in its recording line by line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.recording import RecordingSource, RecordingWriter
from collectors.protocol.frames import OBSERVED, Frame, Kind
from tests.live.agents import FakeLoad
from tests.session.runs import GEMM, SGEMM, T0_NS, Run

SECOND = 1_000_000_000
LOOK_NS = SECOND


class Played:
    """An agent that sends the frames of a made-up run when their time has come."""

    def __init__(self, frames: Sequence[Frame], now_ns: Any) -> None:
        self._frames, self._now_ns = list(frames), now_ns
        self.hello = dict(frames[0].body)
        self.closed = False

    def frames(self) -> list[Frame]:
        due = [one for one in self._frames if one.sent_ns <= self._now_ns()]
        del self._frames[: len(due)]
        return due

    def send(self, data: bytes) -> None:
        """Takes every order."""

    def close(self) -> None:
        self.closed = True


def traced(frames: Sequence[Frame]) -> list[Frame]:
    """The same, with each 25 steps reported as a traced span: each is judged by itself."""
    result: list[Frame] = []
    before_ns, steps = T0_NS, 0
    for frame in frames:
        result.append(frame)
        steps += frame.kind == Kind.MARKS
        if steps == 25:
            steps = 0
            span = np.array([(before_ns + 1_000, frame.sent_ns, 0, 0)], OBSERVED)
            result.append(Frame(Kind.OBSERVED, span, frame.sent_ns))
            before_ns = frame.sent_ns
    return result


class Watched:
    """fp32 products, a baseline marked, then 16-bit ones; at last the trainer exits."""

    def __init__(self, path: Path) -> None:
        run = Run(T0_NS).steps(250, products=SGEMM, us=9_000)
        self.marked_ns = run.now_ns
        run.steps(700, products=GEMM).steps(400, wait_us=20_000)
        self.now_ns = T0_NS
        self.load = FakeLoad()
        self.source = LiveSource(
            Played(traced(run.frames), lambda: self.now_ns), 4711, [], self.load,  # type: ignore[arg-type]
            sink=RecordingWriter(path), now_ns=lambda: self.now_ns,
        )  # fmt: skip
        self.driver = Live([alone(Controller(self.source))], now_ns=lambda: self.now_ns)
        marked = False
        while self.now_ns < run.now_ns:
            self.now_ns += LOOK_NS
            self.driver.advance()
            if self.now_ns >= self.marked_ns and not marked:
                self.driver.mark_baseline()
                marked = True
        self.load.trainer_running = False
        self.now_ns += 2 * SECOND
        self.events = self.driver.advance().events
        self.driver.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> tuple[Watched, Path]:
    path = tmp_path_factory.mktemp("log") / "run.brrr"
    return Watched(path), path


def test_a_replay_tells_every_line_at_its_time_at_any_pace(live):
    one, path = live
    kinds = [event.kind for event in one.events]
    for kind in ("regime", "baseline", "change", "trainer"):
        assert kind in kinds, one.events
    assert any(" for " in event.says for event in one.events if event.kind == "regime")
    for look_ns in (LOOK_NS, 7 * SECOND):
        session = Session(RecordingSource(path), keep_ns=None)
        span = session.source.span
        for now_ns in [*range(span.t0_ns, span.t1_ns, look_ns), span.t1_ns]:
            events = session.advance(now_ns).events
        assert events == one.events
        session.source.close()


def test_a_line_is_not_told_before_its_time(live):
    one, path = live
    session = Session(RecordingSource(path), keep_ns=None)
    before = session.advance(one.marked_ns - SECOND).events
    assert "baseline" not in [event.kind for event in before]
    after = session.advance(one.marked_ns + 2 * SECOND).events
    assert "baseline" in [event.kind for event in after]
    again = session.advance(one.marked_ns - SECOND).events
    assert again == before, "a seek back untells it"
    session.source.close()


def test_a_recording_still_ends_with_its_end(live):
    _, path = live
    frames = list(RecordingSource(path).frames())
    assert frames[-1].kind == Kind.END
    assert frames[-1].body == {"reason": "the trainer (pid 4711) exited: exit code 1"}
    assert len([one for one in frames if one.kind == Kind.END]) == 2, "the log is told after one"
