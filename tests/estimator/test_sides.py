"""Which side a kernel is on and how sure that is, where names, bytes and shapes each tell a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brrrtop.ceilings import ceilings_for
from brrrtop.estimator import sides
from brrrtop.estimator.amounts import EVIDENCE, NAME, SHAPES
from brrrtop.estimator.judging import MOST_CERTAIN, Group
from brrrtop.estimator.labels import label
from brrrtop.tables import Links, OpSignature
from tests.estimator.build import GEMM, H200, K, window

COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>>"
)
ADD = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&)>"
)
ROLL = "void at::native::(anonymous namespace)::roll_cuda_kernel<float>(float const*, float*, long)"
SMALL_TILE = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma"
MISALIGNED = "cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>"
DEPTHWISE = "conv2d_c1_k1_nhwc_specialized"


@pytest.fixture(autouse=True)
def rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU whose kernels nobody counted; what the trees say is tested in `test_learned`."""
    monkeypatch.setattr("brrrtop.estimator.learned.GROWN_ON", None)


def judged(
    name: str, blocks: int, duration_ns: int, threads: int = 128, op: OpSignature | None = None
) -> Group:
    """The verdict on one kernel of an H200."""
    made = window([K(0, duration_ns, name, corr=1, blocks=blocks, threads=threads)])
    if op is not None:
        made = replace(made, links=Links(np.array([1]), np.array([5])), ops={5: op})
    return label(made, ceilings_for(H200)).groups[0]


