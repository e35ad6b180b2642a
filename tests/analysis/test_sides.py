"""Which side a kernel is on and how sure that is, where names, bytes and shapes each tell a part."""

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.analysis.estimate import estimate, facts_of
from brrrtop.analysis.facts.table import EVIDENCE, NAME, SHAPES, Facts, Group
from brrrtop.analysis.kernels import roofline
from brrrtop.analysis.kernels.compute_or_memory import label
from brrrtop.analysis.kernels.op_patterns import written_attention
from brrrtop.analysis.kernels.table import share_of_roof, why_no_share
from brrrtop.kernel_names.facts import name_facts
from brrrtop.kernel_names.families import FAMILIES
from brrrtop.model.estimate import Side
from brrrtop.model.tables import Device, Links, OpSignature
from tests.analysis.build import ADD, GEMM, H200, NCCL, K, window

AMPERE = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>>"
)
SMALL_TILE = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma"
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>"
FLASH = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1"
HALF = "c10::BFloat16"


def judged(
    name: str, blocks: int, duration_ns: int, threads: int = 128, op: OpSignature | None = None,
    device: Device = H200,
) -> Group:  # fmt: skip
    """The verdict on one kernel."""
    made = window([K(0, duration_ns, name, corr=1, blocks=blocks, threads=threads)])
    made = replace(made, device=device)
    if op is not None:
        made = replace(made, links=Links(np.array([1]), np.array([5])), ops={5: op})
    return label(facts_of(made)).groups[0]


def product(m: int, n: int, k: int, kind: str = HALF) -> OpSignature:
    return OpSignature("aten::mm", ((m, k), (k, n)), (kind, kind))


