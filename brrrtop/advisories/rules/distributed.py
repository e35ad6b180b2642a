"""Rules about the whole run: what it does beside its training steps; collectives on one rank; of several
ranks beside each other the advice, and the price of a step with no rank later than the others.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.context import Context
from brrrtop.advisories.registry import OVERHEAD, RANKS, Finding, edit, finding, rule
from brrrtop.analysis.facts.collectives import collectives_of
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.ranks import JobSnapshot
from brrrtop.model.run import PhaseKind
from brrrtop.text import units
from brrrtop.whatif.price import doubt_of

MOSTLY = 0.5
"""Of exposed communication: more of it in exchanges of activations has a remedy of its own."""
SHORT_A_STEP = 50
"""Collectives under 50 us."""
ALONE = "; one rank alone cannot tell a slow link from a late peer"
_MANY_STEPS = 3
_LINE = "find what makes the last rank late"


@edit(
    "exposed-communication", RANKS, "Collectives that nothing hides", "overlap-communication",
    unless="one rank cannot tell a slow link from a late peer: the advice says so",
)  # fmt: skip
def exposed_communication(context: Context, row: WhatIf) -> Finding | None:
    exposed = context.share(context.estimate.account.exposed_comm_ns)
    seen = collectives_of(context.facts.window)
    what = "collectives run"
    line = (
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True) or FSDP "
        "prefetch; bf16 gradients halve the bytes"
    )
    if (seen.exchanged_share or 0.0) >= MOSTLY:  # activations: no bucket of gradients holds them
        what = "all-to-all or send and receive runs"
        line = (
            "dist.all_to_all_single(..., async_op=True) beside the part that needs no exchange, such "
            "as shared experts, or in chunks; 8-bit activations halve the bytes"
        )
    return finding(
        f"{units.share(exposed)} of the time only {what}; one rank alone cannot tell a slow link "
        "from a late peer",
        line,
        exposed_share=exposed,
        exchanged_share=seen.exchanged_share,
        collectives_a_step=context.a_step(len(seen)),
    )


@rule(
    "tiny-collectives", RANKS, "Many collectives that are all latency",
    when="at least 50 collectives a step under 50 us",
    unless="collectives hidden behind compute",
)  # fmt: skip
def tiny_collectives(context: Context) -> Finding | None:
    seen = collectives_of(context.facts.window)
    if context.a_step(seen.short) < SHORT_A_STEP:
        return None
    exposed = context.estimate.account.exposed_comm_ns
    return finding(
        f"{context.a_step(seen.short):.0f} collectives {context.per} last under 50 us: their "
        "price is latency",
        "bucket_cap_mb=25 or more, model.no_sync() while accumulating, or coalesce them",
        waste="a faster link: latency stays",
        confidence=0.55,
        saves=context.share(min(exposed, 20_000 * seen.short)),
        short_a_step=context.a_step(seen.short),
        collectives_a_step=context.a_step(len(seen)),
    )


def advise_job(job: JobSnapshot, silenced: frozenset[str] = frozenset()) -> JobSnapshot:
    row = peers_in_step(job)
    given = straggler(job)
    return replace(
        job,
        advisories=(given,) if given is not None and given.kind not in silenced else (),
        whatif=(row,) if row is not None else (),
    )


def straggler(job: JobSnapshot) -> Advisory | None:
    """One rank that the others wait for in every step."""
    from brrrtop.text import causes as words

    waited = job.waited_for
    if waited is None or not waited.is_slow:
        return None
    gain = waited.gain or 0.0
    row = peers_in_step(job)
    return Advisory(
        kind="straggler",
        says=words.sentence(job),
        confidence=0.95 if (job.steps or 0) >= _MANY_STEPS else 0.8,
        saves_at_most=round(row.saves_high if row else gain, 4),
        evidence={
            "rank": waited.rank,
            "cause": waited.cause,
            "late_ms": waited.late_ns / 1e6,
            "others_wait_ms": waited.others_wait_ns / 1e6,
            "last_in": waited.last_in,
            "collectives": waited.of,
        },
        suggests=words.fix(waited),
        waste="a faster link or larger buckets: the others wait for that rank, not for the wire",
        saves=round(gain, 4),
        saves_low=round(row.saves_low if row else gain, 4),
    )


def beside_peers(given: Sequence[Advisory], job: JobSnapshot) -> tuple[Advisory, ...]:
    """A rank's own advice, now that its peers are known: exposed communication is told from waiting."""
    if not job.together_ns:
        return tuple(given)
    kept = []
    for one in given:
        if one.kind == "exposed-communication":
            if job.waited_for is not None and job.waited_for.is_slow:
                continue
            moved = f"; {units.duration(job.transfer_ns)} of it is transfer on every rank"
            if job.missing:
                moved = "; ranks are missing, so this may be a slow link or a late peer"
            one = replace(one, says=one.says.replace(ALONE, moved if job.transfer_ns else ""))
        kept.append(one)
    return tuple(kept)


