"""Kernels' names as people read them, and what tells apart those that look alike."""

from __future__ import annotations

import pytest

from brrrtop.kernel_names.readable import short_name, told_apart

CONDITION = "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (CONDITION + "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "fused_add_rms_norm_kernel"),
        ("std::enable_if<true, void>::type f<int>(int)", "f"),
        ("void cutlass::device_kernel<dpsk::cuda::fp8_ptp128c::GemmKernel>(Params)", "fp8_ptp128c::GemmKernel"),
        ("void cutlass::device_kernel<flash::FlashAttnBwd<flash::Mainloop<2>>>(P)", "FlashAttnBwd"),
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
    shown = told_apart(names, 36)
    assert len(set(shown)) == len(names) and max(map(len, shown)) <= 36
    assert shown[:3] == ["dispatch false", "dispatch true", "combine"]
    assert shown[3].endswith(" MT256x32x64")
    assert "CausalP16" in shown[5] and "SlidingP16" in shown[6]
    assert told_apart(["Memset", "Memset"], 36) == ["Memset", "Memset"]
