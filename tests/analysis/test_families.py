"""Names say what they can, and no more."""

import pytest

from brrrtop.kernel_names.facts import least_capability, name_facts
from brrrtop.kernel_names.families import FAMILIES, OTHER, Family, family_of
from brrrtop.kernel_names.readable import distinct_names, short_name


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.name}-{f.example[:30]}")
def test_each_row_of_the_table_wins_its_own_example(family: Family) -> None:
    assert family_of(family.example) is family


LOOK_ALIKES = """
collective    ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)
collective    ncclDevKernel_ReduceScatter_Sum_f32_RING_LL
fused         triton_per_fused_native_layer_norm_2
gemm          triton_tem_fused_mm_5
gemm          cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8
attention     void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>
elementwise   void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous)::{lambda(float)#1}>
random        void distribution_elementwise_grid_stride_kernel<float, 4, DistributionNormal>
gemm          volta_sgemm_128x64_nn
conv          cudnn::cnn::wgrad2d_grouped_direct_kernel<false, true, int, float>
gemm-skinny   nvjet_sm90_tst_192x8_64x8_2x1_v_bz_TNT
conv          void convolve_common_engine_float_NHWC<__nv_bfloat16, __nv_bfloat16, 128, 5, 5>
conv          volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_interior_nhwc_tn_v1
conv          turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1
gemm          cutlass::Kernel2
fused         loop_multiply_fusion
fused         input_reduce_fusion_2
fused         wrapped_convert
fused         fusion_17_1
gemm          gemm_fusion_dot_4
softmax       triton_softmax_5
attention-aux void cudnn::fusion::compute_dot_do_o_specialized<true, 128>(void*)
attention-aux cutlass::device_kernel<flash::FlashAttnBwdPreprocess<Shape<_64, _128>>>
attention     cutlass::device_kernel<flash::FlashAttnBwdSm90<CollectiveMainloopBwd>>
attention-aux _attn_bwd_preprocess
attention     void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel<float>>(Kargs)
attention-aux void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaBwdConvertQGradKernel<float>>(Kargs)
recurrent     RNN_bidirectional_accum_bp1_2<float, float>(float*, float*, int)
fft           void composite_2way_fft<56u, 7u, 8u>(kernel_arguments_t<unsigned int>)
fft           void dpRadix0256C::kernel1Mem<unsigned int, double, fftDirection_t=-1>
other         _my_kernel
index         void fbgemm_gpu::split_embedding_codegen_forward_unweighted_kernel<float>
index         void fbgemm_gpu::permute_2D_sparse_data_kernel<false, long, int>
index         void fbgemm_gpu::bounds_check_indices_kernel<long>
gemm          void fbgemm_gpu::f8f8bf16_rowwise_gemm_kernel<int>
gemm          Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN
conv          igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16_wt32x32x8_ws2x1_wr2x2
conv          _ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3
conv          miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1
norm          MIOpenBatchNormFwdTrainSpatial
elementwise   SubTensorOpWithScalar1d
pool          Im2d2Col_v2
layout        batched_transpose_32x32_half
collective    ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)
sort          void rocprim::ROCPRIM_400200_NS::detail::trampoline_kernel<wrapped_scan_config<long>>
copy          __amd_rocclr_copyBuffer
memset        __amd_rocclr_fillBufferAligned
"""
"""Family and name; the last ones are of AMD's libraries: rocBLAS and hipBLASLt, MIOpen, Composable Kernel, RCCL, rocPRIM."""


@pytest.mark.parametrize("row", LOOK_ALIKES.strip().splitlines())
def test_look_alikes_are_told_apart(row: str) -> None:
    family, name = row.split(maxsplit=1)
    assert family_of(name).name == family


def test_a_name_nobody_knows_expects_nothing() -> None:
    assert family_of("zzz_kernel_0") is OTHER


@pytest.mark.parametrize(
    ("name", "precision", "tensor_cores"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "bf16", True),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_NTN", "fp16", True),
        ("nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT", "fp8", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", "tf32", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_ffma_aligna4", "fp32", False),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(T1::Params)",
            "fp32",
            False,
        ),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_tn_align8", "bf16", True),
        ("cutlass_80_tensorop_s1688gemm_128x64_32x3_tn_align4", "tf32", True),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "fp16", True),
        ("volta_sgemm_128x64_nn", "fp32", False),
        ("ampere_h16816gemm_256x128_ldg8_stages_32x3_nn", "fp16", True),
        ("turing_h1688gemm_128x128_ldg8_nn", "fp16", True),
        ("cutlass_80_simt_dgemm_128x128_8x4_nn_align1", "fp64", False),
        (
            "cutlass::device_kernel<GemmUniversal<MainloopSm90TmaGmmaWarpSpecialized, cutlass::tfloat32_t>>",
            "tf32",
            True,
        ),
    ],
)
def test_precision_and_unit_are_read_off_gemm_names(
    name: str, precision: str, tensor_cores: bool
) -> None:
    facts = name_facts(name)
    assert (facts.precision, facts.tensor_cores) == (precision, tensor_cores)


def test_work_per_thread_follows_the_torch_in_use() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    assert name_facts(name, torch_new=True).elements_per_thread == 8
    assert name_facts(name, torch_new=False).elements_per_thread == 4
    assert name_facts(name).tensor_count == 3
    assert name_facts(name).element_bytes == 4


