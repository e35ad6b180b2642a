"""Before and after: what was won, where, and whether it was one change."""

from itertools import accumulate, pairwise

import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.advisories.compare import compare
from brrrtop.analysis.facts.steps import on_device
from brrrtop.model.advice import Advisory, Outcome, PromiseResult, outcome
from brrrtop.model.estimate import Estimate
from brrrtop.model.tables import Span
from brrrtop.views.comparison import promise
from collectors.vocabulary import MarkClass

from .scenarios import ADD, CONV_NCHW, FOREACH, FUSED_ADAM, GEMM, SGEMM, TRITON, Scene


def run(
    products: str = GEMM, us: float = 300.0, pointwise: str = ADD, optimizer: str = FUSED_ADAM,
    wait: float = 0.0, blocks: int | None = None, steps: int = 30,
) -> Scene:  # fmt: skip
    scene = Scene()
    for _ in range(steps):
        if wait:
            scene.idle(wait, MarkClass.INPUT, "next")
        for _ in range(10):
            scene.kernel(products, us, blocks=132)
            for place in range(3):
                scene.kernel(
                    pointwise.replace("CUDAFunctor", f"CUDAFunctor{place}"), 50.0, blocks=blocks
                )
        scene.kernel(optimizer, 100.0)
        scene.step()
    return scene


def of(scene: Scene) -> Estimate:
    return scene.judged().estimate


def test_a_change_of_nothing_is_no_change():
    comparison = compare(of(run()), of(run()))
    assert comparison.says == "no difference beyond noise (0% ±2%)"
    assert comparison.changes == ()


def scattered(estimate: Estimate, *lengths_ns: int) -> Estimate:
    """The same in steps of these lengths, one after the other."""
    ends = list(accumulate(lengths_ns, initial=0))
    spans = tuple(Span(a, b) for a, b in pairwise(ends))
    steps = replace(estimate.steps, spans=spans, count=len(spans), source="marks")
    return replace(estimate, steps=steps, account=replace(estimate.account, duration_ns=ends[-1]))


def test_steps_that_scatter_hide_a_small_difference_and_an_even_run_does_not():
    """5 % longer in the mean both times: of five steps that differ by a half, and of even ones."""
    plain, given = of(run()), advise(run(wait=10_000.0).judged()).given
    wild = [
        scattered(plain, *(round(ms * 1e6 * f) for ms in (8, 16, 10, 14, 12))) for f in (1, 1.05)
    ]
    even = [scattered(plain, *[round(12e6 * f)] * 5) for f in (1, 1.05)]
    hidden, seen = compare(*wild, given), compare(*even, given)
    assert hidden.noise_share > 0.2 and hidden.outcome is Outcome.SAME
    assert hidden.says.startswith("no difference beyond noise (-5% ±")
    assert (hidden.promises, seen.promises) == ((), ()), "nobody followed the advice"
    lost = PromiseResult("a", 0.1, -0.05, True, hidden.noise_share)
    assert "won: no change beyond noise (-5% ±" in promise(lost) and lost.kept_share is None
    assert seen.outcome is Outcome.SLOWER
    assert "nothing: it costs 5%" in promise(replace(lost, noise_share=seen.noise_share))


def advice(kind: str, saves: float, **evidence: object) -> Advisory:
    return Advisory(kind, "", 0.9, saves + 0.1, evidence, "", "", saves, saves - 0.05, saves - 0.05)


GIVEN = (
    advice("cuda-graphs", 0.31, edit="compile-reduce-overhead"),
    advice("dataloader-stall", 0.18, edit="loader-ready"),
    advice("enable-tf32-or-amp", 0.6, edit="bf16"),
    advice("fuse-pointwise", 0.33, edit="compile"),
    advice("tensor-core-alignment", 0.2, kernel=SGEMM),
)


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (run(wait=10_000.0), run(), ["dataloader-stall"]),
        (run(SGEMM, 900.0), run(), ["enable-tf32-or-amp", "tensor-core-alignment"]),
        (run(), run(pointwise=TRITON), ["fuse-pointwise"]),
        (run(), run(), []),
    ],
    ids=["a loader", "products in 16 bits", "compiled", "nothing"],
)
def test_only_advice_that_was_followed_is_credited(before, after, kinds):
    comparison = compare(of(before), of(after), GIVEN)
    followed = [one.kind for one in comparison.promises if one.kind != "cuda-graphs"]
    assert followed == kinds
    if "fuse-pointwise" not in kinds:
        assert "cuda-graphs" not in [one.kind for one in comparison.promises]


