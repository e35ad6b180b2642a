"""Bad traces: what is whole is used and the rest named, or a sentence with an action."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import zstandard

from brrrtop.errors import BadInput
from brrrtop.session.analyze import analyze
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.importers.trace import reader
from brrrtop.sources.registry import open_source
from collectors.protocol.frames import Kind
from tests.session.handmade import Received, annotation, kernel, launch, op, text_of, written

EVENTS = [
    e for i in range(50) for e in (launch(i * 10, 2, i + 1), kernel(i * 10 + 5, 3, i + 1, f"k{i}"))
]


def _refused(path: Path) -> BadInput:
    with pytest.raises(BadInput) as fault:
        list(open_source(path).frames())
    assert fault.value.message and fault.value.action
    assert "\n" not in fault.value.message
    return fault.value


def test_what_is_no_file_is_said_so(tmp_path):
    assert "no file" in _refused(tmp_path / "nowhere.json").message
    assert "directory" in _refused(tmp_path).message
    assert "empty" in _refused(written(tmp_path, b"")).message


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in _refused(tmp_path / "pipe").message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_said_so(tmp_path):
    path = written(tmp_path, text_of(EVENTS))
    path.chmod(0)
    assert "cannot be read" in _refused(path).message


def _of(category: str) -> dict[str, object]:
    return {**launch(0, 1, 1, "runFunction - job_prep"), "cat": category}


@pytest.mark.parametrize(
    ("events", "says", "action"),
    [
        ([op(0, 1, "aten::mm"), annotation(0, 1, "x")], "no GPU activity", "ProfilerActivity.CUDA"),
        (
            [op(0, 3, "aten::mm"), launch(1, 1, 7, "cudaLaunchKernel")],
            "CUDA launches and no GPU activity",
            "no other profiler",
        ),
        (  # as a browser writes it: no categories that are used, and none of its processes a device
            [
                {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "Renderer"}},
                {"ph": "X", "pid": 1, "tid": 13, "ts": 5.0, "dur": 2.0, "name": "RunTask"},
            ],
            "2 events, but none that torch.profiler writes",
            "export_chrome_trace",
        ),
        ([op(0, 3, "aten::mm"), _of("mtia_runtime")], "MTIA", "NVIDIA"),
        ([op(0, 3, "aten::mm"), _of("xpu_driver")], "Intel", "NVIDIA"),
    ],
)
def test_a_trace_without_gpu_work_says_what_it_is_and_what_to_do(tmp_path, events, says, action):
    fault = _refused(written(tmp_path, text_of(events)))
    assert says in fault.message and action in fault.action


def test_a_trace_inside_another_object_is_said_to_be_there(tmp_path):
    text = b'{"rank": 0, "run": {"data": ' + text_of(EVENTS) + b"}}"
    fault = _refused(written(tmp_path, text))
    assert "inside another object" in fault.message and "of its own" in fault.action


def test_a_trace_torn_before_its_gpu_work_is_not_said_to_lack_it(tmp_path):
    text = text_of([op(0, 1, "aten::mm"), op(2, 1, "aten::mm"), kernel(1, 1)])
    fault = _refused(written(tmp_path, text[: text.rindex(b'"cat"')]))
    assert "breaks off before its first GPU activity" in fault.message


def test_every_truncation_gives_all_whole_events_and_a_note(tmp_path):
    text = text_of(EVENTS[:6])
    end = text.rindex(b"]")
    ends = [i + 1 for i in range(len(text)) if _ends_an_event(text, i)]
    beside_ends = {e + near for e in ends[1:] for near in (-1, 0, 1)}
    for size in sorted({*range(ends[1], end, 7), *(b for b in beside_ends if ends[1] <= b < end)}):
        source = KinetoSource(written(tmp_path, text[:size]))
        received = Received(source)
        whole = sum(1 for e in ends if e <= size)
        assert len(received.kernels) + len(received.calls) == whole, size
        assert any("missing" in note for note in source.info.notes)


def test_gpu_work_that_a_broken_off_trace_lacks_is_no_idle_time(tmp_path):
    dims = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    calls = [op(i * 10, 5, "aten::mm", **dims) for i in range(40)]
    # Torch writes what each thread launched one after the other: the middle may be what is missing.
    order = [*range(0, 40, 2), *range(1, 40, 2)]
    work = [e for i in order for e in (launch(i * 10 + 1, 1, i + 1), kernel(i * 10 + 3, 9, i + 1))]
    text = text_of([*calls, *work])
    cut = text[: text.index(b'"correlation": 12,')]
    whole, torn = (
        analyze(open_source(written(tmp_path, part, f"{len(part)}.json"))).estimate.account
        for part in (text, cut)
    )
    assert whole.unknown_ns == 0
    assert torn.unknown_ns == 15 * 9_000  # as many kernels are missing, as long as the others


def _ends_an_event(text: bytes, at: int) -> bool:
    if text[at : at + 1] != b"}":
        return False
    start = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    if at < start:
        return False
    try:
        return isinstance(json.loads(b"[" + text[start : at + 1] + b"]"), list)
    except ValueError:
        return False


@pytest.mark.parametrize("behind", [b"", b"\xff" * 9_000], ids=["cut", "damaged"])
def test_a_torn_gzip_gives_what_is_whole(tmp_path, behind):
    many = [kernel(i * 10 + 0.5, 3, 0, f"kernel_{i * 7919}") for i in range(5000)]
    data = gzip.compress(text_of(many))
    source = KinetoSource(written(tmp_path, data[: len(data) // 2] + behind, "t.gz"))
    received = Received(source)
    assert 1000 < len(received.kernels) < 4000
    assert [received.names[int(i)] for i in received.kernels["name_id"][:2]] == [
        "kernel_0",
        "kernel_7919",
    ]
    note = " ".join(source.info.notes)
    assert "gzip" in note and f"{len(received.kernels):,}" in note and "missing" in note


def test_a_gzip_cut_before_any_event_is_refused(tmp_path):
    data = gzip.compress(text_of(EVENTS))
    assert "before" in _refused(written(tmp_path, data[:30], "t.json.gz")).message


@pytest.mark.parametrize("block_bytes", [2000, 1 << 19])
@pytest.mark.parametrize("gap", [1, 3000])
def test_a_damaged_middle_costs_what_it_touches_and_is_named(
    tmp_path, monkeypatch, block_bytes, gap
):
    """Bytes that are missing, or are others, as on a disk that was full."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", block_bytes)
    head, tail = b'{"traceEvents": [', b'], "distributedInfo": {"rank": 3, "world_size": 8}}'
    events = [json.dumps(kernel(i * 10, 5, 0, f"k{i}")).encode() for i in range(60)]
    text = head + b", ".join(events) + tail
    for at in range(len(text) // 2, len(text) // 2 + len(events[0]), 17):
        for between in (b"", b"\0" * gap):
            path = written(tmp_path, text[:at] + between + text[at + gap :])
            source = KinetoSource(path)
            received = Received(source)
            kept = {received.names[int(i)] for i in received.kernels["name_id"]}
            whole = {
                f"k{i}" for i, one in enumerate(events)
                if text.index(one) + len(one) < at or text.index(one) > at + gap
            }  # fmt: skip
            assert len(whole - kept) <= 1 and source.info.rank == 3
            if between:
                (note,) = source.info.notes
                assert note.startswith("the text is damaged after event ") and note.endswith(
                    " of it could not be read"
                )


def test_several_damaged_places_are_counted_and_broken_off_ends_said_as_well(tmp_path):
    text = text_of([kernel(i * 10, 5, 0, f"k{i}") for i in range(60)])
    for name in (b'"k11"', b'"k31"'):
        text = text.replace(name, b'"k\x01" oops')
    source = KinetoSource(written(tmp_path, text[: text.index(b'"k50"')]))
    assert len(Received(source).kernels) == 48
    damaged, torn = source.info.notes
    assert damaged.startswith("the text is damaged in 2 places, the first after event 11: ")
    assert torn == "the text breaks off: what came after event 48 is missing"


def test_members_zstd_marks_and_bare_lists_are_read(tmp_path):
    text = text_of(EVENTS)
    bare = json.dumps(EVENTS).encode()
    for number, data in enumerate(
        (
            gzip.compress(text[:100]) + gzip.compress(text[100:]),
            gzip.compress(text) + b"\0" * 512,
            zstandard.compress(text),
            b"\xef\xbb\xbf" + text,
            b"\n\n " + text,
            json.dumps(json.loads(text), indent=2).encode(),
            bare,
            bare[:-1],
            bare[:-1] + b",\n",
        )
    ):
        source = KinetoSource(written(tmp_path, data, f"{number}.json"))
        assert (len(Received(source).kernels), source.info.notes) == (50, ()), number


def test_a_trace_of_many_blocks_equals_the_same_trace_read_at_once(tmp_path, monkeypatch):
    path = written(tmp_path, text_of(EVENTS))
    whole = Received(KinetoSource(path))
    for size in (64, 257, 1000, 4096):
        monkeypatch.setattr(reader, "BLOCK_BYTES", size)
        received = Received(KinetoSource(path))
        for ours, theirs in ((received.kernels, whole.kernels), (received.calls, whole.calls)):
            assert [received.names[int(i)] for i in ours["name_id"]] == [
                whole.names[int(i)] for i in theirs["name_id"]
            ]
            ours["name_id"] = theirs["name_id"]
            assert ours.tobytes() == theirs.tobytes()


def test_objects_inside_events_do_not_confuse_the_cuts(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_BYTES", 64)
    inner = [{"name": "x", "ph": "X"}] * 30
    events = [kernel(i, 1, 0, 'a "},{"name": \\ z', deep=inner) for i in range(10)]
    received = Received(KinetoSource(written(tmp_path, text_of(events))))
    assert len(received.kernels) == 10
    assert set(received.names.values()) >= {'a "},{"name": \\ z'}


@pytest.mark.parametrize(
    ("ts", "dur"),
    [
        *((5, dur) for dur in (-1, -0.001, 1e12, 1e300, "NaN", "Infinity", "-Infinity", "1e999", "null")),
        *((ts, 1) for ts in ("1e300", "-1e300", "9e18", "123456789012345678901234567890", '"x"', "[]")),
    ],
)  # fmt: skip
def test_impossible_times_are_left_out_and_counted(tmp_path, ts, dur):
    text = text_of([kernel(1, 2), kernel("TS", "DUR"), kernel(9, 2)])
    text = text.replace(b'"TS"', str(ts).encode()).replace(b'"DUR"', str(dur).encode())
    source = KinetoSource(written(tmp_path, text))
    received = Received(source)
    assert received.kernels["start_ns"].tolist() == [1000, 9000]
    assert sum(v for k, v in received.of(Kind.LOSS)[0].body.items() if k != "records") == 1
    assert any("1 event" in note for note in source.info.notes)


def test_events_months_apart_leave_those_around_the_middle_one(tmp_path):
    received = Received(KinetoSource(written(tmp_path, text_of([kernel(0, 1), kernel(1e13, 1)]))))
    assert len(received.kernels) == 1


def test_odd_names_become_readable_text(tmp_path):
    text = text_of([kernel(1, 2, 0, "AAAA"), kernel(4, 2, 0, "BBBB"), kernel(7, 2, 0, "naïve π")])
    text = text.replace(b"AAAA", b"bad \xff\xfe bytes").replace(
        b"BBBB", b"lone \\ud800 \\\\udc00 half"
    )
    received = Received(KinetoSource(written(tmp_path, text)))
    names = [received.names[int(i)] for i in received.kernels["name_id"]]
    assert names == ["bad �� bytes", "lone � \\udc00 half", "naïve π"]
    for name in names:
        name.encode()


def test_arguments_of_odd_types_cost_only_themselves(tmp_path):
    events = [
        kernel(1, 2, grid="8", block=[1], stream="0x0"),
        kernel(4, 2, correlation=1 << 90, device=None),
        {**kernel(7, 2), "args": [1, 2]},
        kernel(12, 2, grid=[1 << 80, 1, 1], **{"External id": 1 << 90}),
        {**kernel(10, 2), "tid": None, "pid": 1.5, "name": None},
        kernel(
            13, 2, grid=[1 << 40, 1, 1], **{"registers per thread": -5, "shared memory": 1 << 50}
        ),
    ]
    received = Received(KinetoSource(written(tmp_path, text_of(events))))
    assert len(received.kernels) == 6
    assert (received.kernels["device"] == 0).all() and (received.kernels["registers"] >= 0).all()


def test_things_that_are_no_events_are_skipped(tmp_path):
    text = text_of([kernel(1, 2)]).replace(
        b'"traceEvents": [', b'"traceEvents": [3, null, "x", [], {}, '
    )
    assert len(Received(KinetoSource(written(tmp_path, text))).kernels) == 1


def test_times_before_the_clock_began_are_moved_up(tmp_path):
    received = Received(KinetoSource(written(tmp_path, text_of([kernel(-500.5, 2), kernel(4, 2)]))))
    assert (received.kernels["start_ns"] > 0).all()
    assert np.diff(received.kernels["start_ns"]).tolist() == [504500]


def test_deep_nesting_is_refused_not_fatal(tmp_path):
    text = b'{"traceEvents": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}"
    _refused(written(tmp_path, text))
    _refused(written(tmp_path, b'{"a":' * 50_000 + b'{"traceEvents": []}' + b"}" * 50_000))
