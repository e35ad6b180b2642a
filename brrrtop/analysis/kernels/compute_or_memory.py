"""What a group of equal kernels does, which side of the roofline it is on, and what tells that.

Evidence, weakest first: L1 name and grid, L1.5 bytes from ATen name and grid, L2 FLOPs and bytes from
recorded shapes, L3 hardware counters (`counters`). The rules are those of `roofline`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from brrrtop.analysis.facts.ranges import decode_tokens
from brrrtop.analysis.facts.table import BUCKETS, BYTES, NAME, NOTHING, SHAPES, Facts, Group, Labels
from brrrtop.analysis.kernels import counters, roofline
from brrrtop.analysis.kernels.op_patterns import written_attention
from brrrtop.analysis.kernels.ops import STREAMING, Work, work_of
from brrrtop.analysis.kernels.roofline import Bound
from brrrtop.kernel_names import families
from brrrtop.kernel_names.facts import NameFacts, name_facts
from brrrtop.kernel_names.families import Family, family_of
from brrrtop.model.estimate import Side
from brrrtop.model.tables import F8, I8, Activities, ActivityType, Window

IMPOSSIBLE = 3.0
"""Times the roof that no kernel of the op's work can reach: Winograd's and FFT's save up to 2.25 and some
of the multiplications, helpers with next to no work seem to reach dozens."""
_NEW_TORCH = (2, 7)
"""From this release on vectorised kernels give each thread 8 elements whatever their vectors' width."""


