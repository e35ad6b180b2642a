"""All advice, with everything that is known about it."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.model.advice import Advisory
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.keys import key
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import sureness
from brrrtop.tui.renderables.line import clipped, facts, hanging
from brrrtop.tui.widgets.advice import evidence_pairs, why_none
from brrrtop.tui.widgets.pane import Chooser, Scrolled
from brrrtop.views import code, whatif

CLOSING = "  Change one thing at a time: otherwise you cannot tell which one helped."


class AllAdvice(Chooser, Scrolled):
    """One advisory is chosen; silenced ones stand at the end, where they can be heard again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("y", "copy", "copy"),
        key("x", "silence", "silence",
            "of all advice: silence the chosen one for this session, or hear it again"),
    ]  # fmt: skip
    topic = "advice, most worth taking first"

    def __init__(self) -> None:
        super().__init__()
        self._advisories: dict[str, Advisory] = {}
        self._places: list[tuple[int, int]] = []
        """First and past-last line of each advisory."""

    def choices(self) -> Sequence[str]:
        return list(self._advisories)

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        placed = code.with_places(snapshot)
        self._advisories = {one.kind: one for one in (*placed, *snapshot.silenced)}
        if self._chosen not in self._advisories:
            self._chosen = next(iter(self._advisories), None)
        self._places = []
        lines: list[Text] = []
        for advisory in placed:
            self._put(lines, advisory_lines(advisory, self.palette, width - 2))
            lines.append(Text())
        message = CLOSING if snapshot.advisories else why_none(snapshot)
        lines.append(Text.styled(message, muted))
        quiet = snapshot.silenced
        if quiet:
            heading = f"  Silenced: {len(quiet)}; x gives the chosen one again"
            lines.append(clipped(Text.styled(heading, muted), width))
        for one in quiet:
            line = Text.styled(f"{'':>10}{one.kind}: {one.says}", muted)
            self._put(lines, [clipped(line, width - 2)])
        return lines

    def _put(self, lines: list[Text], block: list[Text]) -> None:
        chosen = len(self._places) == self.at
        self._places.append((len(lines), len(lines) + len(block)))
        for i, line in enumerate(block):
            text = Text("▸ " if chosen and not i else "  ", no_wrap=True)
            text.stylize(self.palette.style("text", bold=True))
            lines.append(text.append_text(line))

    def reveal(self, place: int) -> None:
        self.reach(*self._places[place])

    def action_silence(self) -> None:
        if self._advisories:
            self.app.silence(self.choices()[self.at])

    def action_copy(self) -> None:
        if self._advisories:
            self.app.copy(self._advisories[self.choices()[self.at]])


def advisory_lines(advisory: Advisory, palette: Palette, width: int) -> list[Text]:
    gain = whatif.gain(advisory, "<=" if palette.ascii else "≤")
    label = "to know" if gain is None else gain.split(" faster")[0]
    good, bold = palette.style("good", bold=True), palette.style("text", bold=True)
    sure = f"{sureness(advisory.confidence)} {units.share(advisory.confidence)}"
    known = [
        ("" if i else "evidence", f"{label}: {value}")
        for i, (label, value) in enumerate(evidence_pairs(advisory.evidence))
    ]
    if advisory.waste:
        known.append(("waste", advisory.waste))
    if gain is not None:
        known.append(("gain", gain))
    known.append(("id", f"{advisory.kind}; x silences it, or --silence {advisory.kind}"))
    tries = hanging(
        f"{'try':>10}  ", advisory.suggests, width, palette.style("good"), palette.style("text")
    )
    return [
        *hanging(f"{label:>10}  ", advisory.says, width, good, bold),
        *facts([("how sure", sure)], 10, palette, width),
        *tries,
        *facts(known, 10, palette, width),
    ]
