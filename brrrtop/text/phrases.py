"""The words the views use for what a snapshot says. No colour, no layout."""

from brrrtop.model.account import Account
from brrrtop.model.estimate import Estimate, Regime, Side
from brrrtop.model.ranks import WaitedFor
from brrrtop.model.run import Line, Run
from brrrtop.model.snapshot import Freshness, LeftOut, Once, Snapshot
from brrrtop.text import causes, units

FINE = "HEALTHY"
"""The badge of a run that nothing holds back."""
HEALTHY = "none-healthy"
"""The advice that there is nothing to do."""
STARTS = "warming-up"
"""The advice to judge later."""
LATE_RANK = "straggler"
"""The advice about the rank of a job that the others wait for."""
SYNC_POINT = "sync-point"
"""The advice to read fewer values back."""
MUCH, LITTLE_IDLE = 0.15, 0.05
"""Of the time: a run that could win less, and idles less, has nothing wrong with it."""
NOTHING_YET = "nothing to judge yet"
LEAST_SHARE = 0.05
"""A part of the time as large as this is told beside the cause it comes with."""

SIDE_LETTERS = {
    Side.COMPUTE: "C",
    Side.MEMORY: "M",
    Side.UNDERFILLED: "U",
    Side.COMM: "X",
    Side.COPY: "x",
    Side.UNKNOWN: "?",
}
"""One letter a side, for marks of one cell."""

BOUNDS = {
    Side.COMPUTE: "compute",
    Side.MEMORY: "bandwidth",
    Side.UNDERFILLED: "too small",
    Side.COMM: "network",
    Side.COPY: "copy",
    Side.UNKNOWN: "?",
}
"""What sets a kernel's pace, in a word."""

SIDES = {
    Side.COMPUTE: "compute-bound",
    Side.MEMORY: "bandwidth-bound",
    Side.UNDERFILLED: "too small to fill the GPU",
    Side.COMM: "a collective",
    Side.COPY: "a copy from or to the host",
    Side.UNKNOWN: "what bounds it is not known",
}

HEADLINES = {
    Regime.COMPUTE: "COMPUTE-BOUND",
    Regime.MEMORY: "MEMORY-BOUND",
    Regime.OVERHEAD: "OVERHEAD-BOUND",
    Regime.MIXED: "MIXED",
    Regime.UNKNOWN: "UNKNOWN",
}

REGIMES = {
    Regime.COMPUTE: "the arithmetic units are the limit",
    Regime.MEMORY: "moving tensors is the limit",
    Regime.OVERHEAD: "the GPU waits for something else",
    Regime.MIXED: "no single limit",
    Regime.UNKNOWN: "not enough evidence for a verdict",
}
SHARED = "another process uses this GPU: shares are not judged"


def labels(key: str, part: float) -> tuple[str, ...]:
    """What a bar writes into a part of it, longest first."""
    names = causes.CAUSES[key].names
    return (*(f"{name} {units.share(part)}" for name in names), *names[-1:])


RISKS = {
    "kernels-differ": "steps launch other kernels each time (dropped layers, control flow), and each kind of "
    "step is compiled and captured again: compile each layer by itself, without graphs",
    "shapes-differ": "sizes differ from step to step, and each new one is compiled again: dynamic=True, or "
    "pad to a few sizes",
    "solvers": "factorizations run here, which no compiler takes: compile what comes before them",
    "own-functions": "compiled code may break at the program's own autograd functions: "
    "TORCH_LOGS=graph_breaks names the lines",
    "two-updates": "a model that runs twice in a step has its outputs overwritten: "
    "torch.compiler.cudagraph_mark_step_begin() before each pass",
    "biased-attention": "attention has a mask or a bias here, whose layout torch.compile may refuse: "
    "@torch.compiler.disable on that forward, if so",
    "few-steps": "too few steps were traced to rule out that they differ, and each kind of step is compiled "
    "and captured again: wait for the next burst",
}
"""Why an edit may cost more than it saves, by `whatif.risks.Risk`."""


def buckets(account: Account) -> tuple[tuple[str, int], ...]:
    """Every bucket of the account with its ns; they add up to the window.

    The idle cause `unknown` goes by `idle_unknown`, the other idle causes by `idle_` and their name.
    """
    busy = (
        ("compute", account.compute_ns),
        ("memory", account.memory_ns),
        ("underfilled", account.underfilled_ns),
        ("exposed_comm", account.exposed_comm_ns),
        ("exposed_copy", account.exposed_copy_ns),
    )
    idle = tuple((f"idle_{cause}", time_ns) for cause, time_ns in account.idle_ns.items())
    return (*busy, *idle, ("unknown", account.unknown_ns))


