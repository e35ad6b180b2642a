"""Steps are told by ranges before anything is guessed from the kernels' sequence."""

import pytest
from msgspec.structs import replace

from brrrtop.analysis.estimate import estimate, facts_of
from brrrtop.analysis.facts.ranges import phase_of
from brrrtop.analysis.facts.steps import find_steps, whole_steps
from brrrtop.model.estimate import Side, Steps
from brrrtop.model.tables import Span, Window
from brrrtop.text.phrases import coverage
from collectors.vocabulary import MarkClass
from tests.analysis.build import ADD, GEMM, C, K, M, window
from tests.analysis.test_steady_part import Trace

US = 1_000
STEP = 400 * US


def loop(count: int, marks: list[M], first: int = 0) -> Window:
    """Steps of ten layers of two kernels each; the first one begins `first` later."""
    kernels, calls = [], []
    for step in range(count):
        for place in range(20):
            at = first * (step > 0) + step * STEP + place * 20 * US
            number = len(calls) + 1
            calls.append(C(at, at + 5 * US, number))
            name = (GEMM, ADD)[place % 2]
            kernels.append(K(at + 8 * US, at + 18 * US, name, number))
    return window(kernels, calls, marks)


def steps_of(w: Window) -> Steps:
    return find_steps(facts_of(w))


def update(end: int, name: str = "Optimizer.step#Adam.step", length: int = 30 * US) -> M:
    return M(end - length, end, MarkClass.OPTIMIZER, name)


def test_a_step_lasts_from_update_to_update_and_the_first_is_warm_up():
    slow = 5 * STEP
    marks = [update(slow * (i > 0) + (i + 1) * STEP - US) for i in range(6)]
    result = steps_of(loop(6, marks, first=slow))
    assert (result.source, result.count, result.step_ns) == ("annotations", 5, STEP)


def test_two_optimizers_of_one_class_update_in_one_step():
    # Of a discriminator and a generator, after a fifth and at the end of each step.
    marks = [update(i * STEP + part) for i in range(6) for part in (80 * US, STEP - US)]
    result = steps_of(loop(6, marks))
    assert (result.count, result.step_ns) == (5, STEP)


