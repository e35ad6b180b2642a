"""Numbers that judge: halved or doubled, each moves a verdict, a side, a cause, an advice or its price."""

from __future__ import annotations

import ast
import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Span, Window
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = (
    *sorted((ROOT / "brrrtop" / "data" / "demos").glob("*.brrr")),
    *sorted((ROOT / "tests" / "recordings" / "h200").glob("*.brrr")),
    *sorted((ROOT / "tests" / "recordings" / "sampled").glob("*.brrr")),
    *sorted((ROOT / "tests" / "recordings" / "traces").glob("*")),
)
NOT_REACHED = {
    "facts.ranges": "ALIKE _MOST_OPTIMIZERS WARM_UP",
    "facts.launches": "LOADING_NS _FIRSTS LONGEST_GAP_NS",
    "account.regimes": "MOST_UNKNOWN LEAST_ACTIVITIES MOST_AT_START STOPPED_NS TWIN",
    "account.steady_part": "STARTUP_STEPS ODD LEAST_PART LEAST_STEPS HOLE_PART HOLE_TIMES HOLE_NS LEAST_ACTIVITIES COVERED SAVED_COPIES SAVED_BYTES",
    "facts.collectives": "_MOST_BYTES",
    "facts.steps": "WARM_UP_STEPS LOADING_SHARE SET_UP_NS _DILUTED _LEAST_KERNELS _TRIED _MOST_LAYERS _OTHERS",
    "ceilings": "LEAST_CLOCK_RATIO LEAST_ATTAINED",
    "kernels.counters": "USES_TENSOR BUSY_DRAM MOST_CERTAIN _LABEL_DOUBT WORST_OFFSET LEAST_SAMPLES MOST_SAMPLES",
    "kernels.ops": "NO_CACHE UNROLLED",
    "kernels.roofline": "BY_BOUND HALF_THE_SMS SHORT_UNPLACED HEAD_SIZE LEAST_RIDGE RESERVED_SINCE_8",
    "kernels.table": "NOT_MOVED MOSTLY LATEST NAMES BESIDE NEAR",
    "facts.host_activity": "CPU_OP_NS",
    "facts.table": "READ_BACK_BYTES",
    "facts.stack_samples": "LEAST_SAMPLES FEW_SAMPLES MOST_OF_FEW _Z",
    "facts.transfers": "SHORT_NS",
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
def window(path: Path) -> Window:
    timeline = Timeline()
    for frame in open_source(path).frames():
        timeline.add(frame)
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    return timeline.window(span, min(timeline.devices, default=0))


def judged(path: Path) -> Any:
    """All that somebody could act on."""
    analysis = estimate(window(path))
    result, advice = analysis.estimate, advise(analysis)
    return (
        result.regime, result.cause, round(result.confidence, 3), result.account,
        [(row.name, row.side) for row in result.kernels],
        [(one.kind, one.saves, one.saves_at_most) for one in advice.given],
        [(row.edit, row.saves) for row in advice.whatif],
    )  # fmt: skip


before = cache(judged)
quickest = list(RECORDINGS)
"""Those that noticed the last number come first."""


def moves(module: ModuleType, name: str, value: float) -> bool:
    for factor in (2, 0.5):
        with pytest.MonkeyPatch.context() as patch:
            for other in [*sys.modules.values()]:
                ours = getattr(other, "__name__", "").startswith("brrrtop")
                if ours and (other is module or vars(other).get(name) is value):
                    patch.setattr(other, name, type(value)(value * factor))
            for path in quickest:
                try:
                    changed = judged(path) != before(path)
                except Exception:  # noqa: BLE001 - a size that no array has any more
                    changed = True
                if changed:
                    quickest.remove(path)
                    quickest.insert(0, path)
                    return True
    return False


@pytest.mark.parametrize("name", modules())
def test_a_number_that_judges_changes_what_is_judged(name: str) -> None:
    module = importlib.import_module(f"brrrtop.analysis.{name}")
    for path in RECORDINGS:
        before(path)
    others = f"{NOT_REACHED.get(name, '')} {CODES.get(name, '')}".split()
    own = constants(module)
    assert [key for key in others if key not in own] == [], "renamed or gone"
    assert [key for key in own if key not in others and not moves(module, key, own[key])] == []
