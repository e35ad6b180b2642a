"""Which side of the roof a group of equal kernels is on, whether it fills the GPU, and how sure that is.

Evidence, weakest first: L1 name and grid, L1.5 bytes from ATen name and grid, L2 FLOPs and bytes
from recorded shapes (regime theory study, 1.6 and 1.7). On GPUs whose kernels were counted trees weigh it
(`learned`), on others rules, whose levels add up as log-odds (`sides`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from brrrtop.ceilings import Ceilings
from brrrtop.estimator import families, learned, mixes, occupancy
from brrrtop.estimator.amounts import (
    BYTES,
    COUNTERS,
    NAME,
    NOTHING,
    SHAPES,
    amounts,
    walked,
)
from brrrtop.estimator.families import Family, family_of
from brrrtop.estimator.features import Seen, row_of
from brrrtop.estimator.filling import enough_of_roof, fills_device
from brrrtop.estimator.names import NameFacts, name_facts
from brrrtop.estimator.offsets import cost_of
from brrrtop.estimator.ops import STREAMING, work_of
from brrrtop.estimator.row_gathers import picked_rows
from brrrtop.estimator.sides import (
    STRIDED_FLOOR_NS,
    at_most_even,
    by_name,
    by_roofs,
    chance,
    padding,
    with_exponentials,
)
from brrrtop.estimator.walks import Walk
from brrrtop.tables import Activities, ActivityType, Device, OpSignature, Window
from collectors.wire import Metric

MOST_CERTAIN = {NAME: 0.75, BYTES: 0.9, SHAPES: 0.98, COUNTERS: 0.98}
"""However clear the odds: of 116 scripts on an H200, each judged by trees that never saw it, names alone are
right for 95 % of the time, shapes for 98 % (benchmarks/truth)."""
INEFFICIENT = 0.35
"""Share of either roof below which neither explains a kernel's time (regime theory study, 1.8)."""
IMPOSSIBLE = 3.0
"""Times the roof that no kernel of the op's work can reach: Winograd's and FFT's save up to 2.25 and some
of the multiplications, helpers with next to no work seem to reach dozens."""
MOST_CERTAIN_BARE = 0.7
"""Where nobody tells how many blocks fit on an SM: at 0.75 a recorded run was surer without its registers."""
MOST_CERTAIN_BLIND = 0.45
"""With nothing known of the device: whether a kernel fills it is open as well, and the rules that decide then
are right less often than the trees."""

SCORE_PRIOR = 0.15
"""Chance of the compute side for a product beside attention's softmax (`scores`)."""
HELD_BY_CACHE = 0.75
"""Part of the level-2 cache that operands with told strides fit into together: with 10 to 40 MB in an H200's
60 memory was at 0.47 to 0.87 of what their bytes say in 33 of 38 counted kinds, with 50 MB at 0.97 and
more in 3 of 3."""
HALVED = "d884gemm"
NEAR_ROOF = 0.65


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
    certainty: float = 0.0
    """How sure its charge is, 0..1; never less than weaker evidence on the same kernels gives."""
    flop: float | None = None
    size_bytes: float | None = None
    precision: str | None = None
    compute_share_of_roof: float | None = None
    memory_share_of_roof: float | None = None
    inner: tuple[int, ...] = ()
    op: str | None = None
    pace: float | None = None
    """Elements of a pointwise kernel per cycle and SM."""
    is_score: bool = False
    """A product of attention written out."""
    seen: Seen | None = None
    """What its side was told from; None for copies and on a device of which nothing is known."""
    beyond_sm: float | None = None
    """`compute_probability` as if L1 and shared memory were no memory: of products, convolutions and
    attention, which feed their arithmetic from there."""

    @property
    def aimed(self) -> Group:
        """As a fix sees it: what waits for its own SM's memory is helped by other tiles, alignment or
        precision, as arithmetic is, and by no less traffic."""
        if self.beyond_sm is None or self.beyond_sm <= self.compute_probability:
            return self
        certainty = self.certainty
        if self.filled and charge_compute(self.beyond_sm) != charge_compute(
            self.compute_probability
        ):
            certainty = min(_most(self), abs(2 * self.beyond_sm - 1))
        return replace(self, compute_probability=self.beyond_sm, certainty=certainty)


