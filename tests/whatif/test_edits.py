"""What an edit may do to a step, and what it may not."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.analysis.kernels.op_patterns import (
    is_converted_by_group,
    is_wide,
    keeps_layout,
    last_over_first,
)
from brrrtop.kernel_names.traits import Role
from brrrtop.model.advice import WhatIf
from brrrtop.model.tables import Device, OpSignature
from brrrtop.whatif.assumptions import CAUTIOUS, HOPEFUL, MIDDLE, Roofs, roofs_of, usual_call_ns
from brrrtop.whatif.edits.loop import no_sync
from brrrtop.whatif.price import (
    EDITS,
    HOST_AGAIN,
    Bases,
    SimulatedEdits,
    _present,
    _row,
    edited,
    price_all,
    simulate_edits,
)
from brrrtop.whatif.risks import Risk
from brrrtop.whatif.simulate import period_ns
from brrrtop.whatif.step import Step, step_of
from collectors.vocabulary import CallClass, MarkClass
from tests.advisories.cases import large, looped, small
from tests.advisories.scenarios import (
    A100,
    ADD,
    BN_NATIVE,
    CONV_NCHW,
    CONV_OLD,
    GEMM,
    H200,
    MUL,
    NCCL,
    NORM,
    SGEMM,
    TO_NHWC,
    Scene,
    healthy,
    pointwise,
)

LERP = pointwise("lerp_scalar_kernel", "float")
ADD_F32 = pointwise("CUDAFunctor_add<float>", "float")
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long)"
UPSAMPLED = (
    "void at::native::upsample_bilinear2d_backward_out_frame<float, float>(unsigned long, float)"
)
ROWS = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*)"
H200_CEILINGS = ceilings_for(H200)
DEVICE_EDITS = ("channels-last", "tf32", "sdpa")


def price(names: tuple[str, ...], bases: Bases, roofs: Roofs | None) -> WhatIf | None:
    made: Bases | None = bases
    for name in names:
        made = edited(name, made, roofs) if made is not None else None
    return None if made is None else _row(names, [_present(bases)], [made])


def stepped(scene: Scene) -> Step:
    step = step_of(scene.judged())
    assert step is not None
    return step


def priced_rows(judged: Analysis) -> SimulatedEdits:
    result = simulate_edits(judged)
    assert result is not None
    return result


def saved(scene: Scene, edit: str) -> float:
    return next(row.saves for row in priced_rows(scene.judged()).rows if row.edit == edit)


def mixed() -> Scene:
    """Something of everything: images, fp32 products, runs, waits, uploads, collectives."""

    def body(s: Scene) -> None:
        s.copy("up", 64 << 20, 9_000.0, pageable=True)
        for _ in range(8):
            s.kernel(TO_NHWC, 30.0).kernel(CONV_NCHW, 200.0).kernel(NORM, 60.0)
            s.kernel(SGEMM, 300.0)
            for name in (ADD, MUL, ADD, MUL):
                s.kernel(name, 40.0)
        small(s, 40)
        s.sync(30.0)
        s.kernel(NCCL, 900.0, blocks=24, stream=20)
        s.idle(2_000.0, MarkClass.INPUT, "DataLoader(num_workers=0)")

    return looped(body)


def test_no_edit_changes_a_step_of_nothing():
    step = stepped(mixed())
    empty = step.take(np.zeros(len(step), np.bool_))
    roofs = Roofs(None, 4.8e12)
    assert period_ns(empty) == 0.0
    for edit in EDITS.values():
        assert edit.make(empty, roofs, MIDDLE) is None
    assert price(("loader-ready",), [(MIDDLE, empty)], roofs) is None


def test_a_step_like_one_that_was_priced_has_its_prices():
    first = priced_rows(mixed().judged())
    like, longer = mixed().judged(), looped(large).judged()
    assert simulate_edits(like, first) is first
    doubted = replace(first, risks=(Risk.SHAPES_DIFFER,))
    assert simulate_edits(like, doubted) is not doubted
    assert simulate_edits(longer, first).rows == priced_rows(longer).rows != first.rows


def test_nothing_is_told_of_a_window_in_which_nothing_ran():
    scene = Scene()
    scene.call(CallClass.SYNC, 10.0)
    assert simulate_edits(scene.judged()) is None


@pytest.mark.parametrize("edit", ["loader-ready", "no-sync", "quiet-host"])
@pytest.mark.parametrize(
    "body",
    [
        lambda s: (s.idle(3_000.0, MarkClass.INPUT, "num_workers=0"), large(s), s.sync(900.0)),
        lambda s: (small(s, 60), s.sync(1.0), s.mark(MarkClass.GC, 300.0), small(s, 60)),
        lambda s: (large(s), s.idle(400.0, MarkClass.LOGGING), s.sync(1.0), large(s)),
    ],
    ids=["loader", "launches", "log"],
)
def test_taking_a_wait_away_never_costs(edit, body):
    for row in priced_rows(looped(body).judged()).rows:
        if row.edit == edit:
            assert row.saves >= -1e-9


@pytest.mark.parametrize("scene", [mixed, healthy, lambda: looped(small)])
def test_what_the_device_does_faster_wins_at_most_what_it_takes(scene):
    result = priced_rows(scene().judged())
    device_ns = (result.step.device_ns.sum() + result.step.gap_ns.sum()) / result.step.count
    for row in result.rows:
        if row.edit in DEVICE_EDITS:
            assert row.saves <= device_ns / result.present_ns + 1e-6


def test_a_device_that_takes_no_time_wins_what_the_host_does_not_need():
    busy, waiting = priced_rows(healthy().judged()), priced_rows(looped(small).judged())
    assert busy.scaled(0.0) > 0.8
    assert waiting.scaled(0.0) < 0.2
    assert busy.scaled(1.0) == pytest.approx(0.0, abs=1e-9)


def test_edits_compose():
    judged = mixed().judged()
    step, roofs = step_of(judged), roofs_of(judged.facts.ceilings)
    assert step is not None and roofs is not None
    bases = [(guess, step) for guess in (MIDDLE, CAUTIOUS, HOPEFUL)]
    rows = {
        names: price(names, bases, roofs)
        for names in (("tf32",), ("loader-ready",), ("tf32", "loader-ready"))
    }
    one, other, both = (row.saves if row else None for row in rows.values())
    assert one is not None and other is not None and both is not None
    assert max(one, other) < both < 1
    reverse = price(("loader-ready", "tf32"), bases, roofs)
    assert reverse is not None and reverse.saves == pytest.approx(both)
    assert rows["tf32", "loader-ready"].edit == "tf32+loader-ready"  # type: ignore[union-attr]
    assert rows["tf32", "loader-ready"].line.count("; ") == 1  # type: ignore[union-attr]


def test_what_follows_the_best_edit_is_the_pair_s_own_price():
    judged = mixed().judged()
    result, step = priced_rows(judged), step_of(judged)
    assert step is not None and result.following
    first = result.rows[0].edit
    singles = {row.edit: row for row in result.rows}
    for pair in result.following:
        one, other = pair.edit.split("+")
        assert one == first != other
        assert pair.present_ns == pytest.approx(result.present_ns)
        assert pair.saves >= singles[other].saves - 1e-9, "the first one took nothing back"
        assert pair.line == f"{singles[one].line}; {singles[other].line}"
    assert [p.saves for p in result.following] == sorted(p.saves for p in result.following)[::-1]


def test_the_work_of_a_step_is_told_now_and_then():
    result = priced_rows(mixed().judged())
    rows = {row.edit: row for row in result.rows}
    step = result.step
    for row in result.rows:
        assert row.now is not None and row.then is not None
        assert row.now.kernels == step.launches.sum() / step.count
        assert row.now.device_ns == pytest.approx(step.device_ns.sum() / step.count)
    waits, twice, units = rows["loader-ready"], rows["double-batch"], rows["tf32"]
    assert waits.now.host_ns - waits.then.host_ns == pytest.approx(1.5e6, rel=0.02), "the wait"
    assert waits.then.kernels == waits.now.kernels == units.then.kernels
    assert twice.then.kernels == waits.now.kernels / 2, "of one step's work"
    assert units.then.device_ns < waits.now.device_ns


def test_a_batch_beside_labels_takes_the_time_of_its_own_bytes_on_the_bus():
    """Copies of one name are a group, whose mean is half of the batch."""

    def body(s: Scene) -> None:
        s.copy("up", 256 << 20, 28_000.0, pageable=True).copy("up", 64 << 10, 5.0, pageable=True)
        s.kernel(GEMM, 500.0).sync(20.0)

    (row,) = (r for r in priced_rows(looped(body).judged()).rows if r.edit == "pinned-copies")
    assert row.step_ns > (256 << 20) / MIDDLE.pinned_bytes_per_s * 1e9


def test_twice_the_batch_is_at_most_twice_as_fast():
    """By the low end of a step's time, which is the time of one batch."""
    launching = looped(lambda s: small(s, 100))
    row = next(r for r in priced_rows(launching.judged()).rows if r.edit == "double-batch")
    assert 0.4 < row.saves <= 0.5
    assert row.saves_high <= 0.5 + HOST_AGAIN / 2