@pytest.mark.parametrize("reached", [0.05, 0.3, 0.59, 0.9])
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.kind == "memory" and f.name != "gemm-skinny"], ids=lambda f: f.name)  # fmt: skip
def test_what_moves_elements_is_memory_at_whatever_share_of_the_bandwidth(family, reached):
    megabytes = 500
    op = OpSignature("aten::add", ((megabytes * 1_000_000 // 8,),), ("float",))
    duration = round(megabytes * 1e6 / (reached * 4.8e12) * 1e9)
    for result in (
        judged(family.example, 60_000, duration, op=op), judged(family.example, 60_000, duration)
    ):  # fmt: skip
        assert result.side is Side.MEMORY
        assert result.certainty == roofline.BY_FAMILY or result.blocks == 0


@pytest.mark.parametrize(
    ("inner", "side"), [((8192, 4096, 8192), Side.COMPUTE), ((32768, 32, 32768), Side.MEMORY)]
)
def test_products_are_told_by_their_shapes_and_the_ridge(inner, side):
    name = AMPERE if side is Side.COMPUTE else AMPERE.replace("128x128", "64x32")
    result = judged(name, 4096, 1_000_000, 256, product(*inner))
    assert (result.side, result.level) == (side, SHAPES)
    assert result.certainty == roofline.BY_SHAPES
    assert share_of_roof(result) == (
        result.compute_share_of_roof if side is Side.COMPUTE else result.memory_share_of_roof
    )


def test_the_same_product_is_on_another_side_where_the_ridge_is_elsewhere():
    op = product(8192, 8192, 128)
    h200, a10 = (
        Device(0, name, sm_count=sms, capability=cc)
        for name, sms, cc in (("NVIDIA H200", 132, (9, 0)), ("NVIDIA H20", 78, (9, 0)))
    )
    # 124 FLOP per byte between the ridges of a H20 (33) and of an H200 (183).
    assert judged(AMPERE, 4096, 500_000, 256, op, h200).side is Side.MEMORY
    assert judged(AMPERE, 4096, 500_000, 256, op, a10).side is Side.COMPUTE


def test_a_side_is_a_toss_at_the_ridge_and_surer_away_from_it():
    at, near, far = (roofline.by_intensity(flop, 1.0, 100.0, 0.5) for flop in (100.0, 130.0, 300.0))
    assert at.certainty == 0.5
    assert at.certainty < near.certainty < far.certainty == roofline.BY_SHAPES
    below = roofline.by_intensity(30.0, 1.0, 100.0, 0.5)
    assert (below.side, below.certainty) == (Side.MEMORY, roofline.BY_SHAPES)
    # Near neither roof something else takes its time.
    assert roofline.by_intensity(30.0, 1.0, 100.0, 0.05).certainty == roofline.UNEXPLAINED


def test_the_duration_of_a_product_bounds_its_inner_size():
    # 65,536 tiles: 1.07e9 outputs, 2.1 GB of them. In 500 us an H200 does at most 4e11 FLOP: K ≤ 184.
    facts = name_facts(AMPERE)
    rate = 0.8 * 989.4e12
    highest = roofline.highest_intensity(AMPERE, facts, 65_536, 132, rate * 500e-6, False)
    assert highest == pytest.approx(2 / (2 * (2 / 32768 + 1 / 184.3)), rel=0.01)
    short = judged(AMPERE, 65_536, 300_000, 256)
    assert (short.side, short.certainty, short.level) == (Side.MEMORY, roofline.BY_BOUND, NAME)
    long = judged(AMPERE, 65_536, 5_000_000, 256)
    assert (long.side, long.certainty) == (Side.COMPUTE, roofline.BY_NAME)


def test_a_grid_that_is_not_a_block_a_tile_bounds_nothing():
    facts = name_facts(GEMM)
    assert roofline.highest_intensity(GEMM, facts, 132, 132, 1e11, False) is None
    split = AMPERE.replace("tn", "splitK_tn")
    assert roofline.highest_intensity(split, name_facts(split), 4096, 132, 1e11, False) is None
    assert judged(GEMM, 132, 300_000).side is Side.COMPUTE


def test_a_product_smaller_than_its_tile_works_out_the_whole_tile():
    batch = 65536
    small = OpSignature("aten::bmm", ((batch, 7, 64), (batch, 64, 7)), ("float", "float"))
    result = judged(SMALL_TILE, batch, 250_000, 64, small)
    assert result.level == SHAPES
    assert result.compute_share_of_roof is not None and result.compute_share_of_roof < 0.05
    assert result.side is Side.COMPUTE
    # With nothing padded, as many bytes for a product are below the ridge.
    plain = OpSignature("aten::bmm", ((batch, 32, 7), (batch, 7, 32)), ("float", "float"))
    assert judged(SMALL_TILE, batch, 250_000, 64, plain).side is Side.MEMORY


def test_tensor_cores_fill_up_the_three_channels_of_an_image():
    stem = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4>"
    op = OpSignature(
        "aten::cudnn_convolution", ((128, 3, 224, 224), (64, 3, 7, 7)), (HALF,) * 2,
        ("", "", "[3, 3]", "[2, 2]", "[1, 1]", "1"),
    )  # fmt: skip
    result = judged(stem, 6272, 390_000, 128, op)
    assert (
        result.side is Side.COMPUTE
    )  # 54 to 67 % of the tensor cores' cycles beside 8 % of DRAM's
    assert result.channels == 3
    wide = replace(op, dims=((128, 8, 224, 224), (8, 8, 1, 1)))
    assert judged(stem, 6272, 390_000, 128, wide).side is Side.MEMORY


@pytest.mark.parametrize("op", [None, OpSignature(
    "aten::_conv_depthwise2d", ((128, 144, 96, 96), (144, 1, 3, 3)), ("float",) * 2,
    ("", "", "[1, 1]", "[1, 1]", "[1, 1]"), )])  # fmt: skip
def test_a_depthwise_convolution_is_below_every_ridge(op):
    assert judged(DEPTHWISE, 9216, 281_000, op=op).side is Side.MEMORY


def test_a_product_whose_rows_fill_a_sixteenth_of_the_tile_still_waits_for_its_weights():
    result = judged(GEMM, 132, 120_000, op=product(8, 16384, 16384))
    assert result.memory_share_of_roof is not None and result.memory_share_of_roof > 0.9
    assert result.side is Side.MEMORY


def test_attention_is_told_by_its_sequence():
    def at(length: int) -> Group:
        shape = (65536 // length, 12, length, 64)
        name = "aten::_scaled_dot_product_cudnn_attention"
        return judged(FLASH, 4000, 400_000, 384, OpSignature(name, (shape,) * 3, (HALF,) * 3))

    assert at(49).side is Side.MEMORY
    assert at(2048).side is Side.COMPUTE


@pytest.mark.parametrize(
    ("blocks", "duration_ns", "side"),
    [
        (20, 15_000, Side.UNDERFILLED),
        (20, 1_000_000, Side.MEMORY),
        (64, 300_000, Side.MEMORY),
        (40_000, 15_000, Side.MEMORY),
    ],
)
def test_only_launch_scale_work_is_underfilled(blocks, duration_ns, side):
    norm = "void at::native::batch_norm_collect_statistics_kernel<InvStd, float, float, float, int>"
    assert judged(norm, blocks, duration_ns, 512).side is side


@pytest.mark.parametrize(
    ("blocks", "duration_ns", "side"),
    [(128, 14_300, Side.MEMORY), (128, 3_000, Side.UNDERFILLED), (16, 9_000, Side.UNDERFILLED)],
)
def test_a_product_of_few_rows_reads_its_weights_in_a_few_microseconds(blocks, duration_ns, side):
    """Decoding in a CUDA graph on an H100: 33 MB of weights in 14 us, by a block an SM."""
    name = "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_bias_TNT"
    assert judged(name, blocks, duration_ns).side is side


def test_a_short_kernel_near_a_roof_is_a_busy_gpu():
    n = 1 << 24
    name = "triton_poi_fused_add_0"
    op = OpSignature(name, ((n,), (n,), (n,)), (HALF,) * 3, ("", "", "", str(n)))
    near = round(3 * n * 2 / (0.7 * 4.8e12) * 1e9)
    assert near > roofline.LAUNCH_SCALE_NS or judged(name, 800, near, op=op).side is Side.MEMORY
    quick = round(3 * n * 2 / (1.1 * 4.8e12) * 1e9)
    assert quick < roofline.LAUNCH_SCALE_NS
    assert judged(name, 800, quick, op=op).side is Side.MEMORY
    assert judged(name, 800, quick).side is Side.UNDERFILLED
    # What fits into the cache reaches such a rate and leaves the DRAM idle.
    few = replace(op, dims=((1 << 21,),) * 3, concrete=("", "", "", str(1 << 21)))
    brief = round(3 * (1 << 21) * 2 / (0.75 * 4.8e12) * 1e9)
    assert judged(name, 800, brief, op=few).side is Side.UNDERFILLED


def test_a_helper_kernel_is_not_taken_for_what_did_the_work_of_its_op():
    main = judged(AMPERE, 1024, 200_000, op=product(4096, 4096, 4096))
    helper = judged("nvjet_sm90_tst_init_gemm", 1, 2_000, op=product(4096, 4096, 4096))
    assert main.compute_share_of_roof is not None
    assert helper.compute_share_of_roof is helper.flop is None
    assert helper.side is Side.UNDERFILLED
    shape = (256, 64, 56, 56)
    norm = OpSignature("aten::native_batch_norm", (shape,), ("float",))
    name = "void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<float>>"
    assert judged(name, 1, 1_500, op=norm).size_bytes is None


def test_a_fused_optimizer_shows_its_share_of_the_bandwidth_without_shapes():
    name = (
        "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>,"
        " at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>>"
    )
    result = judged(name, 320, 166_000, 512)
    assert result.memory_share_of_roof == pytest.approx(0.74, abs=0.01)  # 0.72 counted
    assert EVIDENCE[result.level] == "L1.5"
    # Blocks for tensors of a few elements each cannot have moved a whole share of theirs.
    tiny = judged(name, 320, 2_000, 512)
    assert tiny.memory_share_of_roof is None and EVIDENCE[tiny.level] == "L1"


def test_without_registers_nobody_says_that_a_grid_of_a_block_an_sm_is_too_small():
    made = window([K(0, 12_000, GEMM, corr=1, blocks=140, threads=256)])
    acts = made.activities
    untold = replace(made, activities=replace(acts, registers=np.zeros_like(acts.registers)))
    known, open_ = (label(facts_of(w)).groups[0] for w in (made, untold))
    assert known.side is Side.UNDERFILLED
    assert open_.waves is None and open_.side is Side.COMPUTE
    assert open_.certainty == roofline.SHORT_UNPLACED
    assert judged(GEMM, 20, 12_000).side is Side.UNDERFILLED  # too few, however they fit


def test_a_kernel_of_no_known_name_is_unknown_unless_it_is_a_matter_of_launches():
    result = judged("_mine", 4000, 100_000)
    assert (result.side, result.certainty, EVIDENCE[result.level]) == (Side.UNKNOWN, 0.0, "L0")
    assert judged("_mine", 4, 3_000).side is Side.UNDERFILLED


def test_a_copy_from_one_type_to_another_moves_the_bytes_of_both():
    n = 1 << 24
    name = (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(c10::BFloat16),"
        " std::array<char*, 2ul>, 4, at::native::memory::LoadWithCast<1>>"
    )
    op = OpSignature("aten::copy_", ((n,), (n,), ()), (HALF, "long int", "Scalar"))
    assert judged(name, n // 512, 60_000, op=op).size_bytes == 10 * n


def test_sums_of_a_normalisation_are_not_charged_with_its_output():
    shape = (32, 128, 64, 64)
    op = OpSignature("aten::native_group_norm", (shape, (128,), (128,)), ("float",) * 3)
    name = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*)"
    result = judged(name, 512, 60_000, 512, op=op)
    assert result.size_bytes == pytest.approx(4 * 32 * 128 * 64 * 64, rel=0.001)


def test_vectorised_kernels_of_an_older_torch_work_through_half_as_many_elements():
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, {}>"
    )

    def size(torch: str, array: str = "std::array<char*, 3ul>") -> float | None:
        made = window([K(0, 300_000, name.format(array), blocks=40_000, threads=128)])
        made = replace(made, hello={"torch": torch})
        return label(facts_of(made)).groups[0].size_bytes

    old = 40_000 * 128 * 4 * 3 * 4.0
    assert size("2.6.0") == old
    assert size("2.7.1+cu128") == size("") == 2 * old
    assert size("", "at::detail::Array<char*, 3>") == old  # no newer one has this type


@pytest.mark.parametrize("batch", [0, -3])
def test_a_product_of_a_size_that_no_tensor_has_is_judged_by_its_name(batch):
    odd = OpSignature("aten::mm", ((batch, 64), (64, 128)), ("float", "float"))
    result = judged(SMALL_TILE, 1024, 250_000, 64, odd)
    assert result.flop is None
    assert result.side is judged(SMALL_TILE, 1024, 250_000, 64).side


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (judged(GEMM, 132, 300_000), "without shapes its name and duration bound its FLOPs"),
        (judged("triton_red_fused_sum_0", 4000, 100_000), "without shapes nothing tells its bytes"),
        (judged("_mine", 4000, 100_000), "neither its name, nor shapes or counters"),
        (judged(COPY, 4, 3_000), "too small for the GPU"),
        (judged(NCCL, 24, 300_000), "the links' rates"),
        (judged("at::cuda::spin_kernel(long)", 1, 300_000), "it only waits"),
        (judged(COPY, 1 << 17, 40_000), "cached: its shapes count more bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_share_of_a_roof_says_why(group, says):
    assert share_of_roof(group) is None
    assert why_no_share(group, ceilings_for(H200)).startswith(says)


def test_without_ceilings_no_kernel_has_a_share_of_them():
    result = judged(GEMM, 4000, 300_000, op=product(4096, 4096, 4096), device=Device(0))
    assert share_of_roof(result) is None
    assert why_no_share(result, None) == "no ceilings are known for this GPU"


@pytest.mark.parametrize(
    ("waves", "small"), [(None, False), (0.1, True), (0.99, True), (1.0, False), (1.9, False)]
)
def test_a_kernel_is_too_small_for_the_gpu_below_one_wave(waves, small):
    assert roofline.is_launch_scale(2_000.0, waves, 0.05, 0.05) is small
    assert not roofline.is_launch_scale(roofline.LAUNCH_SCALE_NS, waves, 0.05, 0.05)
    assert not roofline.is_launch_scale(2_000.0, waves, 0.05, 0.9)


US = 1_000
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9>"
BACK = "void (anonymous namespace)::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 9>"
LOSS = "void (anonymous namespace)::cunn_SoftMaxForward<8, float, LogSoftMaxForwardEpilogue>"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"


def sequence(*names: str, streams: int = 1) -> Facts:
    kernels = [
        K(i * 101 * US, (i * 101 + 100) * US, name, i + 1, stream=7 + i % streams)
        for i, name in enumerate(names)
    ]
    return facts_of(window(kernels))


def products_of(*names: str) -> list[int]:
    attention = written_attention(sequence(*names))
    return [] if attention is None else sorted(attention.products.tolist())


@pytest.mark.parametrize(
    ("names", "products"),
    [
        ((GEMM, NORM, GEMM, ADD, SOFTMAX, ADD, GEMM, NORM, GEMM), [2, 6]),
        ((NORM, GEMM, GEMM, BACK, ADD, GEMM, GEMM, NORM), [1, 2, 5, 6]),
        ((GEMM, LOSS, GEMM), []),
        ((GEMM, SOFTMAX, TOPK, GEMM), []),
    ],
    ids=["one on both sides", "backward has two on either side", "a loss is none", "nor a router"],
)
def test_the_products_beside_a_softmax_are_attention(names, products):
    assert products_of(*names) == products


def test_without_a_softmax_there_is_nothing_to_look_for():
    assert written_attention(sequence(GEMM, ADD, GEMM)) is None


def test_another_stream_is_another_sequence():
    attention = written_attention(sequence(GEMM, NORM, SOFTMAX, NORM, GEMM, NORM, streams=2))
    assert attention is not None and sorted(attention.products.tolist()) == [0, 4]


def test_the_same_kernel_is_judged_by_its_place():
    names = [GEMM, NORM, GEMM, ADD, SOFTMAX, GEMM, NORM, GEMM] * 3
    rows = estimate(sequence(*names).window).estimate.kernels
    assert {r.side for r in rows if r.name == GEMM} == {Side.COMPUTE, Side.MEMORY}
