"""The verdict for one who never read about regimes: what the GPU does, why, and what would help."""

from collections.abc import Mapping

from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Settings, Snapshot
from brrrtop.text import causes, phrases, units
from brrrtop.text.causes import CAUSES

HOUR_NS = 3.6e12
OPEN = 0.95
"""Of the time saved: from here on a point is several times, and an upper bound says nothing."""
MAY_FAIL = frozenset({"compile", "compile-reduce-overhead"})
"""Code that no compiler takes is seen once it runs: of 84 public models that were measured four failed."""
WORTH_SAYING = 0.05
"""A smaller gain is no reason to change anything."""

GAIN_PHRASES: Mapping[str, str] = {
    "dataloader-stall": "if the data loader keeps up",
    "launch-bound-compile": "with torch.compile",
    "cuda-graphs": "with CUDA graphs",
    "sync-point": "without `.item()` and the like",
    "fused-optimizer": "with a fused optimizer",
    "pin-memory": "with pinned memory",
    "overlap-copies": "with copies that overlap",
    "underfilled-kernels": "with a bigger batch",
    "bigger-batch": "per sample, with a bigger batch",
    "few-blocks": "with more blocks",
    "unified-memory": "with pages fetched ahead",
    "readback-traffic": "with less copied back",
    "host-stall": "without the host's other work",
    "python-overhead": "without that line in the loop",
    "gc-pause": "without collections in the loop",
    "allocator-retries": "with memory to spare",
    "allocation-churn": "without allocations in the loop",
    "checkpoint-stall": "with saves in the background",
    "logging-stall": "with less logging",
    "fuse-pointwise": "with torch.compile",
    "enable-tf32-or-amp": "with bf16 or TF32",
    "use-bf16": "with bf16",
    "channels-last": "with channels-last",
    "flash-attention": "with fused attention",
    "tensor-core-alignment": "with padded sizes",
    "exposed-communication": "with communication hidden behind compute",
    "straggler": "if the late rank kept up",
    "fusion-ceiling": "with kernels of this generation",
    "skinny-products": "with more rows a product",
    "cudnn-benchmark": "with cudnn.benchmark",
    "double-precision": "without fp64",
    "tiny-collectives": "with fewer, larger collectives",
    "recompilation": "without recompiling",
    "graph-breaks": "without graph breaks",
    "unknown-kernel": "with a faster kernel of yours",
    "cast-churn": "without repeated casts",
    "needless-copies": "without copies on the GPU",
    "inefficient-kernel": "with that kernel at the roof",
    "activation-checkpointing": "with room for a larger batch",
    "remove-checkpointing": "without recomputing activations",
    "embedding-sort": "without sorted indices",
    "zero-grad-fill": "with set_to_none=True",
    "evaluation-idle": "if evaluations kept the GPU busy",
    "evaluation-share": "without evaluations",
    "generation-share": "without generation",
    "rollout-share": "without rollouts",
    "other-share": "without what is not training",
    "throttled": "at full clocks",
    "idle-clocks": "at full clocks",
    "shared-gpu": "with the GPU to itself",
    "monitor-cost": "without watching",
}
"""What makes a run faster, by the id of the advice."""
FAULTS: Mapping[str, str] = {
    "enable-tf32-or-amp": "in fp32 on CUDA cores, its tensor cores are unused",
    "double-precision": "it computes in fp64",
    "channels-last": "convolutions copy their tensors into another layout",
    "tensor-core-alignment": "sizes do not fit its tensor cores",
    "fuse-pointwise": "many ops each read and write whole tensors",
    "flash-attention": "attention is not fused",
}
"""What is wrong with a GPU that is never idle, by the id of the advice."""


def headline_text(snapshot: Snapshot) -> str:
    """`GPU idle 92%: it waits for your DataLoader (0 workers) – about 12× faster if the loader keeps up`.

    Empty while nothing is judged.
    """
    return " – ".join(filter(None, (symptom(snapshot), remedy(snapshot))))


