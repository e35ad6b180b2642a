"""The verdict: which regime, why, how sure, the split behind it; in plain words; and what it cost."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.text import phrases, units
from brrrtop.text.hero import cost, headline_text
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import reason, split_parts, sureness
from brrrtop.tui.renderables.bar import bar
from brrrtop.tui.renderables.line import clipped, paragraph, sided, wrapped
from brrrtop.tui.widgets.pane import Fitted, Pane

_WAITING = "waiting "
LINES = 2
WORDY = 70
"""Width from which there is room for more than the figure of the confidence."""


class Banner(Pane):
    """Two lines: the verdict and the split."""

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        estimate = snapshot.estimate
        if estimate is None:
            return nothing_yet(snapshot, self.palette, width, max(1, height))
        parts = split_parts(estimate.split)
        labels = [f"{name} {units.share(share)}" for name, share in parts]
        return [headline(estimate, self.palette, width), bar(parts, self.palette, width, labels)]


def headline(estimate: Estimate, palette: Palette, width: int) -> Text:
    """The verdict, and how sure it is: the figure alone where the words would touch its reason,
    and what comes with it where there is room."""
    text, sure = verdict(estimate, palette), confidence(estimate, palette, width)
    also = phrases.besides(estimate)
    if text.cell_len + len(also) + sure.cell_len + 2 <= width:
        text.append(also, palette.style("text"))
    if text.cell_len + sure.cell_len + 2 > width:
        sure = confidence(estimate, palette, 0)
    return sided(text, sure, width)


def nothing_yet(snapshot: Snapshot, palette: Palette, width: int, height: int) -> list[Text]:
    """What is waited for, stands in the way or came to an end: on as many lines as there are."""
    badge = "ENDED " if snapshot.freshness is Freshness.ENDED else "WAITING "
    says = reason(snapshot.source) or "for the first whole window of device activity"
    if not snapshot.source.notes and snapshot.source.tier == "nvml":
        says = phrases.unjudged(snapshot)
    flowed = wrapped(says.removeprefix(_WAITING), max(10, width - len(badge)))
    flowed[height - 1 :] = [" ".join(flowed[height - 1 :])] if len(flowed) >= height else []
    lines = []
    for i, line in enumerate(flowed):
        lead = badge if i == 0 else " " * len(badge)
        text = palette.text(lead, "text", bold=True)
        lines.append(clipped(text.append(line, palette.style("muted")), width))
    return lines


def tells_whole(note: str, width: int) -> bool:
    """Whether the banner has room for all of a note, so that nothing else need say it."""
    return len(wrapped(note.removeprefix(_WAITING), max(10, width - len("WAITING ")))) <= LINES


def verdict(estimate: Estimate, palette: Palette) -> Text:
    """The regime as a badge, and its reason in words."""
    regime = estimate.regime
    badge = palette.filled(regime.value) if palette.colour else palette.style("text", bold=True)
    if regime is Regime.MIXED and palette.colour:
        badge = palette.style("text", bold=True)
    text = Text.styled(f" {phrases.HEADLINES[regime]} ", badge)
    text.stylize("bold")
    text.append("  ")
    cause = estimate.cause
    if cause and cause != regime.value and regime is not Regime.UNKNOWN:
        text.append(cause.replace("_", " "), palette.style("text", bold=True))
        text.append(": ", palette.style("muted"))
    text.append(phrases.because(estimate), palette.style("text"))
    if estimate.steps.warming_up:
        text.append("  (warming up: shown, not judged)", palette.style("muted"))
    return text


def confidence(estimate: Estimate, palette: Palette, width: int) -> Text:
    """How sure, and what else it may be; where that would cost the reason, the figure alone."""
    word = f"{sureness(estimate.confidence)} " if width >= WORDY else ""
    text = palette.text(word, "text")
    text.append(units.share(estimate.confidence), palette.style("text", bold=True))
    if not word:
        return text.append(" sure", palette.style("muted"))
    if estimate.runner_up is not None and estimate.confidence < 0.7:
        text.append(f", or {estimate.runner_up.value}", palette.style("muted"))
    return text


class Hero(Fitted):
    """Takes no room while nothing is judged."""

    def show(self, snapshot: Snapshot) -> None:
        self.display = bool(headline_text(snapshot))
        super().show(snapshot)

    def inputs(self, snapshot: Snapshot) -> object:
        return (headline_text(snapshot), snapshot.since_attach)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """The sentence first; the cost where lines are left, shorter where it would be cut."""
        bold, muted = self.palette.style("text", bold=True), self.palette.style("muted")
        lines = paragraph(headline_text(snapshot), max(10, width), bold)[:height]
        spent = cost(snapshot)
        if spent and len(lines) < height:
            if len(spent) > width:
                watched, _, rest = spent.partition(", ")
                spent = f"{watched}, {rest.partition(' (')[0]}"
            lines.append(Text.styled(spent, muted))
        return lines
