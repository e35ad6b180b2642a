"""Traces of known workloads: window, busy share and joins as other tools and sweeps saw them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from brrrtop.errors import BadInput
from brrrtop.sources.recording import convert
from brrrtop.sources.registry import open_source
from collectors.vocabulary import CallClass, MarkClass
from tests.session.handmade import Received

# Window in us and busy share in %, from independent sweeps (ns) of the same files.
KNOWN = {
    "peers/hta-a100-resnet-ddp.json.gz": (660_551.0, 23.84, 2_700),
    "peers/hta-v100-resnet-ns.json.gz": (480_029.2, 98.42, 4_350),
    "peers/hta-v100-large.json.gz": (1_732_965.0, 57.74, 19_370),
    "peers/hta-a100-alexnet.json.gz": (12_920_244.0, 0.51, 79),
    "peers/kineto-v100-resnet50-workers0.json.gz": (996_477.0, 60.57, 8_772),
    "peers/hta-amd-mi250.json.gz": (8_911.887, 1.67, 14),
}
# Kernels of four steps, from the overview of the H200 runs.
KERNELS_OF_FOUR_STEPS = {
    "gpt_bf16": 1056, "pointwise_chain": 636, "tiny_mlp": 1664, "slow_loader": 1460,
    "naive_attention": 792, "resnet50_fp32": 2692, "misaligned_gemm": 132, "item_sync": 1640,
    "unpinned_h2d": 156, "gpt_bf16_compiled": 1076,
}  # fmt: skip


def _received(traces: Path, name: str) -> Received:
    path = traces / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    return Received(open_source(path))


def _window_and_busy(received: Received) -> tuple[int, float]:
    starts = np.concatenate([received.kernels["start_ns"], received.copies["start_ns"]])
    ends = np.concatenate([received.kernels["end_ns"], received.copies["end_ns"]])
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    before = np.concatenate([starts[:1], ends[:-1]])
    busy = int(np.maximum(ends - np.maximum(starts, before), 0).sum())
    window = int(ends[-1] - starts[0])
    return window, 100 * busy / window


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_window_and_busy_share_are_those_other_tools_find(traces: Path, name: str) -> None:
    window_us, busy, kernels = KNOWN[name]
    received = _received(traces, name)
    window, share = _window_and_busy(received)
    assert window / 1000 == pytest.approx(window_us, abs=0.06)
    assert share == pytest.approx(busy, abs=0.1)
    assert len(received.kernels) == kernels


@pytest.mark.parametrize("name", sorted(KERNELS_OF_FOUR_STEPS))
def test_h200_traces_are_whole_and_joined(traces: Path, name: str) -> None:
    received = _received(traces, f"{name}.trace.json.gz")
    assert len(received.kernels) == KERNELS_OF_FOUR_STEPS[name]
    assert len(received.marks_of(MarkClass.STEP)) == 4
    launches = received.calls[
        np.isin(received.calls["call_class"], (CallClass.LAUNCH, CallClass.COPY))
    ]
    activities = np.concatenate([received.kernels["correlation"], received.copies["correlation"]])
    assert np.isin(activities, launches["correlation"]).all()
    assert np.isin(activities, received.links["correlation"]).mean() > 0.99
    own = dict(zip(launches["correlation"].tolist(), launches["start_ns"].tolist(), strict=True))
    assert all(own[int(k["correlation"])] <= int(k["start_ns"]) for k in received.kernels)


def test_reads_of_single_values_are_found_where_they_were_planted(traces: Path) -> None:
    assert (
        _received(traces, "item_sync.trace.json.gz")
        .marks_of(MarkClass.PYTHON_SYNC)
        .count("aten::item")
        == 360
    )
    assert not _received(traces, "unpinned_h2d.trace.json.gz").marks_of(MarkClass.PYTHON_SYNC)


@pytest.mark.parametrize(
    "name", ["slow_loader.trace.json.gz", "peers/kineto-v100-resnet50-workers0.json.gz"]
)
def test_waits_for_the_loader_are_marked(traces: Path, name: str) -> None:
    received = _received(traces, name)
    assert len(received.marks_of(MarkClass.INPUT)) == len(received.marks_of(MarkClass.STEP))


def test_a_trace_without_gpu_work_is_refused(traces: Path) -> None:
    path = traces / "peers" / "hta-cpu-only.json.gz"
    if not path.exists():
        pytest.skip("hta-cpu-only is not there")
    with pytest.raises(BadInput, match="no GPU activity"):
        list(open_source(path).frames())


def test_a_real_trace_survives_conversion(traces: Path, tmp_path: Path) -> None:
    name = "unpinned_h2d"
    ours = _received(traces, f"{name}.trace.json.gz")
    convert(open_source(traces / f"{name}.trace.json.gz"), tmp_path / "a.brrr")
    source = open_source(tmp_path / "a.brrr")
    theirs = Received(source)
    source.close()
    assert theirs.kernels.tobytes() == ours.kernels.tobytes()
    assert theirs.ops == ours.ops and theirs.names == ours.names
    assert (tmp_path / "a.brrr").stat().st_size < 20_000