def test_the_rarest_optimizer_ends_the_step():
    often = [update(i * STEP // 4 - US, "Optimizer.step#SGD.step") for i in range(1, 25)]
    once = [update(i * STEP - US, "Optimizer.step#Averaged.step") for i in (2, 5)]
    marks = [*often, *once, *(update((i + 1) * STEP - US) for i in range(6))]
    assert steps_of(loop(6, marks)).step_ns == STEP


@pytest.mark.parametrize("name", ["execute_context_{}(888_788544)_generation_0(0)", "iteration {}"])
def test_ranges_of_one_name_that_hold_all_launches_are_the_steps(name):
    ranges = [
        M(i * STEP, (i + 1) * STEP - US, MarkClass.ANNOTATION, name.format(i)) for i in range(6)
    ]
    inner = [
        M(i * STEP + US, i * STEP + 190 * US, MarkClass.ANNOTATION, "## forward ##")
        for i in range(6)
    ]
    result = steps_of(loop(6, [*ranges, *inner]))
    assert (result.source, result.count, result.step_ns) == ("annotations", 6, STEP)


def test_the_first_iteration_of_a_run_is_warm_up():
    slow = 3 * STEP
    begun = [0, *(slow + i * STEP for i in range(1, 6))]
    ranges = [
        M(a, b - US, MarkClass.ANNOTATION, f"iteration {i}")
        for i, (a, b) in enumerate(zip(begun, [*begun[1:], slow + 6 * STEP], strict=True))
    ]
    result = steps_of(loop(6, ranges, first=slow))
    assert (result.count, result.step_ns) == (5, STEP)


def test_ranges_that_hold_a_part_of_the_launches_are_no_steps():
    inner = [
        M(i * STEP, i * STEP + 190 * US, MarkClass.ANNOTATION, "## forward ##") for i in range(6)
    ]
    assert steps_of(loop(6, inner)).source != "annotations"


def test_layers_within_one_range_are_no_steps():
    assert steps_of(loop(1, [])).source == "period"
    for one in (
        M(0, STEP, MarkClass.ANNOTATION, "forward of the model"),
        update(STEP, length=STEP),
    ):
        assert steps_of(loop(1, [one])).count is None
    known = M(0, STEP, MarkClass.ANNOTATION, "execute_context_1(8_78)_generation_0(0)")
    assert steps_of(loop(1, [known])).count == 1


def test_the_profilers_own_steps_come_first():
    own = [M(i * STEP, (i + 1) * STEP - US, MarkClass.STEP, "", i) for i in range(6)]
    result = steps_of(loop(6, [*own, *(update((i + 1) * STEP // 2) for i in range(12))]))
    assert (result.count, result.confidence) == (6, 1.0)


VLLM_DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"


@pytest.mark.parametrize(
    ("name", "phase", "tokens"),
    [
        ("execute_context_2(4096)_generation_0(0)", "prefill", 4096),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 888),
        (VLLM_DECODE, "decode", 32),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
            "_generation_37(sq37sk34489sqsq37sqsk34489)",
            "mixed",
            8192,
        ),
        ("step[EXTEND bs=15 toks=15360]", "prefill", 15360),
        ("step[DECODE bs=32]", "decode", 32),
        ("nano_decode_step", "decode", None),
    ],
)
def test_public_names_of_engines_are_read(name, phase, tokens):
    assert phase_of(name) == (phase, tokens)


@pytest.mark.parametrize(
    "name", ["step[IDLE bs=0]", "decoder_layer_3", "execute_model", "train_step"]
)
def test_other_names_tell_no_phase(name):
    assert phase_of(name) is None


def _pass(name: str, kernel: str) -> Trace:
    """One forward pass of 24 equal layers, launched before the device gets to it."""
    trace = Trace()
    trace.host("user_annotation", name, -20_000, 5_000)
    for layer in range(24):
        for place, one in enumerate((kernel, "rms_norm_kernel")):
            trace.kernel(
                layer * 500 + place * 240, 230, launched=-19_000 + 100 * layer + 40 * place
            )
            trace.events[-1]["name"] = one
    return trace


@pytest.mark.parametrize(
    ("name", "kernel", "side"),
    [
        (VLLM_DECODE, GEMM, Side.MEMORY),
        ("step[DECODE bs=32]", GEMM, Side.MEMORY),
        ("step[DECODE bs=4096]", GEMM, Side.COMPUTE),
        ("step[EXTEND bs=15 toks=15360]", GEMM, Side.COMPUTE),
        ("step[EXTEND bs=15 toks=15360]", "paged_attention_ll4mi_QKV_mfma16_kernel", Side.MEMORY),
        ("step[DECODE bs=32]", "flash_fwd_kernel", Side.MEMORY),
        ("step[EXTEND bs=15 toks=15360]", "flash_fwd_kernel", Side.COMPUTE),
    ],
)
def test_a_decode_pass_reads_weights_and_keys_for_few_rows(tmp_path, name, kernel, side):
    shown = _pass(name, kernel).judged(tmp_path)
    row = next(row for row in shown.estimate.kernels if row.name == kernel)
    assert row.side is side


def test_layers_of_one_forward_pass_are_no_steps(tmp_path):
    """Its range ended before the device began."""
    shown = _pass(VLLM_DECODE, GEMM).judged(tmp_path)
    assert (shown.estimate.steps.count, shown.estimate.steps.source) == (1, "annotations")
    assert shown.estimate.span.duration_ns == (23 * 500 + 470) * 1000  # it lay in the queue before
    [phase] = shown.tables.phases
    assert (phase.phase, phase.count, phase.tokens) == ("decode", 1, 32)
    assert phase.device_ns == 24 * 460_000


MS = 1_000_000
STEP_MS, WAIT_MS, KERNELS = 100, 60, 10


def burst(begin_ms: int, steps: int, corr: int, cut_ms: int = 0) -> tuple[list[K], list[C], Span]:
    """Steps that wait, then run ten kernels of 4 ms; traced from the first of them to the last."""
    kernels, calls = [], []
    for step in range(steps):
        for i in range(KERNELS):
            at = (begin_ms + step * STEP_MS + WAIT_MS + 4 * i) * MS
            corr += 1
            if step or 4 * i >= cut_ms:
                kernels.append(K(at, at + 4 * MS, corr=corr))
                calls.append(C(at - 6_000, at - 3_000, corr))
    return kernels, calls, Span(kernels[0].start, kernels[-1].end)


def run(bursts: int = 3, steps: int = 3, cut_ms: int = 0, marked: bool = True) -> Window:
    kernels: list[K] = []
    calls: list[C] = []
    spans = []
    for number in range(bursts):
        result = burst(number * 2_000, steps, number * 1_000, cut_ms)
        kernels += result[0]
        calls += result[1]
        spans.append(result[2])
    last_ms = bursts * 2_000
    ends = [i * STEP_MS * MS for i in range(1, last_ms // STEP_MS)]
    marks = [M(at - 1_000, at - 1_000, MarkClass.STEP) for at in ends if marked]
    marks += [M(at, at + WAIT_MS * MS, MarkClass.INPUT) for at in ends]
    return window(kernels, calls, marks, (spans[0].t0_ns, last_ms * MS), observed=tuple(spans))


def test_a_wait_has_its_share_of_the_step_in_bursts_of_any_length():
    for steps in (2, 3, 8):
        account = estimate(run(steps=steps)).estimate.account
        share = account.idle_ns["input"] / account.duration_ns
        assert share == pytest.approx(WAIT_MS / STEP_MS, abs=0.005), steps
        assert account.duration_ns == pytest.approx(3 * (steps - 1) * STEP_MS * MS, rel=0.01)


def test_a_step_whose_beginning_was_not_traced_is_none():
    account = estimate(run(cut_ms=20)).estimate.account
    assert account.idle_ns["input"] / account.duration_ns == pytest.approx(0.6, abs=0.005)
    assert account.duration_ns == pytest.approx(6 * STEP_MS * MS, rel=0.01)


def test_kernels_and_calls_are_those_of_the_whole_steps():
    w = run()
    cut, steps = whole_steps(facts_of(w))
    result, moved = cut.window, cut.call_rows
    assert len(result.activities) == 3 * 2 * KERNELS == len(result.calls)
    assert moved.tolist() == list(range(len(moved)))
    assert (result.calls.correlations[moved] == result.activities.correlations).all()
    assert result.observed is not None
    assert [span.duration_ns for span in result.observed] == [2 * STEP_MS * MS] * 3
    assert [span.duration_ns for span in steps] == [STEP_MS * MS] * 6


@pytest.mark.parametrize(
    "w",
    [run(marked=False), run(steps=1), window([K(0, 10)], [C(-5, -2)])],
    ids=["no marks", "no whole step", "no bursts"],
)
def test_without_whole_steps_all_that_was_traced_is_judged(w):
    facts = facts_of(w)
    assert whole_steps(facts) == (facts, ())


def test_marks_of_steps_where_nothing_may_be_judged_are_no_steps():
    judged = estimate(replace(run(), observed=())).estimate
    assert not judged.steps.spans


def test_steps_that_waited_once_are_told_by_their_mean_too():
    """Of a slow loader: the first step's wait is before its first kernel, and part of it all the same."""
    ms = 1_000_000
    begun = [(0, 1500), (1500, 1515), (1515, 1530)]
    marks = [M(a * ms, b * ms, MarkClass.STEP, f"ProfilerStep#{a}") for a, b in begun]
    kernels = [K(at * ms, (at + 5) * ms, corr=at) for at in (1490, 1505, 1520)]
    calls = [C(at * ms - 9_000, at * ms - 5_000, at) for at in (1490, 1505, 1520)]
    result = estimate(window(kernels, calls, marks, span=(0, 1530 * ms))).estimate
    assert (result.steps.count, result.steps.step_ns) == (3, 15 * ms)
    assert result.mean_step_ns == pytest.approx(509 * ms, rel=0.01)
    assert "3 steps of 508 ms in the mean, median 15.0 ms" in coverage(result)
