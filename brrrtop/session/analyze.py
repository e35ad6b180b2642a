"""A finished source as a whole: one snapshot of everything in it, for `analyze`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.account.steady_part import steady_part
from brrrtop.analysis.estimate import Analysis, estimate, step_picture
from brrrtop.analysis.facts.steps import between_steps
from brrrtop.errors import BadInput
from brrrtop.ledger.ledger import Ledger
from brrrtop.ledger.verdict import of_run, whole_run
from brrrtop.model.estimate import Estimate, Regime, Steps
from brrrtop.model.host_tables import HostDetails
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Freshness, LeftOut, Snapshot, StepPicture
from brrrtop.model.tables import Span
from brrrtop.session import verdict as verdicts
from brrrtop.sources.source import Source, malloc_trim
from brrrtop.text.phrases import STARTS
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass


def analyze(
    source: Source,
    steps: tuple[int, int] | None = None,
    device: int | None = None,
    *,
    trimmed: bool = False,
    silenced: frozenset[str] = frozenset(),
    worst: bool = False,
    timeline: Timeline | None = None,
) -> Snapshot:
    """One snapshot of all of it, without what a trace holds once (`steady_part`).

    Args:
        source: Read to its end, and closed.
        steps: First and last step to judge, counted from 1; None: all of the file.
        device: The GPU to speak of; None: the busiest.
        trimmed: Between the first and the last step, where they are not chosen, nor samples of a run.
        silenced: Ids of advice that nobody wants to hear.
        worst: The picture is of the longest step, to be exported.
        timeline: All of the source, where it has been read for more than this.

    Raises:
        BadInput: No device activity, no such device or steps.
    """
    timeline = timeline or read(source)
    details: HostDetails | None = getattr(source, "details", None)  # of traces
    source.close()  # the timeline has the rest: large traces twice are too much
    timeline.sort()
    malloc_trim()
    span = verdicts.whole(timeline)
    if not (ids := timeline.active_devices(span)) or device not in (None, *ids):
        raise _without_activity(source, device, ids)
    every, left_out = (
        steady_analyses(timeline, device)
        if steps is None
        else (_analyses_of_steps(timeline, span, (ids[0] if device is None else device), steps), ())
    )
    if trimmed and steps is None and not timeline.observed:
        every = tuple(_trim(timeline, one) for one in every)
    shown = verdicts.of_device(every, device)
    runs = runs_of(timeline, every) if steps is None else {}
    run = runs.get(shown.estimate.device.device_id)
    verdict = verdicts.verdict(timeline, shown, details, run if timeline.observed else None)
    if worst:
        verdict = replace(verdict, picture=_worst_step_picture(shown))
    judged = _judged(every, runs, any(one.kind == STARTS for one in verdict.advice.given))
    at = Snapshot(
        source=source.info,
        freshness=Freshness.ENDED,
        now_ns=shown.estimate.span.t1_ns,
        age_ns=0,
        progress=1.0,
        estimate=judged[every.index(shown)],
        run=run,
        devices=judged,
        left_out=left_out,
        lost_records=timeline.losses.get("records", 0),
        zero_timestamps=timeline.losses.get("zero_timestamps", 0),
    )
    return verdicts.showing(at, verdict, verdict.advice.given, silenced)


def _judged(
    every: Sequence[Analysis], runs: Mapping[int, Run | None], starts: bool
) -> tuple[Estimate, ...]:
    """What each GPU's report says; of a program's start no verdict is right."""
    judged = (of_run(one, runs.get(one.estimate.device.device_id)) for one in every)
    none: dict[str, Any] = {"regime": Regime.UNKNOWN, "runner_up": None, "confidence": 0.0}
    return tuple(replace(one, **none) if starts else one for one in judged)


def runs_of(timeline: Timeline, every: Sequence[Analysis]) -> dict[int, Run | None]:
    """By GPU, the run that bursts are samples of; where everything was traced it is the window."""
    until_ns = timeline.newest_ns if timeline.observed is not None else None
    known = {one.estimate.device.device_id: one.estimate for one in every}
    if until_ns is None:
        return {number: whole_run(one) for number, one in known.items()}
    runs = {number: Ledger().run(timeline, number, until_ns) for number in known}
    return {i: run and replace(run, batch=known[i].batch) for i, run in runs.items()}


def steady_analyses(
    timeline: Timeline, device: int | None
) -> tuple[tuple[Analysis, ...], tuple[LeftOut, ...]]:
    """All GPUs of a finished source without what it holds once, which is named; busiest first.

    Args:
        device: The GPU that says what is odd; None: the busiest.
    """
    every = verdicts.analyses(timeline, verdicts.whole(timeline))
    if not every:
        return every, ()
    if timeline.hello.get("threads"):  # ranks in one file: none begins or ends with another
        every = tuple(_in_own_span(timeline, one) for one in every)
    steady, left_out = steady_part(verdicts.of_device(every, device).facts)
    return (verdicts.analyses(timeline, steady), left_out) if left_out else (every, ())


def _in_own_span(timeline: Timeline, analysis: Analysis) -> Analysis:
    """The same from the first to the last that its own process did."""
    acts, marks = analysis.facts.window.activities, analysis.facts.window.marks
    steps = (marks.classes == MarkClass.STEP) & (marks.starts_ns < marks.ends_ns)
    begin = min(int(acts.starts_ns.min()), *marks.starts_ns[steps].tolist()[:1] or [1 << 62])
    end = max(int(acts.ends_ns.max()), *marks.ends_ns[steps].tolist()[-1:] or [0])
    return estimate(timeline.window(Span(begin, end), analysis.estimate.device.device_id))


def read(source: Source) -> Timeline:
    timeline = Timeline()
    for frame in source.frames():
        timeline.add(frame)
    return timeline


def _without_activity(source: Source, device: int | None, ids: Sequence[int]) -> BadInput:
    """Why it cannot be judged: none of its GPUs did anything, or not the one that was asked for."""
    if ids:
        listed = ", ".join(str(i) for i in sorted(ids))
        message = f"{source.info.label} has no activity on GPU {device}"
        return BadInput(message, f"it has GPU {listed}")
    helps = "record it with ProfilerActivity.CUDA on a machine with an NVIDIA GPU"
    if source.info.kind == "recording":
        helps = (
            "record a training that runs on an NVIDIA GPU; `brrrtop doctor PID` says what is seen"
        )
        if source.info.notes:
            helps = f"{source.info.notes[0]}: copy or record it again"
    return BadInput(f"{source.info.label} has no GPU activity in it that takes time", helps)


def _trim(timeline: Timeline, analysis: Analysis) -> Analysis:
    span = between_steps(analysis.estimate.steps)
    if span is None:
        return analysis
    return estimate(timeline.window(span, analysis.estimate.device.device_id))


def _chosen_steps(timeline: Timeline, span: Span, device: int, steps: tuple[int, int]) -> Steps:
    """Some of the file's steps, as they were told apart in all of it."""
    result = estimate(timeline.window(span, device)).estimate.steps
    first, last = steps
    count = len(result.spans)
    if not count:
        raise BadInput("no steps can be told apart in this file", "leave out --steps")
    if not 1 <= first <= last <= count:
        raise BadInput(f"there are steps 1-{count}, not {first}-{last}", "choose among them")
    chosen = result.spans[first - 1 : last]
    usual = int(np.median([one.duration_ns for one in chosen]))
    return replace(result, count=len(chosen), step_ns=usual, spans=chosen)


