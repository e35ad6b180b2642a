"""What a rule sees, and the arithmetic all rules share.

A saving of device time is simulated, as kernels that take less of it; a saving of host time counts
only as far as the device idled for it.
"""

import re
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.of_run import Sampled, rows_of_run, sampled
from brrrtop.analysis.account.idle_causes import DISPATCH_NS
from brrrtop.analysis.ceilings import Ceilings
from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.facts.collectives import Transfers, transfers
from brrrtop.analysis.facts.host_activity import Occurrences, Syncs, occurrences, syncs
from brrrtop.analysis.facts.stack_samples import LEAST_PART, LEAST_SAMPLES, samples_of
from brrrtop.analysis.facts.table import Facts, Readings
from brrrtop.analysis.facts.training import Chains, Optimizer, chains, optimizer, recomputed_ns
from brrrtop.analysis.kernels.op_patterns import WrittenAttention, written_attention
from brrrtop.analysis.tables.loaders import loader_rows, with_workers
from brrrtop.kernel_names.facts import least_capability
from brrrtop.kernel_names.traits import Trait, used
from brrrtop.model.advice import WhatIf
from brrrtop.model.estimate import Estimate
from brrrtop.model.host_tables import LoaderRow
from brrrtop.model.run import Run
from brrrtop.model.tables import Bool, Window
from brrrtop.text import loader, phrases
from brrrtop.whatif.edits.fusing import is_compiled
from brrrtop.whatif.price import EDITS, SimulatedEdits, simulate_edits
from brrrtop.whatif.risks import COMPILED_FUNCTION
from collectors.vocabulary import CallClass, MarkClass, Metric

WORTH_SHARE = 0.02
"""Less than 2 % of the wall is lost in the noise of a step."""
WORTH_STEP_NS = 300_000
"""Less than 0.3 ms a step is not worth an edit, however large its share."""
BATCH_GAIN = 0.10
"""Twice the batch is advice from here on: it changes the training, and memory bounds it."""
HEALTHY_GAIN = 0.05
"""A run is healthy where no edit that is known wins more."""
NO_GAIN, NO_HOPE = 0.01, 0.03
"""An edit that wins less than the first, and than the second even where everything unknown turns out well,
is a waste of time."""
SAME_PACE = 0.005
"""A run's usual step that moved by less changes no gain by a point."""
SEEN_SHARE = 0.05
"""A bucket with so much of the time is not empty: its edit may win something."""

SERVING = {
    "compile-reduce-overhead": "CUDA graphs: enforce_eager=False (vLLM), no --disable-cuda-graph (SGLang)",
    "double-batch": "max_num_seqs=... (vLLM), --max-running-requests ... (SGLang)",
    "no-sync": "the engine's asynchronous scheduling: --async-scheduling (vLLM)",
}
"""Lines of edits for servers, by edit."""
FORWARD = {
    "double-batch": "twice as many inputs in each call",
    "no-sync": "keep values on the device and read them back once, when all are there",
}
"""Lines of edits for a model without a backward pass or an update, by edit."""
A_LOSS = " (a loss: total += loss.detach())"
NAMES_LINES = "torch.cuda.set_sync_debug_mode('warn') names each line"
"""What finds the line of a wait, where none is known."""
_ENGINE = re.compile(r"execute_(?:\d+_)?context_|step\[(?:EXTEND|DECODE)")
"""A range that an inference engine names. Its kernels may be called as those of an update are."""
_SERVER = re.compile(rf"\bvllm\b|\bsglang\b|{_ENGINE.pattern}")
_OF_TORCH = re.compile(r"\bat::|\bc10::|\btriton_(poi|red|per|tem)_")
LATE_HOST = ("launch", "sync", "host", "unknown")
"""Causes of idle time in which the host may be late for its next launch."""


