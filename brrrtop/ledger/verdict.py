"""The verdict on a run: the estimate of what was traced, with the account of all of the run's time in it."""

from msgspec.structs import replace

from brrrtop.analysis.account.account import judge, parts_of_overhead
from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.facts.stack_samples import samples_of
from brrrtop.analysis.kernels import table
from brrrtop.model.account import Account
from brrrtop.model.estimate import Estimate
from brrrtop.model.run import Phase, PhaseKind, Run, Unseen, Witness

CONTRADICTION = 0.15
"""Of the run: from such a difference of its two witnesses on, a verdict is not sure."""
TINY_KERNEL_NS = 9_000
"""The counter calls the GPU active for so long round a kernel at most, where the host sets the pace
(3 to 9 µs in 14 loops on an H100)."""
UNSURE = 0.6
"""The most that is claimed without a second witness, or against it."""
SHORTER = 0.7
"""Of the mean step: tracing makes steps longer (0.95 to 2.4 times in 43 programs on H100s). Traced ones that
are so short are not those that take the time."""
SOON_NS, MOSTLY = 500_000_000, 0.5
"""A run of this length that waits for so much of it is held back by that, whatever its kernels are."""
NEARLY = 0.8
"""Of the largest cause of idle time, by bursts: so long a wait, by marks, is as large."""
YOUNG_NS, FEW_STEPS = 3_000_000_000, 8
"""A run that was watched for less, in time and in steps, may be at its beginning."""


def whole_run(result: Estimate) -> Run:
    """The run of a file in which everything was traced: one phase, the window."""
    account, steps, mean_ns = result.account, result.steps, result.mean_step_ns
    step_ns = round(mean_ns) if mean_ns else None
    kernels_ns = account.busy_ns - account.exposed_copy_ns
    phase = Phase(
        kind=PhaseKind.TRAIN if steps.count else PhaseKind.OTHER,
        where="",
        duration_ns=account.duration_ns,
        share=1.0,
        count=1,
        longest_ns=account.duration_ns,
        steps=steps.count or 0,
        step_ns=step_ns,
        waits_ns=account.idle_ns["input"],
        active=None,
        traced_ns=account.duration_ns,
        traced_steps=steps.count or 0,
        account=account,
        split=result.split,
    )
    return Run(
        span=result.span,
        account=account,
        split=result.split,
        phases=(phase,),
        witness=Witness(
            active_account=kernels_ns / account.duration_ns if account.duration_ns else None,
            step_ns_traced=mean_ns,
        ),
        traced_ns=account.duration_ns,
        steps=steps.count or 0,
        step_ns=step_ns,
        batch=result.batch,
    )


def of_run(analysis: Analysis, run: Run | None) -> Estimate:
    """The estimate of one device with the run's account, verdict and witnesses."""
    result = analysis.estimate
    if run is None or run.account is result.account:
        return replace(result, run=run)
    uncertainty_by_bound = table.uncertainty_by_bound(analysis.facts)
    kernels = len(analysis.facts.call_rows)
    verdict = judge(run.account, run.split, uncertainty_by_bound, kernels, shared=result.shared)
    sure = verdict.confidence
    contradicted = contradiction(run, kernels, result.steps_covered) or _saw_short_steps(run)
    if contradicted or _is_young(run):
        sure = min(sure, UNSURE)
    cause = _measured(run, verdict.cause)
    if cause is not None and _may_be_waits(run, cause):
        sure = min(sure, UNSURE)
    return replace(
        result,
        account=run.account,
        split=run.split,
        regime=verdict.regime,
        cause=cause,
        confidence=sure,
        runner_up=verdict.runner_up,
        stack_samples=samples_of(run, result.stack_samples),
        observed_share=run.traced_ns / max(1, run.duration_ns),
        traced_ns=result.account.duration_ns,
        run=run,
    )


def unseen(account: Account) -> Unseen | None:
    """What the ledger alone says of a run, nothing of which was traced; None: that needs kernels."""
    cause = max(("input", "io"), key=lambda one: account.idle_ns[one])
    share = account.idle_ns[cause] / max(1, account.duration_ns)
    known = account.duration_ns >= SOON_NS and share >= MOSTLY
    return Unseen(cause, share, UNSURE) if known else None


def contradiction(run: Run, kernels: int, steps: float | None) -> float | None:
    """How far the GPU's counter and the account are apart, as a share of the run; None: they agree, as far
    as a counter that takes the time round tiny kernels for work can, or one of them is missing.

    Args:
        kernels: That were traced in `steps` steps.
    """
    counter, account = run.witness.active_counter, run.witness.active_account
    if counter is None or account is None:
        return None
    train = next((one for one in run.phases if one.kind is PhaseKind.TRAIN), None)
    rate = kernels / steps / train.step_ns if steps and train and train.step_ns else 0.0
    apart = counter - account
    allowed = CONTRADICTION + (rate * TINY_KERNEL_NS * train.share if train and apart > 0 else 0.0)
    return apart if abs(apart) > allowed else None


def _saw_short_steps(run: Run) -> bool:
    """Whether bursts met only steps that are shorter than the run's."""
    marks, traced = run.witness.step_ns_marks, run.witness.step_ns_traced
    return marks is not None and traced is not None and traced < SHORTER * marks


def _measured(run: Run, cause: str | None) -> str | None:
    """The cause; waits for data in its place, where they are known by marks and what bursts and samples say
    is hardly longer."""
    parts = parts_of_overhead(run.account)
    waits = max(("input", "io"), key=lambda one: parts[one])
    is_guess = cause in ("launch", "host", "sync", "unknown") and parts[str(cause)] > 0
    known = is_guess and _more_waits(run) <= (1 - NEARLY) / 2 * parts[waits]
    return waits if known and parts[waits] >= NEARLY * parts[str(cause)] else cause


def _may_be_waits(run: Run, cause: str) -> bool:
    """Whether so few samples leave room for waits for data that are longer than the cause named."""
    parts = parts_of_overhead(run.account)
    waits_ns, more_ns = parts["input"] + parts["io"], _more_waits(run)
    return cause not in ("input", "io") and waits_ns + more_ns > parts[cause] - more_ns


def _more_waits(run: Run) -> int:
    """Waits for data beyond those known that samples leave room for, ns."""
    return sum(max(0, one.waits_most_ns - one.waits_ns) for one in run.phases)


def _is_young(run: Run) -> bool:
    return run.duration_ns < YOUNG_NS and run.steps < FEW_STEPS
