"""Programs that run once, without PyTorch: what holds them up, and what is said of them first."""

from pathlib import Path

import pytest

from brrrtop.kernel_names.families import OTHER, family_of
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Once, Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.text.phrases import badge, because
from collectors.protocol.frames import Kind
from tests.importers.nsight import Export
from tests.session.handmade import Received

MS = 1_000_000
UP, BACK = (11, 7, 7), (12, 7, 7)
"""Copies of managed memory, whose numbers of kinds are those of Nsight Systems."""


def _report(export: Export, folder: Path) -> tuple[Snapshot, Estimate]:
    report = analyze(open_source(export.write(folder / "a.sqlite")))
    assert report.estimate is not None
    return report, report.estimate


def _first(report: Snapshot) -> str | None:
    return report.advisories[0].kind if report.advisories else None


def _one_kernel(name: str = "solve(int *, int)", grid: tuple[int, int] = (1, 1)) -> Export:
    """Two uploads, a kernel of 400 ms, and what it computed."""
    export = Export()
    for number in (1, 2):
        export.call(number * MS, number * MS + 800_000, number, "cudaMemcpy_v3020")
        export.copy(number * MS + 100_000, number * MS + 800_000, number, 1 << 20, (1, 0, 2))
    export.call(3 * MS, 3 * MS + 10_000, 3, "cudaLaunchKernel_v7000")
    export.kernel(3 * MS + 15_000, 403 * MS, 3, name, grid=grid)
    export.call(3 * MS + 20_000, 404 * MS, 4, "cudaMemcpy_v3020")
    export.copy(403 * MS + 10_000, 404 * MS, 4, 1 << 20, (2, 2, 0))
    return export


@pytest.mark.parametrize("name", ["solve(int *, int)", "nvkernel_matmult_offload_F1L85_3"])
def test_a_long_kernel_of_one_block_underfills_the_gpu(name, tmp_path):
    report, estimate = _report(_one_kernel(name), tmp_path)
    assert estimate.cause == "underfilled"
    assert _first(report) == "few-blocks" and "with 1 block:" in report.advisories[0].says


def test_a_kernel_of_many_blocks_is_unknown_still(tmp_path):
    report, estimate = _report(_one_kernel(grid=(264, 2)), tmp_path)
    assert estimate.cause is None and _first(report) == "unknown-kernel"
    assert because(estimate) == "99% of the time goes to kernels of unknown kind"
    assert "--kernel-name regex:solve " in report.advisories[0].suggests


def test_pages_that_move_at_faults_are_named(tmp_path):
    export = Export()
    export.call(1 * MS, 1 * MS + 10_000, 1, "cudaLaunchKernel_v7000")
    export.kernel(1 * MS + 15_000, 101 * MS, 1, "add(float *)")
    export.call(1 * MS + 20_000, 101 * MS, 2, "cudaDeviceSynchronize_v3020")
    for page in range(600):
        at = 1 * MS + 20_000 + page * 150_000
        export.copy(at, at + 100_000, 0, 1 << 16, UP)
    for page in range(100):  # the host reads what was computed
        at = 102 * MS + page * 4 * MS
        export.copy(at, at + 10_000, 0, 1 << 16, BACK)
    report, estimate = _report(export, tmp_path)
    assert estimate.account.idle_ns["host"] > 390 * MS > 0 == estimate.account.idle_ns["unknown"]
    assert _first(report) == "unified-memory" and "in 700 pieces" in report.advisories[0].says


@pytest.mark.parametrize(("loads", "warms"), [((2,), False), ((2, 30, 60, 90), True)])
def test_a_start_is_one_while_kernels_load(loads, warms, tmp_path):
    """A program that loads its one module first, and then runs, has begun."""
    export = Export()
    for number in range(1, 92):
        at = number * 3 * MS
        if number in loads:
            export.call(at - MS, at - MS + 300_000, 1000 + number, "cuModuleLoadData")
        export.call(at, at + 10_000, number, "cuLaunchKernel")
        export.kernel(at + 15_000, at + 2 * MS, number, "fill(int *)")
    report, estimate = _report(export, tmp_path)
    assert estimate.steps.warming_up is warms
    assert ("warming-up" in [one.kind for one in report.advisories]) is warms