def charge_compute(probability: float) -> float:
    """Part of a kernel's time charged to compute.

    All of it above 0.8, none below 0.2, in proportion between: a coin toss is not a verdict.
    """
    return min(1.0, max(0.0, (probability - 0.2) / 0.6))


class Judge:
    """Decides group by group; holds what the decisions share.

    Args:
        window: Its names, ops and torch version are used.
        ceilings: Of the device; None: nothing is known of it, and geometry says nothing either.
    """

    def __init__(self, window: Window, ceilings: Ceilings | None, torch_new: bool) -> None:
        self._window = window
        self._acts: Activities = window.activities
        self._ceilings = ceilings
        self._device = _completed(window.device, ceilings)
        self._sms = occupancy.sm_count(self._device, ceilings)
        self._torch_new = torch_new
        clock = mixes.mean(window, Metric.SM_CLOCK_HZ)
        self._clock = ceilings.clock_ratio(clock) if ceilings else 1.0
        """Regimes are decided at the clock the GPU ran at; what is shown is over the datasheet."""
        good = (ceilings.attainable_compute, ceilings.attainable_memory) if ceilings else (0.8, 0.9)
        self._attainable_ratio = good[0] / good[1]

    def group(
        self, row: int, count: int, total_ns: int, op_id: int, is_score: bool = False
    ) -> Group:
        """The verdict on a group.

        Args:
            row: Of the window's activities, any of the group.
            total_ns: Summed time at work, for rates.
            op_id: -1: no op known.
            is_score: A product of attention written out, by its place in the sequence.
        """
        acts = self._acts
        name = self._window.names[int(acts.name_ids[row])]
        family, facts = family_of(name), name_facts(name, self._torch_new)
        if acts.types[row] != ActivityType.KERNEL:
            return self._copy(name, family, facts, count, total_ns, int(acts.size_bytes[row]))
        blocks, threads = int(acts.blocks[row]), int(acts.threads[row])
        mean_ns = max(total_ns / count, 1.0)
        waves, fills = self._geometry(row)
        op = self._window.ops.get(op_id)
        work = picked_rows(name, op, blocks, threads) or (work_of(op) if op else None)
        walk = walked(op, facts, blocks, threads) if mean_ns > STRIDED_FLOOR_NS else None
        flop, size, precision, level = amounts(family, facts, work, blocks, threads, walk)
        c_roof = self._compute_share(flop, precision, self._cores(facts, name), mean_ns)
        padded = padding(facts, work) if level == SHAPES else 1.0
        c_roof = None if family.name in STREAMING else c_roof
        if (c_roof or 0.0) > IMPOSSIBLE:  # a helper of the op's, not what did its work
            flop = size = c_roof = None
        m_roof = self._memory_share(size, mean_ns)
        if facts.elements_per_block and (m_roof or 0.0) > 1.0:
            size = m_roof = None  # tensors smaller than a block's share
        if c_roof is None and m_roof is None:
            level = NAME
        at_clock = c_roof / self._clock if c_roof is not None else None
        tiles = at_clock * padded if at_clock is not None else None
        worked = with_exponentials(tiles, family, facts, name, mean_ns)
        cached = self._is_cached(size, walk)
        pace = self._pace(facts, blocks * threads, mean_ns)
        inner = work.inner if work and level == SHAPES else ()
        told = op if level == SHAPES else None
        seen = Seen(
            name, family, facts, mean_ns, blocks, threads, int(acts.registers[row]),
            int(acts.shared_bytes[row]), self._blocks_per_sm(row), waves, precision, flop, size,
            at_clock, m_roof, cached, pace, cost_of(name, told, walk).issue, inner, is_score,
        )  # fmt: skip
        trees = self._by_trees(seen)
        side, beyond_sm = trees or (self._by_rule(seen, level, worked, padded, told, walk), None)
        spin, unknown = family.kind == families.SPIN, family is families.OTHER and level < BYTES
        group = Group(
            name=name, family=family, facts=facts, count=count, total_ns=total_ns, blocks=blocks,
            waves=waves, fills=0.001 if spin else (1.0 if fills is None else fills),
            filled=not spin
            and fills_device(family, facts, waves, fills, at_clock, m_roof, mean_ns, cached),
            compute_probability=side, unknown=unknown, level=NOTHING if unknown else level, flop=flop,
            size_bytes=size, precision=precision, compute_share_of_roof=c_roof,
            memory_share_of_roof=m_roof, inner=inner,
            op=op.name if op else None, pace=pace, is_score=is_score, beyond_sm=beyond_sm,
            seen=seen if self._ceilings else None,
        )  # fmt: skip
        return replace(group, certainty=_certainty(group, worked))

    def _geometry(self, row: int) -> tuple[float | None, float | None]:
        """Waves and the share of the SMs reached; None where the device is unknown.

        No kernel runs without registers: where a source does not tell them, how many blocks fit on
        an SM is open, and so are the waves of a grid that reaches all SMs but may fit at once.
        """
        acts = self._acts
        blocks, registers = int(acts.blocks[row]), int(acts.registers[row])
        if not self._sms or not blocks:
            return None, None
        per_sm = self._blocks_per_sm(row)
        waves, fills = blocks / (self._sms * per_sm), min(1.0, blocks / self._sms)
        told = registers > 0 or waves >= 1.0 or fills < 1.0
        return waves if told else None, fills

    def _blocks_per_sm(self, row: int) -> int:
        acts = self._acts
        shared, registers = int(acts.shared_bytes[row]), int(acts.registers[row])
        return occupancy.blocks_per_sm(self._device, int(acts.threads[row]), registers, shared)

    def _by_rule(
        self,
        seen: Seen,
        level: int,
        worked: float | None,
        padded: float,
        told: OpSignature | None,
        walk: Walk | None,
    ) -> float:
        """Chance of the compute side by the roofs, or by what names of its kind mostly are.

        Args:
            worked: Share of the compute roof with what fills up tiles, `padded` times the work.
            told: The op, where its shapes are told.
        """
        odds_ratio = self._side_ratio(worked, seen.memory_roof)
        if seen.is_score and level == NAME:
            probability = SCORE_PRIOR
        elif odds_ratio is None or level != SHAPES:
            probability = by_name(
                seen.family, seen.facts, seen.memory_roof, seen.waves, seen.mean_ns, seen.pace,
                seen.name, seen.cached, told, walk,
            )  # fmt: skip
        else:
            reached = max(worked or 0.0, seen.memory_roof or 0.0)
            probability = by_roofs(seen.family, seen.facts, odds_ratio, padded, reached)
        return at_most_even(probability, seen.name)

    def _by_trees(self, seen: Seen) -> tuple[float, float | None] | None:
        """Chance of the compute side, and as if the SM's own memory were none where that is asked for.

        The trees know more than the rules on GPUs like the one they were grown on. On any other nobody
        counted kernels, and the rules go by what its datasheet says: None.
        """
        if self._ceilings is None or self._device.capability != learned.GROWN_ON:
            return None
        row, trees = row_of(seen), learned.shipped()
        side = max(chance(trees.odds(row)), _at_least(seen))
        if seen.family.kind != families.COMPUTE or seen.is_score:
            return side, None
        return side, chance(trees.odds(row, learned.BEYOND_SM))

    def _pace(self, facts: NameFacts, threads: int, mean_ns: float) -> float | None:
        """Elements of a pointwise kernel per cycle and SM; None where its name does not say."""
        hz = self._ceilings.tensor_clock_hz if self._ceilings else None
        if not self._sms or not hz or not facts.elements_per_thread:
            return None
        cycles = mean_ns * 1e-9 * hz * self._clock
        return threads * facts.elements_per_thread / cycles / self._sms

    def _is_cached(self, size: float | None, walk: Walk | None) -> bool:
        cache = self._ceilings.cache_bytes if self._ceilings else None
        if size is None or cache is None:
            return False
        return size < cache if walk is None else walk.held_bytes < HELD_BY_CACHE * cache

    def _copy(
        self, name: str, family: Family, facts: NameFacts, count: int, total_ns: int, size: int
    ) -> Group:
        mean = float(size) if size > 0 else None
        device_copy = family.kind == families.MEMORY
        moved = mean * (2.0 if family.name == "copy" else 1.0) if mean else None
        roof = self._memory_share(moved, max(total_ns / count, 1)) if device_copy else None
        return Group(
            name, family, facts, count, total_ns, 0, None, 1.0, True, 0.0, False,
            BYTES if mean else NAME, 1.0, None, mean, None, None, roof,
        )  # fmt: skip

    def _side_ratio(self, compute: float | None, memory: float | None) -> float | None:
        """How much nearer a kernel is to the attainable compute roof than to the memory roof."""
        if compute is None or memory is None:
            return None
        return compute / max(memory * self._attainable_ratio, 1e-9)

    def _compute_share(
        self, flop: float | None, precision: str | None, tensor_cores: bool | None, mean_ns: float
    ) -> float | None:
        if not flop or not self._ceilings or not precision:
            return None
        rate = self._ceilings.rate(precision, tensor_cores)
        return flop / (mean_ns * 1e-9) / rate if rate else None

    def _cores(self, facts: NameFacts, name: str) -> bool | None:
        """Whether a product runs at the tensor cores' full rate; None where its name does not say.

        An A100's instruction for fp64 has half the rate of later tensor cores: at 0.39 of that rate it
        stood at 84 to 94 % of SM throughput (counted on an H200).
        """
        halved = HALVED in name and (self._device.capability or (0, 0)) >= (9, 0)
        return False if halved else facts.tensor_cores

    def _memory_share(self, size: float | None, mean_ns: float) -> float | None:
        if not size or not self._ceilings or not self._ceilings.bytes_per_s:
            return None
        return size / (mean_ns * 1e-9) / self._ceilings.bytes_per_s