@pytest.mark.parametrize(
    ("functor", "element", "touched"),
    [
        (
            "FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4, MODE>",
            4,
            7,
        ),
        (
            "TensorListMetadata<2>, at::native::BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>, P",
            2,
            3,
        ),
        ("TensorListMetadata<2>, at::native::UnaryOpFunctor<float, 2, 1, 1>, S", 4, 2),
        ("TensorListMetadata<3>, at::native::PointwiseOpScalarFunctor<float, 3, 3, 0>, S", 4, 4),
        (
            "TensorListMetadata<1>, at::native::LpNormFunctor<float, (NormType)2, float, 1, 1, 0>",
            4,
            1,
        ),
    ],
)
def test_kernels_over_lists_say_what_they_touch(functor: str, element: int, touched: int) -> None:
    facts = name_facts(f"void at::native::multi_tensor_apply_kernel<at::native::{functor}>")
    assert (facts.element_bytes, facts.tensor_count) == (element, touched)
    assert facts.elements_per_block == 65536 and facts.elements_per_thread is None


@pytest.mark.parametrize(
    ("names", "least"),
    [
        (["volta_sgemm_64x64_nn"], (7, 0)),
        (["turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1"], (7, 5)),
        (["volta_sgemm_64x64_nn", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn"], (8, 0)),
        (["cutlass_80_tensorop_s16816gemm_f16_64x64_32x6_nn_align8"], (8, 0)),
        (
            ["void cub::DeviceScanKernel<cub::DeviceScanPolicy<int, std::plus<int> >::Policy900>"],
            (9, 0),
        ),
        (["nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"], (9, 0)),
        (["fmhaSm100aKernel_QkvE4m3OBfloat16HQk64HV64SlidingOrChunkedCausal"], (10, 0)),
        (["my_small_kernel", "sm_wide_100_kernel", "void at::native::fill<float>"], None),
    ],
)
def test_names_tell_the_architecture_a_kernel_was_built_for(
    names: list[str], least: tuple[int, int] | None
) -> None:
    assert least_capability(names) == least


CONDITION = "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (CONDITION + "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "fused_add_rms_norm_kernel"),
        ("std::enable_if<true, void>::type f<int>(int)", "f"),
        ("void cutlass::device_kernel<dpsk::cuda::fp8_ptp128c::GemmKernel>(Params)", "fp8_ptp128c::GemmKernel"),
        ("void cutlass::device_kernel<flash::FlashAttnBwd<flash::Mainloop<2>>>(P)", "FlashAttnBwd"),
        ("void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel<float>>(P)", "FmhaFwdKernel"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePass", "Rmsnorm2dFwd · kentry"),
    ],
)  # fmt: skip
def test_a_name_is_the_kernels_own(name: str, short: str) -> None:
    assert short_name(name) == short


def test_names_that_look_alike_end_in_what_differs() -> None:
    names = [
        "void ep::dispatch<false, 8, false, 8>(int4*)",
        "void ep::dispatch<false, 8, true, 8>(int4*)",
        "void ep::combine<false>(int4*)",
        "Cijk_Alik_Bljk_BBS_MT256x32x64_MI16x16x1_WS64_WG64_4_1_and_a_long_tail_of_its_own",
        "Cijk_Alik_Bljk_BBS_MT256x48x64_MI16x16x1_WS64_WG64_4_1_and_a_long_tail_of_its_own",
        "fmhaKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "fmhaKernel_QkvE4m3OBfloat16H64PagedKvSlidingP16VarSeqQ128Kv128PersistentContext",
    ]
    shown = distinct_names(names, 36)
    assert len(set(shown)) == len(names) and max(map(len, shown)) <= 36
    assert shown[:3] == ["dispatch false", "dispatch true", "combine"]
    assert shown[3].endswith(" MT256x32x64")
    assert "CausalP16" in shown[5] and "SlidingP16" in shown[6]
    assert distinct_names(["Memset", "Memset"], 36) == ["Memset", "Memset"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("nvjet_sm90_tst_128x96_64x7_1x2_h_bz_NNT", "nvjet_sm90_tst_128x96_64x7_1x2_h_bz_NNT"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("triton_poi_fused_sum_14", "triton_poi_fused_sum_14"),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::tanh_kernel_cuda("
            "at::TensorIteratorBase&)::{lambda()#2}::operator()() const, std::array<char*, 2ul> >",
            "tanh · vectorized_elementwise_kernel",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
            "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::"
            "MulFunctor<float> > >(at::TensorIteratorBase&)>(int, float)",
            "MulFunctor · elementwise_kernel",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(...)",
            "cutlass_80_simt_sgemm_64x64_8x5_nt_align1",
        ),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_"
            "cga1x1x1_kernel0_0",
            "sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_"
            "aligna4_alignc4_execute_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_"
            "aligna4_alignc4",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::"
            "GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}"
            "::operator()() const::{lambda(float, float)#1}, std::array<char*, 3ul> >(int, char*)",
            "GeluBackward · vectorized_elementwise_kernel",
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(int)",
            "CatArrayBatchedCopy",
        ),
        (
            "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock"
            "22ImplicitGemmMultistageINS_4gemm9GemmShapeILi128ELi128ELi32EEENS4_52Conv2dWgradOutput"
            "GradientTileAccessIteratorOptimizedINS_11MatrixShapeILi128ELi32EEEEEEEvNT_6ParamsE",
            "Conv2dWgrad · Kernel",
        ),
        ("_ZN7cutlass6KernelI3FooEEvT_", "Foo · Kernel"),
        ("_ZN3abc9my_kernelEv", "my_kernel"),
        ("_ZN9999999999999999999999abc", "_ZN9999999999999999999999abc"),
        ("_ZN8cut_", "_ZN8cut_"),
        ("", ""),
        ("<<<", "<<<"),
    ],
)
def test_kernel_names_keep_what_tells_them_apart(name: str, short: str) -> None:
    assert short_name(name) == short
