"""The picture of the step that lost most: what one sends to a colleague."""

from __future__ import annotations

from msgspec.structs import replace

from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.step_picture import step_picture
from brrrtop.model.snapshot import StepPicture


def worst_step_picture(judged: Analysis) -> StepPicture | None:
    """The longest whole step; where no steps are known the end of the window, None without activity."""
    steps = judged.estimate.steps
    if not steps.spans:
        return step_picture(judged)
    number = max(range(len(steps.spans)), key=lambda row: steps.spans[row].duration_ns)
    longest = steps.spans[number]
    only = replace(steps, spans=(longest,), step_ns=longest.duration_ns)
    alone = replace(judged, estimate=replace(judged.estimate, steps=only))
    picture = step_picture(alone)
    return picture and replace(picture, step=number + 1, steps=len(steps.spans))
