"""All advice, with everything that is known about it; and the user's own file with a heat column, the part of
the step that a line has, and the edit as a diff.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.model.advice import Advisory
from brrrtop.model.run import CodeLine
from brrrtop.model.snapshot import Snapshot, StepPicture
from brrrtop.text import units
from brrrtop.tui.palette import MARKS, Palette
from brrrtop.tui.parts import why_unjudged
from brrrtop.tui.renderables.line import (
    clipped,
    facts,
    hanging,
    paragraph,
    rule,
    stacked,
    styled,
    under_cursor,
)
from brrrtop.tui.renderables.swim_lanes import GUTTER, drawn, lanes
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.advice import evidence_pairs, why_none
from brrrtop.tui.widgets.pane import Chooser, Scrolled
from brrrtop.tui.widgets.side import code_lines, no_samples
from brrrtop.views import code, whatif
from collectors.printable import printable

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
        *facts([("sure", units.share(advisory.confidence))], 10, palette, width),
        *tries,
        *facts(known, 10, palette, width),
    ]


BAR, WORD = 7, 10
"""Cells of a line's bar, and of the word for what its time is."""
STEP, STEP_FROM = 7, 22
"""Lines that the part of the step takes, and the height from which it is there."""
MOSTLY = 0.3
"""Part of a cell from which it is marked."""
_LEFT = (" ", *"▏▎▍▌▋▊▉")
_HUES = {"+": "good", "-": "alarm", "@": "muted"}
"""Of a diff's lines."""


