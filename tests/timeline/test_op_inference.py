"""What a kernel's name adds to an op recorded with shapes alone; and when that is too little."""

import pytest

from brrrtop.analysis.kernels.ops import work_of
from brrrtop.model.tables import OpSignature
from brrrtop.timeline.op_inference import half_of, signature, type_of
from tests.session.runs import GEMM, POINTWISE, SGEMM

COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{{lambda()#3}}::operator()() const::{{lambda()#7}}::operator()() const::"
    "{{lambda({})#1}}, std::array<char*, 2ul>, 4>(int)"
)
FPROP = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
CUDNN_ATTENTION = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_bf16_knob_6_64x128x128"
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, "
    "false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, "
    "cutlass::bfloat16_t> >, {dropout}, {causal}, false, false, true, true, false, false>(P)"
)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (GEMM, "c10::BFloat16"),
        (SGEMM, "float"),
        (POINTWISE[0], "c10::BFloat16"),
        (COPY.format("double"), "double"),
        (COPY.format("long"), "long int"),
        (COPY.format("float"), "float"),
        ("triton_poi_fused_add_0", None),
        ("my_own_kernel", None),
        (
            "void implicit_convolve_sgemm<__nv_bfloat16, __nv_bfloat16, 1024, 5>(int)",
            "c10::BFloat16",
        ),
    ],
)
def test_the_element_type_is_what_the_kernel_is_called_after(kernel, kind):
    assert type_of(kernel) == kind


def test_an_op_whose_type_nobody_knows_or_without_shapes_is_no_evidence():
    product = OpSignature("aten::mm", ((64, 64), (64, 64)))
    assert signature(product, "my_own_kernel", []) is None
    assert signature(OpSignature("aten::_foreach_add_", ((), ())), POINTWISE[0], []) is None


def _conv(name: str, *dims: tuple[int, ...]) -> OpSignature:
    return OpSignature(f"aten::{name}", (*dims, (), (), ()))


IMAGE, WEIGHT = (32, 64, 56, 56), (128, 64, 3, 3)
FORWARD = _conv("cudnn_convolution", IMAGE, WEIGHT)
HALVED = _conv("convolution_backward", (32, 128, 28, 28), IMAGE, WEIGHT)
KEPT = _conv("convolution_backward", (32, 128, 56, 56), IMAGE, WEIGHT)


def test_a_convolution_is_as_large_as_the_gradient_that_comes_back():
    op = signature(FORWARD, FPROP, [HALVED, _conv("convolution_backward", (1,), (1,), (1,))])
    assert op is not None
    work = work_of(op)
    assert work is not None and work.flop == 2.0 * 32 * 128 * 28 * 28 * 64 * 9
    assert work.precision == "bf16"
    back = signature(HALVED, FPROP, [])
    assert back is not None and work_of(back).flop == work.flop  # type: ignore[union-attr]


def test_a_convolution_with_two_strides_or_none_known_is_no_evidence():
    assert signature(FORWARD, FPROP, [HALVED, KEPT]) is None
    assert signature(FORWARD, FPROP, []) is None
    larger = _conv("convolution_backward", (32, 64, 112, 112), IMAGE, (64, 64, 3, 3))
    assert signature(larger, FPROP, []) is None, "a transposed one"
    transposed = _conv("cudnn_convolution_transpose", IMAGE, WEIGHT)
    assert signature(transposed, FPROP, [HALVED]) is None


def test_attention_is_taken_for_causal_unless_its_name_says_otherwise():
    heads = (8, 16, 1024, 64)
    op = OpSignature("aten::_scaled_dot_product_flash_attention", (heads, heads, heads, (), ()))
    flops = []
    for kernel in (
        CUDNN_ATTENTION,
        FLASH.format(dropout="false", causal="true"),
        FLASH.format(dropout="(bool)0", causal="(bool)1"),
        FLASH.format(dropout="false", causal="false"),
        FLASH.format(dropout="(bool)1", causal="(bool)0"),
    ):
        known = signature(op, kernel, [])
        assert known is not None
        work = work_of(known)
        flops.append(work.flop)
    assert flops[0] == flops[1] == flops[2] == flops[3] / 2 == flops[4] / 2


def test_products_that_compiled_code_calls_end_with_their_output():
    for op, inner in (
        (
            OpSignature("aten::addmm", ((256,), (32, 64), (64, 256), (), (), (32, 256))),
            (32, 256, 64),
        ),
        (OpSignature("aten::mm", ((32, 64), (64, 256), (32, 256))), (32, 256, 64)),
        (OpSignature("aten::addmm", ((32, 256), (32, 64), (64, 256), (), ())), (32, 256, 64)),
    ):
        known = signature(op, GEMM, [])
        assert known is not None
        work = work_of(known)
        assert work is not None and work.inner == inner


CASTS = (
    ", TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, "
    "at::native::memory::StoreWithCast<1> >(int)"
)
INTO = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::{into}_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{{lambda({source})#1}}, std::array<char*, 2ul> >(int)"
)


@pytest.mark.parametrize(
    ("kernel", "half", "types"),
    [
        (INTO.format(into="bfloat16", source="float"), None, ("c10::BFloat16", "float")),
        (INTO.format(into="float16", source="float"), None, ("c10::Half", "float")),
        (
            INTO.format(into="float8", source="c10::BFloat16"),
            None,
            ("c10::Float8_e4m3fn", "c10::BFloat16"),
        ),
        (COPY.format("float") + CASTS, "c10::BFloat16", ("float", "c10::BFloat16")),
        (COPY.format("float") + CASTS, None, ("float", "float")),
        (COPY.format("float"), "c10::BFloat16", ("float", "float")),
    ],
)
def test_copies_that_convert_have_two_types(kernel, half, types):
    op = OpSignature("aten::copy_", ((64, 64), (64, 64), ()))
    known = signature(op, kernel, [], half)
    assert known is not None and known.types[:2] == types


def test_the_type_of_a_step_is_the_one_that_its_kernels_name():
    assert half_of([GEMM, POINTWISE[0], CUDNN_ATTENTION]) == "c10::BFloat16"
    assert half_of([GEMM, SGEMM]) is None
    assert half_of([POINTWISE[0], COPY.format("c10::Half")]) is None


def test_a_convolution_of_rows_is_run_as_one_of_images_a_pixel_high():
    forward = _conv("cudnn_convolution", (16, 64, 1, 16000), (256, 64, 1, 1))
    back = _conv("convolution_backward", (16, 256, 16000), (16, 64, 16000), (256, 64, 1))
    op_signature = signature(forward, FPROP, [forward, back])
    assert op_signature is not None and op_signature.out == (16, 256, 1, 16000)
