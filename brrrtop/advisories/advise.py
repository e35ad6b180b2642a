"""All advice on one window: edits whose simulated gain is worth it, and what no edit stands for; ordered."""

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.context import (
    HEALTHY_GAIN,
    Context,
    context_of,
    priced_again,
    runs_torch,
    within,
)
from brrrtop.advisories.of_run import rows_after
from brrrtop.advisories.registry import TRUST, Finding, Rule, all_rules
from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.tables.loaders import loader_rows
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.host_tables import LoaderRow
from brrrtop.model.run import Run
from brrrtop.text import phrases, units
from brrrtop.text.headline import MAY_FAIL
from brrrtop.whatif.price import BY_RATES, EDITS

RULES = all_rules()
LEAST_CONFIDENCE = 0.5
"""Below even odds advice costs more trust than it brings."""
MOSTLY_WAITING = 0.5
"""A step that is twice as fast once its data is there waits for nothing else."""
BESIDE_WAITING = 0.1
"""Such a step has a larger cause: what wins less than a tenth comes after it."""
NO_EDIT_FOR = {"allocation-churn": "allocator", "checkpoint-stall": "checkpoint"}
"""Advice on causes of a verdict that compiling leaves in the loop."""
ALIKE, COMPARABLE = 0.9, 0.8
"""Of the best gain: what wins as much is as good a beginning; so is four fifths, if it cannot fail."""
_FOR_DATA = ("loader-ready", "pinned-copies")
"""Edits that bring a step its data sooner."""
LEAST_SURE, MOST_SURE = 0.55, 0.95
"""Confidence in a simulated gain of which nothing is sure, and all."""
OFFERS = frozenset({"bigger-batch", "underfilled-kernels"})
"""These change what is learned, and only spread over more samples what is wrong with a step: offers, after
whatever else surely wins anything."""
OFFER, MAY_LOSE = 0.01, 1e-6
"""More than the first is the order of what wins, less than it of offers, and less than the second of what
may as well lose."""


class Advice(Struct, frozen=True):
    given: tuple[Advisory, ...] = ()
    """Largest gain first, what saves nothing last."""
    whatif: tuple[WhatIf, ...] = ()
    """Best first, worthwhile or not."""
    after: tuple[WhatIf, ...] = ()
    """The first of `whatif` with one more edit after it."""
    loaders: tuple[LoaderRow, ...] = ()
    """That were waited for, most first, with the workers that each needs."""
    priced: Context | None = None
    """What the window says whatever the run is: for advice on another run of which it is a sample."""


def advise(
    analysis: Analysis,
    run: Run | None = None,
    sample: Analysis | None = None,
    priced: Context | None = None,
    earlier: Context | None = None,
) -> Advice:
    """Advice on one window, given its verdict: gates first, then edits, then other rules.

    Args:
        run: That the window is a sample of; None: it is all there is.
        sample: The steps that edits are simulated on; None: those of the window.
        priced: What earlier advice on the same window rests on.
        earlier: What advice on an earlier window rests on.
    """
    window = analysis.facts.window
    if not len(window.activities):
        return Advice(loaders=tuple(loader_rows(analysis.facts)))
    priced = priced_again(priced, sample) if priced else context_of(analysis, sample, earlier)
    context = priced
    if run is not None:
        context = within(priced, run)
        priced = replace(priced, loaders_shown=context.loaders or priced.loaders_shown)
    torch = runs_torch(window)
    served = not context.trains and context.sampled("input") > context.loop_idle("launch")
    if served or not torch:  # requests set the pace; edits are worded and simulated for PyTorch
        context = replace(context, simulated=None)
    rules = RULES if torch else [r for r in RULES if r.group == TRUST or r.any_program]
    for one in rules:
        if one.is_gate and (gate := _advisory(context, one, one.check(context))) is not None:
            return Advice((gate,), loaders=context.loaders, priced=priced)
    edits, kinds = _edit_advice(context)
    others = [a for one in rules if (a := _without_price(context, one, edits)) is not None]
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
    after = context.simulated.following if context.simulated else ()
    if context.sampled_run is not None and after:
        after = rows_after(after, context.sampled_run)
    return Advice(
        _with_waste(sorted(given, key=rank), context.waste),
        tuple(map(context.with_line, rows)),
        tuple(map(context.with_line, after)),
        context.loaders,
        priced,
    )


def _edit_advice(context: Context) -> tuple[dict[str, Advisory], dict[str, str]]:
    """Advice by kind and its kind by edit, for each edit that is worth it, best first. Of edits with the
    same advice the better one that surely wins words it, both are named by it."""
    given: dict[str, Advisory] = {}
    kinds: dict[str, str] = {}
    for row in sorted(context.rows, key=lambda row: row.saves_low <= 0):
        if row.saves <= 0 or not context.worth(row.most) or _comes_later(context, row):
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


def _without_price(context: Context, rule: Rule, edits: dict[str, Advisory]) -> Advisory | None:
    """Advice of a rule that no edit stands for, or whose edits do not apply here."""
    if rule.is_gate or rule.is_last or rule.of_job or rule.kind in edits:
        return None
    if not rule.edits:
        return _advisory(context, rule, rule.check(context))
    for name in rule.edits:
        row = context.price(name)
        if row is not None and context.estimate.cause in EDITS[name].empties:
            return _bounded(context, rule, row)
    if not rule.without_price or any(context.price(name) is not None for name in rule.edits):
        return None
    return _advisory(context, rule, rule.check(context, None))