class Code(Chooser, Scrolled):
    """Where the training thread is, line by line; `e` goes through the edits, each as a diff."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("e", "edit", "edit", "of the code: the next edit as a diff of your file"),
        key("y", "copy", "copy patch",
            "of the code: copy the diff, for `patch -p0` in the trainer's folder"),
    ]  # fmt: skip
    topic = "your code: share of the training thread's time"

    def __init__(self) -> None:
        super().__init__()
        self._hot: dict[Hashable, CodeLine] = {}
        self._places: list[int] = []
        """In which line of the content each of them is."""
        self._changes: list[code.Change] = []
        self._edit = -1
        """Which of the changes is shown; -1: none."""

    def choices(self) -> Sequence[Hashable]:
        return list(self._hot)

    def reveal(self, place: int) -> None:
        self.reach(max(0, self._places[place] - 2), self._places[place] + 2)

    @property
    def _line(self) -> CodeLine | None:
        return self._hot[self.choices()[self.at]] if self._hot else None

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        palette, files = self.palette, code.files(snapshot)
        blocks = [(file, file.blocks) for file in files]
        self._changes = code.changes(snapshot, files)
        self._hot = {
            hot.place: hot for _, every in blocks for block in every for *_, hot in block if hot
        }
        self._places, lines, chosen = [], [], self._line
        for file, every in blocks:
            head = palette.text(file.path, "compute", bold=True)
            head.append(f"  {units.share(file.share)} of the time", palette.style("muted"))
            lines.append(head)
            for at, block in enumerate(every):
                if at and file.source:
                    lines.append(palette.text(f"{'⋮':>5}", "muted"))
                for number, source, hot in block:
                    line = clipped(gutter_line(number, source, hot, palette), width)
                    if hot is not None:
                        self._places.append(len(lines))
                    chosen_here = hot is not None and hot is chosen
                    lines.append(under_cursor(line, palette, width) if chosen_here else line)
            lines.append(Text())
        if lines:
            return lines
        muted = palette.style("muted")
        if snapshot.estimate is None:
            return paragraph(why_unjudged(snapshot), width, muted)
        words = no_samples(snapshot, "No line stands out")
        return code_lines(snapshot, palette, width) or paragraph(words, width, muted)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        lines = super().draw(snapshot, width, height)
        below = self._diff(width) if self._edit >= 0 and self._changes else []
        line, picture = self._line, snapshot.picture
        if line is not None and picture is not None and height >= STEP_FROM + len(below):
            below += step_part(line, picture, self.palette, width)
        if not below:
            return lines
        room = max(2, height - len(below))
        lines = super().draw(snapshot, width, room)
        return [*lines, *(Text() for _ in range(room - len(lines))), *below]

    def _diff(self, width: int) -> list[Text]:
        palette, at = self.palette, self._edit % len(self._changes)
        change = self._changes[at]
        title = f"edit {at + 1} of {len(self._changes)}: {change.edit}, {change.speed} faster"
        if change.patch is None:
            words = f"No patch: {change.reason}. By hand: {change.line}"
            body = paragraph(words, width, palette.style("text"))
        else:
            title += f" · {change.path}:{change.patch.line}"
            lines = (printable(line.expandtabs(4)) for line in change.patch.diff.splitlines()[2:])
            body = [
                palette.text(line[at : at + width], _HUES.get(line[:1], "text"))
                for line in lines
                for at in range(0, len(line), width)
            ]
        note = "e: next, y: copy" if change.patch else "e: next"
        return [rule(title, note, palette, width), *stacked(body, width)]

    def action_edit(self) -> None:
        if not self._changes:
            self.app.say("no edit was simulated that wins anything", failed=True)
            return
        self._edit = self._edit + 1 if self._edit + 1 < len(self._changes) else -1
        self.redraw()

    def action_copy(self) -> None:
        shown = self._changes[self._edit : self._edit + 1] if self._edit >= 0 else self._changes
        change = next((one for one in shown if one.patch is not None), None)
        if change is None or change.patch is None:
            self.app.say("there is no patch to copy", failed=True)
            return
        self._edit = self._changes.index(change)
        self.app.copy_to_clipboard(change.patch.diff)
        self.app.say(f"the patch of {change.path} went to the clipboard: patch -p0, git apply -p0")
        self.redraw()


def gutter_line(number: int, source: str, hot: CodeLine | None, palette: Palette) -> Text:
    """`  88 ▐██████   72% data      │ for x, y in loader:`."""
    text = palette.text(f"{number:>5} ", "text" if hot else "muted", bold=hot is not None)
    if hot is None:
        text.append(" " * (BAR + WORD + 6))
    else:
        word, kinds = code.does(hot)
        hue = kinds[0] if kinds and kinds[0] in MARKS else "compute"
        text.append(_heat(hot.share, palette), palette.style(hue))
        text.append(f"{units.share(hot.share):>5} ", palette.style("text", bold=True))
        text.append(f"{word:<{WORD}}", palette.style(hue))
    text.append("│ ", palette.style("rule"))
    return text.append(printable(source.expandtabs(4)), palette.style("text" if hot else "muted"))


def _heat(share: float, palette: Palette) -> str:
    if palette.ascii:
        return f"|{'#' * round(share * (BAR - 1))}".ljust(BAR)
    eighths = max(1, round(share * (BAR - 1) * 8))
    return f"▐{'█' * (eighths // 8)}{_LEFT[eighths % 8]}"[:BAR].ljust(BAR)


def step_part(line: CodeLine, picture: StepPicture, palette: Palette, width: int) -> list[Text]:
    """The step picture with a mark below what is of the line."""
    _, kinds = code.does(line)
    head = rule(f"line {line.place.rpartition(':')[2]} in one step", "p: larger", palette, width)
    body = drawn(picture, picture.span, palette, width, STEP - 2)
    rows = lanes(picture, picture.span, max(1, width - GUTTER))
    cells = zip(*(row.cells for row in rows), strict=True)
    marked = [any(one.get(kind, 0) > MOSTLY for one in cell for kind in kinds) for cell in cells]
    pointer = palette.text(f"{'line':<{GUTTER}}", "muted")
    if not any(marked):
        words = "its part of the step is not known: lines that launch kernels look alike"
        return [head, *body, pointer.append(words)]
    style, mark = palette.style("text", bold=True), "^" if palette.ascii else "▔"
    pointer.append_text(styled((mark if one else " ", style) for one in marked))
    return [head, *body, pointer]