def test_on_an_unknown_gpu_only_edits_that_need_no_rate_are_priced():
    known = {row.edit for row in priced_rows(mixed().judged()).rows}
    unknown = {row.edit for row in price_all(stepped(mixed()), None).rows}
    assert {"compile", "tf32", "channels-last", "bf16"} <= known
    assert unknown == {name for name in known if not EDITS[name].needs_roofs}
    assert {"loader-ready", "no-sync", "double-batch", "pinned-copies", "compile"} <= unknown


def test_a_gpu_without_a_name_has_the_rates_of_its_class_as_a_guess():
    scene = mixed()
    scene.device = Device(0, capability=(8, 6))
    result = priced_rows(scene.judged())
    assert result.guess == "a guess: as of GeForce RTX 3060, by compute capability"
    row = next(row for row in result.rows if row.edit == "channels-last")
    assert row.saves_low <= row.saves * 0.51 and row.saves_high >= min(row.saves * 1.49, 0.99)
    assert any("a guess" in one.says for one in advise(scene.judged()).given)
    assert scene.judged().estimate.roofs is None, "a guess is no roof of a kernel"
    assert priced_rows(mixed().judged()).guess is None


V100 = Device(0, "Tesla V100-SXM2-32GB", 80, (7, 0))
RTX_2080 = Device(0, "NVIDIA GeForce RTX 2080 Ti", 68, (7, 5))


