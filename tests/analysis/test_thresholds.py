"""Numbers that judge: halved or doubled, each moves a verdict, a side, a cause, an advice or its price."""

import ast
import importlib
import json
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.advisories.compare import compare
from brrrtop.analysis.estimate import estimate
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import Span, Window
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from brrrtop.whatif.risks import risk_of_run
from collectors.vocabulary import MarkClass, Metric
from tests.advisories import (
    test_compute,
    test_edits_device,
    test_edits_host,
    test_host,
    test_memory,
    test_phases,
    test_trust,
)
from tests.advisories.scenarios import CONV_NCHW, FUSED_ADAM, Scene, healthy
from tests.advisories.test_phases import phase
from tests.analysis.build import ADD, GEMM, C, K, M, window
from tests.analysis.test_samples import mixed, with_samples
from tests.analysis.test_steady_part import Trace
from tests.recorded import timeline_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "recordings"
RECORDINGS = (
    *sorted((ROOT / "brrrtop" / "data" / "demos").glob("*.brrr")),
    *sorted((RECORDED / "h200").glob("*.brrr")),
    *sorted((RECORDED / "sampled").glob("*.brrr")),
    *sorted((RECORDED / "traces").glob("*")),
)
TOPICS = (
    test_compute, test_edits_device, test_edits_host, test_host, test_memory, test_phases, test_trust,
)  # fmt: skip
WITNESSES = Path(__file__).with_name("witnesses.json")
"""Number → the case that notices first when it is shifted; found by `python -m tests.analysis.test_thresholds`.
A stale one only costs time: then all cases are asked."""
US, MS = 1_000, 1_000_000


def updates(*launches: int, steps: int = 12) -> Window:
    """Updates of one optimizer class, each after so many launches, in turn."""
    kernels, calls, marks, at = [], [], [], 0
    for part in range(steps * len(launches)):
        for place in range(launches[part % len(launches)]):
            number = len(calls) + 1
            calls.append(C(at, at + 5 * US, number))
            kernels.append(K(at + 8 * US, at + 18 * US, (GEMM, ADD)[place % 2], number))
            at += 20 * US
        marks.append(M(at - 9 * US, at - US, MarkClass.OPTIMIZER, "Optimizer.step#Adam.step"))
        at += 70 * US
    return window(kernels, calls, marks)


