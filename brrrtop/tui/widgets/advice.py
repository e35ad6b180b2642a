"""The first things to try, ranked by what they can win: as many as fit."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import BindingType
from textual.events import Click

from brrrtop.kernel_names.readable import short_name
from brrrtop.model.advice import Advisory
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import clipped, hanging, rule, wrapped
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.pane import Pane
from brrrtop.views import code, whatif


class Advice(Pane, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [key("enter", "open", "all advice")]

    def __init__(self) -> None:
        super().__init__()
        self._flowed_from: object = None
        self._placed: tuple[Advisory, ...] = ()
        self._lines_of: dict[int, tuple[int, list[Text]]] = {}
        self._wanted: tuple[object, int] = (None, 0)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        total = len(snapshot.advisories)
        count, flowed = self._flowed(snapshot, width, height - 1)
        note = f"{count} of {total}, a: all" if total > count else "a: why"
        if snapshot.silenced:
            note = f"{note}, {len(snapshot.silenced)} silenced"
        if self.has_focus:
            note = f"chosen, enter: all {total}"
        title = "what to do" + (", safest first; gains do not add up" if total > 1 else "")
        lines = [rule(title, note, palette, width)]
        if not total:
            lines.append(palette.text(why_none(snapshot), "muted"))
        return lines + flowed

    def wanted(self, height: int) -> int | None:
        """How many of so many lines it has a use for; no fewer than before while the same is advised,
        so that what is below stays where it is. None: not known yet."""
        width, snapshot = self.content_size.width, self.snapshot
        if not width or snapshot is None:
            return None
        lines = 1 + (len(self._flowed(snapshot, width, 1000)[1]) or 1)
        key = (tuple(one.kind for one in snapshot.advisories[: height - 1]), width, height)
        if key == self._wanted[0]:
            lines = max(lines, self._wanted[1])
        self._wanted = key, lines
        return lines

    def _flowed(self, snapshot: Snapshot, width: int, height: int) -> tuple[int, list[Text]]:
        """How many are shown, and their lines; the same advice on the same lines is flowed once for each
        height."""
        run, known = snapshot.run, (snapshot.advisories, snapshot.whatif, snapshot.tables)
        key = (*known, run and run.lines, self.palette, width)
        if key != self._flowed_from:
            self._flowed_from, self._placed = key, code.with_places(snapshot)
            self._lines_of.clear()
        if height not in self._lines_of:
            self._lines_of[height] = flow(self._placed, self.palette, width, height)
        return self._lines_of[height]

    def action_open(self) -> None:
        self.app.action_advice()

    def on_click(self, _event: Click) -> None:
        self.app.action_advice()


def why_none(snapshot: Snapshot) -> str:
    if snapshot.estimate is None:
        return "Advice needs a whole window of device activity first."
    if snapshot.estimate.steps.warming_up:
        return "Warming up: the first steps are shown, never judged."
    if snapshot.silenced:
        return "No advice but what was silenced."
    return "No advice: no rule has enough evidence to speak."


def flow(
    advisories: Sequence[Advisory], palette: Palette, width: int, height: int
) -> tuple[int, list[Text]]:
    """How many are shown, and their lines: each whole while it fits, then shorter; last what wins nothing."""
    tries = [try_lines(one, palette, width) for one in advisories]
    heads = [headline(one, palette, width) for one in advisories]
    if sum(map(len, (*heads, *tries))) > height:
        heads = [headline(one, palette, width, brief=True) for one in advisories]
    lines: list[Text] = []
    for count, (head, body) in enumerate(zip(heads, tries, strict=True)):
        if len(lines) >= height:
            return count, lines
        lines += [*head, *body][: height - len(lines)]
    waste = next((one.waste for one in advisories if one.waste), "")
    if waste and len(lines) < height:
        lines.append(clipped(palette.text(f"{'no gain':>9}  {waste}", "muted"), width))
    return len(advisories), lines


def try_lines(advisory: Advisory, palette: Palette, width: int) -> list[Text]:
    style = palette.style("text")
    return hanging(f"{'try':>9}  ", advisory.suggests, width - 1, palette.style("good"), style)


def shortened(sentence: str, room: int) -> str:
    """As many of its clauses as fit, where that is most of the room; else the sentence itself."""
    if cell_len(sentence) <= room:
        return sentence
    ends = (
        at for at, sign in enumerate(sentence) if sign in ",;:" and sentence[at + 1 :][:1] == " "
    )
    fits = [at for at in ends if room // 2 <= cell_len(sentence[:at]) <= room]
    return sentence[: fits[-1]] if fits else sentence


def headline(advisory: Advisory, palette: Palette, width: int, brief: bool = False) -> list[Text]:
    """`15× faster  the symptom`, on as many lines as it takes, or cut to one."""
    text, bold = _gain(advisory, palette), palette.style("text", bold=True)
    room = max(10, width - text.cell_len)
    first, *rest = (
        [shortened(advisory.says, room)] if brief else wrapped(advisory.says, room) or [""]
    )
    lines = [clipped(text.append(first, bold), width)]
    return lines + hanging(" " * 11, " ".join(rest), width - 1, bold, bold)


def _gain(advisory: Advisory, palette: Palette) -> Text:
    gain = whatif.gain(advisory, "<=" if palette.ascii else "≤")
    if gain is None:
        return palette.text("to know    ", "muted")
    role = "muted" if advisory.may_lose or whatif.is_offer(advisory) else "good"
    return palette.text(f"{gain.split(' (')[0]:<10} ", role, bold=True)


def evidence_pairs(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labels and values in words, units taken from the keys' suffixes."""
    pairs = []
    for name, value in evidence.items():
        if isinstance(value, list | tuple) and not value:
            continue
        label, shown = name, str(value)
        if value is None:
            label, shown = _measured_line(name, 0.0)[0], units.UNMEASURED
        elif isinstance(value, bool):
            shown = "yes" if value else "no"
        elif isinstance(value, int | float):
            label, shown = _measured_line(name, value)
        elif isinstance(value, list | tuple):
            shown = " → ".join(short_name(str(entry)) for entry in value)
        pairs.append((label.replace("_", " "), shown))
    return pairs


def _measured_line(key: str, value: float) -> tuple[str, str]:
    for per in ("_a_step", "_an_update"):
        if key.endswith(per):
            label, shown = _measured_line(key.removesuffix(per), value)
            return label + per, shown
    for suffix, form in (
        ("_ns", units.duration),
        ("_bytes_per_s", lambda v: units.rate(v, "B/s")),
        ("_flop_per_s", lambda v: units.rate(v, "FLOP/s")),
        ("_bytes", units.size),
        ("_hz", lambda v: units.rate(v, "Hz")),
        ("_ms", lambda v: units.duration(v * 1e6)),
        ("_s", lambda v: units.duration(v * 1e9)),
        ("_share", units.share),
        ("_sol", units.share),
    ):
        if key == suffix[1:]:
            return ("rate" if key.endswith("_per_s") else key), form(value)
        if key.endswith(suffix):
            return key.removesuffix(suffix), form(value)
    if key in ("share", "rho", "smi_util", "sm_active", "confidence"):
        return key, units.share(value)
    return key, units.count(value) if isinstance(value, int) else units.figure(value)