@pytest.mark.parametrize(
    ("device", "wins"), [(V100, True), (RTX_2080, True), (H200, False), (A100, False)]
)
def test_fp16_is_for_gpus_whose_tensor_cores_know_no_bf16(device, wins):
    def body(s: Scene) -> None:
        for _ in range(8):
            s.kernel(SGEMM, 900.0)
        for _ in range(4):
            s.kernel(LERP, 30.0)

    scene = looped(body, scene=Scene(device=device))
    rows = {row.edit: row for row in priced_rows(scene.judged()).rows}
    assert ("fp16" in rows) == wins and ("bf16" in rows) != wins
    if wins:
        assert rows["fp16"].saves > 0.3
        assert "GradScaler" in scene.advice()["enable-tf32-or-amp"].suggests


def test_streams_side_by_side_are_no_longer_than_the_device_was_busy():
    def body(s: Scene) -> None:
        for _ in range(20):
            s.kernel(GEMM, 300.0, blocks=66)
            s.kernel(GEMM, 250.0, blocks=66, stream=9, beside=True)

    step = stepped(looped(body))
    assert step.device_ns.sum() / step.count == pytest.approx(20 * 300e3, rel=0.05)
    assert period_ns(step) == pytest.approx(step.measured_ns, rel=0.03)


def in_graphs() -> Scene:
    """One call launches all nodes of a step."""

    def body(s: Scene) -> None:
        first = len(s.rows)
        for _ in range(50):
            s.kernel(MUL, 30.0, graph=3)
        for row in s.rows[first + 1 :]:
            row["corr"] = s.rows[first]["corr"]
        del s.calls[-49:]
        s.calls[-1]["kind"] = CallClass.GRAPH_LAUNCH

    return looped(body)


def test_what_cuda_graphs_hold_is_neither_compiled_nor_captured_again():
    result = priced_rows(in_graphs().judged())
    assert not {"compile", "compile-reduce-overhead"} & {row.edit for row in result.rows}
    assert result.present_ns == pytest.approx(50 * 31e3, rel=0.05)


def test_without_launches_idle_time_that_nobody_explains_stays():
    def body(s: Scene) -> None:
        large(s)
        s.idle(6_000.0)

    scene = looped(body)
    scene.calls.clear()
    result = priced_rows(scene.judged())
    assert result.present_ns == pytest.approx(12_020e3, rel=0.03)
    assert result.scaled(0.0) == pytest.approx(0.5, abs=0.02)
    shares = {row.edit: row.saves for row in result.rows}
    assert shares.pop("double-batch") == pytest.approx(0.25, abs=0.02)
    assert all(share < 0.05 for share in shares.values())


