"""A recording gives back what was written, at any moment of its life, and overwrites nothing."""

import errno
import io
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from brrrtop.errors import BadInput, BrrrtopError, UsageError
from brrrtop.sources import recording
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.recording import RecordingSource, RecordingWriter, by_column, by_row, convert
from brrrtop.sources.registry import open_source
from brrrtop.sources.source import merge_frames
from collectors.protocol import frames as wire
from collectors.protocol.frames import KERNEL, MARK, Frame, Kind, encode
from tests.session.handmade import Received, kernel, launch, text_of, written

HELLO = Frame(
    Kind.HELLO, {"wire": 1, "pid": 4711, "rank": 2, "cmdline": ["python", "train.py"]}, 100
)


def _kernels(start: int, count: int) -> Any:
    rows = np.zeros(count, wire.KERNEL)
    rows["start_ns"] = start + np.arange(count) * 10
    rows["end_ns"] = rows["start_ns"] + 7
    return rows


def _frames() -> list[Frame]:
    body = [Frame(Kind.KERNELS, _kernels(t, 5), t + 100) for t in range(200, 900, 100)]
    return [
        HELLO,
        Frame(Kind.NAMES, {1: "gemm"}, 100),
        *body,
        Frame(Kind.END, {"reason": "done"}, 1000),
    ]


def _write(path: Path, frames: list[Frame], **options: Any) -> Path:
    with RecordingWriter(path, **options) as writer:
        for frame in frames:
            writer.write(frame)
    return path


def _bytes(frames: list[Frame]) -> list[bytes]:
    return [encode(frame) for frame in frames]


def test_what_was_written_comes_back(tmp_path):
    source = open_source(_write(tmp_path / "a.brrr", _frames()))
    assert isinstance(source, RecordingSource)
    assert (source.info.kind, source.info.pid, source.info.rank) == ("recording", 4711, 2)
    assert source.info.cmdline == "python train.py"
    assert source.span is not None and (source.span.t0_ns, source.span.t1_ns) == (100, 1000)
    assert _bytes(list(source.frames())) == _bytes(_frames())
    assert source.ended and source.info.notes == ()
    source.close()


def test_replay_stops_where_it_is_told_and_starts_again(tmp_path):
    source = RecordingSource(_write(tmp_path / "a.brrr", _frames()))
    early = list(source.frames(400))
    assert [f.sent_ns for f in early] == [100, 100, 300, 400]
    assert list(source.frames(450)) == []
    assert len(list(source.frames())) == len(_frames()) - 4
    source.seek(400)
    assert _bytes(list(source.frames(400))) == _bytes(early)
    source.close()


