"""Counter samples go from a sampler through a recording into the window they belong to."""

from pathlib import Path

import numpy as np

from brrrtop.advisories.advise import advise
from brrrtop.model.tables import Span
from brrrtop.session.session import Session
from brrrtop.sources.recording import RecordingSource
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import SAMPLE, SAMPLE_COLUMNS, Frame, Kind
from tests.live.agents import SECOND, FakeFeed
from tests.live.bench import Bench, kinds

MS = 1_000_000
BEHIND_NS = 77 * SECOND


def rows(start_ns: int, count: int, device: int = 0) -> np.ndarray:
    """Samples of 1 ms from then on, on a clock that is behind."""
    result = np.zeros(count, SAMPLE)
    result["start_ns"] = start_ns + np.arange(count) * MS - BEHIND_NS
    result["end_ns"] = result["start_ns"] + MS
    result["offset_ns"] = BEHIND_NS
    result["device"] = device
    for place, column in enumerate(SAMPLE_COLUMNS):
        result[column] = place / 10
    return result


class Sampler(FakeFeed):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: list[int | None] = []
        self.spans = 0

    def expect(self, until_ns: int | None) -> None:
        self.expected.append(until_ns)

    def traced(self, spans: np.ndarray) -> None:
        self.spans += len(spans)


def test_a_sampler_is_told_of_bursts_before_and_after_and_of_tracing_without_end():
    bench, sampler = Bench(), Sampler()
    bench.source.feeds._feeds.append(sampler)
    bench.read(10)
    assert sampler.expected[0] is not None and sampler.expected[0] > bench.now_ns - 10 * SECOND
    assert sampler.spans >= len(sampler.expected) - 1 > 0
    bench.driver.continuous(True)
    bench.driver.continuous(False)
    assert sampler.expected[-2:] == [None, 0]
    bench.source.close()
    assert sampler.closed


def test_samples_reach_the_recording_as_they_reach_the_session(tmp_path):
    bench = Bench(path=tmp_path / "run.brrr")
    sent = rows(bench.now_ns, 50)
    bench.feed.pending.append(Frame(Kind.SAMPLES, sent, bench.now_ns))
    assert Kind.SAMPLES in kinds(bench.read(1))
    bench.source.close()
    source = RecordingSource(tmp_path / "run.brrr")
    (result,) = [f.body for f in source.frames() if f.kind == Kind.SAMPLES]
    source.close()
    assert result.tobytes() == sent.tobytes()


def test_a_window_holds_the_samples_of_its_device_and_time_in_order():
    timeline = Timeline()
    for body in (rows(150 * MS, 50), rows(100 * MS, 50), rows(100 * MS, 50, device=1)):
        timeline.add(Frame(Kind.SAMPLES, body, SECOND))
    samples = timeline.window(Span(120 * MS, 180 * MS), 0).samples
    assert samples is not None and len(samples) == 60
    assert (np.diff(samples.starts_ns) == MS).all()
    assert samples.starts_ns[0] == 120 * MS - BEHIND_NS
    assert (samples.offsets_ns == BEHIND_NS).all()
    assert (samples.dram == np.float32(0.2)).all()


def test_nobody_sampled_is_not_the_same_as_no_samples_here():
    timeline = Timeline()
    assert timeline.window(Span(0, SECOND), 0).samples is None
    timeline.add(Frame(Kind.SAMPLES, rows(0, 5), SECOND))
    samples = timeline.window(Span(SECOND, 2 * SECOND), 0).samples
    assert samples is not None and len(samples) == 0


def test_old_samples_are_forgotten():
    timeline = Timeline(keep_ns=SECOND)
    timeline.add(Frame(Kind.SAMPLES, rows(0, 50), 1))
    timeline.add(Frame(Kind.STATUS, {}, 3 * SECOND))
    assert timeline.window(Span(0, SECOND), 0).samples is None


SAMPLED = Path(__file__).resolve().parents[1] / "recordings" / "sampled" / "pointwise_chain.brrr"


def test_a_window_is_judged_anew_when_its_samples_arrive_and_alike_at_any_pace():
    source = RecordingSource(SAMPLED)
    session = Session(source)
    levels = []
    for now_ns in range(source.span.t0_ns, source.span.t1_ns + 2 * MS, 2 * MS):
        snapshot = session.advance(now_ns)
        if snapshot.estimate is not None:
            levels.append(snapshot.estimate.evidence_shares.get("L3", 0.0))
    assert (
        levels[0] == 0.0 and levels[-1] > 0.1
    )  # its products: pointwise kernels are memory anyway
    slow = session.advance(source.span.t1_ns + 2 * MS).estimate
    source.close()
    again = RecordingSource(SAMPLED)
    fast = Session(again).advance().estimate
    again.close()
    assert (slow.kernels, slow.account, slow.confidence) == (
        fast.kernels, fast.account, fast.confidence,
    )  # fmt: skip
    assert slow.sampled == fast.sampled is not None


def test_the_first_window_says_all_it_has_and_once_more_when_its_samples_came():
    source = RecordingSource(SAMPLED.with_name("clickrate.brrr"))
    session = Session(source)
    verdicts, shown = [], []
    for now_ns in range(source.span.t0_ns, source.span.t1_ns + SECOND, SECOND // 2):
        given = {one.kind for one in session.advance(now_ns).advisories}
        if session.analysis is not None and session.analysis not in verdicts:
            verdicts.append(session.analysis)
            shown.append((given, {one.kind for one in advise(session.analysis).given}))
    source.close()
    assert len(verdicts) == 2, "judged again when its samples came"
    assert len({one.estimate.span for one in verdicts}) == 1
    assert all(text and text <= given for given, text in shown)