def loading(idle_us: int) -> Window:
    """The device waits so long, of 10 ms, for the first launch of one of its kernels."""
    kernels, calls, at = [], [], 0
    for number in range(1, 41):
        first = idle_us if number == 5 else 0
        calls.append(C(at + US, at + 6 * US + first * US, number))
        at += (10 + first) * US
        kernels.append(K(at, at + (10_000 - idle_us) * US // 40, f"k{number % 5}", number))
        at = kernels[-1].end
    return window(kernels, calls)


def rare_names(names: int) -> Window:
    """100 steps of 40 kernels; so many names that come three times, at random."""
    rng = np.random.default_rng(3)
    sequence = [f"k{place}" if place else "update" for _ in range(100) for place in range(40)]
    strange = rng.choice([at for at in range(4000) if at % 40], (names, 3), replace=False)
    for number, places in enumerate(strange.tolist()):
        for at in places:
            sequence[at] = f"rare{number}"
    return window([K(at * 20 * US, at * 20 * US + 9 * US, n) for at, n in enumerate(sequence)])


def stopped(longer_ms: float, *twins: float) -> Window:
    """A kernel that lasts so much longer than its like, and others about as long, beside a neighbour."""
    lengths = [300 * US] * 20
    for place, factor in enumerate((1.0, *twins)):
        lengths[7 + 2 * place] = round((300 * US + longer_ms * MS) * factor)
    kernels = [K(i * 6 * MS, i * 6 * MS + length) for i, length in enumerate(lengths)]
    return window(kernels, others=[(0, 1)])


def few(kernels: int, unknown_us: int = 0) -> Window:
    """A product, and what nobody knows, so many times."""
    made = [
        K(i * 300 * US, i * 300 * US + 280 * US - unknown_us * US, blocks=4000)
        for i in range(kernels)
    ]
    strange = [K(one.end, one.end + unknown_us * US, "_mine", blocks=4000) for one in made]
    return window([*made, *(strange if unknown_us else ())])


def sampled(tensor: float, dram: float, seconds: int = 1, **more: float) -> Window:
    """A kernel that nobody knows beside products, with counter samples."""
    whole = with_samples(
        mixed(("_mine", GEMM), blocks=4000),
        {"_mine": tensor, GEMM: 0.9},
        {"_mine": dram, GEMM: 0.15},
        **more,
    )
    return replace(whole, samples=whole.samples.take(np.arange(80))) if not seconds else whole


def diluted(make: Callable[[], Scene], times: float) -> Scene:
    scene = make()
    return healthy(scene, max(1, round((scene.now - (scene.began or 0.0)) * times / 12_900)))


def losing(part: float) -> Scene:
    scene = healthy()
    scene.lost = round(part * len(scene.rows))
    return scene


def odd_step(steps: int, copies: int = 0) -> Trace:
    """One of so many steps takes 2.5 times as long, and copies so many tensors of 128 KiB."""
    trace, start = Trace(), 0
    for number in range(steps):
        trace.step(number, start, 10_000 + 15_000 * (number == 1))
        for copy in range(copies if number == 1 else 0):
            trace.saved(start + 12_000 + copy * 300, 250, 1 << 17)
        start += 10_000 + 15_000 * (number == 1)
    return trace


def start_up(before: int = 1) -> Trace:
    """2.5 steps before the first one of 18, in which so many kernels ran."""
    trace = Trace()
    for place in range(before):
        trace.kernel(-25_000 + place * 600, 500)
    for number in range(19):
        trace.host("user_annotation", "Optimizer.step#Adam.step", number * 10_000 - 500, 400)
        for place in range(8 if number < 18 else 0):
            trace.kernel(number * 10_000 + 200 + place * 1_150, 1_000)
    return trace


def set_up() -> Trace:
    """20 tensors are moved in two fifths of the time."""
    trace = Trace()
    for place in range(20):
        trace.saved(place * 1_000, 900, 1 << 20)
        trace.events[-1]["name"] = "Memcpy HtoD (Pageable -> Device)"
    for place in range(30):
        trace.kernel(20_000 + place * 1_000, 950)
    return trace


def hole() -> Trace:
    """A gap of 7 ms behind ten kernels, most of it in one call; the next longest is 1 ms."""
    trace = Trace()
    for start in (
        *range(0, 5_000, 1_000),
        *range(6_000, 11_000, 1_000),
        *range(18_000, 23_000, 1_000),
    ):
        trace.kernel(start, 950)
    trace.host("cuda_runtime", "cudaFree", 11_000, 4_500)
    return trace


def of_trace(make: Callable[[], Trace]) -> Any:
    """What is named and not judged, and how much is judged."""
    with TemporaryDirectory() as folder:
        shown = make().judged(Path(folder))
    left = [(one.what, one.span, one.cause, one.step, one.place) for one in shown.left_out]
    return left, shown.estimate and shown.estimate.account.duration_ns


TRACES = {
    "an odd step of eight": partial(odd_step, 8),
    "an odd step of four": partial(odd_step, 4),
    "an odd step that copies": partial(odd_step, 8, 10),
    "a start-up": start_up,
    "a rollout": partial(start_up, 40),
    "a set-up": set_up,
    "a hole": hole,
}


def program(products: int = 10, convolutions: int = 0, wait: float = 0.0) -> Scene:
    scene = Scene()
    for _ in range(8):
        if wait:
            scene.idle(wait, MarkClass.INPUT, "next")
        for name in (*[GEMM] * products, *[CONV_NCHW] * convolutions):
            scene.kernel(name, 300.0, blocks=132)
        scene.kernel(FUSED_ADAM, 100.0)
        scene.step()
    return scene


def of_pair(make: Callable[[], tuple[Scene, Scene]]) -> Any:
    before, after = (scene.judged() for scene in make())
    return compare(before.estimate, after.estimate, advise(before).given)


PAIRS = {
    "three times the products": lambda: (program(), program(30)),
    "some convolutions more": lambda: (program(), program(10, 2)),
    "a wait cut to two fifths": lambda: (program(wait=10_000.0), program(wait=4_000.0)),
}


def of_lengths(lengths_us: list[int]) -> Any:
    """Of a run of which three like steps were traced, and these were timed."""
    made = replace(phase(PhaseKind.TRAIN, 100, 1000), launches=(100,) * 3, traced_steps=3)
    ends = np.cumsum(np.array(lengths_us) * US).tolist()
    marks = [M(at, at, MarkClass.STEP, "step") for at in ends]
    return risk_of_run(made, window([K(0, 9, ADD, 1)], [], marks))


LENGTHS = {
    "eights of steps, uneven in themselves, that differ by 0.7%": (
        [1_020] * 4 + [980] * 4 + [1_027] * 4 + [987] * 4
    )
    * 6,
    "forty steps alike": [1_000] * 40,
}
READ = {
    "throttled at times": lambda: healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x20, *[0] * 7),
    "watching costs 5%": lambda: (
        healthy().gauge(Metric.STEP_COST_SHARE, 0.05).gauge(Metric.STEP_COST_ERROR_SHARE, 0.01)
    ),
    "1.5% of the records lost": partial(losing, 0.015),
}
"""By name: scenes of advice whose readings are near numbers."""
SCENES = {
    "lengths of steps differ by 15%": updates(20, 23, 20, 17),
    "lengths of steps differ by 7%": updates(100, 107, 100, 93, steps=4),
    "three optimizers": updates(30, 6, 3),
    "an op that takes 60 ms to its launch": window(
        [K(0, 10 * US, corr=1), K(60 * MS, 60 * MS + 10 * US, corr=2)],
        [C(-9 * US, -5 * US, 1), C(60 * MS - 10 * US, 60 * MS - 5 * US, 2)],
        [M(20 * US, 60 * MS + 90 * US, MarkClass.OP, "aten::sdpa")],
    ),
    "eight optimizers": updates(30, 6, 3, 6, 12, 24, 3, 2),
    "loading 15%": loading(1_500),
    "loading 30%": loading(3_000),
    "40 rare names": rare_names(40),
    "stopped for 2.5 ms": stopped(2.5),
    "stopped for 1.5 ms": stopped(1.5),
    "stopped twice, 1.5% apart": stopped(2.5, 1.015),
    "ten kernels": few(5, 20),
    "six kernels": few(3, 20),
    "a quarter unknown": few(40, 75),
    "uses tensor cores a little": sampled(0.14, 0.05),
    "busy memory": sampled(0.02, 0.45),
    "80 samples": sampled(0.8, 0.1, seconds=0),
    "badly placed samples": sampled(0.8, 0.1, error_ns=0.2 * 200 * US),
}
"""By name: windows near numbers that no recording comes near."""
DILUTED = {
    "rows_of_odd_length": 16, "convolutions_of_the_past_in_a_mix": 8, "a_logger_that_writes": 8,
    "an_evaluation_that_waits": 8, "a_softmax_far_under_its_roof": 1,
    "gradients_of_whole_embedding_tables": 2,
    "samples_in_a_hand_made_loader": 4, "samples_in_a_read_back": 8, "a_long_kernel_on_a_few_sms": 0.1,
    "pages_that_the_host_reads_one_by_one": 2, "results_copied_back_between_kernels": 24,
    "a_neighbour_at_work": 0.6,
}  # fmt: skip
"""By scene of advice: so many times as much of a healthy run behind it, and its share is near a number."""
PACKAGES = ("analysis", "advisories", "whatif", "ledger")
ELSEWHERE = (
    "analysis.ranks.",
    "analysis.tables.",
    "advisories.steady",
)
"""Ranks are judged beside each other, tables and the picture show what was judged, and what a sequence of windows
or of programs is judged by has its own tests."""
NOT_REACHED = {
    "analysis.facts.ranges": "WARM_UP",
    "analysis.facts.launches": "LOADING_NS _FIRSTS LONGEST_GAP_NS",
    "analysis.account.account": "MOST_UNKNOWN",
    "analysis.facts.collectives": "SHORT_NS",
    "analysis.facts.steps": "SEEN SET_UP_NS _DILUTED _LEAST_KERNELS _MOST_LAYERS _OTHERS _LEAST_OF_ALL",
    "analysis.ceilings": "LEAST_CLOCK_RATIO",
    "analysis.kernels.ops": "NO_CACHE UNROLLED",
    "analysis.kernels.roofline": "BY_BOUND HALF_THE_SMS SHORT_UNPLACED HEAD_SIZE LEAST_RIDGE RESERVED_SINCE_8",
    "analysis.kernels.table": "NOT_MOVED MOSTLY",
    "analysis.facts.host_activity": "CPU_OP_NS",
    "analysis.facts.table": "READ_BACK_BYTES",
    "analysis.facts.stack_samples": "LEAST_SAMPLES FEW_SAMPLES MOST_OF_FEW",
    "advisories.advise": "MAY_LOSE",
    "advisories.compare": "GONE",
    "advisories.context": "NO_GAIN NO_HOPE SEEN_SHARE",
    "advisories.rules.compute": "OLD_KERNEL SCALAR_LOADS BIG_BLOCKS DOUBLE",
    "advisories.rules.distributed": "MOSTLY _MANY_STEPS",
    "advisories.rules.host": "MOSTLY SAVE_NS COMPILING GC_IDLE GC_PAUSE_NS FILLING",
    "advisories.rules.memory": "WEAK_ROOF RECOMPUTED FILL_BYTES",
    "advisories.rules.overhead": "WAITS_FIRST FAULTS",
    "advisories.rules.trust": "UNRECORDED PROFILING LARGE_KERNEL",
    "analysis.kernels.op_patterns": "DEPTHWISE_16_BIT",
    "whatif.edits.fusing": "ATOMIC_BYTES",
    "whatif.edits.layout_precision_attention": "UNSCALE_PASSES",
    "whatif.iterations": "LATE",
    "whatif.price": "GUESS_DOUBT LATE_BATCH LIKE LAUNCH_NS",
    "whatif.step": "USUAL_LATENCY_NS ALIKE NEAR",
    "ledger.account": "SHORT_NS SAME_CUT_NS",
    "ledger.between": "LONG_NS SLOW_STEPS CHANCE RARELY FEW_SAMPLES FEW_STEPS",
    "ledger.evidence": "FEW_STEPS MANY_BATCHES",
    "ledger.ledger": "HOOKED_NS",
    "ledger.phases": "PAUSE_NS OFTEN",
    "ledger.places": "MOST_SILENT",
    "ledger.sums": "MISTIMED_NS",
    "ledger.verdict": "CONTRADICTION TINY_KERNEL_NS SOON_NS MOSTLY YOUNG_NS FEW_STEPS",
}
"""By module: no recording here comes near these. A test beside the module has to hold
them; one that nothing holds is to be deleted. A new number that judges does not belong here."""
CODES = {
    "analysis.estimate": "STRETCH_NS LEAST_GAP_NS",
    "advisories.context": "SAME_PACE",
    "analysis.facts.collectives": "UNKNOWN_SIZE EXCHANGE _MOST_BYTES",
    "analysis.facts.stack_samples": "_Z",
    "analysis.kernels.table": "LATEST NAMES BESIDE NEAR",
    "ledger.account": "QUIET_NS SETTLED_NS",
    "ledger.between": "_SEVERAL",
    "ledger.ledger": "NOW_NS OPEN_NS CLOSED_NS MOST_STRETCHES MOST_KEYS",
    "whatif.price": "FOLLOWING",
    "analysis.facts.table": "COMM TRANSFER NAME BYTES SHAPES COUNTERS",
    "analysis.facts.launches": "_NEVER",
    "analysis.kernels.counters": "MOST_SAMPLES",
}
"""Numbers that stand for something, or bound the work, and judge nothing of one window."""


def constants(module: ModuleType) -> dict[str, float]:
    """The module's own numbers by name."""
    assert module.__file__ is not None
    named: dict[str, float] = {}
    for node in ast.parse(Path(module.__file__).read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for name in ast.walk(target) if target is not None else ():
                value = vars(module).get(getattr(name, "id", ""))
                if type(value) in (int, float) and value and isinstance(name, ast.Name):
                    named[name.id] = value
    return named


def modules() -> list[str]:
    """Of the packages that judge, without what shows, keeps for the next run or reads a name."""
    paths = [p for package in PACKAGES for p in sorted((ROOT / "brrrtop" / package).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT / "brrrtop").with_suffix("").parts) for path in paths]
    return [name for name in names if not name.startswith(ELSEWHERE) and "__init__" not in name]


@cache
def window_of(path: Path) -> Window:
    timeline = timeline_of(path)
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    return timeline.window(span, min(timeline.devices, default=0))


def with_readings(shaped: Window) -> Window:
    """Samples of kernels whose shapes let expect something else."""
    return with_samples(shaped, dict.fromkeys(shaped.names, 0.3), dict.fromkeys(shaped.names, 0.32))


def of_window(make: Callable[[], Window]) -> Any:
    """All that somebody could act on."""
    analysis = estimate(make())
    result, advice = analysis.estimate, advise(analysis)
    return (
        result.regime, result.cause, round(result.confidence, 3), result.account, result.batch,
        [(row.name, row.side) for row in result.kernels],
        [(one.kind, one.saves, one.saves_at_most, one.may_lose) for one in advice.given],
        [(row.edit, row.saves, row.saves_low, row.saves_high) for row in advice.whatif],
    )  # fmt: skip


@cache
def _read(path: Path) -> Timeline:
    return timeline_of(path)


def of_run(path: Path) -> Any:
    """Of a recording of minutes: what is said of the run."""
    shown = analyze(open_source(path), timeline=_read(path))
    run, result = shown.run, shown.estimate
    assert run is not None and result is not None
    return (
        result.regime, result.cause, round(result.confidence, 3), run.account, run.split, run.witness,
        [(one.kind, one.where, one.share, one.waits_ns, one.waits_most_ns) for one in run.phases],
        [(one.place, one.share) for one in run.lines],
        [(one.kind, one.saves, one.saves_at_most, one.may_lose) for one in shown.advisories],
        [(row.edit, row.saves, row.saves_low, row.saves_high) for row in shown.whatif],
    )  # fmt: skip


def of_scene(make: Callable[[], Any]) -> Any:
    return [
        (one.kind, one.saves, one.saves_at_most, one.may_lose, round(one.confidence, 3))
        for one in make().advice().values()
    ]


@cache
def _judged_whole(path: Path) -> Any:
    return analyze(open_source(path))


def of_change(path: Path) -> Any:
    """Of a program before and after an edit."""
    before, after = _judged_whole(path), _judged_whole(path.with_suffix(".after.brrr"))
    return compare(before.estimate, after.estimate, before.advisories)


def every_case() -> dict[str, Callable[[], Any]]:
    """By name, the cheaper kinds first."""
    scenes = {
        scene.__name__: scene
        for topic in TOPICS
        for _, scene in (*topic.CASES.calling, *topic.CASES.quiet)
    }
    cases: dict[str, Callable[[], Any]] = {
        name: partial(of_window, lambda made=made: made) for name, made in SCENES.items()
    }
    cases |= {name: partial(of_scene, scene) for name, scene in scenes.items()}
    for name, times in DILUTED.items():
        cases[f"{name}, diluted {times} times"] = partial(
            of_scene, partial(diluted, scenes[name], times)
        )
    cases |= {name: partial(of_scene, make) for name, make in READ.items()}
    cases |= {name: partial(of_trace, make) for name, make in TRACES.items()}
    cases |= {name: partial(of_lengths, lengths) for name, lengths in LENGTHS.items()}
    cases |= {name: partial(of_pair, make) for name, make in PAIRS.items()}
    for path in (RECORDED / "promises").glob("*.after.brrr"):
        before = path.with_name(path.name.replace(".after", ""))
        cases[f"compare {before.stem}"] = partial(of_change, before)
    cases |= {
        f"{path.parent.name} {path.stem}": partial(of_window, partial(window_of, path))
        for path in sorted(RECORDINGS, key=lambda path: path.stat().st_size)
    }
    for path in sorted((RECORDED / "runs").glob("*.brrr"), key=lambda path: path.stat().st_size):
        cases[f"run {path.stem}"] = partial(of_run, path)
    shaped = cache(lambda: with_readings(window_of(RECORDED / "h200" / "fp8.brrr")))
    return cases | {"shapes and samples": partial(of_window, shaped)}


CASES = every_case()


@cache
def usual(case: str) -> Any:
    return CASES[case]()


def changes(module: ModuleType, name: str, value: float, case: str) -> bool:
    """Whether what is judged of that changes with the number halved, or with its double."""
    before = usual(case)
    for factor in (2, 0.5):
        with pytest.MonkeyPatch.context() as patch:
            for other in [*sys.modules.values()]:
                ours = getattr(other, "__name__", "").startswith("brrrtop")
                if ours and (other is module or vars(other).get(name) is value):
                    patch.setattr(other, name, type(value)(value * factor))
            try:
                changed = CASES[case]() != before
            except Exception:  # noqa: BLE001 - a size that no array has any more
                changed = True
        if changed:
            return True
    return False


def witness(module: ModuleType, name: str, value: float, first: str | None) -> str | None:
    """A case that notices."""
    ordered = [first, *CASES] if first in CASES else [*CASES]
    return next((one for one in ordered if changes(module, name, value, one)), None)


@pytest.mark.parametrize("name", modules())
def test_a_number_that_judges_changes_what_is_judged(name):
    module = importlib.import_module(f"brrrtop.{name}")
    others = f"{NOT_REACHED.get(name, '')} {CODES.get(name, '')}".split()
    own, known = constants(module), json.loads(WITNESSES.read_text())
    assert [key for key in others if key not in own] == [], "renamed or gone"
    judging = [key for key in own if key not in others]
    lost = [
        key for key in judging if not witness(module, key, own[key], known.get(f"{name}.{key}"))
    ]
    assert lost == []


def main() -> None:
    """Looks for new witnesses where the old ones notice nothing; names the numbers that nothing notices."""
    before, known = json.loads(WITNESSES.read_text()), dict[str, str]()
    for name in modules():
        module = importlib.import_module(f"brrrtop.{name}")
        for key, value in constants(module).items():
            if key not in f"{NOT_REACHED.get(name, '')} {CODES.get(name, '')}".split():
                case = witness(module, key, value, before.get(f"{name}.{key}"))
                known |= {f"{name}.{key}": case} if case else {}
                print(f"{name}.{key}: {case}", flush=True)
    WITNESSES.write_text(json.dumps(known, indent=0) + "\n")


if __name__ == "__main__":
    main()
