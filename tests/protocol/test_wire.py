"""Frames survive any cut of the bytes; strangers are skipped, newer senders refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.protocol import frames as wire
from collectors.protocol.frames import HEADER, Decoder, Frame, Kind, WireError, encode


def _some(kind: Kind, count: int) -> Any:
    rows = np.zeros(count, wire.DTYPES[kind])
    rows.view(np.uint8)[:] = np.arange(rows.nbytes) % 251
    if kind == Kind.GAUGES:
        rows["value"] = 0.5
    return rows


FRAMES = [
    Frame(Kind.HELLO, {"wire": 1, "pid": 4711}, 5),
    Frame(Kind.NAMES, {1: "gemm", 2: "naïve \udcff", 70000: ""}, 6),
    Frame(Kind.DEVICE, {"device_id": 0, "name": "NVIDIA H200"}, 6),
    *(Frame(kind, _some(Kind(kind), 3), 7, 1) for kind in sorted(wire.DTYPES)),
    Frame(Kind.OPS, [[1, "aten::mm", [[2, 3], [3, 4]], ["float", "float"], ["", ""]]], 8),
    Frame(Kind.KERNELS, _some(Kind.KERNELS, 0), 9),
    Frame(Kind.LOSS, {"records": 3}, 10),
    Frame(Kind.END, {"reason": "done"}, 11),
]


def _same(a: Frame, b: Frame) -> bool:
    if (a.kind, a.sent_ns, a.flags) != (b.kind, b.sent_ns, b.flags):
        return False
    if a.kind in wire.DTYPES:
        return bool(a.body.dtype == b.body.dtype and a.body.tobytes() == b.body.tobytes())
    if a.kind == Kind.NAMES:
        return bool({k: v.replace("\udcff", "�") for k, v in a.body.items()} == b.body)
    return bool(a.body == b.body)


def test_every_kind_survives_every_cut_in_two():
    data = b"".join(map(encode, FRAMES))
    for cut in range(len(data) + 1):
        decoder = Decoder()
        got = [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])]
        assert len(got) == len(FRAMES)
    assert all(map(_same, FRAMES, got))


@given(st.lists(st.integers(1, 40), max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_pieces_give_the_same_frames(sizes):
    data = b"".join(map(encode, FRAMES))
    decoder, got, at = Decoder(), [], 0
    for size in [*sizes, len(data)]:
        got += decoder.feed(data[at : at + size])
        at += size
    assert all(map(_same, FRAMES, got)) and len(got) == len(FRAMES)


def test_half_a_frame_is_kept_and_nothing_is_given():
    data = encode(FRAMES[0])
    decoder = Decoder()
    assert list(decoder.feed(data[:-1])) == []
    assert len(list(decoder.feed(data[-1:]))) == 1


def test_a_kind_nobody_knows_is_skipped():
    stranger = HEADER.pack(3, 999, 0, 1) + b"abc"
    data = encode(FRAMES[0]) + stranger + encode(FRAMES[-1])
    assert [f.kind for f in Decoder().feed(data)] == [Kind.HELLO, Kind.END]


def test_a_newer_sender_is_refused_and_told_what_helps():
    data = encode(Frame(Kind.HELLO, {"wire": wire.WIRE_VERSION + 1}))
    with pytest.raises(WireError, match="newer") as fault:
        list(Decoder().feed(data))
    assert fault.value.action == "upgrade brrrtop"


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(1 << 31, Kind.KERNELS, 0, 0),
        HEADER.pack(3, Kind.KERNELS, 0, 0) + b"abc",
        HEADER.pack(3, Kind.LOSS, 0, 0) + b"abc",
        HEADER.pack(2, Kind.HELLO, 0, 0) + b"[]",
        HEADER.pack(9, Kind.NAMES, 0, 0) + b"\1\0\0\0\xff\0\0\0x",
    ],
)
def test_garbage_is_a_wire_error(data):
    with pytest.raises(WireError):
        list(Decoder().feed(data))


def test_record_sizes_are_those_of_the_c_structs():
    sizes = {kind: dtype.itemsize for kind, dtype in wire.DTYPES.items()}
    assert sizes == {
        Kind.KERNELS: 80, Kind.COPIES: 48, Kind.CALLS: 32, Kind.MARKS: 40, Kind.LINKS: 8,
        Kind.GAUGES: 24, Kind.OBSERVED: 24, Kind.SAMPLES: 64,
    }  # fmt: skip


GOOD_BODIES = [
    (Kind.STATUS, {"state": "ready", "says": "x", "new": {"a": [1]}}),
    (Kind.STATUS, {"shapes": "none"}),
    (Kind.STATUS, {"shapes": [5, "no shapes"], "gauges": [], "facts": []}),
    (Kind.LOSS, {"records": 3, "later": 1.5}),
    (Kind.DEVICE, {"device_id": 1, "capability": [9, 0], "uuid": "GPU-1"}),
    (Kind.OPS, [[1, "aten::cat", [[[2, 3], [2, 3]], []], ["TensorList", ""], ["", "0"], [[], []]]]),
    (Kind.HELLO, {"wire": 1, "cmdline": ["python", "t.py"], "rank": None, "clock": {"a": 1}}),
    (Kind.END, {}),
]
BAD_BODIES = [
    (Kind.STATUS, [1, 2]), (Kind.STATUS, {"says": [1]}), (Kind.STATUS, {"log": [1]}),
    (Kind.STATUS, {"upkeep_ns": "much"}), (Kind.STATUS, None), (Kind.STATUS, {"gauges": 3}),
    (Kind.LOSS, [3]), (Kind.LOSS, {"records": "three"}), (Kind.LOSS, {"records": {}}),
    (Kind.END, "over"), (Kind.END, {"reason": 3}),
    (Kind.DEVICE, []), (Kind.DEVICE, {"device_id": [0]}), (Kind.DEVICE, {"sm_count": "132"}),
    (Kind.DEVICE, {"device_id": 1 << 40}), (Kind.DEVICE, {"capability": [9]}),
    (Kind.DEVICE, {"capability": [9, [0]]}), (Kind.DEVICE, {"sm_count": -132}),
    (Kind.OPS, {"1": 2}), (Kind.OPS, [[1, "aten::mm"]]), (Kind.OPS, [3]),
    (Kind.OPS, [["1", "aten::mm", [], [], []]]), (Kind.OPS, [[1, "aten::mm", 3, [], []]]),
    (Kind.OPS, [[1, "aten::mm", [[[[[2]]]]], [], []]]),
    (Kind.HELLO, {"wire": 1, "pid": "4711"}), (Kind.HELLO, {"wire": 1, "notes": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body"), GOOD_BODIES)
def test_a_json_body_arrives_as_it_was_sent(kind, body):
    assert next(Decoder().feed(encode(Frame(kind, body, 1)))).body == body


@pytest.mark.parametrize(("kind", "body"), BAD_BODIES)
def test_a_json_body_of_another_shape_is_refused(kind, body):
    with pytest.raises(WireError, match=kind.name):
        list(Decoder().feed(encode(Frame(kind, body, 1))))


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.OPS, Kind.DEVICE])
def test_json_nested_without_end_is_refused(kind):
    for text in (b"[" * 200_000, b'{"a":' * 200_000 + b"1" + b"}" * 200_000):
        with pytest.raises(WireError):
            list(Decoder().feed(HEADER.pack(len(text), kind, 0, 1) + text))


def test_zeros_are_no_frames_without_end():
    zeros, decoder, given = bytes(1 << 20), Decoder(), 0
    with pytest.raises(WireError, match="empty frames"):
        for _ in range(64):
            given += len(zeros)
            assert not list(decoder.feed(zeros))
    assert given <= 16 * (wire.MOST_EMPTY_FRAMES + (1 << 16))


@pytest.mark.parametrize("sent_ns", [-1, (1 << 62) + 1, (1 << 63) - 1])
def test_a_stamp_that_is_no_time_is_refused(sent_ns):
    with pytest.raises(WireError, match="no time"):
        list(Decoder().feed(encode(Frame(Kind.END, {}, sent_ns))))
