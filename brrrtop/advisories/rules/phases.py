"""Rules about what a run does beside its training steps: each phase that takes a large share of its time."""

from __future__ import annotations

from brrrtop.advisories.context import Context
from brrrtop.advisories.registry import OVERHEAD, Finding, finding, rule
from brrrtop.model.run import Phase, PhaseKind
from brrrtop.text import units

LARGE = 0.10
"""Of the run: a phase that takes less is not worth a change of the program."""
_WASTE = "tuning the training step: it is not running then"


def _phase(context: Context, *kinds: PhaseKind) -> Phase | None:
    """The largest phase of these kinds, if it is large."""
    phases = context.run.phases if context.run is not None else ()
    largest = next((one for one in phases if one.kind in kinds), None)
    return largest if largest is not None and largest.share >= LARGE else None


def _finding(phase: Phase, what: str, instead: str, part: float) -> Finding:
    """Args:
    part: Of the phase's time that the advice can win at most, beside its waits for data.
    """
    place = f" ({phase.where})" if phase.where else ""
    active = f", GPU active {units.share(phase.active)}" if phase.active is not None else ""
    waits = phase.account.idle_ns["input"] / phase.duration_ns
    return finding(
        f"{what}{place} takes {units.share(phase.share)} of the run, "
        f"{units.duration(phase.longest_ns)} at a time{active}",
        instead,
        waste=_WASTE,
        confidence=0.8,
        saves=phase.share * max(0.0, part - waits),
        phase_share=phase.share,
        longest_ns=phase.longest_ns,
        times=phase.count,
    )


@rule(
    "evaluation-share", OVERHEAD, "Evaluation takes a large share of the run",
    when="at least 10 % of the run evaluates; its waits for data are the loader's",
    unless="programs that do nothing else",
)  # fmt: skip
def evaluation_share(context: Context) -> Finding | None:
    phase = _phase(context, PhaseKind.EVALUATION)
    if phase is None or context.run is None or context.run.train is None:
        return None
    return _finding(
        phase, "evaluation",
        "evaluate less often or on a part of the set, with larger batches under torch.inference_mode()",
        part=0.75,
    )  # fmt: skip


@rule(
    "generation-share", OVERHEAD, "Generation takes a large share of the run",
    when="at least 10 % of the run generates",
    unless="inference servers, whose work it is",
)  # fmt: skip
def generation_share(context: Context) -> Finding | None:
    phase = _phase(context, PhaseKind.GENERATION)
    if phase is None or context.run is None or context.run.train is None:
        return None
    return _finding(
        phase, "generation",
        "generate less often, several prompts at once, with a KV cache "
        '(cache_implementation="static" and torch.compile)',
        part=0.9,
    )  # fmt: skip


@rule(
    "rollout-share", OVERHEAD, "Rollouts take a large share of the run",
    when="at least 10 % of the run collects rollouts while nothing trains",
    unless="rollouts that run beside the updates",
)  # fmt: skip
def rollout_share(context: Context) -> Finding | None:
    phase = _phase(context, PhaseKind.ROLLOUT)
    if phase is None:
        return None
    return _finding(
        phase, "collecting rollouts",
        "run many environments at once (gymnasium.vector.AsyncVectorEnv, or on the GPU), and collect the "
        "next rollout while this one trains",
        part=0.9,
    )  # fmt: skip


@rule(
    "other-share", OVERHEAD, "Something beside training takes a large share of the run",
    when="at least 10 % of the run passes between steps in code that no step goes through",
    unless="phases with advice of their own",
)  # fmt: skip
def other_share(context: Context) -> Finding | None:
    phase = _phase(context, PhaseKind.OTHER, PhaseKind.DATA)
    if phase is None or not phase.where or context.run is None or context.run.train is None:
        return None
    return _finding(
        phase, "what runs between the steps",
        f"do the work of {phase.where} less often, in a thread, or in a worker process",
        part=0.9,
    )  # fmt: skip
