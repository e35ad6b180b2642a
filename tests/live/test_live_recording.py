"""A live session is recorded, and what fails in that ends nothing else."""

import re
import threading
import time

import pytest
from msgspec.structs import replace

from brrrtop.cli import live
from brrrtop.cli.live import detach
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live, alone
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.recording import RecordingSource
from brrrtop.sources.tee import WriterThread
from collectors.protocol.frames import Frame, Kind
from collectors.vocabulary import Metric
from tests.live.agents import gauges
from tests.live.bench import TICK_NS, Bench, bench, kinds, statuses

__all__ = ["bench"]


def plain(snapshot: Snapshot) -> str:
    """All that a snapshot shows of the trainer, and nothing of where the frames came from."""
    return repr(
        replace(
            snapshot, source=None, freshness=None, age_ns=None, progress=None, speed=None, whole_ns=None,
            paused=False,
        )  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_recording_gives_the_snapshots_that_were_seen_live(tmp_path):
    bench = Bench(path=tmp_path / "run.brrr")
    seen = bench.watch(25)
    bench.source.close()
    assert seen[-1][1].estimate is not None
    replayed = RecordingSource(tmp_path / "run.brrr")
    session = Session(replayed)
    for now_ns, snapshot in seen:
        assert plain(session.advance(now_ns)) == plain(snapshot)
    assert replayed.info.torch == "2.13"
    replayed.close()


def test_a_recording_holds_what_was_on_its_way_when_the_monitor_left(tmp_path):
    bench = Bench(path=tmp_path / "run.brrr")
    bench.watch(3)
    bench.tick()
    bench.source.close()
    recorded = RecordingSource(tmp_path / "run.brrr")
    rows = [frame.body for frame in recorded.frames() if frame.kind in (Kind.MARKS, Kind.GAUGES)]
    recorded.close()
    marks = max(int(one["end_ns"].max()) for one in rows if "end_ns" in one.dtype.names)
    assert marks > bench.now_ns - TICK_NS
    assert any(
        "time_ns" in one.dtype.names and one["time_ns"].max() == bench.now_ns - 1 for one in rows
    )


class Sink:
    """One of a recording's; each test has its `write` fail in a way of its own."""

    def write(self, frame: Frame) -> None: ...

    def flush_if_due(self) -> None: ...

    def close(self) -> None: ...


def test_a_full_disk_stops_the_recording_and_nothing_else(bench, capsys):
    class Full(Sink):
        def write(self, frame: Frame) -> None:
            raise BrrrtopError("recording to run.brrr stopped: No space left on device")

    source = LiveSource(
        None, None, [bench.feed], bench.load, sink=Full(),  # type: ignore[arg-type]
        now_ns=lambda: bench.now_ns,
    )  # fmt: skip
    controller = Controller(source)
    frames = []
    for _ in range(12):
        bench.tick()
        controller.poll()
        frames += source.frames(bench.now_ns)
        time.sleep(0.01)
    source.close()
    assert "No space left" in str(statuses(frames)["recording"])
    assert any("No space left" in note for note in source.info.notes)
    detach(Live([alone(controller)]))
    assert "No space left" in capsys.readouterr().err
    assert Kind.GAUGES in kinds(frames)


def test_a_disk_that_is_full_from_the_start_costs_the_recording_only(tmp_path, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise BrrrtopError("recording to run.brrr stopped: No space left on device", "make room")

    monkeypatch.setattr(live, "_feeds", lambda *_: [])
    options = Options(record=str(tmp_path / "run.brrr"))
    with monkeypatch.context() as patched:
        patched.setattr(live, "RecordingWriter", full)
        live.open_live(None, None, options, "").source.close()
    assert "No space left on device; make room" in capsys.readouterr().err
    (tmp_path / "run.brrr").touch()
    with pytest.raises(UsageError, match="never overwrites"):
        live.open_live(None, None, options, "")


def test_leaving_says_how_much_a_recording_is_an_hour(tmp_path, capsys):
    bench = Bench(path=tmp_path / "run.brrr")
    bench.watch(5)
    detach(bench.driver)
    assert re.search(
        r"brrrtop: [\d.]+ KiB recorded, [\d.]+ [KM]iB an hour", capsys.readouterr().err
    )


def test_a_disk_that_hangs_costs_the_recording_only(bench):
    free = threading.Event()

    class Hung(Sink):
        def write(self, frame: Frame) -> None:
            free.wait()

    scribe = WriterThread(Hung(), waiting_bytes=2_000)
    for second in range(20):
        scribe.add(gauges(second, (Metric.POWER_WATT, 1.0)))
    assert "too slow" in scribe.stopped
    scribe.close(wait_s=0.2)  # comes back though the disk does not
    free.set()


def test_whatever_fails_in_writing_is_told():
    class Broken(Sink):
        def write(self, frame: Frame) -> None:
            raise MemoryError

        def close(self) -> None:
            raise ValueError("no stream to end")

    scribe = WriterThread(Broken())
    scribe.add(gauges(1, (Metric.POWER_WATT, 1.0)))
    scribe.close()
    assert scribe.stopped == "recording stopped: MemoryError"
