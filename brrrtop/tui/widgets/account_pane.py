"""Where the window's time went: every bucket in % and, of a step, in ms."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette, letter
from brrrtop.tui.parts import BucketTime, booked
from brrrtop.tui.renderables.line import rows, stacked
from brrrtop.tui.widgets.pane import Fitted


class AccountPane(Fitted):
    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.estimate,)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        estimate = snapshot.estimate
        if estimate is None:
            return []
        parts, steps = booked(estimate.account), estimate.steps_covered
        return stacked(legend(parts, self.palette, width, height, steps), width)


def legend(
    parts: tuple[BucketTime, ...],
    palette: Palette,
    width: int,
    count: int,
    steps: float | None = None,
) -> list[Text]:
    """Buckets by size over at most `count` lines; what does not fit is summed up at the end.

    Times are of one of the window's `steps` on average, as those of kernels are: a window's own grow
    with every burst. Of the window where there are no steps.
    """
    largest = sorted(parts, key=lambda part: -part.share)
    for left_out in range(len(largest) + 1):
        shown = largest[: len(largest) - left_out]
        pieces = [_entry(part, palette, steps, not i) for i, part in enumerate(shown)]
        if left_out:
            pieces.append(_rest(largest[len(shown) :], palette))
        lines = rows(pieces, width, len(pieces))
        if len(lines) <= count:
            return lines
    return []


def _entry(part: BucketTime, palette: Palette, steps: float | None, first: bool) -> Text:
    text = Text.styled(f"{letter(part.bucket)}", palette.filled(part.bucket))
    if not palette.colour:
        text = Text.styled(letter(part.bucket), "bold")
    text.append(f" {phrases.bucket(part.bucket)} ", palette.style("text"))
    text.append(units.share(part.share), palette.style(part.bucket, bold=True))
    spent = units.duration(round(part.spent_ns / steps) if steps else part.spent_ns)
    of_what = " a step" if steps and first else ""
    return text.append(f" {spent}{of_what}", palette.style("muted"))


def _rest(parts: list[BucketTime], palette: Palette) -> Text:
    share = units.share(sum(part.share for part in parts))
    return Text.styled(f"{len(parts)} more {share}", palette.style("muted"))