def test_nothing_is_credited_across_gpus_or_programs():
    mine = of(run(wait=10_000.0))
    other = of(run())
    moved = replace(other, device=replace(other.device, name="AMD Instinct MI300X"))
    comparison = compare(mine, moved, GIVEN)
    assert comparison.promises == () and "GPUs differ" in comparison.says
    images = compare(of(run(CONV_NCHW, wait=10_000.0)), other, GIVEN)
    assert images.promises == () and "two programs" in images.says


def test_the_sentence_and_the_promise_measure_a_change_by_the_same_step():
    """30 % faster is 23 % of a step: within a noise of 25 % neither is a change."""
    assert outcome(1.3, noise=0.25) is Outcome.SAME
    assert outcome(1 / 1.3, noise=0.25) is Outcome.SLOWER, "30 % of a step"


def test_a_promise_is_not_broken_by_what_is_noise():
    assert "no change beyond noise (-2% ±3%)" in promise(PromiseResult("a", 0.1, -0.02, True, 0.03))


def test_marks_that_run_ahead_of_the_gpu_in_a_burst_do_not_shorten_its_steps():
    plain = of(run())
    assert plain.steps.step_ns is not None
    ahead = tuple(Span(s.t0_ns, s.t0_ns + s.duration_ns // 10) for s in plain.steps.spans)
    message = replace(plain.steps, source="marks", spans=ahead)
    queued = replace(plain, steps=on_device(message, (), plain.account.duration_ns))
    assert compare(queued, queued).before_ns == pytest.approx(plain.steps.step_ns)


def test_one_change_is_named():
    comparison = compare(of(run(SGEMM, 900.0)), of(run()))
    assert len(comparison.changes) == 1 and "precision" in comparison.changes[0]
    assert "at once" not in comparison.says


def test_several_changes_at_once_are_pointed_out():
    comparison = compare(of(run(SGEMM, 900.0, optimizer=FOREACH)), of(run(pointwise=TRITON)))
    assert len(comparison.changes) == 3
    assert "3 things changed at once" in comparison.says


def test_a_larger_batch_shows_in_the_grids():
    comparison = compare(of(run(blocks=2000)), of(run(blocks=4000)))
    assert any("2.00 times the blocks" in change for change in comparison.changes)


def test_a_slower_run_is_called_slower():
    comparison = compare(of(run()), of(run(us=400.0)))
    assert comparison.says.startswith("slower")
    assert comparison.families[0].name == "gemm" and comparison.families[0].won_ns < 0


def test_without_steps_only_shares_are_compared():
    scene = Scene()
    for us in (10.0, 20.0, 35.0, 60.0, 90.0, 140.0, 300.0, 500.0, 900.0):
        scene.kernel(GEMM, us)
    comparison = compare(of(run()), of(scene))
    assert comparison.speedup is None and not comparison.per_step
    assert "only shares" in comparison.says
    assert comparison.before_ns == pytest.approx(1e9)


ADD_BEFORE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)


def test_kernels_whose_template_signature_changed_are_one_row():
    assert ADD != ADD_BEFORE
    pair = (of(run(pointwise=ADD_BEFORE)), of(run(pointwise=ADD)))
    rows = {row.name: row for row in compare(*pair).kernels}
    adds = [row for name, row in rows.items() if "CUDAFunctor" in name]
    assert len(adds) == 3  # one functor each
    for row in adds:
        assert row.before_ns == pytest.approx(row.after_ns, rel=0.01)
    back = compare(*reversed(pair)).kernels
    assert sum(row.before_ns for row in back) == pytest.approx(
        sum(r.after_ns for r in rows.values())
    )


def test_frames_that_do_not_say_what_they_compute_are_not_taken_for_another():
    """Only the arguments tell what such a kernel does, and those are lambdas here."""
    frame = "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 2ul> >"
    pair = [of(run(pointwise=frame.format(lambda_))) for lambda_ in ("$_0", "$_1")]
    rows = [row for row in compare(*pair).kernels if "vectorized" in row.name]
    assert len(rows) == 2
