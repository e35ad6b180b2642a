"""Offsets and strides against those NVIDIA publishes, in numpy dtypes of cupti-python."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collectors.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
cupti = pytest.importorskip("cupti.cupti", reason="cupti-python is the oracle")

KERNELS = {22: 9, 26: 9, 130001: 10, 130101: 11, 130301: 12, 130401: 13}
COPIES = {22: ("memcpy5", "memset4"), 26: ("memcpy6", "memset4"), 130401: ("memcpy7", "memset5")}


def dtype(name: str) -> Any:
    return getattr(cupti, f"activity_{name}_dtype")


def one(layout: str, /, **fields: Any) -> Any:
    """One record of NVIDIA's layout with every byte outside `fields` random."""
    noise = np.random.default_rng(7).integers(0, 256, dtype(layout).itemsize, dtype=np.uint8)
    row = noise.view(dtype(layout)).copy()
    for field, value in fields.items():
        row[field] = value
    return row[0]


def kernel(name: str, at_ns: int, pointer: int) -> Any:
    return one(
        name, kind=10, registers_per_thread=255, start=at_ns, end=at_ns + 77, device_id=3, stream_id=21,
        grid_x=11, grid_y=12, grid_z=13, block_x=14, block_y=15, block_z=16, static_shared_memory=1000,
        dynamic_shared_memory=70_000, correlation_id=4_000_000_000, name=pointer,
        graph_node_id=2**60 + 5, graph_id=99, channel_id=31,
    )  # fmt: skip


def feed(trainer: Trainer, content: bytes) -> None:
    assert trainer.do(f"b = bytes.fromhex({content.hex()!r}); answer = cupti.fake_feed(b, len(b))")


@pytest.mark.parametrize("version", KERNELS)
def test_kernels_of_each_layout_are_read(trainer, connect, version):
    monitor = connect(trainer.load(version=version).start()).ready()
    layout = f"kernel{KERNELS[version]}"
    monitor.trace(longest_s=0.15)
    at_ns = time.time_ns()
    pointer = trainer.do("answer = name('oracle')")
    row = kernel(layout, at_ns, pointer)
    feed(trainer, row.tobytes() * 3)
    monitor.traced()
    rows = monitor.rows(Kind.KERNELS)
    assert len(rows) == 3, "the stride is right"
    got = rows[2]
    assert monitor.names()[got["name_id"]] == "oracle"
    assert (got["start_ns"], got["end_ns"]) == (at_ns, at_ns + 77)
    assert (got["correlation"], got["device"], got["stream"]) == (4_000_000_000, 3, 21)
    assert got["grid"].tolist() == [11, 12, 13] and got["block"].tolist() == [14, 15, 16]
    assert (got["shared_bytes"], got["registers"]) == (71_000, 255)
    assert (got["graph"], got["graph_node"], got["channel"]) == (99, 2**60 + 5, 31)


@pytest.mark.parametrize("version", COPIES)
def test_copies_memsets_and_calls_of_each_layout_are_read(trainer, connect, version):
    monitor = connect(trainer.load(version=version).start()).ready()
    monitor.trace(longest_s=0.15)
    at_ns = time.time_ns()
    times = {"start": at_ns, "end": at_ns + 5}
    place = {"device_id": 1, "stream_id": 8, "graph_id": 6}
    copy_name, memset_name = COPIES[version]
    copy = one(
        copy_name, kind=1, copy_kind=2, src_kind=3, dst_kind=1, flags_=1, bytes=2**40,
        correlation_id=41, **times, **place,
    )  # fmt: skip
    memset = one(memset_name, kind=2, bytes=17, correlation_id=42, memory_kind=3, **times, **place)
    call = one(
        "api", kind=5, cbid=311, thread_id=1234, correlation_id=43, return_value=0, **times
    )  # fmt: skip
    peer = one("memcpy_pto_p4", kind=22, copy_kind=10, bytes=9, correlation_id=44, **times, **place)
    feed(trainer, b"".join(row.tobytes() for row in (copy, call, memset, peer, call)))
    monitor.traced()
    copies = monitor.rows(Kind.COPIES)
    assert copies["correlation"].tolist() == [41, 42, 44]
    assert copies["size_bytes"].tolist() == [2**40, 17, 9]
    assert copies["copy_kind"].tolist() == [2, 0, 10]
    assert (copies[0]["src_kind"], copies[0]["dst_kind"], copies[0]["flags"]) == (3, 1, 1)
    assert set(copies["start_ns"]) == {at_ns} and set(copies["end_ns"]) == {at_ns + 5}
    assert set(copies["graph"]) == {6} and set(copies["device"]) == {1}
    assert set(copies["stream"]) == {8} and not copies["reserved"].any()
    calls = monitor.rows(Kind.CALLS)
    assert [row.tolist()[:4] for row in calls] == [(at_ns, at_ns + 5, 43, 1234)] * 2


def test_an_unknown_record_ends_its_buffer_and_is_counted(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(longest_s=0.15)
    row = kernel("kernel10", time.time_ns(), 0).tobytes()
    feed(trainer, row + (61).to_bytes(8, "little") + row)
    feed(trainer, row + row[:100])
    feed(trainer, b"\0" * 64)
    monitor.traced()
    assert monitor.count(Kind.KERNELS) == 2
    monitor.until(lambda m: m.losses().get("unknown_records") == 3)
    assert monitor.rows(Kind.OBSERVED)["flags"][0] == 1, "lossy, until the next flush"


def test_no_garbage_in_a_buffer_can_hurt_the_trainer(trainer, connect):
    """Random bytes after a kind; names are read from kernel records only, which are CUPTI's."""
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(longest_s=0.4)
    noise = np.random.default_rng(3)
    for kind in (0, 1, 2, 4, 5, 8, 22, 38, 39, 51, 63, 64, 2**31):
        content = noise.integers(0, 256, 200, dtype=np.uint8).tobytes()
        feed(trainer, kind.to_bytes(4, "little") + content)
    monitor.traced()
    assert trainer.process.poll() is None
