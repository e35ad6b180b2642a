"""All advice, with everything that is known about it."""

from __future__ import annotations

from rich.text import Text

from brrrtop import units
from brrrtop.model import Advisory, Snapshot
from brrrtop.tui.look import Look
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.advice import evidence_pairs, headline
from brrrtop.tui.widgets.scrolled import Scrolled


class AllAdvice(Scrolled):
    topic = "advice, ranked by what it can save at most"

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
    lines = [headline(advisory, look, width)]
    lines += _labelled("try", advisory.suggests, "good", look, width)
    for i, (label, value) in enumerate(evidence_pairs(advisory.evidence)):
        lines += _labelled("" if i else "evidence", f"{label}: {value}", "muted", look, width)
    lines += _labelled("waste", advisory.waste, "muted", look, width)
    most = advisory.saves_at_most
    if most is not None:
        faster = f", {1 / (1 - most):.2f}× as fast" if most < 1 else ""
        words = f"at most {units.share(most, 1)} of the wall time{faster}"
        lines += _labelled("prize", words, "muted", look, width)
    return lines + _labelled("id", advisory.kind, "muted", look, width)


def _labelled(label: str, words: str, hue: str, look: Look, width: int) -> list[Text]:
    lines = []
    for i, line in enumerate(wrapped(words, max(10, width - 12))):
        text = Text(no_wrap=True)
        text.append(f"{label if not i else '':>9}  ", look.style(hue))
        lines.append(text.append(line, look.style("text")))
    return lines


class AdviceView(SubView):
    def body(self) -> AllAdvice:
        return AllAdvice()