def symptom(snapshot: Snapshot) -> str:
    """What the GPU does, and why; empty while nothing is judged."""
    estimate = snapshot.estimate
    if estimate is None or estimate.regime is Regime.UNKNOWN:
        return ""
    if (waited := phrases.late_rank(snapshot)) is not None:
        others = (
            [one for one in snapshot.job.ranks if one.rank != waited.rank] if snapshot.job else []
        )
        who = f"Rank {others[0].rank} waits" if len(others) == 1 else "The others wait"
        return f"{who} for rank {waited.rank}: {causes.because(waited)}"
    return of_loop(snapshot) or _does(estimate, snapshot)


def of_loop(snapshot: Snapshot) -> str:
    """What holds that loop back that the first advice is about, where a run has two of other limits."""
    loop = phrases.loop_shown(snapshot)
    if loop is None:
        return ""
    name, bucket, share = loop
    fault = next((FAULTS[one.kind] for one in snapshot.advisories if one.kind in FAULTS), "")
    why = f": {fault}" if fault and bucket in WORK else ""
    return f"In {name} the GPU {_waits(bucket, snapshot)} {units.share(share)} of the time{why}"


def sure(snapshot: Snapshot) -> str:
    """`82% sure`, of the sentence; of one on a rank or a loop, its advice. Empty without a verdict."""
    estimate = snapshot.estimate
    if estimate is None or estimate.regime is Regime.UNKNOWN:
        return ""
    of_advice = phrases.late_rank(snapshot) is not None or of_loop(snapshot)
    return f"{units.share(snapshot.advisories[0].confidence if of_advice else estimate.confidence)} sure"


def remedy(snapshot: Snapshot) -> str:
    """How much faster it could be, and with what; empty where nothing wins enough."""
    estimate = snapshot.estimate
    if estimate is None or estimate.regime is Regime.UNKNOWN or not snapshot.advisories:
        return ""
    first = promised(snapshot.advisories[0])
    edit = snapshot.advisories[0].evidence.get("edit")
    for row in snapshot.whatif if first and not first.startswith("at least") else ():
        quiet = row.unprofiled if row.edit == edit else None
        if quiet is not None and abs(quiet.saves - row.saves) >= WORTH_SAYING:
            first += f", {units.times_as_fast(quiet.saves)} without the profiler"
    return first


def _does(estimate: Estimate, snapshot: Snapshot) -> str:
    whole = estimate.account.duration_ns or 1
    share = {bucket: ns / whole for bucket, ns in phrases.buckets(estimate.account)}
    largest = max(share, key=lambda bucket: share[bucket])
    idle = sum(value for bucket, value in share.items() if bucket.startswith("idle_"))
    if estimate.regime in (Regime.COMPUTE, Regime.MEMORY):
        busy = f"GPU computes {units.share(share['compute'])} of the time"
        if estimate.regime is Regime.MEMORY:
            busy = f"GPU spends {units.share(share['memory'])} of the time reading and writing its memory"
        most = [(one.kind, one.saves_at_most or 0.0) for one in snapshot.advisories[:1]]
        faults = [FAULTS[kind] for kind, saves in most if kind in FAULTS and saves >= phrases.MUCH]
        if phrases.badge(snapshot) == phrases.FINE:
            return busy if remedy(snapshot) else f"{busy}: nothing holds it back"
        return ": ".join((busy, *faults))
    if phrases.syncs_come_first(snapshot):
        return f"GPU idle {units.share(idle)}: after each `.item()` it waits for Python's next launches"
    lost = {bucket: share[bucket] for bucket in share if bucket not in WORK}
    named = (f"idle_{estimate.cause}", estimate.cause or "")  # what the badge says
    cause = next((one for one in named if one in lost), max(lost, key=lambda bucket: lost[bucket]))
    if estimate.regime is Regime.MIXED:
        return (
            f"GPU computes {units.share(share['compute'])}, reads and writes memory "
            f"{units.share(share['memory'])}, {_waits(cause, snapshot)} {units.share(lost[cause])} "
            "of the time"
        )
    if largest.startswith("idle_") or cause.startswith("idle_"):
        late = remedy(snapshot) and snapshot.advisories[0].kind == LATE_BATCH and cause != INPUT
        data = share.get(INPUT, 0.0)
        also = f", {units.share(data)} of the time for data" if late and data else ""
        return f"GPU idle {units.share(idle)}: it {_waits(cause, snapshot)}{also}"
    return f"GPU {_waits(cause, snapshot)} {units.share(lost[cause])} of the time"