class Context(Struct, frozen=True):
    """One judged window and what several rules ask of it; None is "not seen"."""

    estimate: Estimate
    ceilings: Ceilings | None
    simulated: SimulatedEdits | None
    """What each edit would make of a step; None where no step can be replayed."""
    step_ns: int | None
    """The step that this rests on, as the run's usual one was then."""
    facts: Facts
    attention: WrittenAttention | None
    chains: Chains | None
    transfers: Transfers
    syncs: Syncs | None
    optimizer: Optimizer | None
    readings: Readings
    recomputed_ns: int | None
    loaders: tuple[LoaderRow, ...] = ()
    """Most waited for first, with the workers that each needs."""
    loaders_shown: tuple[LoaderRow, ...] = ()
    """As the last advice had them, of this window or an earlier one."""
    sampled_run: Sampled | None = None
    """The run that the window is a sample of; None: the window is all there is."""

    @property
    def run(self) -> Run | None:
        return self.sampled_run.run if self.sampled_run is not None else None

    @property
    def rows(self) -> tuple[WhatIf, ...]:
        """Edits that apply, best first; their gains are of the run."""
        rows = self.simulated.rows if self.simulated else ()
        return rows if self.sampled_run is None else rows_of_run(rows, self.sampled_run)

    def matters(self, row: WhatIf) -> bool:
        """Whether a run with this edit still to make is not healthy. Twice the batch changes the training,
        and wins some 5 % wherever kernels are large already."""
        return row.most >= (BATCH_GAIN if row.edit == "double-batch" else HEALTHY_GAIN)

    def with_line(self, row: WhatIf) -> WhatIf:
        """The same in the words of what runs, with the workers that its loader needs where that is known."""
        line = row.line
        for edit, words in self._words.items():
            line = line.replace(EDITS[edit].line, words)
        line = line.replace("AdamW", (self.optimizer and self.optimizer.kind) or "AdamW")
        return replace(row, line=line.replace(loader.line(), self.loader_line))

    @property
    def loader_line(self) -> str:
        """With as many workers as its loader needs; where that is not known, twice those that it has."""
        row = self.loaders[0] if self.loaders else None
        if row is not None and row.needed is not None:
            return loader.line(row.needed.cores or row.needed.count)
        most = int(self.readings.means.get(Metric.TRAINER_CORES, 1024))
        workers = row.workers if row is not None else None
        return loader.line(max(min(2 * workers, most), workers) if workers else min(4, most))

    @property
    def _words(self) -> dict[str, str]:
        """Lines of edits where those for a training would be none, by edit."""
        if self.trains:
            return {}
        if self.serves:
            return SERVING
        return {
            edit: FORWARD[edit] for edit in FORWARD if edit != "double-batch" or not self.loaders
        }

    def price(self, edit: str) -> WhatIf | None:
        """The price of one edit; None where it does not apply."""
        return next((row for row in self.rows if row.edit == edit), None)

    @property
    def host_sets_the_pace(self) -> bool:
        """Whether the device stands idle for a quarter of the time because the host is late."""
        late = self.estimate.account.mechanical_ns
        unseen = min(late["unknown"], self.dispatch_idle_ns)
        late_ns = late["host_late"] + late["launch"] + unseen
        return late_ns > 0.25 * self.estimate.account.duration_ns

    @property
    def waste(self) -> str:
        """Edits that were simulated and win nothing, those that lose with how much; empty without any."""
        listed = ", ".join(f"{row.edit}{_loss(row)}" for row in self.rows if self._is_waste(row))
        return f"by simulation: {listed}" if listed else ""

    def _is_waste(self, row: WhatIf) -> bool:
        """What takes time as recorded is not called a win of nothing, whatever the simulation says."""
        if row.saves >= NO_GAIN or row.saves_high >= NO_HOPE:
            return False
        if row.saves_high < 0:
            return True
        run = self.sampled_run
        account = self.estimate.account if run is None else run.run.account
        taken = dict(phrases.buckets(account))
        spent = sum(taken.get(bucket, 0) for bucket in EDITS[row.edit].empties)
        return spent < SEEN_SHARE * account.duration_ns

    @property
    def compiled(self) -> bool:
        """True if most fusible time is in generated kernels already, or CUDA graphs launch most kernels."""
        nodes = self.facts.kernels & (self.facts.window.activities.graph_ids != 0)
        graphs = int(nodes.sum()) * 2 > self.kernels
        return graphs or (self.simulated is not None and is_compiled(self.simulated.step))

    @property
    def partly_compiled(self) -> bool:
        """Whether compiled kernels run, and pointwise work outside them takes four times as long."""
        runs, names = self.chains, self.facts.window.names
        if runs is None or runs.kernels < 8:
            return False
        if not runs.fused_ns:
            return any(name.startswith(COMPILED_FUNCTION) for name in names)
        return runs.fused_ns <= 0.25 * runs.total_ns and self.share(runs.total_ns) >= 0.1

    @property
    def trains(self) -> bool:
        """Whether a backward pass or an update runs. Data gradients alone are transposed convolutions of
        a forward pass: a backward pass has gradients of weights as well."""
        acts, names = self.facts.window.activities, self.facts.window.names
        marked = self.optimizer is not None and self.optimizer.updates is not None
        if not marked and _any_matches(_ENGINE, names):
            return False
        backward = used(acts.name_ids[self.facts.has(Trait.BACKWARD)])
        return self.optimizer is not None or any("dgrad" not in names[i] for i in backward)

    @property
    def serves(self) -> bool:
        """Whether an inference server runs: vLLM or SGLang, by names of its kernels, ranges or functions."""
        return not self.trains and _any_matches(_SERVER, self.facts.window.names)

    @property
    def memory_used(self) -> float | None:
        """Largest share of device memory in use; None without readings."""
        total = self.readings.mean(Metric.MEMORY_TOTAL_BYTES)
        used = self.readings.largest.get(int(Metric.MEMORY_USED_BYTES))
        return used / total if total and used is not None else None

    @property
    def wall_ns(self) -> int:
        """The time that the window stands for: its own, with its part of the rest of the run; at least 1."""
        return max(round(self.estimate.account.duration_ns / self.part), 1)

    @property
    def part(self) -> float:
        """Share of the run that the traced steps stand for; 1 where the window is all there is."""
        if self.sampled_run is None:
            return 1.0
        return max(self.sampled_run.part(self.estimate.mean_step_ns), 1e-6)

    @property
    def steps(self) -> float | None:
        return self.estimate.steps_covered

    @property
    def kernels(self) -> int:
        return int(self.facts.kernels.sum())

    @property
    def kernel_p50_ns(self) -> int | None:
        """Half of the kernels are shorter."""
        lengths = self.facts.durations_ns[self.facts.kernels]
        return int(np.median(lengths)) if len(lengths) else None

    @property
    def dispatch_idle_ns(self) -> int:
        """Idle in gaps no longer than Python needs between two launches, whatever their cause."""
        _, begins, ends = self.facts.gaps
        gaps = ends - begins
        return int(gaps[gaps <= DISPATCH_NS].sum())

    @property
    def capability(self) -> tuple[int, int]:
        window = self.facts.window
        names = (window.names[i] for i in used(window.activities.name_ids))
        return self.estimate.device.capability or least_capability(names) or (0, 0)

    def share(self, time_ns: float) -> float:
        return time_ns / self.wall_ns

    def spent(self, rows: Bool) -> float:
        """Part of the wall that these activities take, rows as in `facts`."""
        return self.share(self.facts.total_ns(rows))

    def idle(self, *causes: str) -> float:
        """Share of the wall the device idled for these causes."""
        if self.sampled_run is not None:
            return self.sampled_run.idle(*causes)
        return self.share(sum(self.estimate.account.idle_ns.get(c, 0) for c in causes))

    def loop_idle(self, *causes: str) -> float:
        """The same in the phase alone whose steps were traced."""
        of = self.sampled_run
        return self.idle(*causes) if of is None else of.loop_idle(*causes)

    @property
    def host_idle_in_loop(self) -> float:
        return self.loop_idle(*LATE_HOST)

    @property
    def away(self) -> float:
        """Share of the wall the host was elsewhere, in nothing that a probe saw.

        Without launch records: idle without a name in gaps too long to be Python between launches.
        """
        if self.estimate.launch.rho is not None:
            return self.idle("host", "io")
        return max(self.idle("unknown", "host") - self.share(self.dispatch_idle_ns), 0.0)

    def sampled(self, *causes: str) -> float:
        """Share of the wall that stack samples give causes which nothing else shows; 0 when unsure.

        Samples outside named waits speak for the idle time without a name, in proportion.
        """
        samples = self.estimate.stack_samples
        if samples is None or samples.count < LEAST_SAMPLES:
            return 0.0
        parts = (samples.shares.get(cause, 0.0) for cause in causes)
        return sum(part for part in parts if part >= LEAST_PART) * self.away

    def marked(self, kind: MarkClass) -> Occurrences:
        return occurrences(self.facts, self.facts.window.marks, kind)

    def called(self, kind: CallClass) -> Occurrences:
        return occurrences(self.facts, self.facts.window.calls, kind)

    def a_step(self, amount: float) -> float:
        """`amount` per step, or for the whole window when steps are unknown."""
        return amount / (self.steps or 1)

    @property
    def per(self) -> str:
        return "a step" if self.steps else "in this window"

    def device_side(self, saved_ns: float) -> float:
        """Share of a step that `saved_ns` less of kernel time in the window wins, by simulation."""
        kernel_ns = max(self.estimate.account.busy_ns, 1)
        if self.simulated is not None:
            return self.part * self.simulated.scaled(1 - min(saved_ns / kernel_ns, 1.0))
        rho = self.estimate.launch.rho
        return min(rho if rho is not None else self.share(kernel_ns), 1.0) * self.share(saved_ns)

    def removed(self, spent_ns: float, kernels: int) -> float:
        """Most of the wall that not launching these kernels at all can win: their own time, and their
        part of the launches that the device waits for."""
        part = kernels / self.kernels if self.kernels else 0.0
        return self.share(spent_ns) + self.idle("launch") * min(part, 1.0)

    def worth(self, saves: float) -> bool:
        return saves >= max(WORTH_SHARE, self.share(WORTH_STEP_NS * (self.steps or 1)))