def verdict(regime: Regime, cause: str | None) -> str:
    """For JSON: the regime and its largest reason, without numbers."""
    headline = HEADLINES[regime]
    if cause and regime is Regime.OVERHEAD:
        headline += f" ({cause.replace('_', ' ')})"
    return headline


def badge(snapshot: Snapshot) -> str:
    """What holds the run back, in capitals; that nothing does where no edit is worth making."""
    estimate = snapshot.estimate
    assert estimate is not None
    if late_rank(snapshot) is not None:
        return "ONE RANK IS LATE"
    kinds = {one.kind for one in snapshot.advisories}
    if estimate.regime is Regime.UNKNOWN and STARTS in kinds:
        return "WARMING UP"
    if (HEALTHY in kinds and estimate.regime is not Regime.OVERHEAD) or is_fine(snapshot):
        return FINE
    return causes.words_of("sync").badge if syncs_come_first(snapshot) else cause_badge(estimate)


def is_fine(snapshot: Snapshot) -> bool:
    """Whether the GPU is hardly idle, and no edit that was simulated wins much."""
    estimate, gains = snapshot.estimate, [one.saves_at_most or 0.0 for one in snapshot.advisories]
    if (
        estimate is None
        or estimate.regime not in (Regime.COMPUTE, Regime.MEMORY)
        or not snapshot.whatif
    ):
        return False
    idle = estimate.account.idle_total_ns / max(1, estimate.account.duration_ns)
    return idle < LITTLE_IDLE and max(gains, default=0.0) < MUCH


def syncs_come_first(snapshot: Snapshot) -> bool:
    """Whether launches come late since the host reads values back: each read lets the GPU run dry."""
    estimate, first = snapshot.estimate, snapshot.advisories[:1]
    late = estimate is not None and estimate.cause == "launch"
    return late and bool(first) and first[0].kind == SYNC_POINT


def late_rank(snapshot: Snapshot) -> WaitedFor | None:
    first = snapshot.advisories[0].kind if snapshot.advisories else ""
    return snapshot.job.waited_for if snapshot.job is not None and first == LATE_RANK else None


def cause_badge(estimate: Estimate) -> str:
    """What holds a run back, in capitals; a host that is away for its input waits for data."""
    line = away_at(estimate, estimate.cause or "")
    away = line is not None and line.reads_as == "input"
    return badge_of(estimate.regime, "input" if away else estimate.cause)


def badge_of(regime: Regime, cause: str | None) -> str:
    """`WAITS FOR DATA`: the cause of an overhead, else the regime."""
    if cause and regime is Regime.OVERHEAD:
        return causes.words_of(cause).badge
    known = causes.CAUSES.get(regime.value)
    return known.badge if known is not None else HEADLINES[regime]


def because(estimate: Estimate) -> str:
    """What the verdict means, as a sentence without its full stop."""
    account = estimate.account
    if estimate.regime is Regime.OVERHEAD and estimate.cause:
        line = away_at(estimate, estimate.cause)
        return causes.words_of(estimate.cause).meaning if line is None else _seen_at(estimate, line)
    if estimate.shared:
        return SHARED
    if estimate.regime is Regime.UNKNOWN and estimate.steps.warming_up:
        return "these are a program's first steps, which say little of those that follow"
    if estimate.regime is Regime.UNKNOWN and 2 * account.unrecorded_ns > account.unknown_ns:
        return unrecorded(account)
    if estimate.regime is Regime.UNKNOWN and 2 * account.unknown_ns > account.duration_ns:
        busy = units.share(account.unknown_ns / account.duration_ns)
        return f"{busy} of the time goes to kernels of unknown kind"
    return REGIMES[estimate.regime]


def unrecorded(account: Account) -> str:
    """Why part of the time is unknown although the device looks idle, as a clause."""
    share = units.share(account.unrecorded_ns / max(account.duration_ns, 1))
    return f"for {share} of the time nodes of CUDA graphs ran that were not recorded"


def besides(estimate: Estimate) -> str:
    """What else the cause of a verdict comes with, as a clause to add; empty where nothing does.

    A host that waits for its GPU has launches to catch up on: both are its lateness, and a verdict
    names the larger part.
    """
    account = estimate.account
    if estimate.steps.warming_up:
        return "; these are the first steps, the run still warms up"
    if estimate.regime is not Regime.OVERHEAD or estimate.cause != "launch":
        return ""
    share = account.idle_ns["sync"] / account.duration_ns if account.duration_ns else 0.0
    return f", {share:.0%} of the time after syncs" if share >= LEAST_SHARE else ""


