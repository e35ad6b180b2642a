"""No rate is printed that the GPU cannot reach."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.analysis.ceilings import PRECISIONS, Ceilings, ceilings_for, table
from brrrtop.analysis.estimate import estimate
from brrrtop.analysis.kernels.compute_or_memory import SHAPES, amounts
from brrrtop.analysis.kernels.ops import work_of
from brrrtop.kernel_names.facts import name_facts
from brrrtop.kernel_names.families import family_of
from brrrtop.model.estimate import Estimate
from brrrtop.model.tables import Device, OpSignature
from tests.recorded import windows_of

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted(
    [*(ROOT / "tests/recordings/counted").glob("*.brrr"), *ROOT.glob("brrrtop/data/demos/*.brrr")]
)
PUBLIC = ["peers/hta-v100-resnet-ns.json.gz", "peers/kineto-v100-resnet50-workers0.json.gz"]
TO_BF16 = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIterator"
    "Base&)::{lambda(float)#1}, std::array<char*, 2ul> >(int, at::native::bfloat16_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>)"
)


def check(result: Estimate, known: Ceilings | None) -> None:
    """Every row against its device's datasheet; against the whole table's where that is not known."""
    parts = [known] if known else [part for _, part in table()]
    bandwidth = max(part.bytes_per_s or 0.0 for part in parts)
    for row in result.kernels:
        wanted = [row.precision] if row.precision else list(PRECISIONS)
        rates = [part.rate(p, cores) for part in parts for p in wanted for cores in (True, False)]
        peak = max((rate for rate in rates if rate), default=0.0)
        peak = peak or max(max(part.flop_per_s.values()) for part in parts)
        assert row.bytes_per_s is None or 0 < row.bytes_per_s <= bandwidth, row.name
        assert row.flop_per_s is None or 0 < row.flop_per_s <= peak, row.name
        assert row.roof_share is None or 0 <= row.roof_share <= 1, row.name


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_recording_of_an_unknown_gpu_has_a_rate_above_every_datasheet(path):
    """Those of known ones are looked at with their advice (tests/advisories/test_advise_all.py)."""
    for window in windows_of(path):
        check(estimate(replace(window, device=Device(0))).estimate, None)


@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_trace_has_one_either(traces, name):
    for window in windows_of(traces / name):
        check(estimate(window).estimate, ceilings_for(window.device))


@pytest.mark.parametrize(("launches", "expected"), [(1, 6 << 20), (4, 6 << 18)])
def test_a_copy_in_several_kernels_moves_its_bytes_once(launches, expected):
    shape = (1 << 20,)
    work = work_of(OpSignature("aten::copy_", (shape, shape, ()), ("c10::BFloat16", "float", "")))
    facts = name_facts(TO_BF16)
    blocks = (1 << 20) // (128 * (facts.elements_per_thread or 0)) // launches
    _, size, _, level = amounts(family_of(TO_BF16), facts, work, blocks, 128)
    assert (size, level) == (expected, SHAPES)


def test_a_convolution_of_unknown_stride_has_no_known_flops():
    shapes = ((32, 1024, 14, 14), (2048, 1024, 1, 1))
    call = OpSignature("aten::cudnn_convolution", shapes, ("float", "float"))
    assert work_of(call) is None
    work = work_of(replace(call, out=(32, 2048, 7, 7)))
    assert work is not None and work.flop == 2 * 32 * 2048 * 49 * 1024
