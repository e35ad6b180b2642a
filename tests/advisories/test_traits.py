"""What names give away."""

import pytest

from brrrtop.kernel_names.families import FAMILIES
from brrrtop.kernel_names.traits import Role, Trait, role_of, traits_of

from .scenarios import (
    ADD64,
    CONV_NCHW,
    CONV_NHWC,
    FLASH,
    FLASH2,
    FLASH_BACK,
    FUSED_ADAM,
    LOG_SOFTMAX,
    ODD_GEMM,
    SGEMM,
    SOFTMAX,
    TF32_GEMM,
)

WITHOUT_ROLE = {
    "delay",
    "fft",
    "kv-cache",
    "pool",
    "quantize",
    "recurrent",
    "recurrent-cell",
    "solve",
    "other",
}
"""Families no advice speaks of."""
DOUBLE_ARGUMENTS = FUSED_ADAM.replace("(P)", "(P, double, double)")
WARP_LOSS = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(P)"
)
WARP = WARP_LOSS.replace("true", "false")


def test_every_family_has_a_role_or_is_known_to_need_none():
    silent = {f.name for f in FAMILIES if role_of(f.example) is Role.OTHER}
    assert silent <= WITHOUT_ROLE


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (SOFTMAX, Role.SOFTMAX),
        (LOG_SOFTMAX, Role.LOSS),
        (WARP, Role.SOFTMAX),
        (WARP_LOSS, Role.LOSS),
        (FLASH, Role.ATTENTION),
        ("triton_red_fused__log_softmax__to_copy_0", Role.FUSED),
    ],
)
def test_losses_are_told_from_softmax(name, role):
    assert role_of(name) is role


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        (SGEMM, Trait.SIMT),
        (TF32_GEMM, Trait.TF32),
        (ODD_GEMM, Trait.MISALIGNED),
        (CONV_NCHW, Trait.NCHW),
        (FLASH2, Trait.FLASH2),
        (FLASH_BACK, Trait.BACKWARD),
        (ADD64, Trait.DOUBLE),
        ("void at::native::elementwise_kernel<128, 2, f::{lambda(double)#1}>(int)", Trait.DOUBLE),
    ],
)
def test_names_state_their_traits(name, trait):
    assert traits_of(name) & trait


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        (TF32_GEMM, Trait.SIMT),
        (CONV_NHWC, Trait.NCHW),
        (FLASH, Trait.FLASH2),
        (FLASH, Trait.BACKWARD),
        (DOUBLE_ARGUMENTS, Trait.DOUBLE),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_ffma_aligna4_alignc4_cublas", Trait.MISALIGNED),
    ],
)
def test_names_do_not_state_what_they_only_look_like(name, trait):
    assert not traits_of(name) & trait