def _analyses_of_steps(
    timeline: Timeline, span: Span, device: int, steps: tuple[int, int]
) -> tuple[Analysis, ...]:
    """All GPUs from the first to the last of the steps that were chosen."""
    chosen = _chosen_steps(timeline, span, device, steps)
    span = Span(chosen.spans[0].t0_ns, chosen.spans[-1].t1_ns)
    return tuple(_of_steps(analysis, chosen) for analysis in verdicts.analyses(timeline, span))


def _of_steps(analysis: Analysis, chosen: Steps) -> Analysis:
    """The same with the steps that were chosen: the host, which is ahead, marked them earlier than
    they ran, and so outside the window."""
    steps = replace(chosen, warming_up=analysis.estimate.steps.warming_up)
    return replace(analysis, estimate=replace(analysis.estimate, steps=steps))


def _worst_step_picture(analysis: Analysis) -> StepPicture | None:
    """Of the longest whole step, to be sent to a colleague; where no steps are known of the end of the
    window, None without activity."""
    steps = analysis.estimate.steps
    if not steps.spans:
        return step_picture(analysis)
    number = max(range(len(steps.spans)), key=lambda row: steps.spans[row].duration_ns)
    longest = steps.spans[number]
    only = replace(steps, spans=(longest,), step_ns=longest.duration_ns)
    alone = replace(analysis, estimate=replace(analysis.estimate, steps=only))
    picture = step_picture(alone)
    return picture and replace(picture, step=number + 1, steps=len(steps.spans))
