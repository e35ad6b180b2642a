"""Numbers that judge: halved or doubled, each moves a verdict, a side, a cause, an advice or its price."""

import ast
import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Span, Window
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass
from tests.analysis.build import ADD, GEMM, C, K, M, window
from tests.analysis.test_samples import mixed, with_samples

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = (
    *sorted((ROOT / "brrrtop" / "data" / "demos").glob("*.brrr")),
    *sorted((ROOT / "tests" / "recordings" / "h200").glob("*.brrr")),
    *sorted((ROOT / "tests" / "recordings" / "sampled").glob("*.brrr")),
    *sorted((ROOT / "tests" / "recordings" / "traces").glob("*")),
)
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


DEMO, SHAPED = ROOT / "brrrtop" / "data" / "demos" / "fp32-convolutions.brrr", "shapes and samples"
SCENES = {
    "lengths of steps differ by 15%": updates(20, 23, 20, 17),
    "lengths of steps differ by 7%": updates(100, 107, 100, 93, steps=4),
    "three optimizers": updates(30, 6, 3),
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
NOT_REACHED = {
    "facts.ranges": "WARM_UP",
    "facts.samples": "SEEN",
    "facts.launches": "LOADING_NS _FIRSTS LONGEST_GAP_NS",
    "account.regimes": "MOST_UNKNOWN",
    "account.steady_part": "STARTUP_STEPS ODD LEAST_PART LEAST_STEPS HOLE_PART HOLE_TIMES HOLE_NS LEAST_ACTIVITIES COVERED SAVED_COPIES SAVED_BYTES MOST_PART MOVED_COPIES",
    "facts.collectives": "SHORT_NS _MOST_BYTES",
    "facts.steps": "SET_UP_NS _DILUTED _LEAST_KERNELS _MOST_LAYERS _OTHERS _LEAST_OF_ALL",
    "ceilings": "LEAST_CLOCK_RATIO",
    "kernels.ops": "NO_CACHE UNROLLED",
    "kernels.roofline": "BY_BOUND HALF_THE_SMS SHORT_UNPLACED HEAD_SIZE LEAST_RIDGE RESERVED_SINCE_8",
    "kernels.table": "NOT_MOVED MOSTLY LATEST NAMES BESIDE NEAR",
    "facts.host_activity": "CPU_OP_NS",
    "facts.table": "READ_BACK_BYTES",
    "facts.stack_samples": "LEAST_SAMPLES FEW_SAMPLES MOST_OF_FEW _Z",
}
"""By module below `brrrtop.analysis`: no recording here comes near these. A test beside the module has to hold
them; one that nothing holds is to be deleted. A new number that judges does not belong here."""
CODES = {
    "facts.collectives": "UNKNOWN_SIZE EXCHANGE",
    "facts.labels": "COMM TRANSFER NAME BYTES SHAPES COUNTERS",
    "facts.launches": "_NEVER",
}
"""Numbers that stand for something, and judge nothing."""


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
    folder = ROOT / "brrrtop" / "analysis"
    paths = [path.relative_to(folder).with_suffix("") for path in sorted(folder.rglob("*.py"))]
    names = [".".join(path.parts) for path in paths if path.name != "__init__"]
    # Ranks are judged beside each other, and tables and the picture show what was judged.
    return [name for name in names if not name.startswith(("ranks.", "tables.", "step_picture"))]


@cache
def window_of(path: Path | str) -> Window:
    if isinstance(path, str):
        return SCENES[path] if path != SHAPED else _with_readings(window_of(DEMO))
    timeline = Timeline()
    for frame in open_source(path).frames():
        timeline.add(frame)
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    return timeline.window(span, min(timeline.devices, default=0))


def _with_readings(shaped: Window) -> Window:
    """Samples of kernels whose shapes let expect something else."""
    return with_samples(shaped, dict.fromkeys(shaped.names, 0.3), dict.fromkeys(shaped.names, 0.32))


def judged(path: Path | str) -> Any:
    """All that somebody could act on."""
    analysis = estimate(window_of(path))
    result, advice = analysis.estimate, advise(analysis)
    return (
        result.regime, result.cause, round(result.confidence, 3), result.account, result.batch,
        [(row.name, row.side) for row in result.kernels],
        [(one.kind, one.saves, one.saves_at_most) for one in advice.given],
        [(row.edit, row.saves) for row in advice.whatif],
    )  # fmt: skip


before = cache(judged)
quickest = [*SCENES, *RECORDINGS, SHAPED]
"""Those that noticed the last number come first."""


def changes(module: ModuleType, name: str, value: float, path: Path | str) -> bool:
    """Whether what is judged of that changes with the number halved, or with its double."""
    usual = before(path)
    for factor in (2, 0.5):
        with pytest.MonkeyPatch.context() as patch:
            for other in [*sys.modules.values()]:
                ours = getattr(other, "__name__", "").startswith("brrrtop")
                if ours and (other is module or vars(other).get(name) is value):
                    patch.setattr(other, name, type(value)(value * factor))
            try:
                changed = judged(path) != usual
            except Exception:  # noqa: BLE001 - a size that no array has any more
                changed = True
        if changed:
            return True
    return False


def moves(module: ModuleType, name: str, value: float) -> bool:
    noticed = next((path for path in quickest if changes(module, name, value, path)), None)
    if noticed is not None:
        quickest.remove(noticed)
        quickest.insert(0, noticed)
    return noticed is not None


@pytest.mark.parametrize("name", modules())
def test_a_number_that_judges_changes_what_is_judged(name: str) -> None:
    module = importlib.import_module(f"brrrtop.analysis.{name}")
    others = f"{NOT_REACHED.get(name, '')} {CODES.get(name, '')}".split()
    own = constants(module)
    assert [key for key in others if key not in own] == [], "renamed or gone"
    assert [key for key in own if key not in others and not moves(module, key, own[key])] == []