def test_without_steps_all_that_ran_is_one():
    scene = Scene()
    for us in (300.0, 200.0, 100.0, 700.0):
        scene.kernel(GEMM, us).kernel(ADD, us / 5)
    result = priced_rows(scene.judged())
    assert result.step.count == 1 and len(result.step) == 8
    assert result.present_ns == pytest.approx(result.step.measured_ns, rel=0.03)


def test_steps_that_differ_are_taken_together():
    scene = Scene()
    for count in (10, 30, 10, 30, 10, 30, 10):
        large(scene, count)
        scene.step()
    result = priced_rows(scene.judged())
    assert result.step.count > 1
    assert result.present_ns == pytest.approx(result.step.measured_ns, rel=0.03)


def test_a_run_of_kernels_does_not_reach_across_a_wait():
    """Read back in the middle of each run, a graph breaks there: two kernels are left of each."""

    def body(s: Scene, waits: bool) -> None:
        for _ in range(10):
            large(s, 1)
            s.kernel(ADD, 60.0).kernel(MUL, 60.0)
            if waits:
                s.sync(60.0)
            s.kernel(ADD, 60.0).kernel(MUL, 60.0)

    def kernels(waits: bool) -> int:
        judged = looped(lambda s: body(s, waits)).judged()
        step, roofs = step_of(judged), roofs_of(judged.facts.ceilings)
        assert step is not None and roofs is not None
        edited = EDITS["compile"].make(step, roofs, MIDDLE)
        return round((edited.kernels.roles == Role.FUSED).sum() / step.count)

    assert (kernels(False), kernels(True)) == (10, 20)


def test_a_host_that_is_away_for_milliseconds_is_not_compiled_away():
    def body(s: Scene) -> None:
        large(s, 10)
        s.idle(9_000.0)
        large(s, 10)

    assert saved(looped(body), "compile") < 0.05


def test_a_loop_is_as_fast_as_the_workers_that_it_waits_for():
    def loop(name: str) -> Scene:
        return looped(lambda s: (s.idle(9_000.0, MarkClass.INPUT, name), small(s)))

    assert saved(loop("DataLoader(num_workers=4)"), "compile") == pytest.approx(0.0, abs=1e-9)
    assert saved(loop("DataLoader(num_workers=0)"), "compile") > 0.1
    assert saved(loop("DataLoader(num_workers=4)"), "double-batch") == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("ready", "limits"), [(0, True), (7, False), (-1, True)])
def test_workers_whose_batches_lie_ready_set_no_pace(ready, limits):
    scene = looped(lambda s: (s.idle(9_000.0, MarkClass.INPUT, "num_workers=4", ready), small(s)))
    watched = replace(scene.window(), watched=scene.window().marks)
    row = next(r for r in priced_rows(estimate(watched)).rows if r.edit == "compile")
    assert (row.saves < 0.01) is limits


def test_twice_the_batch_is_an_offer_behind_all_that_may_win():
    def row(edit: str, saves: float, low: float) -> WhatIf:
        return WhatIf(edit, 1e6, saves, low, saves + 0.1, None, "")

    rows = [row("double-batch", 0.4, 0.3), row("compile", 0.3, -0.1), row("tf32", 0.1, 0.05),
            row("bf16", 0.2, 0.02), row("sdpa", -0.1, -0.2)]  # fmt: skip
    ordered = [one.edit for one in sorted(rows, key=lambda one: one.place)]
    assert ordered == ["tf32", "bf16", "compile", "double-batch", "sdpa"]


def test_no_gain_is_promised_closer_than_gains_repeat():
    """Equal runs of one edit differ by some 15 % of what it gains, and by more than a point of the step."""
    rows = priced_rows(mixed().judged()).rows
    assert len(rows) > 5
    for row in rows:
        assert row.saves_high - row.saves >= 0.01 + 0.1 * abs(row.saves), row.edit
        assert row.saves - row.saves_low >= 0.01 + 0.1 * abs(row.saves), row.edit


