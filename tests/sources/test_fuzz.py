"""Broken files of every kind: frames or a `BrrrtopError`, in bounded time and memory."""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from brrrtop.errors import BrrrtopError
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.importers.trace import reader
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.registry import open_source
from tests.fuzz.fuzz import broken_bytes
from tests.session.handmade import annotation, copy, kernel, launch, op, text_of, written

SECONDS = 1.5
LEAST = 20
MOST_BYTES = 64 << 20


def _trace(start: float = 0.0) -> bytes:
    events = []
    for i in range(12):
        events += [
            op(
                start + i * 50.5,
                40,
                "aten::mm",
                **{"Input Dims": [[2, 2], [2, 2]], "Input type": ["float"] * 2},
            ),
            launch(start + i * 50.5 + 2, 3.25, i + 1),
            kernel(start + i * 50.5 + 20, 9.125, i + 1),
        ]
    events += [
        annotation(0, 700, "ProfilerStep#1"),
        copy(800, 3, 90, "Memcpy DtoH (Device -> Pinned)", 4),
    ]
    events += [launch(790, 3, 90, "cudaMemcpyAsync"), launch(793, 20, 0, "cudaStreamSynchronize")]
    return text_of(events, baseTimeNanoseconds=1790857026000000000, distributedInfo={"rank": 0})


def _try(path: Path) -> None:
    """Reads all of it; anything but a `BrrrtopError` fails the test."""
    try:
        source = open_source(path)
        for _ in source.frames():
            pass
        assert source.span is not None
        source.close()
    except BrrrtopError as fault:
        assert fault.message and "\n" not in fault.message


def _fuzz(folder: Path, seed: bytes, wrap: Callable[[bytes], bytes], number: int) -> None:
    chance = random.Random(number)
    end = time.monotonic() + SECONDS
    count = 0
    tracemalloc.start()
    try:
        while time.monotonic() < end or count < LEAST:
            data = wrap(broken_bytes(seed, chance))
            if chance.random() < 0.2:
                data = broken_bytes(data, chance)
            path = folder / "f"
            path.write_bytes(data or b" ")
            try:
                _try(path)
            except BaseException:
                keep = folder / "failing"
                keep.write_bytes(data)
                print(f"seed {number}, try {count}: {data[:4000]!r}")
                raise
            count += 1
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("wrap", "number"), [(bytes, 1), (gzip.compress, 2)])
def test_broken_traces_never_raise_anything_else(
    tmp_path: Path, wrap: Callable[[bytes], bytes], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", 512)
    _fuzz(tmp_path, _trace(), wrap, number)


def test_broken_traces_with_times_beyond_doubles_never_raise_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", 512)
    _fuzz(tmp_path, _trace(1712195495505543.217), bytes, 5)


def test_broken_recordings_never_raise_anything_else(tmp_path: Path) -> None:
    path = tmp_path / "seed.brrr"
    with RecordingWriter(path) as writer:
        for frame in KinetoSource(written(tmp_path, _trace())).frames():
            writer.write(frame)
    _fuzz(tmp_path, path.read_bytes(), bytes, 3)


def test_broken_frames_in_a_sound_stream_never_raise_anything_else(tmp_path: Path) -> None:
    import zstandard

    from collectors.protocol.frames import encode

    frames = b"".join(map(encode, KinetoSource(written(tmp_path, _trace())).frames()))
    _fuzz(tmp_path, frames, lambda text: b"BRRR\x01\0\0\0" + zstandard.compress(text), 4)
