"""What a bound takes in: all that the fix can win, so that nobody wins more than was promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brrrtop.advisories.advise import advise
from brrrtop.model import Advisory

from .scenarios import GEMM, Scene


def given(kind: str, body: Callable[[Scene], object]) -> tuple[Advisory, dict[str, float]]:
    """The advisory, and the shares of the wall the GPU idles by cause."""
    scene = Scene()
    for _ in range(5):
        body(scene)
        scene.step()
    account = scene.judged().estimate.account
    idle = {cause: time / account.duration_ns for cause, time in account.idle_ns.items()}
    return next(one for one in advise(scene.judged()) if one.kind == kind), idle


def work(scene: Scene, late: float) -> None:
    """20 ms of kernels, the first of them launched `late` us after the GPU fell idle."""
    scene.kernel(GEMM, 300.0, blocks=132, late=late)
    for _ in range(60):
        scene.kernel(GEMM, 300.0, blocks=132)


def test_a_pageable_upload_can_win_what_the_bus_allows_and_the_refill_after_it() -> None:
    def body(scene: Scene) -> None:
        scene.copy("up", 256 << 20, 40_000.0, pageable=True)
        work(scene, late=2_000.0)

    found, idle = given("pin-memory", body)
    exposed = found.evidence["exposed_share"]
    at_full_speed = (256 << 20) / 63e9 / 0.040
    assert idle["sync"] > 0.02
    assert found.saves_at_most == pytest.approx(
        exposed * (1 - at_full_speed) + idle["sync"], abs=1e-3
    )


def test_a_large_copy_back_can_win_the_refill_after_it() -> None:
    def body(scene: Scene) -> None:
        work(scene, late=2_000.0)
        scene.copy("down", 64 << 20, 9_000.0, pageable=True)

    found, idle = given("readback-traffic", body)
    assert idle["sync"] > 0.02
    exposed = found.evidence["exposed_share"]
    assert found.saves_at_most == pytest.approx(exposed + idle["sync"], abs=1e-3)
