"""What in the records of a run speaks against an edit."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.model.advice import Unprofiled, WhatIf
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import F8
from brrrtop.whatif import risks
from brrrtop.whatif.risks import Risk, own_functions, risks_of, with_risks
from collectors.vocabulary import MarkClass
from tests.advisories.cases import looped, small
from tests.advisories.scenarios import ADD, GEMM, MUL, NORM, SGEMM, Scene, healthy
from tests.advisories.test_phases import phase
from tests.analysis.build import K, M, window
from tests.recorded import analyzed

GAINS = Path(__file__).parents[2] / "benchmarks" / "gains"

POTRF = "void potrf_params_kernel<float, 32>(int, float*)"


def steps(*bodies: Callable[[Scene], object]) -> Scene:
    scene = Scene()
    for body in bodies:
        body(scene)
        scene.step()
    return scene


def layers(count: int) -> Callable[[Scene], object]:
    def body(s: Scene) -> None:
        for _ in range(count):
            small(s, 30)
            s.kernel(GEMM, 20.0, blocks=100).kernel(NORM, 8.0, blocks=100)

    return body


def tokens(count: int) -> Callable[[Scene], object]:
    return lambda s: [s.kernel(n, 4.0, late=9.0, blocks=count) for n in (GEMM, ADD, MUL) * 40]


DROPS = (54, 46, 50, 54, 42, 50, 50, 46, 54, 50, 38)
"""Steps in ms of a model that drops layers of 4 ms."""


def like(*counts: int) -> F8:
    """Steps of so many launches."""
    return np.array(counts, np.float64)[:, None]


@pytest.mark.parametrize(
    ("launches", "differ"),
    [
        ((897, 897), False),  # too few to say
        ((897, 897, 897), False),
        ((897, 897, 959), True),  # HuBERT on an H100: a third of the steps is of a kind of its own
        ((10, 20, 10), True),
        ((10, 20, 10, 20), False),  # two models in turns
        ((50,) * 11 + (60,), False),  # one step in twelve reports
        ((10, 20, 30, 10, 20, 30), True),
        ((400, 401, 399), False),
    ],
)
def test_kinds_of_steps_that_came_once_are_followed_by_more(
    launches: tuple[int, ...], differ: bool
) -> None:
    assert risks.differ(like(*launches)) is differ


@pytest.mark.parametrize(
    ("launches", "lengths_ms", "risk"),
    [
        ((959,) * 3, DROPS, Risk.FEW_STEPS),  # HuBERT on an H100
        ((959,) * 4, DROPS, None),
        ((959,) * 3, (46, 54), None),  # jitter: what one step lacks the next one has
        ((897, 959, 897), (50, 50), Risk.KERNELS_DIFFER),
        ((), DROPS, None),  # nothing of the phase was traced
    ],
)
def test_what_all_traced_steps_of_a_run_say(launches, lengths_ms, risk):
    made = phase(PhaseKind.TRAIN, 100, 1000)
    made = replace(made, launches=launches, traced_steps=len(launches))
    ends = (1e6 * np.cumsum(np.resize(lengths_ms, 100))).astype(int).tolist()
    seen = window([K(0, 9, ADD, 1)], [], [M(at, at, MarkClass.STEP, "step") for at in ends])
    assert risks.risk_of_run(made, seen) == risk


def test_hubert_whose_layers_are_dropped_is_not_led_to_cuda_graphs_by_three_like_steps():
    """Nine times as long with them on an H100."""
    whole = analyzed(GAINS / "h100-4" / "hf_hubert_ctc.brrr")
    row = next(row for row in whole.whatif if row.edit == "compile-reduce-overhead")
    assert row.risk == "few-steps" and row.saves_low < 0
    assert row.advisory != whole.advisories[0].kind
    assert whole.run is not None and whole.run.train is not None
    assert whole.run.train.launches == (959, 959, 959)


DROPPED = steps(*map(layers, (11, 12, 10, 12, 9, 11)))
LENGTHS = steps(*map(tokens, (400, 150, 320, 210, 480, 260)))


@pytest.mark.parametrize(
    ("scene", "risk"), [(DROPPED, Risk.KERNELS_DIFFER), (LENGTHS, Risk.SHAPES_DIFFER)]
)
def test_steps_that_differ_make_compiling_and_capturing_a_risk(scene: Scene, risk: Risk) -> None:
    judged = scene.judged()
    assert risks_of(judged) == (risk,)
    advice = advise(judged)
    graphs = next(row for row in advice.whatif if row.edit == "compile-reduce-overhead")
    assert graphs.risk == risk.value and graphs.saves_low <= -9 and graphs.saves < 0
    compiled = next(row for row in advice.whatif if row.edit == "compile")
    assert compiled.saves_low < 0
    leads = {row.edit for row in advice.whatif if row.advisory == advice.given[0].kind}
    assert not leads & {"compile", "compile-reduce-overhead"}


@pytest.mark.parametrize("name", ["measured/example_dcgan", "h200-6/example_vae_gan"])
def test_several_updates_in_a_step_are_a_risk_to_graphs_alone(name):
    """GANs, whose graphs' outputs are overwritten before their backward pass."""
    shown = analyzed(GAINS / f"{name}.brrr")
    assert {row.edit: row.risk for row in shown.whatif if row.risk} == {
        "compile-reduce-overhead": "two-updates"
    }
    assert shown.advisories[0].evidence["edit"] != "compile-reduce-overhead"


