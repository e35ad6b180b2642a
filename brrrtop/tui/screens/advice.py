"""All advice, with everything that is known about it."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message

from brrrtop.model.advice import Advisory
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import clipped, wrapped
from brrrtop.tui.screens.view import KEYS, SubView
from brrrtop.tui.widgets.advice import evidence_pairs, why_none
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.wording import sureness
from brrrtop.views import whatif


class AllAdvice(Scrolled):
    """One advisory is chosen; silenced ones stand at the end, where they can be heard again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("x", "silence", show=False),
        Binding("y", "copy", show=False),
    ]
    topic = "advice, most worth taking first"

    class Silenced(Message):
        """The chosen advice is not to be given any more, or given again."""

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

    class Copied(Message):
        """What the chosen advice says to try is wanted elsewhere."""

        def __init__(self, advisory: Advisory) -> None:
            super().__init__()
            self.advisory = advisory

    def __init__(self) -> None:
        super().__init__()
        self._advisories: dict[str, Advisory] = {}
        self._chosen: str | None = None
        self._places: dict[str, tuple[int, int]] = {}

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        self._places = {}
        self._advisories = {one.kind: one for one in (*snapshot.advisories, *snapshot.silenced)}
        if self._chosen not in self._advisories:
            self._chosen = next(iter(self._advisories), None)
        lines: list[Text] = []
        for advisory in snapshot.advisories:
            self._put(lines, advisory.kind, advisory_lines(advisory, self.palette, width - 2))
            lines.append(Text())
        if not lines:
            return [
                Text.styled(why_none(snapshot), muted),
                *self._silenced_lines(snapshot, 2, width),
            ]
        closing = "Change one thing at a time: else nobody knows which one helped."
        lines.append(Text.styled(f"  {closing}", muted))
        return lines + self._silenced_lines(snapshot, len(lines) + 1, width)

    def _silenced_lines(self, snapshot: Snapshot, begin: int, width: int) -> list[Text]:
        """The end of the list. Begins at line `begin`, after its heading."""
        quiet = snapshot.silenced
        if not quiet:
            return []
        muted = self.palette.style("muted")
        lines = [Text.styled(f"  Silenced: {len(quiet)}; x gives the chosen one again", muted)]
        for one in quiet:
            line = Text(no_wrap=True).append(f"{'':>10}{one.kind}: {one.says}", muted)
            self._put(lines, one.kind, [line], begin - 1)
        return [clipped(line, width) for line in lines]

    def _put(self, lines: list[Text], kind: str, block: list[Text], above: int = 0) -> None:
        self._places[kind] = (above + len(lines), above + len(lines) + len(block))
        for i, line in enumerate(block):
            mark = "▸ " if kind == self._chosen and not i else "  "
            text = Text(no_wrap=True).append(mark, self.palette.style("text", bold=True))
            lines.append(text.append_text(line))

    def action_choose(self, by: int) -> None:
        """The next advisory, or the one before; scrolled so far that it is seen whole."""
        kinds = list(self._places)
        if self._chosen not in kinds:
            return
        at = min(max(kinds.index(self._chosen) + by, 0), len(kinds) - 1)
        self._chosen = kinds[at]
        first, last = self._places[self._chosen]
        room = max(1, self.content_size.height - 1)
        self._top = min(max(self._top, last - room), first)
        self.redraw()

    def action_silence(self) -> None:
        if self._chosen is not None:
            self.post_message(self.Silenced(self._chosen))

    def action_copy(self) -> None:
        if self._chosen is not None:
            self.post_message(self.Copied(self._advisories[self._chosen]))


def advisory_lines(advisory: Advisory, palette: Palette, width: int) -> list[Text]:
    """Symptom, evidence figure by figure, what to try, what would be a waste, its id."""
    gain = whatif.gain(advisory, "<=" if palette.ascii else "≤")
    label = "to know" if gain is None else gain.split(" (")[0]
    lines = _with_label(label, advisory.says, "good", palette, width, bold=True)
    sure = f"{sureness(advisory.confidence)} {units.share(advisory.confidence)}"
    lines += _with_label("how sure", sure, "muted", palette, width)
    lines += _with_label("try", advisory.suggests, "good", palette, width)
    for i, (label, value) in enumerate(evidence_pairs(advisory.evidence)):
        lines += _with_label("" if i else "evidence", f"{label}: {value}", "muted", palette, width)
    lines += _with_label("waste", advisory.waste, "muted", palette, width)
    if gain is not None:
        lines += _with_label("gain", _gain(advisory), "muted", palette, width)
    silenced = f"{advisory.kind}; x silences it, or --silence {advisory.kind}"
    return lines + _with_label("id", silenced, "muted", palette, width)


def _gain(advisory: Advisory) -> str:
    """What was predicted with its range, or the bound; and how much faster that is."""
    share = advisory.saves_at_most if advisory.saves is None else advisory.saves
    faster = (
        f", {units.times_as_fast(share)} as fast" if share is not None and 0 < share < 1 else ""
    )
    return f"{whatif.gain(advisory)} of the time{faster}"


def _with_label(
    label: str, words: str, hue: str, palette: Palette, width: int, *, bold: bool = False
) -> list[Text]:
    lines = []
    for i, line in enumerate(wrapped(words, max(10, width - 12))):
        text = Text(no_wrap=True)
        text.append(f"{label if not i else '':>10}  ", palette.style(hue, bold=bold))
        lines.append(text.append(line, palette.style("text", bold=bold)))
    return lines


class AdviceView(SubView):
    KEYS = (
        ("↑↓", "choose", "focused.choose(1)"),
        ("y", "copy", "focused.copy"),
        ("x", "silence", "focused.silence"),
        *KEYS,
    )

    def body(self) -> AllAdvice:
        return AllAdvice()