def away_at(estimate: Estimate, cause: str) -> Line | None:
    """The line that most samples found the host at for a `cause`, `io` or `host`; None: none known."""
    lines = (
        estimate.stack_samples.lines if estimate.stack_samples and cause in ("io", "host") else ()
    )
    if not estimate.account.idle_ns.get("io"):  # too few samples to part the two
        return lines[0] if lines else None
    return next((line for line in lines if (line.reads_as == "io") is (cause == "io")), None)


def looked(estimate: Estimate, line: Line) -> str:
    """`in 38 of 41 samples the main thread is at nb/reader.py:30, rows = np.load(path)`."""
    return f"in {_times(estimate, line)} the main thread is at {line}"


def _times(estimate: Estimate, line: Line) -> str:
    count = estimate.stack_samples.count if estimate.stack_samples else 0
    return f"{line.count} of {count} samples"


def _seen_at(estimate: Estimate, line: Line) -> str:
    work = ", in file or network work" if line.reads_as == "io" else ""
    source = f": {line.source}" if line.source else ""
    return f"the main thread is at {line.place} in {_times(estimate, line)}{work}{source}"


def has_phases(run: Run | None) -> bool:
    """Whether it does more than its steps: their gain is not the run's."""
    return run is not None and run.train is not None and run.train.share < 1 - LEAST_SHARE


def a_step(run: Run | None) -> str:
    return "a training step" if has_phases(run) else "a step"


def steps_judged(estimate: Estimate) -> str:
    """`36 steps`: the whole ones; empty where steps are not known."""
    count = estimate.steps.count
    return f"{count} step{'s' * (count != 1)}" if count else ""


UNEVEN = 1.5
"""Times the median step that a mean is, from which the median alone is no account of the steps."""


def coverage(estimate: Estimate) -> str:
    """`20.8 s watched, 81 steps of 138 ms, 6 of them traced`; of a file that was traced whole `… judged`."""
    run, steps = estimate.run, estimate.steps
    if run is None or estimate.traced_ns is None:
        text = f"{units.duration(estimate.account.duration_ns)} judged"
        if steps.count:
            which, mean_ns = " of" if steps.count == 1 else ", median", estimate.mean_step_ns or 0
            if mean_ns > UNEVEN * (steps.step_ns or mean_ns):
                which = f" of {units.duration(mean_ns)} in the mean, median"
            text += f", {steps_judged(estimate)}{which} {units.duration(steps.step_ns)}"
        return text
    text = f"{units.duration(run.duration_ns)} watched"
    if run.steps:
        text += f", {units.count(run.steps)} step{'s' * (run.steps != 1)}"
        if run.step_ns is not None:
            text += f" of {units.duration(run.step_ns)} in the mean"
    if run.traced_steps:
        return f"{text}, {units.count(run.traced_steps)} of them traced"
    return f"{text}, {units.duration(estimate.traced_ns)} of it traced"


def not_judged(snapshot: Snapshot) -> str:
    """`not judged, it happens once: one gap of 463 ms (hipMemcpyWithStream)`; empty where all is."""
    parts = [_once(one) for one in snapshot.left_out]
    return f"not judged, it happens once: {'; '.join(parts)}" if parts else ""


def _once(left_out: LeftOut) -> str:
    length = units.duration(left_out.span.duration_ns)
    if left_out.what is Once.HOLE:
        return f"one gap of {length}" + (
            f" ({left_out.place or left_out.cause})" if left_out.place or left_out.cause else ""
        )
    if left_out.step is None:
        return f"start-up, the first {length}"
    name = {Once.CHECKPOINT: "a checkpoint in ", Once.START_UP: "start-up in "}.get(
        left_out.what, ""
    )
    return f"{name}step {left_out.step}, which took {length}"


def unjudged(snapshot: Snapshot) -> str:
    """Why there is no verdict, as a sentence without its full stop."""
    live = snapshot.source.kind == "live"
    if live and snapshot.freshness is Freshness.ENDED:
        return "no verdict: it ended before any kernel was seen"
    if snapshot.source.tier == "nvml":
        pid = snapshot.source.pid if live else None
        helps = "" if pid is None else f"; how to see them: brrrtop doctor {pid}"
        return f"no verdict: only the GPU's own counters are read, no kernels{helps}"
    if snapshot.run is not None and (found := snapshot.run.unseen) is not None:
        does = causes.CAUSES[f"idle_{found.cause}"].gpu_does
        return (
            f"GPU idle {units.share(found.share)} of the time: it {does}; no kernel was traced yet"
        )
    run = snapshot.run
    if run is not None and run.train is not None and run.train.steps and run.account.duration_ns:
        waits = run.account.idle_ns["input"] / run.account.duration_ns
        return f"no GPU activity has been seen; it waits for data {units.share(waits)} of the time"
    return "nothing to judge yet: no GPU activity has been seen"