def walked(name: str, elements_per_cycle: float) -> Group:
    """A strided kernel of 4 elements a thread over 2^24 of them, at 132 SMs and 1.83 GHz."""
    elements = 1 << 24
    duration = round(elements / (elements_per_cycle * 1.83 * 132))
    return judged(name, elements // (128 * 4), duration)


@pytest.mark.parametrize("name", [COPY, ADD], ids=["two tensors", "three tensors"])
def test_a_strided_kernel_slower_than_its_instructions_explain_waits_for_memory(name: str) -> None:
    assert walked(name, 0.65).compute_probability < 0.2
    assert walked(name, 1.3).compute_probability > 0.7


def test_a_product_smaller_than_its_tile_works_out_the_whole_tile() -> None:
    batch = 65536
    shapes = ((batch, 7, 64), (batch, 64, 7))
    small = OpSignature("aten::bmm", shapes, ("float", "float"))
    found = judged(SMALL_TILE, batch, 250_000, 64, small)
    assert found.level == SHAPES
    assert found.compute_share_of_roof is not None and found.compute_share_of_roof < 0.05
    assert found.compute_probability > 0.8
    # With nothing padded, as many bytes for a product keep the memory busy and nothing else.
    plain = OpSignature("aten::bmm", ((batch, 32, 7), (batch, 7, 32)), ("float", "float"))
    assert judged(SMALL_TILE, batch, 250_000, 64, plain).compute_probability < 0.2


def test_kernels_that_work_out_a_place_for_each_element_are_bound_by_that() -> None:
    bytes_moved = 64 * 56 * 56 * 192 * 8
    duration = round(bytes_moved / (0.34 * 4.8e12) * 1e9)
    op = OpSignature("aten::roll", ((64, 56, 56, 192),), ("float",))
    found = judged(ROLL, 64 * 56 * 56 * 192 // 128, duration, op=op)
    assert found.compute_probability > 0.6


def test_a_product_far_from_both_roofs_is_no_surer_than_its_name() -> None:
    op = OpSignature("aten::mm", ((8190, 4095), (4095, 4095)), ("c10::BFloat16",) * 2)
    slow = judged(MISALIGNED, 1024, 2_060_000, 256, op)
    assert slow.compute_probability > 0.9
    assert slow.certainty == MOST_CERTAIN[NAME]
    assert judged(MISALIGNED, 1024, 460_000, 256, op).certainty > MOST_CERTAIN[NAME]


def test_a_depthwise_convolution_is_measured_against_the_cuda_cores() -> None:
    op = OpSignature(
        "aten::cudnn_convolution", ((128, 144, 96, 96), (144, 1, 3, 3)), ("c10::BFloat16",) * 2,
        ("", "", "[1, 1]", "[1, 1]", "[1, 1]", "144"),
    )  # fmt: skip
    found = judged(DEPTHWISE, 9216, 281_000, op=op)
    flop = 2 * 128 * 144 * 96 * 96 * 9
    assert found.precision == "fp32"
    assert found.compute_share_of_roof == pytest.approx(flop / 281e-6 / 66.9e12, rel=0.02)


def test_a_product_whose_rows_fill_a_sixteenth_of_the_tile_still_waits_for_its_weights() -> None:
    op = OpSignature("aten::mm", ((8, 16384), (16384, 16384)), ("c10::BFloat16",) * 2)
    found = judged(GEMM, 132, 120_000, op=op)
    assert found.memory_share_of_roof is not None and found.memory_share_of_roof > 0.9
    assert found.compute_probability < 0.5


def test_a_generated_kernel_with_its_arguments_recorded_shows_its_share_of_the_bandwidth() -> None:
    n = 1 << 26
    name = "triton_poi_fused_add_0"
    op = OpSignature(name, ((n,), (n,), (n,)), ("c10::BFloat16",) * 3, ("", "", "", str(n)))
    near = round(3 * n * 2 / (0.85 * 4.8e12) * 1e9)
    found = judged(name, n // 1024, near, op=op)
    assert found.level == SHAPES and found.flop is None
    assert found.memory_share_of_roof == pytest.approx(0.85, rel=0.01)
    assert found.certainty > judged(name, n // 1024, near).certainty
    half = replace(op, dims=((1 << 24,),) * 3, concrete=("", "", "", str(1 << 24)))
    short = round(3 * (1 << 24) * 2 / (0.75 * 4.8e12) * 1e9)
    assert judged(name, 800, short, op=half).filled
    # What the cache serves at such a rate leaves it and the memory half idle.
    small = replace(op, dims=((1 << 21,),) * 3, concrete=("", "", "", str(1 << 21)))
    brief = round(3 * (1 << 21) * 2 / (0.75 * 4.8e12) * 1e9)
    assert not judged(name, 800, brief, op=small).filled and not judged(name, 800, brief).filled


def test_a_helper_kernel_is_not_taken_for_what_did_the_work_of_its_op() -> None:
    op = OpSignature("aten::mm", ((4096, 4096), (4096, 4096)), ("c10::BFloat16",) * 2, ("", ""))
    main = judged("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTN", 512, 200_000, op=op)
    helper = judged("nvjet_sm90_tst_init_gemm", 1, 2_000, op=op)
    assert main.compute_share_of_roof is not None and main.filled
    assert helper.compute_share_of_roof is None and not helper.filled


@pytest.mark.parametrize(
    ("names", "side"),
    [
        ("gelu", "compute"),
        ("sigmoid_sigmoid_backward", "compute"),
        ("logsumexp", "compute"),
        ("add_exp_mul", "compute"),
        ("hardtanh", "memory"),
        ("sigmoid_backward", "memory"),
        ("mul_tanh_backward", "memory"),
        ("expand_native_batch_norm_legit", "memory"),
    ],
)
def test_only_generated_kernels_with_an_exponential_pay_its_instructions(
    names: str, side: str
) -> None:
    n, name = 1 << 26, f"triton_poi_fused_{names}_0"
    op = OpSignature(name, ((n,), (n,)), ("c10::BFloat16",) * 2, ("", "", str(n)))
    found = judged(name, n // 1024, round(2 * n * 2 / (0.5 * 4.8e12) * 1e9), op=op)
    assert (found.compute_probability > 0.5) == (side == "compute")


@pytest.mark.parametrize("reached", [0.45, 0.6, 0.7])
@pytest.mark.parametrize(
    ("element", "size", "megabytes", "side"),
    [("float", 4, 33, "compute"), ("float", 4, 201, "compute"), ("double", 8, 201, "memory")],
)
def test_the_bytes_of_an_element_tell_the_side_of_strided_kernels_at_any_speed(
    element: str, size: int, megabytes: int, side: str, reached: float
) -> None:
    name = (
        "void at::native::elementwise_kernel<128, 4,"
        f" at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda({element})>>"
    )
    shape = (megabytes * 1_000_000 // (2 * size),)
    op = OpSignature("aten::copy_", (shape, shape), (element, element), ("", ""))
    mean_ns = round(megabytes * 1e6 / (reached * 4.8e12) * 1e9)
    found = judged(name, shape[0] // (128 * 4), mean_ns, 128, op=op)
    assert (found.compute_probability > 0.5) == (side == "compute")


def test_a_fused_optimizer_shows_its_share_of_the_bandwidth_without_shapes() -> None:
    name = (
        "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>,"
        " at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>>"
    )
    found = judged(name, 320, 166_000, 512)
    assert found.memory_share_of_roof == pytest.approx(0.74, abs=0.01)  # 0.72 counted
    assert EVIDENCE[found.level] == "L1.5"
    # Blocks for tensors of a few elements each cannot have moved a whole share of theirs.
    tiny = judged(name, 320, 2_000, 512)
    assert tiny.memory_share_of_roof is None and EVIDENCE[tiny.level] == "L1"


def test_without_registers_nobody_says_that_a_grid_of_a_block_an_sm_is_too_small() -> None:
    made = window([K(0, 300_000, GEMM, corr=1, blocks=140, threads=256)])
    acts = made.activities
    untold = replace(made, activities=replace(acts, registers=np.zeros_like(acts.registers)))
    known, open_ = (label(w, ceilings_for(H200)).groups[0] for w in (made, untold))
    assert known.waves is not None and known.waves < 1
    assert open_.waves is None and open_.filled
    assert open_.certainty <= known.certainty
    assert judged(GEMM, 20, 300_000).certainty > 0  # too few blocks for the SMs, however they fit


def test_products_that_load_shared_memory_as_much_as_they_multiply_are_charged_half() -> None:
    op = OpSignature("aten::mm", ((8192, 768), (768, 768)), ("float",) * 2, ("", ""))
    small, large = (
        judged(
            f"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{tile}x8_stage3_ffma_aligna4_kernel",
            1536, 300_000, op=op,
        )
        for tile in ("64x64", "128x128")
    )  # fmt: skip
    assert small.compute_probability == 0.5 and large.compute_probability > 0.9
    assert small.certainty < 0.1


@pytest.mark.parametrize(("part", "even"), [("sm90_", True), ("", True), ("sm100_", False)])
def test_tiles_that_hopper_feeds_from_shared_memory_say_nothing_of_later_parts(
    part: str, even: bool
) -> None:
    chance = sides.at_most_even(0.9, f"nvjet_{part}tst_320x128_64x3_1x2_h_bz_coopB_NNT")
    assert chance == (0.5 if even else 0.9)


@pytest.mark.parametrize(
    ("kernel", "side"),
    [
        ("CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 4, 64, 64>", "compute"),
        ("CatArrayBatchedCopy_vectorized<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 2, 128, 1, 16, 8>", "memory"),
        ("CatArrayBatchedCopy_alignedK_contig<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 2, 128, 1, 8>", "memory"),
    ],
)  # fmt: skip
def test_concatenations_spend_instructions_on_elements_unless_they_copy_wide_words(
    kernel: str, side: str
) -> None:
    found = judged(f"void at::native::(anonymous namespace)::{kernel}", 4096, 60_000, 256)
    assert (found.compute_probability > 0.5) == (side == "compute")


@pytest.mark.parametrize(("reached", "side"), [(0.17, "compute"), (0.71, "memory")])
def test_reductions_of_many_waves_far_under_the_bandwidth_wait_for_instructions(
    reached: float, side: str
) -> None:
    rows = 1 << 20
    name = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>>>"
    op = OpSignature("aten::mean", ((rows, 64),), ("float",), ("",))
    found = judged(name, 12_288, round(rows * 64 * 4 / (reached * 4.8e12) * 1e9), 512, op=op)
    assert (found.compute_probability > 0.5) == (side == "compute")


@pytest.mark.parametrize(("reached", "side"), [(0.5, "compute"), (0.61, "memory")])
def test_layer_norms_turn_between_half_and_three_fifths_of_the_bandwidth(
    reached: float, side: str
) -> None:
    name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float)"
    rows = 1 << 15
    op = OpSignature("aten::native_layer_norm", ((rows, 4096),), ("c10::BFloat16",), ("",))
    size = 2 * rows * 4096 * 2
    found = judged(name, rows, round(size / (reached * 4.8e12) * 1e9), 128, op=op)
    assert found.memory_share_of_roof == pytest.approx(reached, abs=0.02)
    assert (found.compute_probability > 0.5) == (side == "compute")


@pytest.mark.parametrize(
    ("kernel", "microseconds", "side"),
    [
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1", 253, "compute"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1", 253, "memory"),
    ],
)  # fmt: skip
def test_attention_forward_is_kept_busy_by_its_softmax_whatever_its_products_reach(
    kernel: str, microseconds: int, side: str
) -> None:
    shape = (800, 12, 49, 64)
    forward = "_scaled_dot_product_cudnn_attention"
    op = (
        OpSignature(f"aten::{forward}", (shape,) * 3, ("c10::BFloat16",) * 3, ("",) * 3)
        if side == "compute"
        else OpSignature(
            f"aten::{forward}_backward", (shape,) * 4, ("c10::BFloat16",) * 4, ("",) * 4
        )
    )
    found = judged(kernel, 132, microseconds * 1000, 384, op=op)
    assert (found.compute_share_of_roof or 1.0) < (found.memory_share_of_roof or 0.0)
    assert (found.compute_probability > 0.5) == (side == "compute")


def test_a_long_convolution_of_few_channels_on_nearly_all_processors_is_no_small_one() -> None:
    name = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1_g1_execute"
    image, weight = (16, 32, 512, 512), (64, 32, 3, 3)
    op = OpSignature("aten::cudnn_convolution", (image, weight), ("c10::BFloat16",) * 2, ("", ""))
    assert judged(name, 120, 700_000, 1024, op=op).filled
    small = OpSignature("aten::cudnn_convolution", ((1, 32, 256, 256), weight), ("c10::BFloat16",) * 2, ("", ""))  # fmt: skip
    assert not judged(name, 120, 12_000, 1024, op=small).filled


def test_an_exponential_in_a_generated_kernel_counts_where_nobody_knows_its_waves() -> None:
    name = "triton_red_fused__softmax_add_exp_mul_0"
    made = window([K(0, 90_000, name, corr=1, blocks=4096)])
    nameless = replace(made, device=replace(made.device, sm_count=None))
    blind = label(nameless, None).groups[0]
    assert blind.waves is None
    assert blind.compute_probability == judged(name, 4096, 90_000).compute_probability > 0.5


def test_a_copy_from_one_type_to_another_moves_the_bytes_of_both() -> None:
    n = 1 << 24
    name = (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(c10::BFloat16),"
        " std::array<char*, 2ul>, 4, at::native::memory::LoadWithCast<1>>"
    )
    op = OpSignature("aten::copy_", ((n,), (n,), ()), ("c10::BFloat16", "long int", "Scalar"))
    assert judged(name, n // 512, 60_000, op=op).size_bytes == 10 * n


def test_sums_of_a_normalisation_are_not_charged_with_its_output() -> None:
    shape = (32, 128, 64, 64)
    op = OpSignature("aten::native_group_norm", (shape, (128,), (128,)), ("float",) * 3)
    name = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*)"
    found = judged(name, 512, 60_000, 512, op=op)
    assert found.size_bytes == pytest.approx(4 * 32 * 128 * 64 * 64, rel=0.001)


def test_a_kernel_that_looks_up_types_is_slow_by_its_instructions_and_not_scattered() -> None:
    n = 12_582_912 * 2
    name = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl{}<at::native::CUDAFunctor_add<float>>>"
    op = OpSignature("aten::add", ((96, 512, 512), (512,), ()), ("float", "c10::BFloat16", "Scalar"))  # fmt: skip
    slow = [judged(name.format(kind), n // 512, 126_000, op=op) for kind in ("", "_nocast")]
    assert slow[0].compute_probability > 0.5 > slow[1].compute_probability


def test_a_long_convolution_near_half_of_the_roof_fills_nearly_a_wave() -> None:
    name = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute"
    op = OpSignature("aten::cudnn_convolution", ((64, 128, 64, 64), (128, 128, 3, 3)), ("c10::BFloat16",) * 2)  # fmt: skip
    flop = 2 * 64 * 64 * 64 * 128 * 128 * 9

    def reaching(share: float) -> Group:
        return judged(name, 120, round(flop / (share * 989.4e12) * 1e9), 1024, op=op)

    assert reaching(0.48).filled and not reaching(0.43).filled


def test_a_kernel_that_its_source_gives_no_threads_is_judged_without_a_pace() -> None:
    op = OpSignature("aten::add", ((4096, 512), (512,)), ("float", "float"))
    assert 0.0 < judged(ADD, 20_000, 12_000, 0, op=op).compute_probability < 1.0


@pytest.mark.parametrize("batch", [0, -3])
def test_a_product_of_a_size_that_no_tensor_has_is_judged_by_its_name(batch: int) -> None:
    odd = OpSignature("aten::mm", ((batch, 64), (64, 128)), ("float", "float"))
    found = judged(SMALL_TILE, 1024, 250_000, 64, odd)
    assert found.flop is None
    assert found.compute_probability == judged(SMALL_TILE, 1024, 250_000, 64).compute_probability
