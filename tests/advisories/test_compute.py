"""Rules about arithmetic: scenes that call for each, and traps."""

from msgspec.structs import replace

from brrrtop.model.tables import OpSignature

from .cases import Cases, large, looped
from .scenarios import A100, ADD64, CONV_NHWC, CONV_OLD, FLASH2, FUSED_ADAM, GEMV, ODD_GEMM, Scene

CASES = Cases()
calls_for, silent = CASES.calls_for, CASES.silent


@calls_for("tensor-core-alignment")
def rows_of_odd_length() -> Scene:
    op = OpSignature("aten::mm", ((8190, 4095), (4095, 4095)), ("c10::BFloat16",) * 2)
    return looped(lambda s: [s.kernel(ODD_GEMM, 900.0, blocks=512, op=op) for _ in range(10)])


@calls_for("fusion-ceiling")
def attention_of_the_last_generation() -> Scene:
    return looped(lambda s: [(large(s, 2), s.kernel(FLASH2, 400.0)) for _ in range(10)])


@silent("fusion-ceiling")
def the_same_attention_on_its_own_generation() -> Scene:
    return looped(
        lambda s: [(large(s, 2), s.kernel(FLASH2, 400.0)) for _ in range(10)], scene=Scene(A100)
    )


@calls_for("skinny-products")
def products_with_eight_rows() -> Scene:
    name = "nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNT"
    return looped(lambda s: [(large(s, 1), s.kernel(name, 100.0)) for _ in range(20)])


@silent("skinny-products")
def large_tiles_with_a_short_stage() -> Scene:
    name = "nvjet_sm90_tst_64x128_64x8_2x1_v_bz_NTN"
    return looped(lambda s: [(large(s, 1), s.kernel(name, 100.0)) for _ in range(20)])


@calls_for("cudnn-benchmark")
def convolutions_of_the_past_in_a_mix() -> Scene:
    device = replace(A100, capability=(6, 0), name="Tesla P100")
    return looped(
        lambda s: [(large(s, 1), s.kernel(CONV_OLD, 400.0)) for _ in range(20)], scene=Scene(device)
    )


@silent("double-precision")
def double_scalars_of_an_fp32_kernel() -> Scene:
    name = FUSED_ADAM.replace("(P)", "(P, double, double, float const*)")
    return looped(lambda s: (large(s), s.kernel(name, 600.0)))


silent(
    "tensor-core-alignment",
    a_small_odd_head=lambda s: (large(s, 40), s.kernel(ODD_GEMM, 40.0, blocks=4)),
)
calls_for(
    "skinny-products",
    matrix_times_vector=lambda s: [(large(s, 1), s.kernel(GEMV, 100.0)) for _ in range(20)],
)
silent("skinny-products", one_matrix_times_vector=lambda s: (large(s), s.kernel(GEMV, 100.0)))
silent("cudnn-benchmark", implicit_gemms=lambda s: [s.kernel(CONV_NHWC, 200.0) for _ in range(20)])
calls_for(
    "double-precision",
    a_metric_in_fp64=lambda s: (large(s), [s.kernel(ADD64, 90.0) for _ in range(10)]),
)


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()