def test_attention_with_a_bias_is_a_risk_to_what_is_compiled():
    """A CoAtNet on an H100: Inductor gave attention a bias in a layout that it refuses."""
    shown = analyzed(GAINS / "h100-4" / "timm_coatnet_0.brrr")
    assert {row.edit: row.risk for row in shown.whatif if row.risk} == {
        "compile": "biased-attention", "compile-reduce-overhead": "biased-attention"
    }  # fmt: skip


@pytest.mark.parametrize(
    "scene",
    [
        healthy(),
        looped(layers(12)),
        steps(*map(layers, (12, 5, 12, 5, 12, 5))),  # two models in turns
        steps(*map(tokens, (400, 401, 399, 400, 402))),
        looped(small, steps=1),
    ],
    ids=["alike", "many small", "in turns", "nearly alike", "one step"],
)
def test_no_risk_where_steps_repeat(scene: Scene) -> None:
    assert risks_of(scene.judged()) == ()


def test_factorizations_are_no_work_for_a_compiler():
    judged = looped(lambda s: (small(s, 60), s.kernel(POTRF, 300.0))).judged()
    assert risks_of(judged) == (Risk.SOLVERS,)
    rows = {row.edit: row for row in advise(judged).whatif}
    assert rows["compile"].saves <= 0 and rows["compile"].risk == "solvers"


def test_the_programs_own_autograd_functions_are_told_by_their_two_ops():
    def body(s: Scene) -> None:
        for name in ("Swish", "SwishBackward", "aten::mul", "MulBackward0", "CompiledFunction",
                     "autograd::engine::evaluate_function: CompiledFunctionBackward"):  # fmt: skip
            s.mark(MarkClass.OP, 5.0, name)
        s.kernel(SGEMM, 100.0)

    assert own_functions(looped(body).judged().facts.window) == ("Swish",)


def test_a_risk_lowers_the_range_and_never_the_row_without_one():
    row = WhatIf("compile", 6e6, 0.4, 0.3, 0.5, None, "", unprofiled=Unprofiled(0.3, 5e6))
    assert with_risks(row, ()) == row
    assert with_risks(replace(row, edit="tf32"), (Risk.SOLVERS,)).risk is None
    risky = with_risks(row, (Risk.KERNELS_DIFFER,))
    assert (risky.saves, risky.saves_low, risky.saves_high) == (0.0, -0.4, 0.5)
    assert risky.present_ns == pytest.approx(row.present_ns)
    assert risky.unprofiled is not None and risky.unprofiled.saves == 0.0


def test_what_was_launched_before_the_trace_makes_its_first_step_no_other_kind():
    """A profiler that begins while the device works through what the steps before it launched."""
    judged = steps(*map(layers, (12, 12, 24, 12, 12))).judged()
    assert risks._differences(judged) is Risk.KERNELS_DIFFER
    longest = max(risks.whole_steps(judged.facts), key=len)
    rows = judged.facts.call_rows.copy()
    rows[longest[: len(longest) // 2]] = -1
    facts = judged.facts.of(judged.facts.window, rows)
    assert risks._differences(replace(judged, facts=facts)) is None
