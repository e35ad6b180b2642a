"""Every kernel's side of the roof, how well it fills the GPU, and how sure that is.

Kernels are judged in groups of one name, geometry and op; only what depends on a single
execution's duration is worked out per execution. Evidence, weakest first: L1 name and grid, L1.5
bytes from ATen name and grid, L2 FLOPs and bytes from recorded shapes (regime theory study, 1.6
and 1.7). Levels add up as log-odds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.ceilings import ATTAINABLE_MEMORY, Ceilings
from brrrtop.estimator import families, occupancy
from brrrtop.estimator.families import Family, family_of
from brrrtop.estimator.names import NameFacts, name_facts
from brrrtop.estimator.ops import STREAMING, Work, work_of
from brrrtop.model import ActivityType, Device, Window

I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]

LAUNCH_FLOOR_NS = 1000
"""Duration of an empty kernel on an H100 or H200 (1.1-1.6 us shortest seen; calibrated values
may replace it): this much of a kernel does not shrink or grow with its work."""
EVIDENCE = ("L0", "L1", "L1.5", "L2", "L3")
LOOPING = frozenset({"optimizer", "random", "reduction", "fused", "quantize", "other"})
"""Families whose kernels launch a fixed grid and loop over their elements."""
WORK, COMM, TRANSFER = 0, 1, 2
"""Classes of the sweep line: kernels and on-device copies, collectives, host or peer copies."""


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels of one name, geometry and op, and the verdict on them."""

    name: str
    family: Family
    facts: NameFacts
    count: int
    total_ns: int
    blocks: int
    waves: float | None
    fills: float
    """Share of the SMs its grid reaches; 1 for a full grid."""
    filled: bool
    compute_probability: float
    unknown: bool
    level: int
    """Into `EVIDENCE`."""
    flop: float | None = None
    size_bytes: float | None = None
    precision: str | None = None
    compute_share_of_roof: float | None = None
    memory_share_of_roof: float | None = None
    inner: tuple[int, ...] = ()
    op: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Per activity of a window, shape (n,) each, plus the groups they index."""

    group_of: I8
    groups: tuple[Group, ...]
    classes: npt.NDArray[np.int8]
    """`WORK`, `COMM` or `TRANSFER`."""
    compute: F8
    """Part of the filled time on the compute side."""
    unknown: F8
    """Part of the time nobody can class."""
    underfilled: F8
    """Part of the time in which the kernel does not fill the GPU."""
    weights: F8
    """For charging time that kernels share: share of the SMs."""


def charge_compute(probability: float) -> float:
    """Part of a kernel's time charged to compute.

    All of it above 0.8, none below 0.2, in proportion between: a coin toss is not a verdict.
    """
    return min(1.0, max(0.0, (probability - 0.2) / 0.6))


def torch_is_new(window: Window) -> bool:
    """Whether pointwise kernels give each thread 8 elements (torch 2.7 on).

    A `<8,` instance among the names proves it; else the version decides; unknown counts as new.
    """
    if any("vectorized_elementwise_kernel<8" in name for name in window.names):
        return True
    version = str(window.hello.get("torch") or "")
    parts = version.split(".")
    try:
        return (int(parts[0]), int(parts[1])) >= (2, 7)
    except (ValueError, IndexError):
        return not any("at::detail::Array<char*" in name for name in window.names)


def label(window: Window, ceilings: Ceilings | None) -> Labels:
    """Labels of all activities of the window."""
    group_of, first, counts, totals, op_ids = _grouping(window)
    judge = _Judge(window, ceilings)
    acts = window.activities
    groups = tuple(
        judge.group(int(row), int(counts[g]), int(totals[g]), int(op_ids[row]))
        for g, row in enumerate(first)
    )
    if not groups:
        empty = np.empty(0)
        return Labels(group_of, (), np.empty(0, np.int8), empty, empty, empty, empty)
    durations = np.maximum(acts.ends_ns - acts.starts_ns, 1)
    classes = np.array([_class(g) for g in groups], np.int8)[group_of]
    compute = np.array([charge_compute(g.compute_probability) for g in groups])[group_of]
    unknown = np.array([1.0 if g.unknown else 0.0 for g in groups])[group_of]
    fills = np.array([g.fills for g in groups])[group_of]
    filled = np.array([g.filled for g in groups], np.bool_)[group_of]
    kernel = (acts.types == ActivityType.KERNEL) & (classes == WORK)
    ramp = np.minimum(LAUNCH_FLOOR_NS / durations, 1.0)
    known = np.array([g.waves is not None for g in groups], np.bool_)[group_of]
    under = np.where(filled, np.where(ramp > 0.05, ramp, 0.0), 1.0)
    under = np.where(kernel & known & (unknown == 0), under, 0.0)
    return Labels(group_of, groups, classes, compute, unknown, under, np.maximum(fills, 1e-3))


def _class(group: Group) -> int:
    if group.family.kind == families.COMM:
        return COMM
    return TRANSFER if group.family.kind == families.COPY else WORK


def _grouping(window: Window) -> tuple[I8, I8, I8, I8, I8]:
    """Group index per activity, then first row, count and total time per group, and op id per row."""
    acts = window.activities
    op_ids = np.full(len(acts), -1, np.int64)
    if len(window.links):
        at = np.searchsorted(window.links.correlations, acts.correlations)
        at = np.minimum(at, len(window.links) - 1)
        hit = (window.links.correlations[at] == acts.correlations) & (acts.correlations != 0)
        op_ids[hit] = window.links.op_ids[at[hit]]
    key = acts.name_ids.astype(np.uint64)
    shape = (acts.blocks, acts.threads, acts.registers, acts.shared_bytes, op_ids, acts.copy_kinds)
    for column in shape:
        key = key * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.int64).view(np.uint64)
    _, first, inverse, counts = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    durations = acts.ends_ns - acts.starts_ns
    totals = np.bincount(inverse, durations.astype(np.float64), len(first)).astype(np.int64)
    return inverse.astype(np.int64), first, counts, totals, op_ids


class _Judge:
    """Decides group by group; holds what the decisions share."""

    def __init__(self, window: Window, ceilings: Ceilings | None) -> None:
        self._window = window
        self._device: Device = window.device
        self._ceilings = ceilings
        self._sms = occupancy.sm_count(window.device, ceilings)
        self._torch_new = torch_is_new(window)

    def group(self, row: int, count: int, total_ns: int, op_id: int) -> Group:
        acts = self._window.activities
        name = self._window.names[int(acts.name_ids[row])]
        family = family_of(name)
        facts = name_facts(name, self._torch_new)
        blocks = int(acts.blocks[row])
        mean_ns = max(total_ns / count, 1.0)
        if acts.types[row] != ActivityType.KERNEL:
            return self._copy(name, family, facts, count, total_ns, int(acts.size_bytes[row]))
        waves = fills = None
        if self._sms and blocks:
            per_sm = occupancy.blocks_per_sm(
                self._device,
                int(acts.threads[row]),
                int(acts.registers[row]),
                int(acts.shared_bytes[row]),
            )
            waves = blocks / (self._sms * per_sm)
            fills = min(1.0, blocks / self._sms)
        op = self._window.ops.get(op_id)
        work = work_of(op) if op is not None else None
        flop, size, precision, level = self._work(
            family, facts, work, blocks, int(acts.threads[row])
        )
        c_roof = (
            self._compute_share(flop, precision, mean_ns) if family.name not in STREAMING else None
        )
        m_roof = self._memory_share(size, mean_ns)
        probability = _probability(family, facts, level, c_roof, m_roof, waves, mean_ns)
        spin = family.kind == families.SPIN
        return Group(
            name=name, family=family, facts=facts, count=count, total_ns=total_ns, blocks=blocks,
            waves=waves, fills=0.001 if spin else (1.0 if fills is None else fills),
            filled=False if spin else _fills_device(family, facts, waves, fills, c_roof, m_roof, mean_ns),
            compute_probability=probability, unknown=family is families.OTHER and level < 2,
            level=level, flop=flop, size_bytes=size, precision=precision,
            compute_share_of_roof=c_roof, memory_share_of_roof=m_roof,
            inner=work.inner if work and level == 3 else (), op=op.name if op else None,
        )  # fmt: skip

    def _copy(
        self, name: str, family: Family, facts: NameFacts, count: int, total_ns: int, size: int
    ) -> Group:
        mean = float(size) if size > 0 else None
        device_copy = family.kind == families.MEMORY
        moved = mean * (2.0 if family.name == "copy" else 1.0) if mean else None
        roof = self._memory_share(moved, max(total_ns / count, 1)) if device_copy else None
        return Group(
            name, family, facts, count, total_ns, 0, None, 1.0, True, 0.0,
            False, 2 if mean else 1, None, mean, None, None, roof,
        )  # fmt: skip

    def _work(
        self, family: Family, facts: NameFacts, work: Work | None, blocks: int, threads: int
    ) -> tuple[float | None, float | None, str | None, int]:
        """FLOPs, bytes, precision and evidence level of one execution."""
        if work is not None and family.name in work.families and family.name not in STREAMING:
            named = facts.precision if facts.tensor_cores is not None else None
            return work.flop, work.size_bytes, named or work.precision or facts.precision, 3
        if facts.elements_per_thread and facts.element_bytes and facts.tensor_count:
            elements = blocks * threads * facts.elements_per_thread
            size = float(elements * facts.tensor_count * facts.element_bytes)
            if work is not None and work.families is STREAMING:
                return None, min(size, work.size_bytes or size), facts.precision, 3
            return None, size, facts.precision, 2
        if work is not None and family.name in work.families:
            return None, work.size_bytes, facts.precision, 3
        return None, None, facts.precision, 1

    def _compute_share(
        self, flop: float | None, precision: str | None, mean_ns: float
    ) -> float | None:
        if not flop or not self._ceilings or not precision:
            return None
        rates = self._ceilings.flop_per_s
        rate = rates.get(precision) or rates.get("fp32" if precision == "tf32" else "fp16")
        return flop / (mean_ns * 1e-9) / rate if rate else None

    def _memory_share(self, size: float | None, mean_ns: float) -> float | None:
        if not size or not self._ceilings or not self._ceilings.bytes_per_s:
            return None
        return size / (mean_ns * 1e-9) / self._ceilings.bytes_per_s


def _fills_device(
    family: Family,
    facts: NameFacts,
    waves: float | None,
    fills: float | None,
    compute_roof: float | None,
    memory_roof: float | None,
    mean_ns: float,
) -> bool:
    """Whether a kernel keeps the GPU busy while it runs.

    Nsight Compute calls a kernel too small when it has less than one wave and neither throughput
    reaches 60 %. With shapes the achieved share of the roof tells; without, a kernel with a block
    on nearly every SM that runs for long has loops over its work and is taken as full.
    """
    if waves is None or fills is None or waves >= 0.995:
        return True
    if compute_roof is not None:
        # CUDA-core kernels keep their SMs busy with less of the peak than tensor cores do.
        enough = 0.25 if facts.tensor_cores is False else 0.5
        return max(compute_roof, memory_roof or 0.0) >= enough
    if family.kind == families.COMPUTE or facts.tensor_cores:
        return fills >= 0.6 and mean_ns > 20 * LAUNCH_FLOOR_NS
    if memory_roof is not None and family.name in STREAMING:
        return memory_roof >= 0.65 and fills >= 0.8
    return family.name in LOOPING and fills >= 1.0 and mean_ns > 20 * LAUNCH_FLOOR_NS


def _probability(
    family: Family,
    facts: NameFacts,
    level: int,
    compute_roof: float | None,
    memory_roof: float | None,
    waves: float | None,
    mean_ns: float,
) -> float:
    """Chance of the compute side, levels fused as log-odds.

    The constants of the pointwise kernels are fitted to Nsight Compute's throughputs on an H200
    (15 scripts, torch 2.11): which side is higher against the share of the bandwidth reached.
    """
    if compute_roof is not None and memory_roof is not None and level == 3:
        odds = _odds(family.prior)
        ratio = compute_roof / (memory_roof / ATTAINABLE_MEMORY * 0.8)
        odds += min(6.0, max(-6.0, 4.0 * math.log(max(ratio, 1e-6))))
        backward = family.name == "attention" and facts.backward
        return min(_chance(odds), 0.65) if backward else _chance(odds)
    long = (waves or 0) >= 4 and mean_ns > 15 * LAUNCH_FLOOR_NS
    short_strided = facts.strided and (waves or 0) >= 2 and mean_ns > 4 * LAUNCH_FLOOR_NS
    if facts.elements_per_thread and memory_roof is not None and (long or short_strided):
        return _chance(_pointwise_odds(facts, memory_roof))
    prior = family.prior
    if family.name in ("concat", "layout") and facts.element_bytes is not None:
        prior = 0.7 if facts.element_bytes <= 2 else 0.35
    odds = _odds(prior)
    if memory_roof is not None and long and family.name in STREAMING:
        # A full grid well under the bandwidth roof waits for instructions, not bytes.
        odds += min(1.5, max(-3.0, 6.0 * (0.45 - memory_roof)))
    return _chance(odds)


def _pointwise_odds(facts: NameFacts, memory_roof: float) -> float:
    """Odds of the compute side of an ATen pointwise kernel that fills the GPU.

    Vectorised ones reach 75-90 % of the bandwidth unless they compute something dear; strided ones
    work out an offset per element and are bound by instructions long before; below a fifth of the
    bandwidth their accesses no longer coalesce and the memory system is the limit again.
    """
    if not facts.strided:
        return min(2.0, max(-4.0, 16.0 * (0.68 - memory_roof) - 0.4))
    if memory_roof < 0.18:
        return -1.8
    return min(3.0, max(-3.0, 10.0 * (0.52 - memory_roof)))


def _odds(probability: float) -> float:
    held = min(max(probability, 0.02), 0.98)
    return math.log(held / (1 - held))


def _chance(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))
