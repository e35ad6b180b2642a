"""Graphs of a run over time: what each moment was spent on; and the ghost lap, which is your step beside the
same step with an edit, and how many steps the edit would be ahead.

After a change that was predicted your lane races the promise.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise

from msgspec import Struct
from rich.style import Style
from rich.text import Text

from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.advice import WhatIf
from brrrtop.model.snapshot import HistoryPoint, Snapshot, StepPicture
from brrrtop.text import phrases, units
from brrrtop.text.headline import GAIN_PHRASES
from brrrtop.tui.palette import Palette, waits
from brrrtop.tui.parts import mean_step_ns
from brrrtop.tui.renderables.line import rule, styled
from brrrtop.views import whatif

LAYERS = (
    "compute", "memory", "underfilled", "exposed_comm", "exposed_copy",
    *(f"idle_{cause}" for cause in IDLE_CAUSES), "unknown",
)  # fmt: skip
"""From the bottom."""
EIGHTHS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = " .:-=+*#"
LIVE_NS = 1_000_000_000
"""Time of a column of a source that goes on."""

Layers = Mapping[str, float]
_EMPTY = Style.null()


def layers(point: HistoryPoint) -> Layers:
    account = point.account
    return {key: ns / account.duration_ns for key, ns in phrases.buckets(account) if ns}


def column_ns(whole_ns: int | None, width: int) -> int:
    """Time of one column: a second where a source goes on; else so that all of it fills the width."""
    return LIVE_NS if whole_ns is None else max(1, -(-whole_ns // max(1, width)))


def columns(
    history: Sequence[HistoryPoint], edges_ns: Sequence[int], end_ns: int
) -> list[HistoryPoint | None]:
    """One point for each column between two edges; None before the first and after `end_ns`.

    A point stands for the time since the one before it, the first for as long as the next one. The
    last one stands until there is a newer one.
    """
    if not history:
        return [None] * max(0, len(edges_ns) - 1)
    ends = [point.t_ns for point in history]
    first_ns = ends[0] - (ends[1] - ends[0] if len(ends) > 1 else edges_ns[1] - edges_ns[0])
    shown: list[HistoryPoint | None] = []
    for left, right in pairwise(edges_ns):
        middle = (left + right) // 2
        if right <= first_ns or left >= end_ns:
            shown.append(None)
        else:
            shown.append(history[min(bisect_left(ends, middle), len(ends) - 1)])
    return shown


def stacked_area(
    shares: Sequence[Layers | None], palette: Palette, height: int, order: Sequence[str] = LAYERS
) -> list[Text]:
    """`height` lines of a cell a column; what is None stays empty."""
    columns = (list(same) for _, same in groupby(shares, key=id))  # of one point: drawn once
    runs = []
    for same in columns:
        parts = same[0] or {}
        inside = tuple((layer, parts[layer]) for layer in order if parts.get(layer))
        runs.append((_column(inside, palette, height), len(same)))
    return [
        styled((cells[row][0] * count, cells[row][1]) for cells, count in runs)
        for row in range(height)
    ]


@lru_cache(maxsize=512)
def _column(
    parts: tuple[tuple[str, float], ...], palette: Palette, height: int
) -> list[tuple[str, Style]]:
    """Its cells, from the top. Kept: a second later all of them stand one place to the left."""
    edges = accumulate((part for _, part in parts), initial=0.0)
    stack = [(a, b, layer) for (a, b), (layer, _) in zip(pairwise(edges), parts, strict=True)]
    ends = [(height - row) / height for row in range(height + 1)]
    return [_cell(stack, low, high, palette) for high, low in pairwise(ends)]


def _cell(
    stack: Sequence[tuple[float, float, str]], low: float, high: float, palette: Palette
) -> tuple[str, Style]:
    """One cell of a column: the layers of the stack between `low` and `high`."""
    inside: list[tuple[float, str]] = []
    for begin, end, layer in stack:
        covered = min(end, high) - max(begin, low)
        if covered > 1e-9:
            inside.append((covered, layer))
    if not inside:
        return " ", _EMPTY
    if not palette.colour or len(inside) == 1:
        layer = max(inside)[1]
        return palette.texture(layer), palette.style(layer)
    return _boundary(inside, palette)


def _boundary(inside: list[tuple[float, str]], palette: Palette) -> tuple[str, Style]:
    """A cell of several layers shows the two that cover most of it, in stacking order."""
    largest = sorted(inside, reverse=True)[:2]
    below, above = [entry for entry in inside if entry in largest][:2]
    eighths = round(8 * below[0] / (below[0] + above[0]))
    layer = max(below, above)[1]
    if palette.ascii or eighths in (0, 8) or waits(below[1]):
        return palette.texture(layer), palette.style(layer)
    if waits(above[1]):
        return EIGHTHS[eighths], palette.style(below[1])
    return EIGHTHS[eighths], palette.boundary(below[1], above[1])


def sparkline(values: Sequence[float], palette: Palette, width: int, hue: str = "text") -> Text:
    """The newest values of 0..1, one a cell, at the right edge."""
    newest = values[-width:] if width > 0 else ()
    glyphs = "".join(level(value, palette) for value in newest)
    return palette.text(glyphs.rjust(max(0, width)), hue)


def level(value: float, palette: Palette) -> str:
    """0..1 as the height of one cell; what is there is seen."""
    levels = (ASCII_LEVELS if palette.ascii else EIGHTHS)[1:]
    top = len(levels) - 1
    return levels[min(top, max(0, round(value * top)))]


NAME = 8
"""Cells before a lane."""
SLOWEST_S = 2.0
"""A lap takes at least so long to be drawn: faster ones are shown slowed down."""
LEAST = 0.01
"""Of a step: who is ahead by less is not."""
UNLIKE = 0.15
"""A step is no picture of the mean one from this difference on, and its title says so."""


class Race(Struct, frozen=True):
    """Two lanes of one track: what a step takes, and what it would."""

    edit: str
    """What the ghost has: an edit, or the promise."""
    with_what: str
    """The same in words: `with torch.compile`."""
    step_ns: float
    ghost_ns: float
    steps: int
    """That you made since the race began."""

    @property
    def ahead(self) -> int:
        """Steps that the ghost is ahead; negative: behind."""
        return round(self.steps * (self.step_ns / self.ghost_ns - 1))

    @property
    def words(self) -> str:
        if abs(self.step_ns / self.ghost_ns - 1) < LEAST:
            return "you keep up with the ghost"
        ahead = self.ahead
        if ahead < 0:
            return f"you are {units.count(-ahead)} step{'s' * (ahead != -1)} ahead of the ghost"
        return f"the ghost is {units.count(ahead)} step{'s' * (ahead != 1)} ahead"


def race(snapshot: Snapshot, edit: WhatIf | None = None) -> Race | None:
    """Against a step with that edit, else with the best one that is advised; where a change was
    predicted and made, against the prediction. None without a step, or without a faster one."""
    comparison, run = snapshot.comparison, snapshot.run
    steps = run.steps if run is not None else 0
    promised = comparison.promises if comparison is not None and comparison.per_step else ()
    kept = next((one for one in promised if one.predicted and one.promised_share), None)
    if comparison is not None and kept is not None and edit is None:
        ghost_ns = comparison.before_ns * (1 - (kept.promised_share or 0.0))
        words = GAIN_PHRASES.get(kept.kind, f"with {kept.kind}")
        return Race(
            kept.kind,
            f"promised {words}",
            comparison.after_ns,
            ghost_ns,
            round(comparison.steps[1] or 0),
        )
    if edit is None:
        rows = whatif.ordered(snapshot)
        edit = next((one for one in rows if one.advisory and one.saves_low > 0), None)
    step_ns = mean_step_ns(snapshot)
    if edit is None or not step_ns or not edit.step_ns < (1 - LEAST) * edit.present_ns:
        return None
    words = GAIN_PHRASES.get(edit.advisory or "", f"with {edit.edit}")
    return Race(edit.edit, words, step_ns, step_ns * edit.step_ns / edit.present_ns, steps)


def drawable(picture: StepPicture, lap: Race | None) -> Race | None:
    """The ghost to draw below a step; None where that is not like the mean one."""
    like = lap is not None and abs(picture.span.duration_ns / lap.step_ns - 1) <= UNLIKE
    return lap if like and picture.step is not None else None


def ghost_lap(race: Race, palette: Palette, width: int, passed_s: float) -> list[Text]:
    """Both lanes as they are so long after the race began to be shown: a lane is one of your steps."""
    room = max(8, width - NAME - 14)
    lap_s = max(SLOWEST_S, race.step_ns / 1e9)
    slowed = lap_s / (race.step_ns / 1e9)
    part = (passed_s % lap_s) / lap_s if passed_s else 1.0
    note = race.words + (f", drawn {units.figure(slowed)}× slower" if slowed > 1.5 else "")
    lines = [rule(f"ghost lap: {race.edit}", note, palette, width)]
    for name, ns, hue in (("you", race.step_ns, "text"), ("ghost", race.ghost_ns, "good")):
        text = palette.text(f"{name:<{NAME}}", "muted")
        text.append_text(_lane(part, ns / race.step_ns, room, hue, palette))
        lines.append(text.append(f"{units.duration(ns):>9}/step", palette.style("muted")))
    return lines


def _lane(part: float, lap: float, room: int, hue: str, palette: Palette) -> Text:
    """Laps side by side in turn bright and dim, as far as that part of your step reaches."""
    full, rest = ("#", ".") if palette.ascii else ("━", "╌")
    text, reached = Text(no_wrap=True), round(part * room)
    for cell in range(reached):
        even = int((cell + 0.5) / room / lap) % 2 == 0
        text.append(
            full if even else ("=" if palette.ascii else "─"), palette.style(hue, bold=even)
        )
    return text.append(rest * (room - reached), palette.style("rule"))


def ghost_line(race: Race, palette: Palette, width: int, lead: int) -> Text:
    """The same in a line below the picture of a step; named inside where it is long."""
    room = max(1, width - lead)
    cells = max(1, min(room, round(room * race.ghost_ns / race.step_ns)))
    label = f" {units.duration(race.ghost_ns)} {race.with_what} "
    text = palette.text(f"{'ghost':<{lead}}", "muted")
    lane = ("#" if palette.ascii else "━") * cells
    if cells + len(label) <= room:
        return text.append(lane + label, palette.style("good", bold=True))
    left = max(0, (cells - len(label)) // 2)
    lane = lane[:left] + label + lane[left + len(label) :]
    return text.append(lane[:room], palette.style("good", bold=True))
