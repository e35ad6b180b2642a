"""Rules about what a run does beside its training steps."""

from collections.abc import Callable

from msgspec import Struct

from brrrtop.advisories.context import Context
from brrrtop.advisories.registry import OVERHEAD, Finding, finding, rule
from brrrtop.model.run import PhaseKind
from brrrtop.text import units

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
