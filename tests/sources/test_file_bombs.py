"""Small files that hold much: told in bounded work and memory, whatever is in them."""

import gzip
import io
import itertools
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from brrrtop.errors import BadInput
from brrrtop.sources import source as files
from brrrtop.sources.importers.jax import profile as xplane
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.importers.trace import columns, reader
from brrrtop.sources.recording import RecordingSource, RecordingWriter
from brrrtop.sources.registry import open_source
from brrrtop.sources.source import Budget
from collectors.protocol.frames import DTYPES, Frame, Kind, encode
from tests.session.handmade import kernel, launch, text_of, written

SECOND = 1_000_000_000
NOW = 1_790_857_026 * SECOND
MB = 1 << 20


class Counted:
    """Blocks of text, and how much of them was asked for."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = blocks
        self.taken_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            self.taken_bytes += len(block)
            yield block


def started(start: bytes, filler: bytes) -> tuple[int, str]:
    """How much is read of `start` and endless `filler`, and how it is refused."""
    blocks = Counted(itertools.chain([start], itertools.repeat(filler, 4096)))
    with pytest.raises(BadInput) as fault:
        reader.Runs(iter(blocks), "x").start()
    return blocks.taken_bytes, fault.value.message


@pytest.mark.parametrize(
    ("start", "filler"),
    [
        (b"", b" " * MB),
        (b'{"a": "', b"x" * MB),
        (b"{", b" " * MB),
        (b'{"traceEvents"', b" " * MB),
        (b"{", b'"traceEvents" ' * (MB // 14)),
    ],
    ids=["spaces", "one string", "spaces inside", "no colon", "no list"],
)  # fmt: skip
def test_text_without_events_is_given_up_after_a_bounded_part(start, filler):
    taken, _ = started(start, filler)
    assert taken <= reader.MOST_HEAD_BYTES + 2 * MB


def test_the_events_are_found_wherever_blocks_are_cut():
    text = b' \n{"a": 1, "traceEvents" : [{"ph": "X"}]}'
    for size in range(1, len(text)):
        blocks = [text[at : at + size] for at in range(0, len(text), size)]
        runs = reader.Runs(iter(blocks), "x")
        runs.start()
        assert runs.head == b'{"a": 1, "traceEvents" : ['


def test_an_event_with_a_list_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(reader, "MOST_RUN_BYTES", 2 * MB)
    start = b'[{"ph":"X","cat":"kernel","args":{"a":['
    blocks = Counted(itertools.chain([start], itertools.repeat(b'{"a":1},' * (MB // 8), 4096)))
    runs = reader.Runs(iter(blocks), "x")
    runs.start()
    read = 0
    with pytest.raises(BadInput, match="without an end"):
        for run in runs:
            read += len(run)
            with pytest.raises(columns.Torn):
                columns.decode_run(run)
            runs.refuse(run)
    assert blocks.taken_bytes <= 4 * reader.MOST_RUN_BYTES
    assert read <= 8 * reader.MOST_RUN_BYTES


@pytest.mark.parametrize("event", [b'{"a":!}', b'{"a":1}'])
def test_what_is_read_to_save_a_damaged_run_is_bounded(event):
    read = 0

    def counted(text: bytes) -> None:
        nonlocal read
        read += len(text)
        columns.decode_run(text)

    runs = reader.Runs(iter(()), "x")
    runs.rest = b'{"ph":"X","args":{"a":[' + b",".join([event] * (MB // 8)) + b"!!"
    events = reader.Events(counted, lambda: 0)
    events.read(runs, reader.Inflater(io.BytesIO(), 0))
    assert read <= 10 * MB and events.are_torn


def bomb(path: Path, packed: bytes, megabytes: int) -> Path:
    """gzip of `packed` repeated over so much text."""
    path.write_bytes(gzip.compress(packed * (MB * megabytes // len(packed)), 9))
    return path


@pytest.mark.parametrize("text", [bytes(64), b" " * 64, b'[{"ph":"X"},' * 10])
def test_a_file_that_inflates_beyond_reason_is_told(tmp_path, text, monkeypatch):
    monkeypatch.setattr(files, "FREE_BYTES", 2 * MB)
    path = bomb(tmp_path / "x.json.gz", text, 64)
    with pytest.raises(BadInput) as fault:
        list(open_source(path).frames())
    assert fault.value.message


def events(count: int) -> bytes:
    """A sound trace of equal kernels."""
    return text_of([kernel(10 * n, 5, 1) for n in range(count)])


def test_force_reads_what_is_more_than_its_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FREE_BYTES", 1000)
    monkeypatch.setattr(files, "MOST_TIMES", 5)
    path = written(tmp_path, events(2000), "x.json.gz", compress=True)
    with pytest.raises(BadInput) as fault:
        list(KinetoSource(path).frames())
    assert "text" in fault.value.message and "--force" in fault.value.action
    assert sum(1 for f in KinetoSource(path, force=True).frames() if f.kind == Kind.KERNELS)


def test_a_recording_has_the_same_budget(tmp_path, monkeypatch):
    path = tmp_path / "x.brrr"
    with RecordingWriter(path) as writer:
        for n in range(50):
            rows = np.zeros(20_000, DTYPES[Kind.KERNELS])
            rows["start_ns"], rows["end_ns"] = NOW, NOW + 1000
            writer.write(Frame(Kind.KERNELS, rows, NOW + n))
    monkeypatch.setattr(files, "FREE_BYTES", MB)
    monkeypatch.setattr(files, "MOST_TEXT_BYTES", 8 * MB)
    source = RecordingSource(path)
    with pytest.raises(BadInput, match="more than"):
        list(source.frames())
    with pytest.raises(BadInput, match="more than"):
        RecordingSource(path).span  # noqa: B018  reads the file
    assert len(list(RecordingSource(path, force=True).frames())) == 52


class Large(io.BytesIO):
    """A file of which much was read."""

    def tell(self) -> int:
        return 1 << 40


def test_a_file_that_fills_the_memory_is_told(monkeypatch):
    resident = iter(range(0, 1 << 40, 64 * MB))
    monkeypatch.setattr(files, "_memory", lambda: (next(resident), 512 * MB))
    one = Budget("x", Large())
    with pytest.raises(BadInput, match="memory"):
        for _ in one.counted(itertools.repeat(bytes(MB), 4096)):
            pass
    assert one.text_bytes <= 512 * MB
    forced = Budget("x", Large(), force=True)
    assert sum(map(len, forced.counted(itertools.repeat(bytes(MB), 600)))) == 600 * MB


def zstd_recording(path: Path, pieces: Iterable[bytes]) -> Path:
    """A recording of any bytes."""
    with path.open("wb") as file:
        file.write(struct.pack("<4sHH", b"BRRR", 1, 0))
        with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as packed:
            for piece in pieces:
                packed.write(piece)
    return path


def test_zeros_in_a_recording_end_it(tmp_path):
    hello = encode(Frame(Kind.HELLO, {"wire": 1}, NOW))
    path = zstd_recording(tmp_path / "x.brrr", [hello, *itertools.repeat(bytes(MB), 512)])
    assert path.stat().st_size < MB
    source = RecordingSource(path)
    assert [frame.kind for frame in source.frames()] == [Kind.HELLO]
    assert any("empty frames" in note for note in source.info.notes)
    assert source.span is not None and source.span.duration_ns == 0


def test_a_stamp_of_another_age_does_not_stretch_a_recording(tmp_path):
    stamps = (NOW, NOW + SECOND, 1 << 61, 5, NOW + 2 * SECOND)
    frames = [encode(Frame(Kind.STATUS, {}, stamp)) for stamp in stamps]
    source = RecordingSource(zstd_recording(tmp_path / "x.brrr", frames))
    assert source.span is not None and source.span.duration_ns == 2 * SECOND
    assert [f.sent_ns - NOW for f in source.frames()] == [0, SECOND, SECOND, SECOND, 2 * SECOND]


def test_headers_of_any_bits_give_a_span_or_nothing(tmp_path):
    for seed in range(50):
        noise = np.random.default_rng(seed).integers(0, 256, 400).astype(np.uint8).tobytes()
        hello = encode(Frame(Kind.HELLO, {"wire": 1}, NOW))
        source = RecordingSource(zstd_recording(tmp_path / "x.brrr", [hello, noise]))
        assert source.span is not None and source.span.duration_ns < 60 * 86_400 * SECOND


def test_equal_events_in_bounded_memory(tmp_path):
    path = written(tmp_path, events(20_000), "x.json.gz", compress=True)
    tracemalloc.start()
    try:
        assert sum(len(f.body) for f in KinetoSource(path).frames() if f.kind == Kind.KERNELS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * MB


def test_devices_of_a_trace_with_odd_properties_are_left_out(tmp_path):
    odd = [
        {"id": [0], "numSms": 1}, {"id": {}, "name": 3}, 7, {"id": "0"},
        {"id": 0, "numSms": "132", "name": "NVIDIA H200", "computeMajor": [9], "totalGlobalMem": -1},
    ]  # fmt: skip
    text = text_of([kernel(0, 5, 1), launch(0, 1, 1)], deviceProperties=odd)
    (result,) = (f for f in KinetoSource(written(tmp_path, text)).frames() if f.kind == Kind.DEVICE)
    assert result.body == {"device_id": 0, "name": "NVIDIA H200"}


def test_ops_of_a_trace_can_be_recorded_whatever_their_inputs_are(tmp_path):
    from tests.session.handmade import op

    deep: Any = [2]
    for _ in range(400):
        deep = [deep]
    texts = [deep, [[1 << 70]], [["a", {}]], {"a": 1}, [[2, 3], [[4], [5]]]]
    made = []
    for n, dims in enumerate(texts):
        at = 100 * n
        made += [kernel(at + 20, 9, n + 1), launch(at + 5, 2, n + 1)]
        made.append(op(at, 50, "aten::mm", **{"Input Dims": dims, "Input type": ["float", "x"]}))
    source = KinetoSource(written(tmp_path, text_of(made)))
    with RecordingWriter(tmp_path / "x.brrr") as writer:
        for frame in source.frames():
            writer.write(frame)
    back = RecordingSource(tmp_path / "x.brrr")
    ops = next(f.body for f in back.frames() if f.kind == Kind.OPS)
    assert [len(row) >= 5 for row in ops] == [True] * len(ops) and len(ops) >= 2
    assert any(row[2] == [[2, 3], [[4], [5]]] for row in ops)
    assert not back.info.notes


def tagged(number: int, payload: bytes) -> bytes:
    """A field of protobuf that has a length."""
    size, length = len(payload), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def entry(number: int) -> bytes:
    """An entry of a map, whose key is like no other."""
    return tagged(5, b"\x08" + bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14]))


DEVICE = tagged(2, b"/device:GPU:0")
SMALL = {
    "events": DEVICE + tagged(3, tagged(2, b"Stream #1(Kernel)") + b"\x22\x02\x18\x01" * 60_000),
    "lines": DEVICE + b"\x1a\x00" * 125_000,
    "facts": DEVICE + b"\x32\x00" * 125_000,
    "names": DEVICE + b"".join(map(entry, range(40_000))),
}


@pytest.mark.parametrize("kind", SMALL)
def test_a_profile_of_jax_takes_no_more_memory_than_it_may(kind, tmp_path, monkeypatch):
    (tmp_path / "bomb.xplane.pb").write_bytes(tagged(1, SMALL[kind]))
    monkeypatch.setattr(files, "_memory", lambda: (tracemalloc.get_traced_memory()[0], 4 * MB))
    monkeypatch.setattr(xplane, "LOOK_EVERY", 1 << 12)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="half of the free memory"):
            list(open_source(tmp_path / "bomb.xplane.pb").frames())
        assert tracemalloc.get_traced_memory()[1] < 4 * MB
    finally:
        tracemalloc.stop()


def test_events_of_jax_that_say_nothing_are_not_kept():
    line = tagged(3, tagged(2, b"Stream #1(Kernel)") + b"\x22\x00" * 100)
    assert [one.events for one in xplane.read_xplane(tagged(1, DEVICE + line)).lines] == [[]]
