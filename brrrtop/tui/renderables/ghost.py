"""The ghost lap: your step beside the same step with an edit, and how many steps the edit would be ahead.

After a change that was predicted your lane races the promise.
"""

from msgspec import Struct
from rich.text import Text

from brrrtop.model.advice import WhatIf
from brrrtop.model.snapshot import Snapshot, StepPicture
from brrrtop.text import units
from brrrtop.text.headline import GAIN_PHRASES
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import mean_step_ns
from brrrtop.tui.renderables.line import rule
from brrrtop.views import whatif

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
    """The ghost to draw below a step; None where that was none, or lacked what the edit takes away."""
    if lap is None or picture.step is None or picture.span.duration_ns < (1 - UNLIKE) * lap.step_ns:
        return None
    return lap


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
