"""The order of advice: what is worth most comes first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from brrrtop.model.advice import Advisory

BIGGER_BATCH, CHANGES_TRAINING = "bigger-batch", 0.1
"""It changes what is learned, and only spreads over more samples what is wrong with a step: what wins a
tenth by itself comes first, however much more a sample would gain."""


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
