"""FLOPs and bytes by hand against those from shapes."""

import csv
from pathlib import Path

import pytest
from msgspec.structs import replace

import brrrtop
from brrrtop.analysis.ceilings import ceilings_for, table
from brrrtop.analysis.kernels.ops import work_of
from brrrtop.analysis.kernels.roofline import blocks_per_sm
from brrrtop.model.tables import Device, OpSignature

BF = "c10::BFloat16"


def op(
    name: str, *dims: tuple[int, ...], kind: str = BF, concrete: tuple[str, ...] = ()
) -> OpSignature:
    return OpSignature(name, dims, (kind,) * len(dims), concrete)


@pytest.mark.parametrize(
    ("call", "flop", "size"),
    [
        (op("aten::mm", (4, 8), (8, 16)), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        (op("aten::addmm", (16,), (4, 8), (8, 16)), 2 * 4 * 8 * 16, 2 * (32 + 128 + 64)),
        (op("aten::bmm", (3, 4, 8), (3, 8, 16)), 3 * 2 * 4 * 8 * 16, 3 * 2 * (32 + 128 + 64)),
        (op("aten::_int_mm", (4, 8), (8, 16), kind="signed char"), 1024, 32 + 128 + 64),
        (op("aten::mv", (4, 8), (8,)), 2 * 4 * 8, 2 * (32 + 8 + 4)),
        (op("aten::addmv", (4,), (4, 8), (8,)), 2 * 4 * 8, 2 * (32 + 8 + 4)),
        (
            op("aten::_grouped_mm", (64, 8), (4, 8, 16), (4,)),
            2 * 64 * 8 * 16,
            2 * (512 + 512 + 1024),
        ),
        (op("aten::_grouped_mm", (8, 64), (64, 16), (4,)), 2 * 64 * 8 * 16, 2 * (512 + 1024 + 128)),
        (op("aten::linear", (2, 5, 8), (16, 8), (16,)), 2 * 10 * 8 * 16, 2 * (80 + 128 + 160)),
        (op("aten::add", (10, 10), (10, 10)), 100, 600),
        (op("aten::sum", (10, 10), kind="float"), 100, 400),
    ],
)
def test_work_is_what_the_formula_says(call, flop, size):
    work = work_of(call)
    assert (work.flop, work.size_bytes) == (flop, size)


@pytest.mark.parametrize("benchmarked", [(), ("True", "False", "True")])
def test_a_convolution_counts_its_taps_and_strides(benchmarked):
    call = op(
        "aten::cudnn_convolution", (2, 3, 8, 8), (16, 3, 3, 3), kind="float",
        concrete=("", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", *benchmarked),
    )  # fmt: skip
    work = work_of(call)
    assert work.flop == 2 * 2 * 16 * 4 * 4 * 3 * 9
    assert work.size_bytes == 4 * (2 * 3 * 64 + 16 * 3 * 9 + 2 * 16 * 16)


@pytest.mark.parametrize(
    "call",
    [
        op("aten::cudnn_convolution_transpose", (2, 8, 4, 4), (8, 3, 2, 2), kind="float",
           concrete=("", "", "[0, 0]", "[0, 0]", "[2, 2]", "[1, 1]", "1", "False", "False", "True")),
        op("aten::convolution", (2, 8, 4, 4), (8, 3, 2, 2), kind="float",
           concrete=("", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1")),
        op("aten::convolution_backward", (2, 3, 8, 8), (2, 8, 4, 4), (8, 3, 2, 2), kind="float",
           concrete=("", "", "", "[3]", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1")),
    ],
)  # fmt: skip
def test_a_transposed_convolution_multiplies_each_of_its_inputs(call):
    work = work_of(call)
    assert work.flop == 2 * 2 * 8 * 4 * 4 * 3 * 4
    assert work.size_bytes == 4 * (2 * 8 * 16 + 8 * 3 * 4 + 2 * 3 * 64)


def test_each_half_of_a_convolutions_backward_is_one_forward():
    work = work_of(op("aten::convolution_backward", (2, 16, 4, 4), (2, 3, 8, 8), (16, 3, 3, 3)))
    assert work.flop == 2 * 2 * 16 * 16 * 3 * 9


@pytest.mark.parametrize(
    ("name", "texts", "causal"),
    [
        (
            "_cudnn_attention_forward",
            ("",) * 6 + ("384", "384", "True", "0.", "True", "False"),
            True,
        ),
        (
            "_cudnn_attention_forward",
            ("",) * 6 + ("197", "197", "True", "0.1", "False", "False"),
            False,
        ),
        ("_efficient_attention_forward", ("",) * 8 + ("0.1", "0", "True"), False),
        ("_efficient_attention_forward", ("",) * 8 + ("0.1", "1", "True"), True),
        ("_flash_attention_forward", ("",) * 7 + ("0.", "True", "False"), True),
        ("_scaled_dot_product_cudnn_attention", ("", "", "", "True"), True),
        ("_scaled_dot_product_flash_attention", ("", "", "", "0.", "False", "True"), False),
    ],
)
def test_only_the_mask_says_whether_attention_is_causal(name, texts, causal):
    heads_first = (2, 4, 128, 64)
    inner = name.startswith(("_flash", "_efficient"))
    shape = (2, 128, 4, 64) if inner else heads_first
    work = work_of(op(f"aten::{name}", *(shape,) * 3, concrete=texts))
    assert work.flop == 4 * 2 * 4 * 128 * 128 * 64 * (0.5 if causal else 1.0)


@pytest.mark.parametrize(
    "call",
    [
        op("aten::mm"), op("aten::mm", (4, 8)), op("aten::mm", (4, 8), (9, 16)), op("aten::convolution", (1,), (2,)),
        OpSignature("aten::cat", (((2, 2), (3, 2)), ()), ("TensorList", ""), ("", "0")),
        OpSignature("my::op", ((2,),), (BF,)), OpSignature("aten::_fused_adamw_", (((5,),),), ("TensorList",)),
        op("aten::conv2d", (1, 1, 4, 4), (1, 1, 3, 3), concrete=("", "", "", "[0, 0]", "[0, 0]", "[0, 0]", "1")),
        op("aten::gather", (8,)), op("aten::embedding", (), (4,)),
        op("aten::index_select", (8, 4), (), (2,), concrete=("", "7")),
        op("aten::index_select", (8, 4), (), (2,), concrete=("", "[x]")),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_say_nothing_and_never_raise(call):
    work = work_of(call)
    assert work is None or work.size_bytes >= 0


@pytest.mark.parametrize(
    ("call", "size"),
    [
        (op("aten::gather", (1000, 64), (), (10, 64)), 2 * 640),
        (op("aten::embedding", (1000, 64), (4, 25)), 2 * 64 * 100),
        (op("aten::index_select", (8, 1000, 4), (), (10,), concrete=("", "1", "")), 2 * 320),
        (op("aten::_embedding_bag", (1000, 64), (100,), (20,)), 2 * 64 * 120),
    ],
)
def test_a_lookup_moves_at_least_what_it_writes(call, size):
    work = work_of(call)
    assert work is not None and (work.size_bytes, work.families) == (size, {"index"})


def test_a_generated_kernel_moves_the_tensors_it_is_called_with():
    name, scalars = "triton_poi_fused_gelu_2", ("", "", "4096")
    call = OpSignature(name, ((64, 64), (4, 64, 64), ()), (BF, "float", "Scalar"), scalars)
    work = work_of(call)
    assert work is not None and work.families == {"fused"}
    assert work.size_bytes == 4096 * 2 + 4096 * 4  # of the second only what it iterates over
    whole = work_of(OpSignature(name, call.dims, call.types))
    assert whole is not None and whole.size_bytes == 4096 * 2 + 4 * 4096 * 4


def test_a_generated_kernel_reads_what_no_cache_holds_anew_for_each_leading_row():
    n = 1 << 26
    call = OpSignature(
        "triton_poi_fused_exp_expand_mul_0",
        ((n,), (6, 1), (6, n), ()),
        ("float", "float", "float", "Scalar"),
        ("", "", "", str(6 * n)),
    )
    work = work_of(call)
    assert work is not None and work.size_bytes == 4 * (6 * n + 6 + 6 * n)
    small = replace(call, dims=((1024,), (6, 1), (6, 1024), ()), concrete=("", "", "", "6144"))
    work = work_of(small)
    assert work is not None and work.size_bytes == 4 * (1024 + 6 + 6144)


def test_a_generated_kernel_that_sums_few_elements_in_place_touches_all_of_them():
    dims, types, n = ((6, 4096), (4096,), ()), ("float", "float", "Scalar"), ("", "", "4096")
    summed = work_of(OpSignature("triton_poi_fused_mul_sum_view_1", dims, types, n))
    viewed = work_of(OpSignature("triton_poi_fused_mul_slice_view_1", dims, types, n))
    assert summed is not None and summed.size_bytes == 4 * 7 * 4096
    assert viewed is not None and viewed.size_bytes == 4 * 2 * 4096


def test_complex_numbers_of_two_doubles_have_sixteen_bytes():
    work = work_of(OpSignature("aten::fill_", ((96, 65), ()), ("c10::complex<double>", "Scalar")))
    assert work is not None and work.size_bytes == 16 * 96 * 65


RATES = {(7, 0): 1024, (7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (12, 0): 1024}  # fmt: skip
"""FLOP of 16 bits per SM and clock, dense, by compute capability; half of it on GeForce (NVIDIA's white papers)."""


def test_every_confident_row_of_the_table_agrees_with_its_sms_and_clock():
    cut = {"H800", "H20", "B300", "A10G", "L40\\b"}
    lines = (Path(brrrtop.__file__).parent / "data" / "peaks.csv").read_text().splitlines()
    sure = {one["match"] for one in csv.DictReader(lines) if one["confidence"] == "high"} - cut
    for pattern, row in table():
        rate = RATES.get(row.capability or (0, 0))
        known = rate and row.sm_count and row.tensor_clock_hz and "fp16" in row.flop_per_s
        if pattern.pattern not in sure or not known or "GTX 16" in row.part:
            continue
        assert rate and row.sm_count and row.tensor_clock_hz
        peak = row.sm_count * rate * row.tensor_clock_hz / (2 if "GeForce" in row.part else 1)
        assert peak == pytest.approx(row.flop_per_s["fp16"], rel=0.03), row.part


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA H200", "H200 SXM"), ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB (name ends 'HBM3')"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"), ("NVIDIA A100-PG509-200", "A100 SXM4 40GB"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 (also DGXS)"), ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
    ],
)  # fmt: skip
def test_real_device_names_find_their_part(name, part):
    ceilings = ceilings_for(Device(0, name))
    assert ceilings.part == part


def test_a_precision_without_units_is_measured_against_those_that_do_it():
    volta, hopper = ceilings_for(Device(0, "Tesla V100-SXM2-32GB")), ceilings_for(Device(0, "H200"))
    assert volta.rate("bf16") == volta.rate("tf32") == volta.flop_per_s["fp32"]
    assert volta.rate("fp16") == volta.flop_per_s["fp16"]
    assert hopper.rate("fp64", True) == hopper.flop_per_s["fp64_tensor"]
    assert hopper.rate("fp64", False) == hopper.flop_per_s["fp64"]
    assert hopper.rate("fp4") == hopper.flop_per_s["fp8"]


@pytest.mark.parametrize(
    ("capability", "shared", "threads", "fit"),
    [
        ((7, 5), 16 << 10, 128, 4),
        ((8, 0), 16 << 10, 128, 9),
        ((8, 6), 16 << 10, 128, 5),
        ((8, 9), 0, 32, 24),
        ((9, 0), 16 << 10, 128, 13),
        ((12, 0), 0, 256, 6),
    ],
)
def test_as_many_blocks_fit_as_the_capability_allows(capability, shared, threads, fit):
    assert blocks_per_sm(Device(0, capability=capability), threads, 32, shared) == fit


def test_an_unknown_gpu_without_facts_has_no_ceilings():
    assert ceilings_for(Device(0, "Mystery 9000")) is None
    assert ceilings_for(Device(0, "NVIDIA A100-SXM4-80GB MIG 1g.10gb", sm_count=14)) is None


def test_gates_of_a_generated_kernel_multiply_two_parts_of_a_split():
    dims, types = ((64, 512), (64, 128), ()), ("c10::BFloat16", "c10::BFloat16", "Scalar")
    gate = "triton_poi_fused_mul_sigmoid_split_view_1"
    gated = work_of(OpSignature(gate, dims, types, ("", "", "8192")))
    alone = work_of(OpSignature(gate.replace("_mul_sigmoid", ""), dims, types, ("", "", "8192")))
    assert gated is not None and gated.size_bytes == 2 * 3 * 8192
    assert alone is not None and alone.size_bytes == 2 * 2 * 8192


def test_a_convolution_whose_operands_do_not_fit_together_is_no_known_work():
    constants = ("", "", "[1, 1]", "[0, 0]", "[1, 1]")
    assert work_of(op("aten::conv2d", (2, 3, 8, 8), (4, 3), concrete=constants)) is None
    assert work_of(op("aten::conv2d", (3, 8, 8), (4, 3, 3, 3), concrete=constants)) is None
