"""Edits of what the device runs: scenes that call for each, and traps."""

from brrrtop.model.tables import OpSignature
from collectors.vocabulary import MarkClass

from .cases import Cases, large, looped, small
from .scenarios import (
    A100,
    ADD,
    BN_NATIVE,
    BN_NCHW,
    CAST,
    CONV_NCHW,
    CONV_NHWC,
    FLASH,
    GEMM,
    LOG_SOFTMAX,
    MUL,
    NORM,
    SGEMM,
    SOFTMAX,
    SOFTMAX_BACK,
    TF32_GEMM,
    TO_NHWC,
    TOPK,
    Scene,
)

CASES = Cases()
HALF = "c10::BFloat16"
calls_for, silent = CASES.calls_for, CASES.silent


@silent("fuse-pointwise")
def residuals_and_norms() -> Scene:
    def layer(s: Scene) -> None:
        large(s, 2)
        s.kernel(ADD, 25.0)
        s.kernel(NORM, 35.0)

    return looped(lambda s: [layer(s) for _ in range(12)])


@silent("fuse-pointwise")
def pointwise_runs_nobody_waits_for() -> Scene:
    return looped(lambda s: (s.idle(40_000, MarkClass.INPUT, "next"), small(s, 40)))


@calls_for("channels-last")
def channels_first_convolutions() -> Scene:
    def layer(s: Scene) -> None:
        s.kernel(TO_NHWC, 20.0)
        s.kernel(CONV_NCHW, 200.0)
        s.kernel(BN_NCHW, 60.0)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def channels_last_convolutions(s: Scene) -> None:
    s.kernel(TO_NHWC, 20.0)
    for _ in range(20):
        s.kernel(CONV_NHWC, 200.0)
        s.kernel(NORM, 40.0)


@calls_for("channels-last")
@silent("underfilled-kernels")
def channels_first_norms_around_few_convolutions() -> Scene:
    """A block a channel: 300 MB in 500 us."""
    op = OpSignature("aten::native_batch_norm_backward", ((64, 256, 56, 56),) * 2, (HALF,) * 2)

    def layer(s: Scene) -> None:
        s.kernel(TO_NHWC, 20.0)
        s.kernel(CONV_NHWC, 40.0)
        s.kernel(BN_NATIVE, 500.0, blocks=64, op=op)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def norms_of_sequences_beside_convolutions() -> Scene:
    op = OpSignature("aten::native_batch_norm_backward", ((64, 256, 1000),), ("c10::BFloat16",))

    def layer(s: Scene) -> None:
        s.kernel(CONV_NHWC, 60.0)
        s.kernel(BN_NATIVE, 500.0, blocks=64, op=op)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def convolutions_of_sequences() -> Scene:
    """cuDNN converts them all the same, but no memory format of PyTorch is for three axes."""
    forward = OpSignature("aten::cudnn_convolution", ((16, 64, 1, 16000), (128, 64, 1, 2)))
    backward = OpSignature("aten::convolution_backward", ((16, 128, 16000), (16, 64, 16001)))

    def layer(s: Scene) -> None:
        for op in (forward, backward):
            s.kernel(TO_NHWC, 60.0, op=op)
            s.kernel(CONV_NCHW, 60.0, op=op)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def convolutions_of_volumes() -> Scene:
    """In bf16 and channels_last_3d they took 1.8 times as long on an H100; of an op that began early no shape is known."""
    known = OpSignature("aten::cudnn_convolution", ((2, 32, 64, 128, 128), (32, 32, 3, 3, 3)))

    def layer(s: Scene) -> None:
        for op in (known, None):
            s.kernel(TO_NHWC, 60.0, op=op)
            s.kernel(CONV_NCHW, 60.0, op=op)

    return looped(lambda s: [layer(s) for _ in range(20)])


@silent("channels-last")
def norms_without_convolutions() -> Scene:
    return looped(lambda s: [(large(s, 1), s.kernel(BN_NATIVE, 500.0)) for _ in range(20)])


@calls_for("enable-tf32-or-amp")
def fp32_products_on_an_a100() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 400.0) for _ in range(20)], scene=Scene(A100))


@silent("enable-tf32-or-amp")
def short_fp32_products_that_leave_the_gpu_empty() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 5.0, blocks=16) for _ in range(400)])