FP32 = "enable-tf32-or-amp"
INPUT, LATE_BATCH, WORK = phrases.INPUT, phrases.LATE_BATCH, phrases.WORK


def _waits(bucket: str, snapshot: Snapshot) -> str:
    loaders = snapshot.tables.loaders
    if bucket == INPUT and loaders and (workers := loaders[0].workers) is not None:
        return f"waits for your DataLoader ({workers} worker{'s' * (workers != 1)})"
    python = snapshot.source.kind not in ("nsys", "jax")  # whose launches are of any program
    does = CAUSES[bucket].gpu_does.replace("Python", "Python" if python else "the host")
    estimate = snapshot.estimate
    line = phrases.away_at(estimate, bucket.removeprefix("idle_")) if estimate else None
    if line is not None and line.reads_as == "input":
        does = does.replace("is busy with something else", "waits for its input")
    return f"{does} at {line.place}" if line is not None else does


def promised(advisory: Advisory) -> str:
    """`about 2.9× faster with torch.compile`; empty for advice that wins too little, or may lose."""
    saves = advisory.saves if advisory.saves is not None else advisory.saves_at_most
    if saves is None or not WORTH_SAYING <= saves < 1 or advisory.may_lose:
        return ""
    speed, about = units.times_as_fast(saves), "about" if advisory.saves is not None else "at most"
    if (advisory.saves_at_most or 0.0) >= OPEN and advisory.evidence.get("edit") in MAY_FAIL:
        about, speed = "at least", units.times_as_fast(advisory.saves_low or 0.0)
    by_hand = advisory.kind == LATE_BATCH and advisory.evidence.get("wait_mean_ns", 0) is None
    how = "if the next batch is ready" if by_hand else GAIN_PHRASES.get(advisory.kind, "")
    if advisory.kind == FP32 and "edit" in advisory.evidence:
        how = f"with {advisory.evidence['edit']}"
    return f"{about} {speed} faster {how}".rstrip()


def recoverable(snapshot: Snapshot, settings: Settings) -> str:
    """`54 s of 58 s recoverable, 0.04 €`: of the run, by the first advice; empty where it wins little."""
    whole = snapshot.run or (snapshot.estimate and snapshot.estimate.account)
    if not whole or not whole.duration_ns or not remedy(snapshot):
        return ""
    first = snapshot.advisories[0]
    saves = first.saves if first.saves is not None else first.saves_at_most or 0.0
    won_ns = saves * whole.duration_ns
    money = settings.money(won_ns)
    most = "" if first.saves is not None else "at most "
    text = f"{most}{units.clock(won_ns)} of {units.clock(whole.duration_ns)} recoverable"
    return f"{text}, {money}" if money else text


def cost(snapshot: Snapshot, settings: Settings) -> str:
    """`54 s of 58 s recoverable: waits for data 82%, compute 9%`; the time where nothing wins enough."""
    whole = snapshot.run or (snapshot.estimate and snapshot.estimate.account)
    if not whole or not whole.duration_ns:
        return ""
    watched = f"{units.clock(whole.duration_ns)} of the GPU watched"
    text = recoverable(snapshot, settings) or watched
    if snapshot.estimate is None:
        return text
    spent = sorted(phrases.buckets(snapshot.estimate.account), key=lambda one: -one[1])
    parts = ((name, ns / max(1, snapshot.estimate.account.duration_ns)) for name, ns in spent)
    causes = [phrases.labels(name, part)[0] for name, part in parts if part >= WORTH_SAYING]
    return f"{text}: {', '.join(causes)}"
