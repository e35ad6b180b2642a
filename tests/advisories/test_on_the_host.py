"""What the host does with what it reads, what only a profiler's records tell, and what small kernels need."""

import pytest

from brrrtop.advisories.advise import advise
from brrrtop.model.tables import OpSignature
from collectors.vocabulary import MarkClass

from .cases import large, looped
from .scenarios import (
    ADD,
    FUSED_ADAM,
    GEMM,
    MUL,
    Scene,
    healthy,
    pointwise,
)

LERP = pointwise("lerp_scalar_kernel", "float")


# ---------------------------------------------------------------- arithmetic on the host


def averaged(scene: Scene, op: str | None, copies: int = 4) -> None:
    """Weights copied to the host, and an average of them there, 8 ms for each."""
    for _ in range(copies):
        scene.copy("down", 4 << 20, 300.0, pageable=True)
        if op is None:
            scene.idle(8_000.0)
        else:
            scene.mark(MarkClass.OP, 7_900.0, op)
            scene.idle(8_000.0)


def test_ops_on_what_was_copied_back_are_named_before_the_copies():
    given = looped(lambda s: (large(s), averaged(s, "aten::lerp_"))).advice()
    result = given["host-stall"]
    assert next(iter(given)) == "host-stall" and "readback-traffic" in given
    assert "aten::lerp_ on the CPU" in result.says and "aten::lerp_" in str(result.suggests)
    assert result.saves_at_most is not None and result.saves_at_most > 0.7


def test_a_host_that_works_on_what_it_copied_is_said_to():
    given = looped(lambda s: (large(s), averaged(s, None))).advice()
    result = given["host-stall"]
    assert next(iter(given)) == "host-stall"
    assert "work on what it has just copied back (4 times a step)" in result.says


@pytest.mark.parametrize("count", [1, 40])
def test_ops_on_the_host_that_copy_nothing_are_named(count):
    def body(s: Scene) -> None:
        large(s)
        for _ in range(count):
            s.mark(MarkClass.OP, 7_900.0 / count, "aten::histc")
            s.idle(8_000.0 / count)

    scene = looped(body)
    assert scene.judged().estimate.account.idle_ns["host"] >= 4 * 7_500_000
    given = scene.advice()
    assert "aten::histc on the CPU" in given["host-stall"].says
    assert "readback-traffic" not in given


def test_an_op_that_launches_is_no_arithmetic_on_the_host():
    def body(s: Scene) -> None:
        large(s)
        s.copy("down", 4 << 20, 300.0, pageable=True)
        s.mark(MarkClass.OP, 8_200.0, "aten::index")
        s.idle(8_000.0)

    given = looped(body).advice()
    assert not any("aten::index" in one.says for one in given.values())
    assert "readback-traffic" in given


# ---------------------------------------------------------------- the profiler itself


def recorded(scene: Scene) -> Scene:
    """Ops of one launch each, so dense that the launching thread does little else."""
    for _ in range(4):
        for _ in range(300):
            scene.mark(MarkClass.OP, 30.0, "aten::add")
            scene.kernel(ADD, 10.0, late=20.0, op=OpSignature("aten::add", ((4, 4),)))
        scene.step()
    return scene


def test_a_profilers_part_of_a_loop_that_waits_for_launches_is_said():
    given = recorded(Scene()).advice()["monitor-cost"]
    assert given.saves_at_most is None
    assert 0.1 < given.evidence["profiler_share"] < 0.6
    assert given.evidence["step_ns"] > 300 * 10_000


def ahead(scene: Scene) -> Scene:
    healthy(scene)
    scene.marks += [{**m, "kind": MarkClass.OP, "name": "aten::mm"} for m in scene.marks]
    return scene


@pytest.mark.parametrize(
    "scene",
    [looped(lambda s: [s.kernel(ADD, 14.0, late=20.0) for _ in range(300)]), ahead(Scene())],
    ids=["no ops", "a host that is ahead"],
)
def test_no_profiler_is_blamed_where_none_holds_launches_up(scene):
    assert "monitor-cost" not in scene.advice()


def waiting_for_batches() -> Scene:
    """A loop that launches and loads by turns; without the profiler's part it is ahead of the GPU."""

    def body(s: Scene) -> None:
        s.idle(4_000.0, MarkClass.INPUT, "DataLoader(num_workers=0)")
        for _ in range(300):
            s.mark(MarkClass.OP, 24.0, "aten::mm")
            s.kernel(GEMM, 20.0, late=10.0, op=OpSignature("aten::mm", ((4, 4),)))

    return looped(body)


def test_a_profilers_step_is_simulated_as_recorded_and_the_range_holds_both():
    advice = advise(waiting_for_batches().judged())
    row = next(row for row in advice.whatif if row.edit == "loader-ready")
    estimate = waiting_for_batches().judged().estimate
    seen = estimate.account.idle_ns["input"] / estimate.account.duration_ns
    assert row.saves == pytest.approx(seen, abs=0.05) and seen > 0.2
    assert row.saves_low <= min(row.saves, row.unprofiled.saves)
    assert row.saves_high >= max(row.saves, row.unprofiled.saves)
    assert not any("loader-ready (" in one.waste for one in advice.given)
    (given,) = [one for one in advice.given if one.kind == "dataloader-stall"]
    assert given.saves == pytest.approx(row.saves, abs=1e-4)


# ---------------------------------------------------------------- updates


def test_interpolation_beside_a_fused_update_is_the_models():
    def body(s: Scene) -> None:
        for _ in range(100):
            s.kernel(LERP, 2.0, late=10.0, blocks=4)
            s.kernel(MUL, 2.0, late=10.0, blocks=4)
        s.kernel(FUSED_ADAM, 20.0)

    assert "fused-optimizer" not in looped(body).advice()


# ---------------------------------------------------------------- warming up


def test_gloo_is_named_where_it_holds_the_gpu_up():
    def body(s: Scene) -> None:
        large(s)
        s.mark(MarkClass.ANNOTATION, 7_900.0, "gloo:all_reduce")
        s.idle(8_000.0)

    assert "gloo's collectives" in looped(body).advice()["host-stall"].says


def test_an_op_that_sets_itself_up_is_named():
    """On its first launch in an evaluation: a library loads, or looks for an algorithm."""
    scene = healthy()
    scene.mark(MarkClass.OP, 120_000.0, "aten::_cudnn_attention_forward").idle(119_000.0)
    result = healthy(scene).advice()["host-stall"]
    assert "in aten::_cudnn_attention_forward, which sets itself up" in result.says
    assert "before the profiler records" in str(result.suggests)
