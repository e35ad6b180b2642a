"""All advice, with everything that is known about it."""

from __future__ import annotations

from rich.text import Text

from brrrtop import units
from brrrtop.model import Advisory, Snapshot
from brrrtop.tui.look import Look
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.advice import evidence_pairs
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.wording import sureness


class AllAdvice(Scrolled):
    topic = "advice, most worth taking first"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        if not snapshot.advisories:
            words = "No advice: no rule has enough evidence to speak."
            return [Text.styled(words, self.look.style("muted"))]
        lines: list[Text] = []
        for advisory in snapshot.advisories:
            lines += advisory_lines(advisory, self.look, width)
            lines.append(Text())
        closing = "Change one thing at a time: else nobody knows which one helped."
        return [*lines, Text.styled(closing, self.look.style("muted"))]


def advisory_lines(advisory: Advisory, look: Look, width: int) -> list[Text]:
    """Symptom, evidence figure by figure, what to try, what would be a waste, its id."""
    most = advisory.saves_at_most
    prize = "to know" if most is None else f"saves ≤{units.share(most)}"
    lines = _labelled(prize, advisory.says, "good", look, width, bold=True)
    sure = f"{sureness(advisory.confidence)} {units.share(advisory.confidence)}"
    lines += _labelled("how sure", sure, "muted", look, width)
    lines += _labelled("try", advisory.suggests, "good", look, width)
    for i, (label, value) in enumerate(evidence_pairs(advisory.evidence)):
        lines += _labelled("" if i else "evidence", f"{label}: {value}", "muted", look, width)
    lines += _labelled("waste", advisory.waste, "muted", look, width)
    if most is not None:
        faster = f", {1 / (1 - most):.2f}× as fast" if most < 1 else ""
        words = f"at most {units.share(most, 1)} of the wall time{faster}"
        lines += _labelled("prize", words, "muted", look, width)
    return lines + _labelled("id", advisory.kind, "muted", look, width)


def _labelled(
    label: str, words: str, hue: str, look: Look, width: int, *, bold: bool = False
) -> list[Text]:
    lines = []
    for i, line in enumerate(wrapped(words, max(10, width - 12))):
        text = Text(no_wrap=True)
        text.append(f"{label if not i else '':>10}  ", look.style(hue, bold=bold))
        lines.append(text.append(line, look.style("text", bold=bold)))
    return lines


class AdviceView(SubView):
    def body(self) -> AllAdvice:
        return AllAdvice()