@pytest.mark.parametrize(("load_us", "warms"), [(2_000, True), (200, False)])
def test_a_program_begins_while_loads_and_calls_for_memory_shape_it(load_us, warms, tmp_path):
    export = Export()
    export.copy(0, 40_000, 900, 1 << 18, (1, 0, 2))
    export.call(50_000, 50_000 + load_us * 1000, 901, "cuLibraryLoadData")
    for number in range(1, 7):
        at = 3 * MS + number * 700_000
        export.call(at, at + 30_000, 500 + number, "cudaMalloc_v3020")
        export.call(at + 100_000, at + 110_000, number, "cudaLaunchKernel_v7000")
        export.kernel(at + 115_000, at + 119_000 + 10_000 * number, number, "multiply(int *)")
    assert _report(export, tmp_path)[1].steps.warming_up is warms


@pytest.mark.parametrize(
    ("uploads", "kernel_ms", "judged"), [(20, 3, True), (2, 3, False), (20, 1, False)]
)
def test_a_model_that_moves_to_the_gpu_is_its_start(uploads, kernel_ms, judged, tmp_path):
    """Unless it is most of the file; two arrays of a program's input are its work."""
    export = Export()
    for number in range(uploads):
        export.copy(
            number * 40 * MS // uploads,
            (number + 1) * 40 * MS // uploads,
            900 + number,
            1 << 24,
            (1, 0, 2),
        )
    for number in range(1, 21):
        at = (39 + number * kernel_ms) * MS
        export.call(at, at + 10_000, number, "cudaLaunchKernel_v7000")
        export.kernel(
            at + MS, at + (1 + kernel_ms) * MS - 20_000, number, f"ampere_sgemm_{number % 4}"
        )
    report, estimate = _report(export, tmp_path)
    assert [one.what for one in report.left_out] == [Once.START_UP] * judged
    assert (estimate.account.exposed_copy_ns == 0) is judged


def test_a_first_pass_sets_up_and_does_not_churn(tmp_path):
    """The first call for memory makes a context; those after it take what the pass needs, once."""
    export = Export()
    export.call(1 * MS, 1 * MS + 10_000, 1, "cudaLaunchKernel_v7000")
    export.kernel(1 * MS + 15_000, 1 * MS + 40_000, 1, "ampere_sgemm_128x64_tn")
    export.call(2 * MS, 402 * MS, 500, "cudaFree_v3020")
    for number in range(2, 60):
        at = 402 * MS + number * 200_000
        export.call(at, at + 90_000, 500 + number, "cudaMalloc_v3020")
        export.call(at + 100_000, at + 110_000, number, "cudaLaunchKernel_v7000")
        export.kernel(at + 115_000, at + 160_000, number, "ampere_sgemm_128x64_tn")
    report, _ = _report(export, tmp_path)
    assert [one.kind for one in report.advisories] == ["warming-up"]
    assert report.estimate is not None and report.estimate.regime is Regime.UNKNOWN
    assert badge(report) == "WARMING UP" and "first steps" in because(report.estimate)


def test_exports_of_before_2022_tell_their_gpu(tmp_path):
    export = _one_kernel()
    export.add(
        "TARGET_INFO_CUDA_GPU",
        1,
        "NVIDIA GeForce RTX 3080",
        10 << 30,
        68,
        48,
        8,
        6,
        0,
        102400,
        65536,
    )
    path = export.write(tmp_path / "a.sqlite", frozenset({"TARGET_INFO_GPU"}))
    device = Received(open_source(path)).of(Kind.DEVICE)[0].body
    assert (device["name"], device["sm_count"], device["max_threads_per_sm"]) == (
        "NVIDIA GeForce RTX 3080", 68, 1536,
    )  # fmt: skip


def test_types_of_arguments_are_no_name():
    assert family_of("evolve(int *, curandStateXORWOW *, int *)") is OTHER
    assert family_of("setup_curand(curandStateXORWOW *)").name == "random"