@silent("enable-tf32-or-amp")
def fp32_products_that_move_more_than_they_multiply() -> Scene:
    op = OpSignature("aten::bmm", ((65536, 7, 64), (65536, 64, 7)), ("float",) * 2)
    return looped(lambda s: [s.kernel(SGEMM, 300.0, op=op) for _ in range(20)])


@calls_for("enable-tf32-or-amp")
def long_fp32_products_of_few_blocks() -> Scene:
    return looped(lambda s: [s.kernel(SGEMM, 400.0, blocks=48) for _ in range(20)])


@silent("use-bf16")
def short_tf32_products_that_leave_the_gpu_empty() -> Scene:
    return looped(lambda s: [s.kernel(TF32_GEMM, 5.0, blocks=16) for _ in range(400)])


def attention(scene: Scene, *, between: tuple[str, ...], op: OpSignature | None = None) -> None:
    scene.kernel(GEMM, 300.0, blocks=132, op=op)
    for name in between:
        scene.kernel(name, 500.0)
    scene.kernel(GEMM, 300.0, blocks=132, op=op)
    large(scene, 4)


BMM = OpSignature("aten::bmm", ((32, 4096, 64), (32, 64, 4096)), ("c10::BFloat16",) * 2)


MM = OpSignature("aten::mm", ((8192, 1024), (1024, 1024)), ("c10::BFloat16",) * 2)


@calls_for("flash-attention")
def attention_written_out() -> Scene:
    return looped(lambda s: [attention(s, between=(MUL, ADD, SOFTMAX, MUL)) for _ in range(4)])


def test_fused_attention_keeps_the_dropout_of_its_scores():
    dropout = (
        "void fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int, 1, 8, bool>(Params)"
    )
    for between, keeps in ((MUL, SOFTMAX), False), ((MUL, SOFTMAX, dropout), True):
        scene = looped(lambda s: [attention(s, between=between) for _ in range(4)])  # noqa: B023
        assert ("dropout_p" in scene.advice()["flash-attention"].suggests) is keeps


@calls_for("flash-attention")
def attention_written_out_with_shapes() -> Scene:
    return looped(lambda s: [attention(s, between=(MUL, SOFTMAX), op=BMM) for _ in range(4)])


@calls_for("flash-attention")
def attention_written_out_where_ops_have_no_shapes() -> Scene:
    op = OpSignature("aten::bmm")
    return looped(lambda s: [attention(s, between=(MUL, SOFTMAX), op=op) for _ in range(4)])


@calls_for("flash-attention")
def attention_in_the_backward_pass(s: Scene) -> None:
    large(s, 3)
    for _ in range(4):
        attention(s, between=(MUL, SOFTMAX_BACK, MUL))


@calls_for("flash-attention")
@silent("cast-churn")
def attention_written_out_that_converts_its_scores(s: Scene) -> None:
    for _ in range(8):
        attention(s, between=(CAST, MUL, SOFTMAX, CAST), op=BMM)


@silent("flash-attention")
def a_softmax_between_plain_products() -> Scene:
    return looped(lambda s: [attention(s, between=(SOFTMAX,), op=MM) for _ in range(4)])


@silent("flash-attention")
def a_softmax_between_plain_products_without_shapes() -> Scene:
    op = OpSignature("aten::addmm")
    return looped(lambda s: [attention(s, between=(SOFTMAX,), op=op) for _ in range(4)])


calls_for(
    "fuse-pointwise",
    long_pointwise_runs=lambda s: (large(s, 4), [s.kernel(ADD, 80.0) for _ in range(30)]),
)
calls_for(
    "enable-tf32-or-amp",
    fp32_products_on_cuda_cores=lambda s: [s.kernel(SGEMM, 400.0) for _ in range(20)],
)
silent("enable-tf32-or-amp", fp32_products_behind_launches=lambda s: small(s, name=SGEMM))
silent("enable-tf32-or-amp", "use-bf16", bf16_products=large)
calls_for("use-bf16", tf32_products=lambda s: [s.kernel(TF32_GEMM, 400.0) for _ in range(20)])
silent(
    "flash-attention",
    a_loss_between_products=lambda s: [attention(s, between=(LOG_SOFTMAX, MUL)) for _ in range(4)],
    a_router_between_products=lambda s: [attention(s, between=(SOFTMAX, TOPK)) for _ in range(4)],
)
silent(
    "flash-attention",
    "fusion-ceiling",
    fused_attention=lambda s: [(large(s, 2), s.kernel(FLASH, 400.0)) for _ in range(10)],
)


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()