def test_a_run_of_pointwise_kernels_becomes_one_kernel_and_norms_keep_their_passes():
    def kept(*names: str) -> float:
        """Kernels that compile leaves for each product with these behind it."""

        def body(s: Scene) -> None:
            for _ in range(10):
                s.kernel(SGEMM, 300.0)
                for name in names:
                    s.kernel(name, 40.0)

        step = stepped(looped(body))
        made = edited("compile", [(MIDDLE, step)], roofs_of(H200_CEILINGS))
        return (1 + len(names)) * len(made[0][1]) / len(step)

    assert kept(ADD) == pytest.approx(2, abs=0.05)
    assert kept(ADD, MUL, ADD, MUL) == pytest.approx(2, abs=0.05)
    assert kept(ADD, NORM, MUL) == pytest.approx(2, abs=0.05)
    assert kept(ADD, NORM, MUL, NORM, ADD) == pytest.approx(3, abs=0.05)


def test_what_a_wait_costs_is_simulated_not_summed():
    """The host has 6 ms of its own, the device 6: one after the other with the wait, else at once."""

    def body(s: Scene) -> None:
        large(s)
        s.sync(450.0)
        s.idle(6_000.0)

    assert saved(looped(body), "no-sync") == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize(("capability", "compiles"), [((7, 0), True), ((6, 0), False)])
def test_nothing_is_compiled_on_a_gpu_that_triton_generates_no_code_for(capability, compiles):
    judged = mixed().judged()
    step = step_of(judged)
    assert step is not None and judged.facts.ceilings is not None
    roofs = roofs_of(replace(judged.facts.ceilings, capability=capability))
    assert (price(("compile",), [(MIDDLE, step)], roofs) is not None) is compiles


def test_the_hosts_time_before_waits_in_a_row_is_still_spent_without_them():
    def body(s: Scene) -> None:
        large(s)
        for _ in range(3):
            s.idle(2_000.0)
            s.sync(5.0)

    step = stepped(looped(body))
    roofs = roofs_of(H200_CEILINGS)
    edited = no_sync(step, roofs, MIDDLE) if roofs else None
    assert edited is not None and not edited.waits.any()
    assert edited.before_ns.sum() == pytest.approx(step.before_ns.sum())
    assert (edited.before_ns >= 0).all()


@pytest.mark.parametrize(("size", "goes"), [(4, True), (4 << 20, False)])
def test_a_wait_for_what_the_host_works_on_stays(size, goes):
    def body(s: Scene) -> None:
        large(s)
        s.copy("down", size, 300.0, pageable=True)
        s.idle(6_000.0)

    roofs = roofs_of(H200_CEILINGS)
    assert roofs is not None
    assert (no_sync(stepped(looped(body)), roofs, MIDDLE) is not None) is goes


def edited_once(name: str, step: Step) -> Step:
    roofs = roofs_of(H200_CEILINGS)
    made = EDITS[name].make(step, roofs, MIDDLE) if roofs else None
    assert made is not None
    return made


def test_a_conversion_that_goes_does_not_take_the_hosts_way_to_its_convolution_along():
    """cuDNN converts within the op: of its Python and dispatch nothing is saved, of its launches one."""

    def body(s: Scene) -> None:
        for _ in range(100):
            s.kernel(TO_NHWC, 2.0, late=40.0, blocks=8).kernel(CONV_NCHW, 4.0, late=5.0, blocks=8)

    step = stepped(looped(body))
    edited = edited_once("channels-last", step)
    assert edited.launches.sum() == step.launches.sum() / 2
    assert edited.before_ns.sum() == pytest.approx(step.before_ns.sum())
    assert edited.call_ns.sum() == pytest.approx(step.call_ns.sum() / 2)


def test_channels_last_costs_where_convolutions_are_in_groups_and_norms_want_channels_first() -> (
    None
):
    def body(s: Scene) -> None:
        for _ in range(40):
            s.kernel(TO_NHWC, 30.0).kernel(CONV_NCHW, 200.0).kernel(NORM, 60.0)

    step = stepped(looped(body))
    plain = edited_once("channels-last", step)
    assert period_ns(plain) < period_ns(step)
    everywhere = np.ones(len(step), np.bool_)
    by_group = edited_once("channels-last", with_kernels(step, by_group=everywhere))
    assert len(by_group) == len(step), "conversions stay"
    assert period_ns(by_group) > 1.2 * period_ns(step), "one group at a time"
    norms = step.kernels.is_role(Role.NORM)
    kept = edited_once("channels-last", with_kernels(step, group_norm=norms))
    assert len(kept) == len(step), "conversions stay"
    assert kept.before_ns.sum() > step.before_ns.sum(), "as ops of their own"


