"""Profiles of JAX: `xplane.pb` and the Chrome trace made of it say the same.

No real profile is kept here. The reader was tried on three of AMD GPUs that TraceLens has as test data (JAX
with rocprofiler and roctracer); none of an NVIDIA GPU was to be had, so that part follows XLA's
`cupti_collector.cc`.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from brrrtop.errors import BadInput
from brrrtop.session.analyze import analyze
from brrrtop.sources.importers.jax.source import JaxSource
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.registry import open_source
from brrrtop.views.json_report import to_json
from brrrtop.views.text import to_text
from collectors.protocol.frames import Kind
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind
from tests.importers.nsight import require_a_sentence_of_what_is_broken
from tests.importers.profiles import GPU, START_NS, Lines, chrome, training, xspace
from tests.session.handmade import Received, kernel, text_of, written


def _refused(path: Path) -> BadInput:
    with pytest.raises(BadInput) as caught:
        list(open_source(path).frames())
    return caught.value


def _received(folder: Path, data: bytes) -> Received:
    return Received(open_source(written(folder, data, "profile")))


def test_what_an_event_says_arrives_exactly(tmp_path: Path) -> None:
    received = _received(tmp_path, xspace(training(1)))
    first, second = received.kernels
    assert first["start_ns"] == START_NS + 2_700_000 and first["end_ns"] == START_NS + 6_700_000
    assert first["grid"].tolist() == [264, 2, 1] and first["block"].tolist() == [128, 1, 1]
    assert (first["registers"], first["shared_bytes"], first["stream"]) == (32, 1536, 7)
    assert received.names[int(second["name_id"])] == "loop_multiply_fusion"  # not its descriptor
    copy = received.copies[0]
    assert (copy["copy_kind"], copy["size_bytes"]) == (CopyKind.HTOD, 1 << 20)
    assert (copy["src_kind"], copy["dst_kind"]) == (MemoryKind.PAGEABLE, MemoryKind.DEVICE)
    assert len(received.kernels) == 2, "the line XLA Ops repeats them"
    assert {CallClass(c) for c in received.calls["call_class"]} == {
        CallClass.LAUNCH,
        CallClass.COPY,
    }
    starts = dict(
        zip(
            received.calls["correlation"].tolist(), received.calls["start_ns"].tolist(), strict=True
        )
    )
    assert all(starts[int(k["correlation"])] < int(k["start_ns"]) for k in received.kernels)
    assert len(received.marks_of(MarkClass.STEP)) == 1
    assert received.marks_of(MarkClass.ANNOTATION) == ["load batch"]
    device = received.of(Kind.DEVICE)[0].body
    assert (device["sm_count"], device["capability"]) == (132, [9, 0])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_both_files_say_the_same(tmp_path: Path, pack: Any) -> None:
    protobuf = _received(tmp_path, xspace(training()))
    browsers = _received(tmp_path, pack(chrome(training())))
    for one, other in ((protobuf.kernels, browsers.kernels), (protobuf.copies, browsers.copies)):
        for key in ("device", "stream", "correlation"):
            assert one[key].tolist() == other[key].tolist()
        apart = set((one["start_ns"] - other["start_ns"]).tolist())
        assert (
            len(apart) == 1
            and (one["end_ns"] - one["start_ns"]).tolist()
            == (other["end_ns"] - other["start_ns"]).tolist()
        )
    for mark in (MarkClass.STEP, MarkClass.ANNOTATION):
        assert protobuf.marks_of(mark) == browsers.marks_of(mark)


def test_the_report_has_windows_families_and_idle_time_and_no_advice(tmp_path: Path) -> None:
    path = written(tmp_path, xspace(training()), "host.xplane.pb")
    snapshot = analyze(open_source(path))
    report = json.loads(to_json(snapshot))
    assert report["source"]["kind"] == "jax" and report["window"]["steps"] == 4
    families = {row["family"]: row["side"] for row in report["kernels"]}
    assert families == {"gemm": "compute", "fused": "memory", "copy": "copy"}
    assert report["busy_ns"] == 4 * 5_500_000 and report["launch"]["lead_p50_ns"] > 0
    assert report["advisories"] == [] and report["whatif"] == []
    assert "a JAX profile gets neither" in " ".join(to_text(snapshot).split())


def test_an_amd_gpu_has_no_capability_and_its_products_no_side(tmp_path: Path) -> None:
    facts = {
        "device_vendor": "AMD",
        "core_count": 304,
        "compute_cap_major": 9,
        "compute_cap_minor": 4,
    }
    path = written(tmp_path, xspace(training(), facts), "host.xplane.pb")
    report = json.loads(to_json(analyze(open_source(path))))
    sides = {row["family"]: row["side"] for row in report["kernels"]}
    assert (sides["gemm"], sides["fused"]) == ("unknown", "memory")
    assert report["source"]["capability"] is None


def test_an_amd_part_is_told_by_its_units_and_its_grids_are_of_blocks(tmp_path: Path) -> None:
    message = {"correlation_id": 1, "kernel_details": "grid:32,37,1 block:256,1,1 group_mem:29568"}
    lines: Lines = {(1, "Stream #1(Kernel)"): [("Cijk_MT256x224x64", 1_000_000, 611_000, message)]}
    call: Lines = {(2, "2"): [("hipExtModuleLaunchKernel", 990_000, 5, {"correlation_id": 1})]}
    facts = {"device_vendor": "AMD", "core_count": 304, "memory_size": 206_141_652_992}
    received = _received(tmp_path, xspace({GPU: lines, "/host:CPU": call}, facts))
    ran = received.kernels[0]
    assert (ran["grid"].tolist(), ran["shared_bytes"]) == ([32, 37, 1], 29568)
    assert received.of(Kind.DEVICE)[0].body["name"] == "AMD Instinct MI300X"


def test_newer_profiles_name_calls_by_what_they_launch(tmp_path: Path):
    planes = training()
    host = planes["/host:CPU"]
    for thread, events in host.items():
        if thread[1] == "python3":
            continue
        named = iter(["MemcpyH2D", "nvjet_x", "cuGraphLaunch (CudaGraph:2)"] * 4)
        host[thread] = [(next(named), *event[1:]) for event in events]
        host[thread] += [("cuLaunchHostFunc", event[1] + 9_000, 500, {}) for event in events]
    path = written(tmp_path, xspace(planes), "host.xplane.pb")
    classes = Received(open_source(path)).calls["call_class"].tolist()
    kinds = (CallClass.COPY, CallClass.LAUNCH, CallClass.GRAPH_LAUNCH)
    assert [classes.count(kind) for kind in kinds] == [4, 4, 4]
    report = json.loads(to_json(analyze(open_source(path))))
    assert report["window"]["steps"] == 4 and report["launch"]["lead_p50_ns"] > 0


def test_numbers_that_cannot_be_are_not_believed(tmp_path: Path) -> None:
    message = {
        "correlation_id": 1,
        "kernel_details": "regs:2191500840 grid:1,2 block:9999999999999999999,1,1",
    }
    lines: Lines = {(1, "Stream #1(Kernel)"): [("k", 1_000_000, 5_000, message)]}
    received = _received(tmp_path, xspace({GPU: lines}))
    assert received.kernels["registers"].tolist() == [0]
    assert received.kernels["grid"].tolist() == [[0, 0, 0]]
    assert received.kernels["block"].tolist() == [[0, 1, 1]]


def test_files_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    for data, kind in (
        (xspace(training(1)), JaxSource),
        (chrome(training(1)), JaxSource),
        (b"\n" + chrome(training(1)), JaxSource),
        (text_of([kernel(1, 1)]), KinetoSource),
        (b"\n" + text_of([kernel(1, 1)]), KinetoSource),
        (b'[{"ph": "X"}]', KinetoSource),
    ):
        assert isinstance(open_source(written(tmp_path, data, "a")), kind)


def test_profiles_without_a_gpu_say_so(tmp_path: Path) -> None:
    host = {"/host:CPU": training()["/host:CPU"]}
    tpu: dict[str, Lines] = {
        **host,
        "/device:TPU:0": {(1, "XLA Ops"): [("fusion", 1_000_000, 5, {})]},
    }
    for make in (xspace, chrome):
        assert "no GPU activity" in _refused(written(tmp_path, make(host), "a")).message
        assert "TPU" in _refused(written(tmp_path, make(tpu), "b")).message


def test_a_chrome_trace_that_breaks_off_is_read_to_its_last_whole_event(tmp_path: Path) -> None:
    text = chrome(training())
    path = written(tmp_path, text[: int(len(text) * 0.7)], "a")
    received = Received(open_source(path))
    assert 0 < len(received.kernels) <= 8
    assert any("missing" in note for note in received.hello["notes"])


@pytest.mark.parametrize("make", [xspace, chrome])
def test_every_truncation_and_many_broken_bytes_end_in_a_sentence(
    tmp_path: Path, make: Any
) -> None:
    require_a_sentence_of_what_is_broken(tmp_path / "a", make(training(6)), 331, 3)
