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
        parts, step_ns = booked(estimate.account), estimate.steps.step_ns
        return stacked(legend(parts, self.palette, width, height, step_ns), width)


def legend(
    parts: tuple[BucketTime, ...],
    palette: Palette,
    width: int,
    count: int,
    step_ns: int | None = None,
) -> list[Text]:
    """Buckets by size over at most `count` lines; what does not fit is summed up at the end.

    Times are those of a median step, as a window's own grow with every burst; of the window where
    there are no steps.
    """
    largest = sorted(parts, key=lambda part: -part.share)
    for left_out in range(len(largest) + 1):
        shown = largest[: len(largest) - left_out]
        pieces = [_entry(part, palette, step_ns, not i) for i, part in enumerate(shown)]
        if left_out:
            pieces.append(_rest(largest[len(shown) :], palette))
        lines = rows(pieces, width, len(pieces))
        if len(lines) <= count:
            return lines
    return []


def _entry(part: BucketTime, palette: Palette, step_ns: int | None, first: bool) -> Text:
    text = Text.styled(f"{letter(part.bucket)}", palette.filled(part.bucket))
    if not palette.colour:
        text = Text.styled(letter(part.bucket), "bold")
    text.append(f" {phrases.bucket(part.bucket)} ", palette.style("text"))
    text.append(units.share(part.share), palette.style(part.bucket, bold=True))
    spent = units.duration(part.spent_ns if step_ns is None else round(part.share * step_ns))
    of_what = "" if step_ns is None or not first else " a step"
    return text.append(f" {spent}{of_what}", palette.style("muted"))


def _rest(parts: list[BucketTime], palette: Palette) -> Text:
    share = units.share(sum(part.share for part in parts))
    return Text.styled(f"{len(parts)} more {share}", palette.style("muted"))