def test_kernels_that_are_faster_or_slower_over_channels_last_images_take_their_own_time():
    step = stepped(looped(lambda s: [s.kernel(CONV_NCHW, 200.0) for _ in range(40)]))
    for ratio in (0.3, 2.0):
        laid = edited_once(
            "channels-last", with_kernels(step, last_over_first=np.full(len(step), ratio))
        )
        assert laid.device_ns.sum() == pytest.approx(ratio * step.device_ns.sum())


def test_wide_windows_are_slower_in_16_bits():
    step = stepped(looped(lambda s: [s.kernel(CONV_OLD, 200.0) for _ in range(40)]))
    wide = with_kernels(step, wide=np.ones(len(step), np.bool_))
    assert (
        period_ns(edited_once("bf16", step))
        < period_ns(step)
        < period_ns(edited_once("bf16", wide))
    )


def with_kernels(step: Step, **columns: Any) -> Step:
    return replace(step, kernels=replace(step.kernels, **columns))


IN_GROUPS = OpSignature("aten::cudnn_convolution", ((64, 128, 56, 56), (128, 4, 3, 3)))
BY_GROUP = OpSignature("aten::cudnn_convolution", ((64, 72, 56, 56), (72, 24, 3, 3)))
DEEP = OpSignature("aten::_conv_depthwise2d", ((64, 128, 56, 56), (128, 1, 5, 5)))
BACKWARD = OpSignature(
    "aten::convolution_backward", ((64, 128, 56, 56), (64, 128, 56, 56), (128, 4, 3, 3))
)
TRANSPOSED = OpSignature(
    "aten::convolution_backward", ((64, 256, 8, 8), (64, 512, 4, 4), (512, 256, 4, 4))
)
LONG = OpSignature("aten::convolution_backward", ((8, 40, 800), (8, 20, 800), (40, 20, 32)))


@pytest.mark.parametrize(
    ("op", "grouped", "by_group", "ratios", "wide"),
    [
        (IN_GROUPS, True, False, (0.5, 2.0), False),
        (BY_GROUP, True, True, (1.2, 1.0), False),
        (DEEP, False, False, (0.37, 0.2), False),
        (BACKWARD, True, False, (0.5, 2.0), False),
        (TRANSPOSED, False, False, (None, None), False),
        (LONG, False, False, (None, None), True),
    ],
    ids=[
        "in groups",
        "of 24",
        "depthwise",
        "backward in groups",
        "backward of a transposed one",
        "long",
    ],
)
def test_shapes_tell_what_a_layout_and_a_type_do_to_a_convolution(
    op, grouped, by_group, ratios, wide
):
    assert keeps_layout(op) == grouped  # Inductor leaves images as they lie
    assert is_converted_by_group(op) == by_group
    assert [last_over_first(op, bits) for bits in (32, 16)] == list(ratios)
    assert is_wide(op) == wide


def test_casts_cost_as_much_as_other_ops_of_the_same_host():
    def bound(gap: float) -> Scene:
        return looped(lambda s: [s.kernel(SGEMM, 3.0, late=gap, blocks=8) for _ in range(100)])

    slow, fast = (stepped(bound(gap)) for gap in (60.0, 20.0))
    added = [edited_once("bf16", s).before_ns.sum() - s.before_ns.sum() for s in (slow, fast)]
    assert added[0] == pytest.approx(3 * added[1], rel=0.15)


def test_what_a_graph_gathers_is_not_narrowed_by_autocast():
    def body(s: Scene, between: str) -> None:
        for _ in range(20):
            s.kernel(SGEMM, 300.0).kernel(between, 50.0).kernel(ADD_F32, 80.0)

    def kept(between: str) -> float:
        step = stepped(looped(lambda s: body(s, between)))
        adds = step.kernels.is_role(Role.POINTWISE) & (step.device_ns > 70e3)
        return float(edited_once("bf16", step).device_ns[adds].sum() / step.device_ns[adds].sum())

    assert kept(GATHER) == pytest.approx(1.0, abs=0.02)
    assert kept(MUL) == pytest.approx(0.5, abs=0.02)