class Classifier:
    """Decides group by group; holds what the decisions share.

    Args:
        facts: Without ceilings nothing is known of the device, and grids say nothing either.
    """

    def __init__(self, facts: Facts) -> None:
        window, ceilings = facts.window, facts.ceilings
        self._window = window
        self._ceilings = ceilings
        self._device = window.device
        if ceilings and window.device.capability is None:
            self._device = replace(window.device, capability=ceilings.capability)
        self._sms = window.device.sm_count or (ceilings.sm_count if ceilings else None)
        self._torch_new = _is_new(window.hello.get("torch"))
        self._clock = facts.clock_ratio
        """Sides are told at the clock the GPU ran at; what is shown is over the datasheet."""

    def group(
        self, row: int, count: int, total_ns: int, op_id: int, is_score: bool, size_bytes: float,
        tokens: int = 0,
    ) -> Group:  # fmt: skip
        """The verdict on a group.

        Args:
            row: Of the window's activities, any of the group.
            total_ns: Summed time at work, for rates.
            op_id: -1: no op known.
            is_score: A product of attention written out, by its place in the sequence.
            size_bytes: Mean of what a copy of the group moves; 0: unknown.
            tokens: Of the decode pass that it is launched in; 0: in none.
        """
        acts = self._window.activities
        name = self._window.names[int(acts.name_ids[row])]
        family, facts = family_of(name), name_facts(name, self._torch_new)
        if acts.types[row] != ActivityType.KERNEL:
            return self._copy(name, family, facts, count, total_ns, size_bytes)
        blocks, threads = int(acts.blocks[row]), int(acts.threads[row])
        mean_ns = max(total_ns / count, 1.0)
        waves, fills = self._geometry(row)
        op = self._window.ops.get(op_id)
        work = work_of(op) if op else None
        flop, size, precision, level = amounts(family, facts, work, blocks, threads)
        if family.kind == families.COMM:  # its name tells what is sent, not what computes
            precision = None
        c_roof = self._compute_share(flop, precision, facts.tensor_cores, mean_ns)
        m_roof = self._memory_share(size, mean_ns)
        if max(c_roof or 0.0, m_roof or 0.0) > IMPOSSIBLE:  # a helper, not what did the op's work
            flop = size = c_roof = m_roof = None
        if facts.elements_per_block and (m_roof or 0.0) > 1.0:
            size = m_roof = None  # tensors smaller than a block's share
        if flop is None and size is None:
            level = NAME
        group = Group(
            name=name, family=family, facts=facts, count=count, total_ns=total_ns, blocks=blocks,
            waves=waves, fills=1.0 if fills is None else fills, side=Side.UNKNOWN, certainty=0.0,
            level=level, flop=flop, size_bytes=size, precision=precision, compute_share_of_roof=c_roof,
            memory_share_of_roof=m_roof, inner=work.inner if work and level == SHAPES else (),
            channels=work.channels if work and level == SHAPES else None, op=op.name if op else None,
        )  # fmt: skip
        bound = self._bound_of(group, is_score, tokens)
        level = NOTHING if bound.side is Side.UNKNOWN else level
        return replace(group, side=bound.side, certainty=bound.certainty, level=level)

    def _bound_of(self, group: Group, is_score: bool, tokens: int) -> Bound:
        family, mean_ns = group.family, group.mean_ns
        if family.kind == families.COMM:
            return Bound(Side.COMM, 1.0)
        if family.kind == families.SPIN:
            return Bound(Side.UNDERFILLED, 1.0)
        by_dram = None if self._is_cached(group.size_bytes) else group.memory_share_of_roof
        thin = family.name == "gemm-skinny" and group.fills >= roofline.HALF_THE_SMS
        if not (thin and mean_ns >= roofline.READS_NS) and roofline.is_launch_scale(
            mean_ns, group.waves, group.compute_share_of_roof, by_dram
        ):
            return Bound(Side.UNDERFILLED, roofline.BY_GRID)
        few = roofline.FEW_BLOCKS if family is not families.OTHER else roofline.HALF_THE_SMS
        if group.fills < few and group.level < BYTES:
            return Bound(Side.UNDERFILLED, roofline.BY_GRID)
        if family is families.OTHER and group.level < BYTES:
            return Bound(Side.UNKNOWN, 0.0)
        bound = Bound(Side.MEMORY, roofline.BY_FAMILY)
        if roofline.is_contraction(family):
            bound = self._contraction(group, is_score, tokens)
        if group.waves is None and mean_ns < roofline.LAUNCH_SCALE_NS:
            bound = Bound(bound.side, min(bound.certainty, roofline.SHORT_UNPLACED))
        return bound

    def _contraction(self, group: Group, is_score: bool, tokens: int) -> Bound:
        """A product, convolution or attention: by its shapes, else by its name, grid and duration."""
        ridge, cores = None, group.facts.tensor_cores
        if self._ceilings and group.precision:
            ridge = roofline.ridge_of(self._ceilings, group.precision, cores, self._clock)
        if roofline.reads_weights_for_few(group.name, group.family, group.facts, tokens, ridge):
            return Bound(Side.MEMORY, roofline.BY_BOUND)
        if self._ceilings is None and self._device.is_amd and group.family.name != "attention":
            # What names tell was learnt on NVIDIA's libraries.
            ridge = roofline.AMD_RIDGES.get(group.precision or "")
            if not (ridge and group.flop and group.size_bytes):
                return Bound(Side.UNKNOWN, 0.0)
        if ridge and group.flop and group.size_bytes:
            padded = group.flop * roofline.padding(group.facts, group.inner, group.channels)
            reached = max(group.compute_share_of_roof or 0.0, group.memory_share_of_roof or 0.0)
            return roofline.by_intensity(padded, group.size_bytes, ridge, reached)
        flop_at_most = None
        if self._ceilings and group.facts.precision:
            rate = self._ceilings.rate(group.facts.precision, cores) or 0.0
            flop_at_most = (
                rate * self._clock * self._ceilings.attainable_compute * group.mean_ns * 1e-9
            )
        highest = roofline.highest_intensity(
            group.name, group.facts, group.blocks, self._sms, flop_at_most, is_score
        )
        return roofline.by_name(group.name, group.family, ridge, highest)

    def _geometry(self, row: int) -> tuple[float | None, float | None]:
        """Waves and the share of the SMs reached; None where the device is unknown.

        No kernel runs without registers: where a source does not tell them, how many blocks fit on
        an SM is open, and so are the waves of a grid that reaches all SMs but may fit at once.
        """
        acts = self._window.activities
        blocks, registers = int(acts.blocks[row]), int(acts.registers[row])
        if not self._sms or not blocks:
            return None, None
        threads, shared = int(acts.threads[row]), int(acts.shared_bytes[row])
        per_sm = roofline.blocks_per_sm(self._device, threads, registers, shared)
        waves, fills = blocks / (self._sms * per_sm), min(1.0, blocks / self._sms)
        is_known = registers > 0 or waves >= 1.0 or fills < 1.0
        return waves if is_known else None, fills

    def _copy(
        self, name: str, family: Family, facts: NameFacts, count: int, total_ns: int, size: float
    ) -> Group:
        """A copy or a fill that no kernel did; those within the device are under the memory roof."""
        mean = size if size > 0 else None
        within = family.kind == families.MEMORY
        moved = mean * (2.0 if family.name == "copy" else 1.0) if mean else None
        side = Side.MEMORY if within else Side.COMM if family.kind == families.COMM else Side.COPY
        return Group(
            name, family, facts, count, total_ns, 0, None, 1.0, side, 1.0, BYTES if mean else NAME,
            size_bytes=moved if within else mean,
            memory_share_of_roof=self._memory_share(moved, max(total_ns / count, 1.0)) if within else None,
        )  # fmt: skip

    def _compute_share(
        self, flop: float | None, precision: str | None, tensor_cores: bool | None, mean_ns: float
    ) -> float | None:
        if not flop or not self._ceilings or not precision:
            return None
        rate = self._ceilings.rate(precision, tensor_cores)
        return flop / (mean_ns * 1e-9) / rate if rate else None

    def _is_cached(self, size: float | None) -> bool:
        cache = self._ceilings.cache_bytes if self._ceilings else None
        return size is not None and cache is not None and size < cache

    def _memory_share(self, size: float | None, mean_ns: float) -> float | None:
        if not size or not self._ceilings or not self._ceilings.bytes_per_s:
            return None
        return size / (mean_ns * 1e-9) / self._ceilings.bytes_per_s