def _at_least(seen: Seen) -> float:
    """Least chance of the compute side.

    Of what is multiplied in other than 16 bits and reaches two thirds of its roof 99 of 99 counted kernels
    were on it (H200). Of 16-bit ones the SM's own memory was the larger throughput for one in ten.
    """
    reached = seen.compute_roof or 0.0
    if seen.precision in ("bf16", "fp16") or reached < 1.5 * (seen.memory_roof or 0.0):
        return 0.0
    return 0.9 if reached >= NEAR_ROOF else 0.0


def _completed(device: Device, ceilings: Ceilings | None) -> Device:
    """The device with the capability its part is known to have."""
    if device.capability is None and ceilings is not None:
        return replace(device, capability=ceilings.capability)
    return device


def _most(group: Group) -> float:
    """How sure the side of a kernel may be at most: less where nobody tells the device's ceilings, whether
    it fills the device, or how many of its blocks fit on an SM."""
    if group.seen is None or group.waves is None:
        return MOST_CERTAIN_BLIND
    return MOST_CERTAIN[group.level] if group.seen.registers else MOST_CERTAIN_BARE


def _certainty(group: Group, worked: float | None) -> float:
    """How sure a kernel's charge is from the evidence at hand alone.

    Args:
        worked: Share of the compute roof with what fills up tiles. Where that and the share of the
            memory roof are low, something else holds the kernel up, and no more is known than names
            tell.
    """
    if group.unknown:
        return 0.0
    if group.family.kind in (families.COMM, families.COPY, families.SPIN):
        return 1.0
    if not group.filled:
        return _fill_certainty(group)
    most = _most(group)
    if worked is not None and max(worked, group.memory_share_of_roof or 0.0) < INEFFICIENT:
        most = min(most, MOST_CERTAIN[NAME])
    return min(most, abs(2 * group.compute_probability - 1))


def _fill_certainty(group: Group) -> float:
    """How sure it is that a kernel does not fill the GPU: the further from doing so, the surer."""
    waves = group.waves if group.waves is not None else 1.0
    by_grid = min(0.95, max(0.5, 1.4 - 0.9 * waves))
    if group.compute_share_of_roof is None:
        return by_grid
    reached = max(group.compute_share_of_roof, group.memory_share_of_roof or 0.0)
    return min(by_grid + 0.2, 0.98, max(0.0, 3.0 * (enough_of_roof(group.facts) - reached)))