def test_rows_of_norms_become_more_not_longer_with_twice_the_batch():
    """A group norm's moments: four blocks on all of the device, one for each sample."""

    def body(s: Scene) -> None:
        for _ in range(10):
            s.kernel(ROWS, 1_500.0, blocks=4)

    assert saved(looped(body), "double-batch") == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("pictures", "most"), [(2, 0.5), (12, 0.1)])
def test_a_model_that_sends_and_reads_again_and_again_goes_through_its_batch_by_the_sample(
    pictures, most
):
    """A detector: sizes go up, what it keeps is read back, some times for each picture."""

    def body(s: Scene) -> None:
        for _ in range(4 * pictures):
            s.copy("up", 12, 1.0, pageable=True).sync(5.0)
            s.kernel(ADD, 2.0, late=90.0, blocks=8).sync(5.0)

    assert saved(looped(body), "double-batch") == pytest.approx(most, abs=0.1)


def test_ranges_of_a_loop_that_the_host_paces_are_as_wide_as_its_own_pace_strays():
    def width(step: Step, edit: str) -> float:
        row = next(r for r in price_all(step, roofs_of(H200_CEILINGS)).rows if r.edit == edit)
        return row.saves_high - row.saves_low

    paced_by_host = stepped(looped(lambda s: small(s, name=SGEMM)))
    paced_by_device = stepped(looped(lambda s: [s.kernel(SGEMM, 300.0) for _ in range(20)]))
    for step, wider in ((paced_by_host, 0.28), (paced_by_device, 0.0)):
        added = width(replace(step, strays=0.2), "tf32") - width(step, "tf32")
        assert added == pytest.approx(wider, abs=0.1)


def test_without_shapes_a_kernel_in_less_than_a_wave_moves_less_and_interpolations_stay():
    """A norm with a block for each channel is far below the roof; how many elements are added nobody knows."""

    def body(s: Scene) -> None:
        for _ in range(10):
            s.kernel(TO_NHWC, 30.0).kernel(CONV_NCHW, 100.0).kernel(BN_NATIVE, 400.0, blocks=64)
            s.kernel(UPSAMPLED, 300.0)

    step = stepped(looped(body))
    assert not np.isfinite(step.kernels.size_bytes[step.kernels.batch_norm]).any()
    laid = edited_once("channels-last", step)
    norms = laid.kernels.batch_norm
    assert laid.device_ns[norms].sum() < 0.3 * step.device_ns[step.kernels.batch_norm].sum()
    compiled = edited_once("compile", step)
    assert compiled.device_ns[compiled.kernels.interpolating] == pytest.approx(
        0.4 * 300e3, rel=0.01
    )
    roofs = roofs_of(H200_CEILINGS)
    cautious = EDITS["compile"].make(step, roofs, CAUTIOUS) if roofs else None
    assert cautious is not None
    converts = [bool(s.kernels.is_role(Role.LAYOUT).any()) for s in (compiled, cautious)]
    assert converts == [False, True], "whether the compiler changes the layout is not known"


def test_conversions_between_layouts_make_a_hosts_pace_no_quicker():
    """They are launched from within a convolution's op, whose time they are part of."""

    def body(s: Scene, converts: bool) -> None:
        for _ in range(100):
            if converts:
                s.kernel(TO_NHWC, 2.0, late=40.0, blocks=8).kernel(
                    CONV_NCHW, 4.0, late=4.0, blocks=8
                )
            else:
                s.kernel(CONV_NCHW, 4.0, late=48.0, blocks=8)

    with_them, without = (stepped(looped(lambda s, c=c: body(s, c))) for c in (True, False))
    assert usual_call_ns(with_them) == pytest.approx(usual_call_ns(without), rel=0.15)


def test_what_autocast_leaves_in_32_bits_stays_as_large():
    def body(s: Scene) -> None:
        for _ in range(20):
            s.kernel(SGEMM, 300.0).kernel(ADD_F32, 80.0).kernel(NORM, 60.0).kernel(ADD_F32, 80.0)

    step = stepped(looped(body))
    edited = edited_once("bf16", step)
    adds = np.flatnonzero(step.kernels.is_role(Role.POINTWISE))
    adds = adds[step.device_ns[adds] > 70e3]
    shares = edited.device_ns[adds] / step.device_ns[adds]
    after_product, after_norm = (
        shares[2::2],
        shares[3::2],
    )  # the first product is of the step before
    assert after_product == pytest.approx(0.5, abs=0.02)
    assert after_norm == pytest.approx(1.0, abs=0.02)
