"""A trainer ends and comes again: the screen stays, asks, goes on, and compares."""

from collections.abc import Iterator

import pytest

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.scheduling.burst import Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.session.restart import RestartedProcess, Succession
from brrrtop.sources.live import LiveSource
from tests.live.agents import SECOND, FakeAgent, FakeFeed, FakeLoad

START_NS = 1_700_000_000 * SECOND
TICK_NS = SECOND // 4


class Line:
    """Trainers one after another, on one clock. Implements `RestartedProcesses`."""

    def __init__(self, *, agreed: bool = False) -> None:
        self.now_ns = START_NS
        self.agreed, self.how = agreed, "watch it"
        self.successor: RestartedProcess | None = None
        self.refuses: str | None = None
        self.entered: list[int] = []
        self.driver = self.driven(Succession(self))

    def driven(self, succession: Succession) -> Live:
        first = alone(self._started(4711))
        return Live([first], succession=succession, now_ns=lambda: self.now_ns)

    def _started(self, pid: int) -> Controller:
        self.agent, self.load = FakeAgent(self.now_ns, pid=pid), FakeLoad()
        source = LiveSource(
            self.agent, pid, [FakeFeed()], self.load,  # type: ignore[arg-type]
            None, lambda: self.now_ns,
        )  # fmt: skip
        return Controller(source, Governor(Limits()))

    def find(self) -> RestartedProcess | None:
        return self.successor

    def enter(self, pid: int) -> Controller:
        self.entered.append(pid)
        if self.refuses:
            raise BrrrtopError(self.refuses)
        return self._started(pid)

    def watch(self, seconds: float) -> Snapshot:
        for _ in range(max(1, int(seconds * SECOND / TICK_NS))):
            self.now_ns += TICK_NS
            if not self.agent.closed:
                self.agent.move_to(self.now_ns)
            snapshot = self.driver.advance()
        return snapshot

    def end(self) -> Snapshot:
        self.load.trainer_running = False
        return self.watch(1.25)


@pytest.fixture
def line() -> Iterator[Line]:
    one = Line()
    yield one
    one.driver.close()


HEIR = RestartedProcess(4712, ready=True, only=True)


def test_an_end_is_said_with_its_time_and_reason_and_its_figures_stay(line):
    before = line.watch(10)
    ended = line.end()
    assert before.estimate is not None and ended.estimate is not None
    assert ended.freshness is Freshness.ENDED
    message = "exited: exit code 1; looking for the same command; its last figures are the baseline"
    assert message in ended.notice
    assert ended.notice[2] == ended.notice[5] == ":"
    assert ended.baseline.label.startswith("pid 4711, exited ")
    assert ended.baseline.estimate.regime is before.estimate.regime
    assert ended.successor is None
    assert [e for e in ended.events if e.kind == "trainer" and "exit code 1" in e.says]


def test_nobody_is_entered_without_a_yes(line):
    line.watch(10)
    line.end()
    line.successor = HEIR
    offered = line.watch(30)
    assert line.entered == []
    assert offered.successor == 4712
    assert "pid 4712 runs the same command: Enter to watch it" in str(offered.notice)


def test_after_the_yes_the_comparison_shows_by_itself_and_the_log_goes_on(line):
    line.watch(10)
    line.end()
    line.successor = HEIR
    line.watch(3)
    assert "4712" in line.driver.follow()
    after = line.watch(10)
    assert line.entered == [4712]
    assert after.freshness is Freshness.LIVE and after.notice is None
    assert after.source.pid == 4712
    assert after.comparison.speedup == pytest.approx(1, abs=0.05)
    kinds = [event.kind for event in after.events]
    assert kinds.index("trainer") < kinds.index("regime", kinds.index("trainer"))


def test_a_yes_given_beforehand_enters_by_itself_and_only_the_one_that_fits():
    line = Line(agreed=True)
    line.watch(10)
    line.end()
    line.successor = RestartedProcess(4713, ready=True, only=False)
    assert line.watch(5).successor == 4713
    line.successor = RestartedProcess(4712, ready=False, only=True)
    assert "is starting" in str(line.watch(5).notice)
    assert line.entered == []
    line.successor = HEIR
    assert line.watch(10).comparison is not None
    assert line.entered == [4712]
    line.driver.close()


def test_a_successor_that_cannot_be_entered_is_not_tried_again_unasked():
    line = Line(agreed=True)
    line.watch(10)
    line.end()
    line.successor, line.refuses = HEIR, "its main thread sleeps"
    refused = line.watch(20)
    assert line.entered == [4712]
    assert "its main thread sleeps; Enter tries again" in str(refused.notice)
    line.refuses = None
    line.driver.follow()
    assert line.watch(5).freshness is Freshness.LIVE
    line.driver.close()


def test_the_next_end_compares_with_the_run_before_it(line):
    labels = []
    for pid in (4712, 4713):
        line.watch(10)
        ended = line.end()
        labels.append(ended.baseline.label.split(",")[0])
        line.successor = RestartedProcess(pid, ready=True, only=True)
        line.watch(3)
        line.driver.follow()
    assert labels == ["pid 4711", "pid 4712"]


def test_a_baseline_that_somebody_marked_stays(line):
    line.watch(10)
    line.driver.mark_baseline()
    marked = line.watch(1).baseline
    ended = line.end()
    assert ended.baseline is marked
    assert "the baseline stays" in str(ended.notice)


def test_without_a_successor_there_is_nothing_to_follow(line):
    with pytest.raises(BrrrtopError, match="no successor"):
        line.driver.follow()


def test_a_program_that_was_started_here_has_no_successor():
    line = Line()
    line.driver.close()
    line.driver = line.driven(Succession())
    line.watch(10)
    ended = line.end()
    assert "follow" not in line.driver.capabilities
    assert str(ended.notice).endswith("its last figures are the baseline")
    with pytest.raises(BrrrtopError):
        line.driver.follow()
    line.driver.close()