def runs_torch(window: Window) -> bool:
    """Whether PyTorch launched the window's kernels: its profiler or its agent recorded it, or kernels of
    ATen or Inductor are in it."""
    hello = window.hello
    if (
        hello.get("origin") == "kineto"
        or hello.get("torch")
        or not hello.keys() & {"origin", "torch"}
    ):
        return True
    names = (window.names[i] for i in used(window.activities.name_ids))
    return bool(window.ops) or any(_OF_TORCH.search(name) for name in names)


@lru_cache(maxsize=8)
def _any_matches(pattern: re.Pattern[str], names: tuple[str, ...]) -> bool:
    """Kept, as advice on a run is made again and again; names of a timeline are one tuple until one comes."""
    return any(map(pattern.search, names))


def _loss(row: WhatIf) -> str:
    """` (1.09× as long)`; empty where it changes next to nothing."""
    longer = 1 - row.saves
    return f" ({longer:.{2 if longer < 1.5 else 1}f}× as long)" if row.saves <= -NO_GAIN else ""


def context_of(
    analysis: Analysis, sample: Analysis | None = None, earlier: Context | None = None
) -> Context:
    """The context of a judged window that is all there is, with edits simulated on a sample of it.

    Args:
        earlier: Of an earlier window: like steps are not simulated again.
    """
    priced = earlier.simulated if earlier is not None else None
    seen = analysis.facts
    attention = written_attention(seen)
    excluded = seen.in_optimizer.copy()
    if attention is not None:
        excluded[attention.rows] = True
    known = Context(
        estimate=analysis.estimate,
        ceilings=seen.ceilings,
        simulated=None if analysis.estimate.shared else simulate_edits(sample or analysis, priced),
        step_ns=(sample or analysis).estimate.steps.step_ns,
        facts=seen,
        attention=attention,
        chains=chains(seen, excluded),
        transfers=transfers(seen),
        syncs=syncs(seen),
        optimizer=optimizer(seen),
        readings=seen.readings,
        recomputed_ns=recomputed_ns(seen, analysis.estimate.steps_covered),
        loaders_shown=earlier.loaders_shown if earlier is not None else (),
    )
    return within(known, None)


def priced_again(seen: Context, sample: Analysis | None) -> Context:
    """The same, with edits simulated anew where the run's usual step is another by now."""
    step_ns = sample.estimate.steps.step_ns if sample is not None else None
    if sample is None or not step_ns or abs(step_ns / (seen.step_ns or step_ns) - 1) < SAME_PACE:
        return seen
    simulated = seen.simulated and simulate_edits(sample, seen.simulated)
    return replace(seen, simulated=simulated, step_ns=step_ns)


def within(seen: Context, run: Run | None) -> Context:
    """The context of the same window as a sample of a run; nothing is priced again."""
    rows, means = loader_rows(seen.facts), seen.readings.means
    if run is not None:
        samples = samples_of(run, seen.facts.stack_samples)
        estimate = replace(seen.estimate, stack_samples=samples)
        seen = replace(seen, sampled_run=sampled(run, rows, seen.facts.window), estimate=estimate)
    ready = seen.price("loader-ready")
    return replace(seen, loaders=with_workers(rows, ready, means, seen.loaders_shown))
