"""All advice on one window: edits whose simulated gain is worth it, and what no edit stands for; ordered."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.catalogue import RULES
from brrrtop.advisories.context import HEALTHY_GAIN, Context, context_of
from brrrtop.advisories.of_run import rows_after
from brrrtop.advisories.registry import Finding, Rule
from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.tables.loaders import loader_rows
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.host_tables import LoaderRow
from brrrtop.model.run import Run

LEAST_CONFIDENCE = 0.5
"""Below even odds advice costs more trust than it brings."""
MOSTLY_WAITING = 0.5
"""A step that is twice as fast once its data is there waits for nothing else."""
BESIDE_WAITING = 0.1
"""Such a step has a larger cause: what wins less than a tenth comes after it."""
_NOT_TORCH = ("jax",)
"""Origins of windows of other frameworks: what to try is worded and priced for PyTorch."""
_FOR_DATA = ("loader-ready", "pinned-copies")
"""Edits that bring a step its data sooner."""
BIGGER_BATCH, CHANGES_TRAINING = "bigger-batch", 0.1
"""It changes what is learned, and only spreads over more samples what is wrong with a step: what wins a
tenth by itself comes first, however much more a sample would gain."""


class Advice(Struct, frozen=True):
    """What a window is told, and every edit that was simulated for it."""

    given: tuple[Advisory, ...] = ()
    """Largest gain first, what saves nothing last."""
    whatif: tuple[WhatIf, ...] = ()
    """Best first, worthwhile or not."""
    after: tuple[WhatIf, ...] = ()
    """The first of `whatif` with one more edit after it."""
    loaders: tuple[LoaderRow, ...] = ()
    """That were waited for, most first, with the workers that each needs."""


def advise(judged: Analysis, run: Run | None = None) -> Advice:
    """Advice on one window, given its verdict: gates first, then edits, then other rules."""
    window = judged.window
    if not len(window.activities) or window.hello.get("origin") in _NOT_TORCH:
        return Advice(loaders=tuple(loader_rows(window)))
    context = context_of(judged, run)
    for one in RULES:
        if one.is_gate and (gate := _advisory(context, one, one.check(context))) is not None:
            return Advice((gate,), loaders=context.loaders)
    edits, kinds = _edit_advice(context)
    others = [a for one in RULES if (a := _without_price(context, one, edits)) is not None]
    given = [*edits.values(), *(a for a in others if a.confidence >= LEAST_CONFIDENCE)]
    present = {a.kind for a in given}
    covered = {kind for one in RULES if one.kind in present for kind in one.covers}
    given = [a for a in given if a.kind not in covered]
    if not any((a.saves or a.saves_at_most or 0.0) >= HEALTHY_GAIN for a in given):
        last = [
            a for one in RULES if one.is_last if (a := _advisory(context, one, one.check(context)))
        ]
        if last:  # "stop tuning" beside an edit of 3 % would be two verdicts
            kinds = {}
            given = [*(a for a in given if a.kind not in edits), *last]
    rows = (replace(row, advisory=kinds.get(row.edit)) for row in context.rows)
    after = context.priced.following if context.priced else ()
    if context.sampled_run is not None and after:
        after = rows_after(after, context.sampled_run)
    return Advice(
        tuple(sorted(given, key=rank)),
        tuple(map(context.with_line, rows)),
        tuple(map(context.with_line, after)),
        context.loaders,
    )


def _edit_advice(context: Context) -> tuple[dict[str, Advisory], dict[str, str]]:
    """Advice by kind and its kind by edit, for each edit that is worth it, best first. Of edits with the
    same advice the better one words it, both are named by it."""
    given: dict[str, Advisory] = {}
    kinds: dict[str, str] = {}
    for row in context.rows:
        if not context.worth(row.saves) or _comes_later(context, row):
            continue
        for one in RULES:
            finding = one.check(context, row) if row.edit in one.edits else None
            if finding is None:
                continue
            advisory = given.get(one.kind) or _advisory(context, one, finding, row)
            if advisory is not None:
                given[one.kind] = advisory
                kinds[row.edit] = one.kind
            break
    return given, kinds


def _comes_later(context: Context, row: WhatIf) -> bool:
    """Whether the step mostly waits for its data, and the edit wins little until that is changed."""
    best = context.rows[0]
    return best.edit in _FOR_DATA and best.saves >= MOSTLY_WAITING and row.saves < BESIDE_WAITING


def _without_price(context: Context, one: Rule, edits: dict[str, Advisory]) -> Advisory | None:
    """Advice of a rule that no edit stands for, or whose edits do not apply here."""
    if one.is_gate or one.is_last or one.of_job or one.kind in edits:
        return None
    if not one.edits:
        return _advisory(context, one, one.check(context))
    if not one.without_price or any(context.price(name) is not None for name in one.edits):
        return None
    return _advisory(context, one, one.check(context, None))


def _advisory(
    context: Context, one: Rule, finding: Finding | None, row: WhatIf | None = None
) -> Advisory | None:
    """The advisory, or None when its bound is not worth the edit."""
    if finding is None:
        return None
    confidence, saves, evidence = finding.confidence, finding.saves, finding.evidence
    if row is not None:
        # By how much of the gain is left where everything unknown turns out badly.
        kept = row.saves_low / row.saves if row.saves > 0 else 0.0
        confidence, saves = 0.55 + 0.4 * min(max(kept, 0.0), 1.0), row.saves_high
        evidence = {"edit": row.edit, "predicted_step_ns": row.step_ns, **evidence}
    if saves is not None:
        saves = min(max(float(saves), 0.0), 0.99)
        if not context.worth(saves):
            return None
    return Advisory(
        kind=one.kind,
        says=finding.says,
        confidence=round(min(max(float(confidence), 0.0), 0.99), 3),
        saves_at_most=None if saves is None else round(saves, 4),
        evidence=evidence,
        suggests=finding.suggests,
        saves=None if row is None else round(row.saves, 4),
        saves_low=None if row is None else round(row.saves_low, 4),
        waste=finding.waste or context.waste,
    )


def parted(
    given: Iterable[Advisory], silenced: Collection[str]
) -> tuple[tuple[Advisory, ...], tuple[Advisory, ...]]:
    """Advice to give and advice that was silenced, each in the order given."""
    every = tuple(given)
    shown = tuple(one for one in every if one.kind not in silenced)
    return shown, tuple(one for one in every if one.kind in silenced)


def rank(advisory: Advisory) -> tuple[float, float, str]:
    """Order of advice: largest predicted gain first, else bound times confidence; what saves nothing last."""
    return (-worth(advisory), -advisory.confidence, advisory.kind)


def worth(advisory: Advisory) -> float:
    """The predicted gain, else the bound times the confidence."""
    bound = (advisory.saves_at_most or 0.0) * advisory.confidence
    gain = bound if advisory.saves is None else advisory.saves
    return min(gain, CHANGES_TRAINING) if advisory.kind == BIGGER_BATCH else gain