def _is_new(torch: object) -> bool:
    """Whether this torch has the newer layout of pointwise kernels; one nobody names counts as new."""
    parts = str(torch or "").split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return True
    return (int(parts[0]), int(parts[1])) >= _NEW_TORCH


def amounts(
    family: Family, facts: NameFacts, work: Work | None, blocks: int, threads: int
) -> tuple[float | None, float | None, str | None, int]:
    """What one execution of a kernel computes and moves.

    Args:
        work: Of the op that launched it; None where its shapes are not known.
        threads: Of a block.

    Returns:
        FLOPs, bytes of DRAM traffic and precision, None where not known, and the evidence level
        (`SHAPES`, `BYTES`, `NAME`).
    """
    if work is not None and family.name in work.families and family.name not in STREAMING:
        named = facts.precision if facts.tensor_cores is not None else None
        precision = named or work.precision or facts.precision
        if facts.tensor_cores is False and precision in ("bf16", "fp16"):
            precision = "fp32"  # 16 bits to store, 32 to multiply
        return work.flop or None, work.size_bytes, precision, SHAPES
    each = facts.elements_per_block or (facts.elements_per_thread or 0) * threads
    if each and facts.element_bytes and facts.tensor_count:
        size = float(blocks * each * facts.tensor_count * facts.element_bytes)
        if work is not None and work.families is STREAMING:
            # One op may have several launches: none does more than its grid has room for.
            part = min(1.0, blocks * each / work.flop) if work.exact and work.flop else 1.0
            least = work.size_bytes * part
            size_bytes = least if work.exact else min(size, least or size)
            return None, size_bytes, facts.precision, SHAPES
        return None, size, facts.precision, BYTES
    if work is not None and family.name in work.families:
        size = work.size_bytes - (work.written if facts.only_reads else 0.0)
        return None, size, facts.precision, SHAPES
    return None, None, facts.precision, NAME


U8 = npt.NDArray[np.uint64]
_MIX = np.uint64(0x9E3779B97F4A7C15)


def label(facts: Facts) -> Labels:
    acts, op_ids = facts.window.activities, _ops_of(facts.window)
    attention, scores = written_attention(facts), np.zeros(len(acts), np.bool_)
    if attention is not None:
        scores[attention.products] = True
    decoded = decode_tokens(facts)
    tokens = np.zeros(len(acts), np.int64) if decoded is None else decoded
    key = one_number(
        acts.name_ids, scores, tokens, acts.blocks, acts.threads, acts.registers, acts.shared_bytes,
        acts.copy_kinds, op_ids,
    )  # fmt: skip
    _, first, group_of, counts = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    durations = np.maximum(acts.ends_ns - acts.starts_ns, 0).astype(np.float64)
    totals = np.bincount(group_of, durations, len(first)).astype(np.int64)
    judge = Classifier(facts)
    sizes = _mean_sizes(acts, group_of, counts)
    columns = (first, counts, totals, op_ids[first], scores[first], sizes, tokens[first])
    plain = tuple(judge.group(*row) for row in zip(*(c.tolist() for c in columns), strict=True))
    groups = counters.refined(facts, plain, group_of)
    return Labels(
        group_of,
        groups,
        np.array([BUCKETS.index(g.side) for g in groups], np.int8)[group_of],
        np.array([max(g.fills, 1e-3) for g in groups], np.float64)[group_of],
    )


def _mean_sizes(acts: Activities, group_of: I8, counts: I8) -> F8:
    """Bytes that a copy of each group moves in the mean; 0 where that of any is not known."""
    known = np.bincount(group_of[acts.size_bytes > 0], minlength=len(counts))
    total = np.bincount(group_of, np.maximum(acts.size_bytes, 0), len(counts))
    return np.where(known == counts, total / np.maximum(counts, 1), 0.0)


def _ops_of(window: Window) -> I8:
    """Op that launched each activity and tells what it does; -1 without one."""
    acts = window.activities
    op_ids = window.links.ops_of(acts.correlations)
    if len(window.links):
        # An op without shapes says nothing of its kernels, and would only part them.
        telling = [op_id for op_id, op in window.ops.items() if op.dims]
        op_ids[~np.isin(op_ids, np.array(telling, np.int64))] = -1
        # All nodes of a CUDA graph carry its launch's id: the op around that is not what a node does.
        op_ids[acts.graph_ids > 0] = -1
    return op_ids


def one_number(*columns: npt.NDArray[Any]) -> U8:
    """A number for each row of columns that is the same for equal rows alone, shape (n,)."""
    key = columns[0].astype(np.uint64)
    for column in columns[1:]:
        key = key * _MIX + column.astype(np.int64).view(np.uint64)
    return key