def test_every_truncation_reads_up_to_the_last_whole_frame(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_FLUSH_BYTES", 1)
    data = _write(tmp_path / "a.brrr", _frames()).read_bytes()
    counts = []
    for size in range(1, len(data)):
        path = tmp_path / "cut.brrr"
        path.write_bytes(data[:size])
        try:
            source = RecordingSource(path)
        except BadInput as fault:
            assert fault.action
            counts.append(0)
            continue
        got = list(source.frames())
        assert _bytes(got) == _bytes(_frames()[: len(got)])
        assert len(got) == len(_frames()) or "cut off" in source.info.notes[-1]
        counts.append(len(got))
        source.close()
    assert counts == sorted(counts)
    assert set(counts) == set(range(len(_frames()) + 1))


def test_every_damaged_byte_gives_frames_or_a_sentence(tmp_path):
    data = _write(tmp_path / "a.brrr", _frames()).read_bytes()
    path = tmp_path / "bad.brrr"
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            source = open_source(path)
            list(source.frames())
            source.close()
        except BrrrtopError as fault:
            assert fault.message and fault.action


def test_a_file_still_being_written_is_readable_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_FLUSH_S", 0.0)
    writer = RecordingWriter(tmp_path / "a.brrr")
    for frame in _frames()[:4]:
        writer.write(frame)
    source = RecordingSource(tmp_path / "a.brrr")
    assert len(list(source.frames())) == 4
    assert "still being written" in source.info.notes[-1]
    source.close()
    writer.close()
    source = RecordingSource(tmp_path / "a.brrr")
    assert [f.kind for f in source.frames()][-1] == Kind.END
    assert source.info.notes == ()
    source.close()


def test_frames_reach_the_file_within_a_second(tmp_path, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(recording.time, "monotonic", lambda: now[0])
    path = tmp_path / "a.brrr"
    writer = RecordingWriter(path)
    writer.write(HELLO)
    assert path.stat().st_size < 20
    now[0] += 1.0
    writer.flush_if_due()
    source = RecordingSource(path)
    assert source.info.pid == 4711
    source.close()
    writer.close()


def test_an_existing_file_is_never_touched(tmp_path):
    path = tmp_path / "run.brrr"
    path.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists") as fault:
        RecordingWriter(path)
    assert "run-2.brrr" in fault.value.action
    assert path.read_bytes() == b"precious"


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    for path in (tmp_path / "no" / "such" / "a.brrr", "a\0b"):
        with pytest.raises(BrrrtopError, match="cannot be made"):
            RecordingWriter(path)


class _Disk(io.BytesIO):
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        size = min(len(data), self.room - self.tell())
        if size <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(bytes(data)[:size])


def test_a_full_disk_is_said_once_and_leaves_a_readable_file(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_FLUSH_BYTES", 1)
    whole = (_write(tmp_path / "a.brrr", _frames())).stat().st_size
    disk = _Disk(whole - 40)
    writer = RecordingWriter(disk)
    with pytest.raises(BrrrtopError, match="No space left") as fault:
        for frame in _frames():
            writer.write(frame)
    assert "can be replayed" in fault.value.action
    writer.write(_frames()[2])
    path = tmp_path / "b.brrr"
    path.write_bytes(disk.getvalue())
    writer.close()
    assert disk.closed
    source = RecordingSource(path)
    got = list(source.frames())
    assert 2 < len(got) < len(_frames())
    source.close()


def test_a_recording_that_cannot_even_begin_leaves_no_file_in_the_way(tmp_path):
    path = tmp_path / "run.brrr"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        with pytest.raises(BrrrtopError, match="stopped") as fault:
            RecordingWriter(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "replayed" not in fault.value.action and "another place" in fault.value.action
    assert fault.traceback, "what failed is still held, and so is what it opened"
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    assert not path.exists(), "or the next try would be refused"


class _Jammed(_Disk):
    """A disk that takes nothing more and cannot even be let go of in peace."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.EIO, "Input/output error")


def test_a_file_that_cannot_be_closed_in_peace_is_a_sentence_too():
    disk = _Jammed(1 << 20)
    writer = RecordingWriter(disk)
    writer.write(_frames()[0])
    with pytest.raises(BrrrtopError, match="Input/output error"):
        writer.close()
    assert disk.closed
    writer.close()


@pytest.mark.parametrize("size", [8, 60])
def test_a_recording_without_a_whole_frame_is_refused_and_let_go_of(tmp_path, size):
    path = tmp_path / "cut.brrr"
    path.write_bytes(_write(tmp_path / "a.brrr", _frames()).read_bytes()[:size])
    opened = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(BadInput, match="no complete frame") as fault:
        open_source(path)
    assert fault.traceback, "what failed is still held, and so is what it opened"
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


@given(st.sampled_from([*wire.DTYPES, Kind.NAMES, 99]), st.data())
def test_any_payload_comes_back_from_columns_at_its_size(kind, data):
    width = wire.DTYPES[kind].itemsize if kind in wire.DTYPES else 1
    count, odd = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 2))
    size = count * width + odd
    payload = data.draw(st.binary(min_size=size, max_size=size))
    turned = by_column(kind, payload)
    assert len(turned) == size and by_row(kind, turned) == payload


def test_a_recording_of_the_first_format_gives_the_same_and_is_twice_as_large(tmp_path):
    chance = np.random.default_rng(7)
    rows = _kernels(200, 5000)
    rows["start_ns"] += np.cumsum(chance.integers(2000, 90_000, len(rows)))
    rows["end_ns"] = rows["start_ns"] + chance.integers(1000, 1100, len(rows))
    rows["correlation"] = np.arange(len(rows)) * 3
    frames = [HELLO, Frame(Kind.KERNELS, rows, 10**9), Frame(Kind.END, {}, 10**9 + 1)]
    now = _write(tmp_path / "now.brrr", frames)
    first = tmp_path / "first.brrr"
    first.write_bytes(b"BRRR\x01\0\0\0" + zstandard.compress(b"".join(_bytes(frames)), 3))
    for path in (now, first):
        source = RecordingSource(path)
        assert _bytes(list(source.frames())) == _bytes(frames)
        source.close()
    assert now.stat().st_size * 2 < first.stat().st_size


def test_real_recordings_of_the_first_format_are_still_read():
    """Kept as they were written: nothing of ours writes this format any more."""
    kept = sorted((Path(__file__).parents[1] / "recordings" / "promises").glob("*.brrr"))
    paths = [path for path in kept if path.read_bytes().startswith(b"BRRR\x01\0")]
    assert len(paths) == 6
    for path in paths:
        source = RecordingSource(path)
        kernels = [f.body for f in source.frames() if f.kind == Kind.KERNELS]
        assert sum(map(len, kernels)) > 100 and source.ended, path.name
        assert all((rows["end_ns"] > rows["start_ns"]).all() for rows in kernels), path.name
        source.close()


def test_a_newer_format_is_refused_by_name(tmp_path):
    data = _write(tmp_path / "a.brrr", _frames()).read_bytes()
    path = tmp_path / "new.brrr"
    path.write_bytes(b"BRRR\x03\x00" + data[6:])
    with pytest.raises(BadInput, match=r"new\.brrr is a recording of format 3") as fault:
        open_source(path)
    assert fault.value.action == "upgrade brrrtop"


def test_a_newer_wire_is_refused(tmp_path):
    path = _write(tmp_path / "a.brrr", [Frame(Kind.HELLO, {"wire": 99}, 1)])
    with pytest.raises(BadInput, match="newer") as fault:
        open_source(path)
    assert fault.value.action == "upgrade brrrtop"


def test_what_is_no_recording_is_refused(tmp_path):
    for number, data in enumerate(
        (b"RIFF1234", b"BR", b"BRRR", b"BRRR\x00\x00\x00\x00", b"BRRR\x01\0\0\0")
    ):
        path = tmp_path / f"{number}.brrr"
        path.write_bytes(data)
        with pytest.raises(BadInput) as fault:
            RecordingSource(path)
        assert fault.value.action


def test_frames_before_any_hello_get_one(tmp_path):
    path = _write(tmp_path / "a.brrr", [Frame(Kind.KERNELS, _kernels(200, 3), 300)])
    source = RecordingSource(path)
    assert [f.kind for f in source.frames()] == [Kind.HELLO, Kind.KERNELS, Kind.END]
    source.close()


def test_a_converted_trace_says_the_same_and_where_it_is_from(tmp_path):
    events = [
        e for i in range(30) for e in (launch(i * 9000, 2, i + 1), kernel(i * 9000 + 5, 3, i + 1))
    ]
    trace = written(tmp_path, text_of(events, baseTimeNanoseconds=1790857026000000000))
    convert(KinetoSource(trace), tmp_path / "a.brrr")
    source = RecordingSource(tmp_path / "a.brrr")
    theirs, ours = Received(source), Received(KinetoSource(trace))
    for table in ("kernels", "copies", "calls", "marks", "links"):
        assert getattr(theirs, table).tobytes() == getattr(ours, table).tobytes()
    assert theirs.names == ours.names and theirs.ops == ours.ops
    assert theirs.hello["provenance"] == {
        "converted_from": "t.json (kineto)", "date": "2026-10-01",
        "device": "NVIDIA H200",
    }  # fmt: skip
    assert source.info.notes == ("converted from t.json (kineto), NVIDIA H200, 2026-10-01",)
    source.close()


def test_frames_of_one_reading_are_merged_and_lose_nothing():
    """Eleven frames of marks a second were a third of a recording without bursts."""
    marks = [np.zeros(count, MARK) for count in (3, 2)]
    for table in marks:
        table["start_ns"] = np.arange(len(table))
    frames = [
        Frame(Kind.HELLO, {"wire": 1}, 1), Frame(Kind.NAMES, {1: "a"}, 2), Frame(Kind.MARKS, marks[0], 3),
        Frame(Kind.KERNELS, np.zeros(1, KERNEL), 4), Frame(Kind.NAMES, {2: "b"}, 5),
        Frame(Kind.MARKS, marks[1], 6), Frame(Kind.END, {"reason": "x"}, 7),
    ]  # fmt: skip
    merged = merge_frames(frames)
    assert [(frame.kind, frame.sent_ns) for frame in merged] == [
        (Kind.HELLO, 1), (Kind.NAMES, 2), (Kind.KERNELS, 4), (Kind.MARKS, 6), (Kind.END, 7)
    ]  # fmt: skip
    assert merged[1].body == {1: "a", 2: "b"}
    assert merged[3].body["start_ns"].tolist() == [0, 1, 2, 0, 1]
    assert [one is two for one, two in zip(merge_frames(merged), merged, strict=True)] == [True] * 5
