"""The order of advice: what is worth most comes first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from brrrtop.model.advice import Advisory


def parted(
    given: Iterable[Advisory], silenced: Collection[str]
) -> tuple[tuple[Advisory, ...], tuple[Advisory, ...]]:
    """Advice to give and advice that was silenced, each best first."""
    ranked = sorted(given, key=rank)
    shown = tuple(one for one in ranked if one.kind not in silenced)
    return shown, tuple(one for one in ranked if one.kind in silenced)


def rank(advisory: Advisory) -> tuple[float, float, str]:
    """Order of advice: largest predicted gain first, else bound times confidence; what saves nothing last."""
    return (-worth(advisory), -advisory.confidence, advisory.kind)


def worth(advisory: Advisory) -> float:
    """The predicted gain, else the bound times the confidence."""
    bound = (advisory.saves_at_most or 0.0) * advisory.confidence
    return bound if advisory.saves is None else advisory.saves