def _bounded(context: Context, rule: Rule, row: WhatIf) -> Advisory | None:
    """Advice on what the verdict names though something else then sets the pace, by the most that it wins."""
    finding = rule.check(context, row)
    if finding is None or row.saves_high < HEALTHY_GAIN or row.saves_low < -HEALTHY_GAIN * 2:
        return None
    return _advisory(context, rule, replace(finding, saves=row.saves_high, confidence=LEAST_SURE))


def _advisory(
    context: Context, rule: Rule, finding: Finding | None, row: WhatIf | None = None
) -> Advisory | None:
    """The advisory, or None when its bound is not worth the edit."""
    if finding is None:
        return None
    confidence, saves, evidence = finding.confidence, finding.saves, finding.evidence
    if row is not None:
        # How much of the gain is left where everything unknown turns out badly.
        kept = row.saves_low / row.saves if row.saves > 0 else 0.0
        confidence = LEAST_SURE + (MOST_SURE - LEAST_SURE) * min(max(kept, 0.0), 1.0)
        saves = row.saves_high
        evidence = {"edit": row.edit, **evidence}
    if saves is not None:
        saves = min(max(float(saves), 0.0), 0.99)
        if not context.worth(saves):
            return None
    risk = f"; {phrases.RISKS[row.risk]}" if row is not None and row.risk else ""
    if row is not None and context.simulated and context.simulated.guess and row.edit in BY_RATES:
        risk += f"; the GPU's rates are {context.simulated.guess}"
    return Advisory(
        kind=rule.kind,
        says=f"{finding.message}{_rest(context, finding, row)}{risk}",
        confidence=round(min(max(float(confidence), 0.0), 0.99), 3),
        saves_at_most=None if saves is None else round(saves, 4),
        evidence=evidence,
        suggests=finding.suggests,
        saves=None if row is None else round(row.saves, 4),
        saves_low=None if row is None else round(row.saves_low, 4),
        waste=finding.waste or "",
    )


def _rest(context: Context, finding: Finding, row: WhatIf | None) -> str:
    """Where the gain comes from beyond the share that the sentence names."""
    share = None if row is None else finding.share
    if row is None or share is None or row.saves <= share:
        return ""
    told, changed = units.share(share), units.share(row.changed_share or 0.0)
    idle = context.host_idle_in_loop
    late = units.share(idle)
    if row.changed_share and changed != told and (idle < share + HEALTHY_GAIN or late == told):
        return f", and kernels that the edit changes take {changed}"
    return f", and the GPU waits {late} of the time for the host" if late != told else ""


def _with_waste(given: Sequence[Advisory], waste: str) -> tuple[Advisory, ...]:
    """What wins nothing is said once, with the first advice that has no waste of its own."""
    at = next((at for at, one in enumerate(given) if not one.waste), None)
    return tuple(replace(one, waste=waste) if i == at else one for i, one in enumerate(given))


def split_silenced(
    given: Iterable[Advisory], silenced: Collection[str]
) -> tuple[tuple[Advisory, ...], tuple[Advisory, ...]]:
    every = tuple(given)
    shown = tuple(one for one in every if one.kind not in silenced)
    return shown, tuple(one for one in every if one.kind in silenced)


def leading(given: Sequence[Advisory], cause: str | None) -> list[Advisory]:
    """Advice, best first, in the order to make it: of what wins about as much as the first, what answers the
    verdict leads; before what may fail, what cannot and wins nearly as much, at worst too."""
    buckets = {cause, f"idle_{cause}"}
    for at, one in enumerate(given):
        if NO_EDIT_FOR.get(one.kind, "") == cause:
            return [one, *given[:at], *given[at + 1 :]]
    ordered = _ahead(given, ALIKE, lambda edit: not buckets.isdisjoint(EDITS[edit].empties))
    if not ordered or ordered[0].evidence.get("edit") not in MAY_FAIL:
        return ordered
    low = COMPARABLE * (ordered[0].saves_low or 0.0)
    sure = [one for one in ordered if (one.saves_low or 0.0) >= low and one.kind not in OFFERS]
    safe = _ahead(sure, COMPARABLE, lambda edit: edit not in MAY_FAIL)
    return [*safe[:1], *(one for one in ordered if one is not safe[0])] if safe else ordered


def _ahead(given: Sequence[Advisory], share: float, suits: Callable[[str], bool]) -> list[Advisory]:
    """With the first that surely wins so much of what the first of all wins, and suits, ahead of all."""
    for at, one in enumerate(given):
        edit = str(one.evidence.get("edit"))
        if edit not in EDITS or one.may_lose or not suits(edit):
            continue
        if (one.saves or 0.0) >= share * (given[0].saves or given[0].saves_at_most or 0.0):
            return [one, *given[:at], *given[at + 1 :]]
    return list(given)


def rank(advisory: Advisory) -> tuple[float, float, str]:
    """Order of advice, by `worth`; what saves nothing last."""
    return (-worth(advisory), -advisory.confidence, advisory.kind)


def worth(advisory: Advisory) -> float:
    """What advice is ordered by: the low end of a simulated gain, else the bound times the confidence; then
    offers, then what may lose, however large its gain may be."""
    low = advisory.saves_low
    if low is None:
        return (advisory.saves_at_most or 0.0) * advisory.confidence
    if advisory.may_lose:
        return MAY_LOSE * max(advisory.saves or 0.0, 0.0)
    return OFFER * low if advisory.kind in OFFERS else OFFER + low