def peers_in_step(job: JobSnapshot) -> WhatIf | None:
    """The price of `peers-in-step`; None where the ranks were not seen together for a whole step.

    Everybody waits for the latest: a step is as much shorter as that one's own work is longer.
    """
    present = job.step_ns
    if not job.together_ns or not job.steps or job.steps < 1 or not present:
        return None
    late = [row.late_ns for row in job.ranks if row.late_ns is not None]
    if len(late) < 2:
        return None
    waited = job.waited_for
    most = min(max(late), present)
    saves = most / present
    waits = waited.others_wait_ns if waited is not None and waited.is_slow else most
    doubt = doubt_of(saves)
    low, high = sorted((saves, min(waits / present, 1.0)))
    return WhatIf(
        edit="peers-in-step",
        step_ns=present - most,
        saves=saves,
        saves_low=min(low, saves - doubt),
        saves_high=min(max(high, saves + doubt), 0.99),
        advisory="straggler" if waited is not None and waited.is_slow else None,
        line=_LINE,
    )


rule(
    "straggler", RANKS, "One rank arrives last", of_job=True,
    when="over two ranks or more: its own work takes 3 % of a step longer than its peers', in most steps, "
    "and most of all waits in collectives are for it; or it waits as long for data all along the run",
    unless="one rank alone; ranks that were not recorded together; a rank that only began late; pipeline "
    "stages, whose roles differ",
)(straggler)  # fmt: skip


LARGE = 0.10
"""Of the run: a phase that takes less is not worth a change of the program."""


class _PhaseRule(Struct, frozen=True):
    """Advice on the largest phase of some kinds; `{where}` stands for its line."""

    kinds: tuple[PhaseKind, ...]
    kind: str
    title: str
    when: str
    unless: str
    what: str
    instead: str
    beside_training: bool = True
    """Only of a run that trains as well."""


_RULES = (
    _PhaseRule(
        (PhaseKind.EVALUATION,), "evaluation-share", "Evaluation takes a large share of the run",
        "at least 10 % of the run evaluates; its waits for data are the loader's",
        "programs that do nothing else",
        "evaluation",
        "evaluate less often or on a part of the set, with larger batches under torch.inference_mode()",
    ),
    _PhaseRule(
        (PhaseKind.GENERATION,), "generation-share", "Generation takes a large share of the run",
        "at least 10 % of the run generates",
        "inference servers, whose work it is",
        "generation",
        "generate less often, several prompts at once, with a KV cache "
        '(cache_implementation="static" and torch.compile)',
    ),
    _PhaseRule(
        (PhaseKind.ROLLOUT,), "rollout-share", "Rollouts take a large share of the run",
        "at least 10 % of the run collects rollouts while nothing trains",
        "rollouts that run beside the updates",
        "collecting rollouts",
        "run many environments at once (gymnasium.vector.AsyncVectorEnv, or on the GPU), and collect the "
        "next rollout while this one trains",
        beside_training=False,
    ),
    _PhaseRule(
        (PhaseKind.OTHER, PhaseKind.DATA), "other-share",
        "Something beside training takes a large share of the run",
        "at least 10 % of the run passes between steps in code that no step goes through",
        "phases with advice of their own",
        "what runs between the steps",
        "do the work of {where} less often, in a thread, or in a worker process",
    ),
)  # fmt: skip


def _check(of: _PhaseRule) -> Callable[[Context], Finding | None]:
    def check(context: Context) -> Finding | None:
        run = context.run
        if run is None or (of.beside_training and run.train is None):
            return None
        phase = next((one for one in run.phases if one.kind in of.kinds), None)
        if phase is None or phase.share < LARGE or ("{where}" in of.instead and not phase.where):
            return None
        place = f" ({phase.where})" if phase.where else ""
        waits = phase.waits_share or 0.0
        left = phase.share * max(0.0, 1 - waits)
        other = f", {units.share(left)} without its waits for data" if waits >= LARGE else ""
        return finding(
            f"{of.what}{place} takes {units.share(phase.share)} of the run{other}",
            of.instead.format(where=phase.where),
            waste="tuning the training step, which stands still meanwhile",
            confidence=0.8, saves=left,
            phase_share=phase.share, longest_ns=phase.longest_ns, times=phase.count,
        )  # fmt: skip

    return check


for _of in _RULES:
    rule(_of.kind, OVERHEAD, _of.title, when=_of.when, unless=_of.unless)(_check(_of))
