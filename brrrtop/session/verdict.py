"""From a span of a timeline to the snapshot that shows it: one way for a live trainer, for a playhead and
for a file as a whole. What differs between them (which span, what is steady, how old) is theirs.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.advise import Advice, advise, leading, split_silenced
from brrrtop.advisories.context import Context
from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.analysis.step_picture import step_picture
from brrrtop.analysis.tables.host_tables import host_tables
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.host_tables import NO_TABLES, HostDetails, HostTables
from brrrtop.model.run import PhaseKind, Run
from brrrtop.model.snapshot import Snapshot, StepPicture
from brrrtop.model.tables import Span
from brrrtop.timeline.timeline import Timeline

OTHER_KIND = 0.3
"""Steps that are so much longer or shorter are others, not the same ones of another pace."""


class Verdict(Struct, frozen=True, eq=False):
    advice: Advice
    tables: HostTables
    picture: StepPicture | None
    """Of the last whole step."""
    sample: Analysis | None = None
    """The steps that edits are simulated on."""


NOTHING = Verdict(Advice(), NO_TABLES, None)


def analyses(timeline: Timeline, span: Span, with_kernels: bool = True) -> tuple[Analysis, ...]:
    ids = timeline.active_devices(span)
    return tuple(estimate(timeline.window(span, i), with_kernels) for i in ids)


def of_device(every: tuple[Analysis, ...], device_id: int | None) -> Analysis:
    """That of the GPU asked for; of the busiest where that one did nothing, or nobody asked."""
    return next((one for one in every if one.estimate.device.device_id == device_id), every[0])


def verdict(
    timeline: Timeline,
    shown: Analysis,
    details: HostDetails | None = None,
    run: Run | None = None,
    before: Verdict | None = None,
    earlier: Context | None = None,
) -> Verdict:
    """What follows from the analysis of the GPU shown.

    Args:
        details: Of a trace: what it holds beyond a timeline.
        run: That the analysis is a sample of; None: it is all there is.
        before: An earlier verdict on the same analysis.
        earlier: What advice on an earlier analysis rests on.
    """
    if before is not None:
        sample = before.sample and _at_usual_pace(timeline, before.sample, run)
        advice = advise(shown, run, sample, before.advice.priced)
        return replace(before, advice=advice, tables=replace(before.tables, loaders=advice.loaders))
    sample = _of_one_loop(timeline, shown, run)
    recorded = timeline.recorded_step(shown.estimate.device.device_id)
    advice = advise(shown, run, _at_usual_pace(timeline, sample, run), earlier=earlier)
    tables = replace(host_tables(shown.facts, details, recorded), loaders=advice.loaders)
    mean_ns = run.step_ns if run is not None else None
    return Verdict(advice, tables, step_picture(sample, mean_ns=mean_ns), sample)


def _of_one_loop(timeline: Timeline, shown: Analysis, run: Run | None) -> Analysis:
    """The part of the analysis that lies in one training loop, where the run has several: the steps of two
    are no steps of one."""
    window = shown.facts.window
    held = run.loop_in(window.observed or ()) if run is not None else None
    if held is None or held[1] is None:
        return shown
    low, high = max(window.span.t0_ns, held[1].t0_ns), min(window.span.t1_ns, held[1].t1_ns)
    return estimate(timeline.window(Span(low, high), shown.estimate.device.device_id))


def _at_usual_pace(timeline: Timeline, sample: Analysis, run: Run | None) -> Analysis:
    """The sample with the run's usual step in place of one around its burst, when the host was quicker or
    slower: gains are then those of the report at any time."""
    steps, usual_ns = sample.estimate.steps, timeline.usual_step_ns()
    if run is None or not usual_ns or steps.source != "marks" or not steps.step_ns:
        return sample
    if sum(one.kind is PhaseKind.TRAIN for one in run.phases) > 1:  # whose usual step is it?
        return sample
    if abs(usual_ns / steps.step_ns - 1) >= OTHER_KIND:
        return sample
    steps = replace(steps, step_ns=int(usual_ns))
    return replace(sample, estimate=replace(sample.estimate, steps=steps))


def showing(
    at: Snapshot, verdict: Verdict, given: Sequence[Advisory], silenced: Collection[str]
) -> Snapshot:
    """A judged snapshot with what follows from its verdict: its advice in the order to make it,
    by the cause that it names. Steps of what-ifs are those of the run now."""
    step_ns = at.run.step_ns if at.run is not None else None
    ordered = leading(given, at.estimate.cause if at.estimate is not None else None)
    shown, quiet = split_silenced(ordered, silenced)
    return replace(
        at,
        advisories=shown,
        silenced=quiet,
        whatif=tuple(of_step(row, step_ns) for row in verdict.advice.whatif),
        whatif_after=verdict.advice.after,
        tables=verdict.tables,
        picture=verdict.picture,
    )


def of_step(row: WhatIf, step_ns: int | None) -> WhatIf:
    """The same gain of a step of that length; None: no steps are known."""
    if not step_ns or not row.present_ns > 0:
        return row
    return replace(row, step_ns=row.step_ns / row.present_ns * step_ns)
