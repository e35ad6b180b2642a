"""Exports of Nsight Systems, made here with the columns of its user guide's schema reference.

No real export is kept here; the reader was tried on those of 2026.2 that the project nsys-ai has as
fixtures (two H100 under PyTorch's emit_nvtx), and its figures agreed with plain SQL on them.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from brrrtop.errors import BadInput
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.text.headline import headline_text
from brrrtop.views.json_report import to_json
from brrrtop.views.text import to_text
from collectors.protocol.frames import Kind
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind
from tests.importers.nsight import (
    PID,
    START_NS,
    Export,
    require_a_sentence_of_what_is_broken,
    training,
)
from tests.session.handmade import Received


def _report(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(to_json(analyze(open_source(path))))
    return report


def _refused(path: Path) -> BadInput:
    with pytest.raises(BadInput) as caught:
        list(open_source(path).frames())
    return caught.value


def test_what_a_row_says_arrives_exactly(tmp_path):
    received = Received(open_source(training(1).write(tmp_path / "a.sqlite")))
    kernel, copy = received.kernels[0], received.copies[0]
    assert (kernel["start_ns"], kernel["end_ns"]) == (START_NS + 3_700_000, START_NS + 8_000_000)
    assert kernel["grid"].tolist() == [264, 2, 1] and kernel["block"].tolist() == [128, 1, 1]
    assert (kernel["registers"], kernel["shared_bytes"], kernel["stream"]) == (32, 1536, 7)
    assert copy["copy_kind"] == CopyKind.HTOD and copy["size_bytes"] == 1 << 20
    assert (copy["src_kind"], copy["dst_kind"]) == (MemoryKind.PAGEABLE, MemoryKind.DEVICE)
    classes = {
        received.names[int(c["name_id"])]: CallClass(c["call_class"]) for c in received.calls
    }
    assert classes == {
        "cudaMemcpyAsync": CallClass.COPY,
        "cudaLaunchKernelExC": CallClass.LAUNCH,
        "cudaStreamSynchronize": CallClass.SYNC,
    }
    device = received.of(Kind.DEVICE)[0].body
    assert device["name"] == "NVIDIA H100 80GB HBM3" and device["capability"] == [9, 0]
    assert device["max_threads_per_sm"] == 2048 and device["sm_count"] == 132
    assert received.hello["pid"] == PID


def test_ranges_give_steps_causes_and_ops(tmp_path):
    path = training().write(tmp_path / "a.sqlite")
    received = Received(open_source(path))
    assert len(received.marks_of(MarkClass.STEP)) == len(received.marks_of(MarkClass.INPUT)) == 4
    assert received.op_of(2) == "aten::mm"
    report = _report(path)
    assert report["source"]["kind"] == "nsys" and report["window"]["steps"] == 4
    assert report["account"]["idle_ns"]["input"] > 0
    assert report["account"]["exposed_copy_ns"] == 4 * 500_000
    row = next(row for row in report["kernels"] if row["family"] == "gemm")
    assert (row["side"], row["total_ns"]) == ("compute", 4 * 4_300_000)
    assert "Nsight Systems" in to_text(analyze(open_source(path)))


def test_marks_of_a_moment_and_open_ranges_are_no_ranges(tmp_path):
    export = training(1)
    export.range(1_000_000, None, "a mark", kind=34)
    export.range(1_000_000, None, "never popped")
    export.range(1_000_000, 1_500_000, "registered", kind=60, registered=True)
    received = Received(open_source(export.write(tmp_path / "a.sqlite")))
    assert received.marks_of(MarkClass.ANNOTATION) == ["registered"]


OLD = frozenset(
    "graphNodeId graphId globalPid srcKind dstKind memKind maxWarpsPerSm computeMajor textId "
    "ENUM_CUDA_MEM_KIND CUPTI_ACTIVITY_KIND_GRAPH_TRACE TARGET_INFO_CUDA_DEVICE META_DATA_EXPORT".split()
)


@pytest.mark.parametrize(
    "without",
    [
        OLD,
        frozenset({"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMSET"}),
        frozenset({"CUPTI_ACTIVITY_KIND_RUNTIME"}),
        frozenset({"StringIds", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME"}),
        frozenset({"demangledName", "eventType", "correlationId"}),
    ],
    ids=["old", "no-nvtx", "no-calls", "no-strings", "odd"],
)
def test_missing_tables_and_columns_are_not_recorded(tmp_path, without):
    report = _report(training().write(tmp_path / "a.sqlite", without))
    with_marks = not {"NVTX_EVENTS", "eventType"} & without
    assert report["window"]["duration_ns"] == (40_000_000 if with_marks else 34_900_000)
    assert report["busy_ns"] == 4 * 4_800_000
    assert report["losses"]["records"] == 0


def test_processes_count_correlations_anew(tmp_path):
    export = Export()
    for pid, device, late in ((100, 0, 0), (200, 1, 500)):
        for number in (1, 2, 3):
            at = 1_000_000 * number + late
            export.call(at, at + 10, number, "cudaLaunchKernel_v7000", pid, tid=pid)
            export.kernel(at + 5_000, at + 9_000, number, pid=pid, device=device)
    received = Received(open_source(export.write(tmp_path / "a.sqlite")))
    calls = {int(c["correlation"]): int(c["start_ns"]) for c in received.calls}
    assert len(calls) == 6
    leads = {int(k["start_ns"]) - calls[int(k["correlation"])] for k in received.kernels}
    assert leads == {5_000}


def test_devices_of_processes_are_those_of_the_machine(tmp_path):
    export = Export()
    export.add("TARGET_INFO_GPU", 1 << 48, 1, "NVIDIA H100 NVL", 1 << 36, 132, 1, 1, 32, 64, 9, 0)
    for gpu, pid in ((1, 100), (0, 200)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpu, 0, pid, None, 132)
        export.kernel(1_000 * pid, 1_000 * pid + 500, 1, f"kernel of {pid}", pid=pid, device=0)
    received = Received(open_source(export.write(tmp_path / "a.sqlite")))
    result = {received.names[int(k["name_id"])]: int(k["device"]) for k in received.kernels}
    assert result == {"kernel of 100": 1, "kernel of 200": 0}
    names = {frame.body["device_id"]: frame.body["name"] for frame in received.of(Kind.DEVICE)}
    assert names == {0: "NVIDIA H100 80GB HBM3", 1: "NVIDIA H100 NVL"}


def test_graphs_recorded_as_a_whole_are_unknown_work_and_no_idle_time(tmp_path):
    export = Export()
    for number in (1, 2, 3):
        at = 10_000_000 * number
        export.call(at, at + 10_000, number, "cudaGraphLaunch_v10000")
        export.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", at + 20_000, at + 9_000_000, 0, 1, 7, number,
            (1 << 48) | (PID << 24), 5, 6,
        )  # fmt: skip
    export.kernel(30_020_000, 39_000_000, 3, node=77, graph=5)  # the last one with its node
    path = export.write(tmp_path / "a.sqlite")
    report = _report(path)
    assert report["account"]["unknown_ns"] == 2 * 8_980_000
    assert report["busy_ns"] == 3 * 8_980_000
    assert "--cuda-graph-trace=node" in to_text(analyze(open_source(path)))


def test_another_database_is_named_as_such(tmp_path):
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("create table users (id, name)")
    fault = _refused(tmp_path / "a.sqlite")
    assert "none with GPU work that Nsight Systems exported" in fault.message
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("create table rocpd_kernel_dispatch_00003fdc (id, start, end)")
    fault = _refused(tmp_path / "a.sqlite")
    assert "rocpd database of AMD's" in fault.message
    assert 'prof.export_chrome_trace("trace.json")' in fault.action
    assert "no GPU activity" in _refused(Export().write(tmp_path / "b.sqlite")).message


def test_a_report_that_was_not_exported_says_how(tmp_path):
    path = tmp_path / "report1.nsys-rep"
    path.write_bytes(b"\x10\x00\x00\x00 whatever Nsight Systems writes")
    assert (
        _refused(path).action
        == "nsys export --type sqlite --output report1.sqlite report1.nsys-rep"
    )


def test_views_are_not_run(tmp_path):
    """One of endless rows is no table."""
    path = training().write(tmp_path / "a.sqlite", frozenset({"CUPTI_ACTIVITY_KIND_MEMCPY"}))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "create view CUPTI_ACTIVITY_KIND_MEMCPY as with recursive r(start) as "
            "(select 1 union all select start from r) select start, start as 'end' from r"
        )
    assert _report(path)["busy_ns"] == 4 * 4_300_000


def test_generated_columns_are_not_computed(tmp_path):
    """What they compute may take all memory."""
    path = training(1).write(tmp_path / "a.sqlite", frozenset({"deviceId"}))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "alter table CUPTI_ACTIVITY_KIND_KERNEL add column "
            "deviceId as (length(hex(zeroblob(400000000))))"
        )
    assert Received(open_source(path)).kernels["device"].tolist() == [0]


def test_pages_that_lead_in_circles_end(tmp_path):
    """Twelve inner pages, each with only the next one below it: 60 ** 12 times the last one's rows."""
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma page_size = 512")
        connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
        rows = [(i, i + 1) for i in range(60_000)]
        connection.executemany("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?)", rows)
    connection.close()
    data = bytearray(path.read_bytes())
    kinds = {at // 512 + 1: data[at] for at in range(512, len(data), 512)}
    inner = [page for page, kind in kinds.items() if kind == 5]  # the file format's page types
    leaf = next(page for page, kind in kinds.items() if kind == 13)
    root = 2
    chain = [root, *[page for page in inner if page != root][:11]]
    for page, below in zip(chain, [*chain[1:], leaf], strict=True):
        at = (page - 1) * 512
        cells = int.from_bytes(data[at + 3 : at + 5], "big")
        data[at + 8 : at + 12] = below.to_bytes(4, "big")
        for cell in range(cells):
            slot = at + 12 + 2 * cell
            pointer = at + int.from_bytes(data[slot : slot + 2], "big")
            data[pointer : pointer + 4] = below.to_bytes(4, "big")
    path.write_bytes(data)
    assert len(chain) == 12 and kinds[root] == 5
    assert "more rows than it has room for" in _refused(path).message


def test_values_of_other_types_are_not_believed(tmp_path):
    export = training(1)
    kernel = export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][0]
    odd: tuple[Any, ...] = (None, "x", b"\xff\x00", 1e300, -(1 << 63), (1 << 63) - 1, "9" * 5_000)
    for value in odd:
        for column in range(len(kernel)):
            export.add("CUPTI_ACTIVITY_KIND_KERNEL", *kernel[:column], value, *kernel[column + 1 :])
    export.add("NVTX_EVENTS", 1, 2, 59, b"\xff\xfe", None, "x", 0)
    export.add("StringIds", "x", None)
    path = export.write(tmp_path / "a.sqlite")
    report = _report(path)
    assert report["busy_ns"] >= 4_300_000
    assert report["losses"]["records"] > 0


def test_every_truncation_and_many_broken_bytes_end_in_a_sentence(tmp_path):
    whole = training(20).write(tmp_path / "a.sqlite").read_bytes()
    require_a_sentence_of_what_is_broken(tmp_path / "b.sqlite", whole, 1531, 5)


def test_pages_that_migrate_are_no_copies_back(tmp_path):
    """Of unified memory; and what launches in a report need not be Python."""
    export = Export()
    for i in range(20):
        at = i * 30_000
        export.call(at, at + 5_000, i + 1, "cudaLaunchKernel")
        export.kernel(at + 6_000, at + 8_000, i + 1, "add")
        export.copy(at + 9_000, at + 12_000, 0, 4 << 20, (12, 7, 7))
    path = export.write(tmp_path / "a.sqlite")
    assert Received(open_source(path)).copies["src_kind"].tolist() == [MemoryKind.MANAGED] * 20
    shown = analyze(open_source(path))
    assert "readback-traffic" not in {one.kind for one in shown.advisories}
    assert "the host" in headline_text(shown) and "Python" not in headline_text(shown)
