"""What the kernels of a window come to under one state of knowledge, and how far that may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.estimator import families
from brrrtop.estimator.amounts import COUNTERS
from brrrtop.estimator.judging import Group, charge_compute
from brrrtop.model import Account, Split

F8 = npt.NDArray[np.float64]


WIDE = 2.5
"""Standard errors to either side of a share: holds nine of ten of the scripts it was set with,
whose errors have longer tails than a bell curve (one kernel may be an eighth of a run), and nine of
the 15 held out (benchmarks/truth)."""

COMMON = 0.04
"""Standard error of the side of kernel time even where each label is sure: at equal throughputs
the counters toss a coin (mean split error 3.8 points on the 15 scripts it was set with,
benchmarks/truth)."""
COMMON_FILL = 0.01
"""The same for what is underfilled: the launch floor of a short kernel is a rule, not a reading."""
UNROOFED = 0.17
"""Standard error of the side of kernel time where the device's ceilings are not known: root mean
square of what knowing them moves on 81 recordings of an H200 (at most 0.66)."""
DEAREST = 8
"""Names that may turn a verdict by themselves: the ninth has at most a ninth of the time."""
UNPLACED = 0.25
"""Part of the time of kernels on an unknown device that may well be underfilled."""


@dataclass(frozen=True, slots=True)
class View:
    """Shares of the time of kernels and on-device copies; the first four add up to 1."""

    compute: float = 0.0
    memory: float = 0.0
    underfilled: float = 0.0
    unknown: float = 0.0
    side_swing: float = 0.0
    """Share that may well be on the other side of the roof than charged: one standard error."""
    fill_swing: float = 0.0
    """Share charged as underfilled that may well not be, or the other way round."""
    unplaced: float = 0.0
    """Share of kernels on a known device of which nobody told whether they fill it: all of it may be
    underfilled."""
    dearest: tuple[tuple[float, float, float], ...] = ()
    """Of the `DEAREST` names with most of the time: compute and memory share, and how sure they are."""


def view_of(groups: Sequence[Group], totals_ns: F8, ramps_ns: F8, roofs: bool = True) -> View:
    """The view over groups.

    Args:
        totals_ns: Time in the window of each group, shape (g,).
        ramps_ns: The launch floors in it.
        roofs: The device's ceilings were known to who judged them.
    """
    work = np.array([g.family.kind not in (families.COMM, families.COPY) for g in groups])
    totals = np.where(work, totals_ns, 0.0)
    whole = float(totals.sum())
    if not whole:
        return View()
    totals, ramps = totals / whole, np.where(work, ramps_ns, 0.0) / whole
    unknown = np.array([g.unknown for g in groups])
    placed = np.array([g.waves is not None for g in groups]) & ~unknown
    filled = np.array([g.filled for g in groups])
    under = np.where(placed, np.where(filled, ramps, totals), 0.0)
    rest = np.where(unknown, 0.0, totals - under)
    is_kernel = np.array([g.blocks > 0 for g in groups])
    charge = np.array([charge_compute(g.compute_probability) for g in groups])
    doubt = (1.0 - np.array([g.certainty for g in groups])) / 2
    _, name_of = np.unique([g.name for g in groups], return_inverse=True)
    sides = np.where(filled, rest * doubt, 0.0)
    # Of these the rates were measured: their doubt is how much that surprises, given their names.
    counted = np.array([g.level == COUNTERS for g in groups])
    side = _together(sides, name_of)
    open_ = float(rest[~placed & is_kernel].sum())
    return View(
        compute=float((rest * charge).sum()),
        memory=float((rest * (1 - charge)).sum()),
        underfilled=float(under.sum()),
        unknown=float(totals[unknown].sum()),
        side_swing=side if roofs else float(np.hypot(side, UNROOFED * rest.sum())),
        fill_swing=_together(np.where(placed & ~filled, totals * doubt, 0.0), name_of)
        + UNPLACED * open_,
        unplaced=open_ if roofs else 0.0,
        dearest=_dearest(
            np.stack((rest * charge, rest * (1 - charge), np.where(counted, 0.0, sides))), name_of
        ),
    )


def _dearest(shares: F8, name_of: npt.NDArray[np.intp]) -> tuple[tuple[float, float, float], ...]:
    """Compute and memory share and certainty of the names with most of both, largest first.

    Args:
        shares: Compute, memory and doubtful share of each group, shape (3, g).
    """
    compute, memory, doubt = (np.bincount(name_of, row) for row in shares)
    sided = compute + memory
    largest = np.argsort(-sided, kind="stable")[:DEAREST]
    sure = 1.0 - 2.0 * doubt / np.maximum(sided, 1e-12)
    return tuple((float(compute[i]), float(memory[i]), float(sure[i])) for i in largest)


def _together(errors: F8, name_of: npt.NDArray[np.intp]) -> float:
    """Errors that add up within a name, where one mistake is made many times, and not across."""
    return float(np.sqrt((np.bincount(name_of, errors) ** 2).sum()))


def side_error(view: View) -> float:
    """Standard error of the compute and of the memory share of the kernel time."""
    sided = view.compute + view.memory
    return float(np.hypot(view.side_swing, COMMON * sided))


def fill_error(view: View) -> float:
    """Standard error of the underfilled share of the kernel time."""
    return float(np.hypot(view.fill_swing, COMMON_FILL)) if view != View() else 0.0


def bounds(account: Account, split: Split, view: View) -> tuple[Split, Split]:
    """Lowest and highest share of each part that the evidence leaves open."""
    if account.duration_ns <= 0:
        return Split(0.0, 0.0, 0.0, 0.0), Split(1.0, 1.0, 1.0, 1.0)
    busy = account.worked_ns - account.exposed_comm_ns - account.exposed_copy_ns
    work = busy / account.duration_ns
    side, fill = WIDE * work * side_error(view), WIDE * work * fill_error(view)
    low = Split(
        max(0.0, split.compute - side),
        max(0.0, split.memory - side),
        max(0.0, split.overhead - fill),
        0.0,
    )
    open_to_all = split.unknown + fill
    high = Split(
        min(1.0, split.compute + min(side, split.memory) + open_to_all),
        min(1.0, split.memory + min(side, split.compute) + open_to_all),
        min(1.0, split.overhead + split.unknown),
        split.unknown,
    )
    return low, high
