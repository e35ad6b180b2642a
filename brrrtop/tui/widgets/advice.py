"""The first things to try, ranked by what they can win: three, or as many as fit unabridged."""

from __future__ import annotations

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
from brrrtop.tui.parts import sureness
from brrrtop.tui.renderables.line import clipped, hanging, rule, sided, wrapped
from brrrtop.tui.widgets.pane import Pane
from brrrtop.tui.widgets.side import log_lines
from brrrtop.views import whatif

MOST = 3
RANGED = 60
"""Width from which a range does not cost the sentence beside it."""
WORDY = 100
"""Width from which a word for the confidence does not cost the sentence beside it."""


class Advice(Pane, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [("enter", "open")]

    def __init__(self) -> None:
        super().__init__()
        self._flowed_from: object = None
        self._lines_of: tuple[int, list[Text]] = (0, [])
        self._wanted: tuple[object, int] = (None, 0)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        total = len(snapshot.advisories)
        count, flowed = self._flowed(snapshot.advisories, width, height - 1)
        note = f"{count} of {total}, a: all" if total > count else ""
        if snapshot.silenced:
            note = f"{note or 'a: all'}, {len(snapshot.silenced)} silenced"
        if self.has_focus:
            note = f"chosen, enter: all {total}"
        lines = [rule("advice", note, palette, width)]
        if not total:
            lines.append(palette.text(why_none(snapshot), "muted"))
        lines += flowed
        if not self.screen.has_class("-huge"):  # there the log has a place of its own
            lines += log_tail(snapshot, palette, width, height - len(lines))
        return lines

    def wanted(self, height: int) -> int | None:
        """How many of so many lines it has a use for; no fewer than before while the same is advised,
        so that what is below stays where it is. None: not known yet."""
        width, snapshot = self.content_size.width, self.snapshot
        if not width or snapshot is None:
            return None
        shown = snapshot.advisories[: height - 1]
        lines = 1 + (sum(len(whole(one, self.palette, width)) for one in shown) or 1)
        if log_tail(snapshot, self.palette, width, height - lines):
            return height
        key = (tuple(one.kind for one in shown), width, height)
        if key == self._wanted[0]:
            lines = max(lines, self._wanted[1])
        self._wanted = key, lines
        return lines

    def _flowed(
        self, advisories: tuple[Advisory, ...], width: int, height: int
    ) -> tuple[int, list[Text]]:
        """How many are shown, and their lines; a verdict's advice is flowed once."""
        key = (advisories, self.palette, width, height)
        if key != self._flowed_from:
            count = fitting(advisories, self.palette, width, height)
            self._lines_of = count, blocks(advisories[:count], self.palette, width, height)
            self._flowed_from = key
        return self._lines_of

    def action_open(self) -> None:
        self.app.action_advice()

    def on_click(self, _event: Click) -> None:
        self.app.action_advice()


def why_none(snapshot: Snapshot) -> str:
    """Why there is no advice, as a sentence."""
    if snapshot.estimate is None:
        return "Advice needs a whole window of device activity first."
    if snapshot.estimate.steps.warming_up:
        return "Warming up: the first steps are shown, never judged."
    if snapshot.silenced:
        return "No advice but what was silenced."
    return "No advice: no rule has enough evidence to speak."


def fitting(advisories: Sequence[Advisory], palette: Palette, width: int, height: int) -> int:
    """How many are shown: all that fit unabridged; else `MOST`, or fewer for what to try first."""
    for count in range(len(advisories), MOST, -1):
        if sum(len(whole(one, palette, width)) for one in advisories[:count]) <= height:
            return count
    first = len(wrapped(advisories[0].suggests, _room(width))) if advisories else 0
    return min(len(advisories), MOST, max(1, height - min(2, first)))


def whole(advisory: Advisory, palette: Palette, width: int) -> list[Text]:
    """One advisory, nothing cut."""
    return [
        *headlines(advisory, palette, width),
        *detail_lines(advisory, palette, width, cut=False),
    ]


def blocks(advisories: Sequence[Advisory], palette: Palette, width: int, height: int) -> list[Text]:
    """All of each advisory, or as much as fits: a line each, then what to try, then the rest."""
    unabridged = [line for one in advisories for line in whole(one, palette, width)]
    if len(unabridged) <= height or not advisories:
        return unabridged
    heads = [[headline(advisory, palette, width)] for advisory in advisories]
    details = [detail_lines(advisory, palette, width) for advisory in advisories]
    tries = [len(wrapped(advisory.suggests, _room(width))) for advisory in advisories]
    flowed = [headlines(advisory, palette, width) for advisory in advisories]
    if sum(map(len, flowed)) + sum(tries) <= height:
        heads = flowed
    kept: list[list[Text]] = [[] for _ in heads]
    kept[0] = details[0][: max(0, min(tries[0], height - sum(map(len, heads))))]
    left = height - sum(map(len, heads)) - len(kept[0])
    for depth in range(max((len(lines) for lines in details), default=0)):
        for mine, lines in zip(kept, details, strict=True):
            if len(mine) <= depth < len(lines) and left > 0:
                mine.append(lines[depth])
                left -= 1
    for mine, advisory, count in zip(kept, advisories, tries, strict=True):
        left -= _unfold(mine, count, detail_lines(advisory, palette, width, cut=False), left)
    for mine, lines, count in zip(kept, details, tries, strict=True):
        if 0 < len(mine) < count:
            cut = Text.assemble(mine[-1], " ", lines[len(mine)].plain.strip(), no_wrap=True)
            mine[-1] = clipped(cut, width)
    shown = [line for head, lines in zip(heads, kept, strict=True) for line in (*head, *lines)]
    return shown[: max(0, height)]


def _unfold(kept: list[Text], tries: int, whole: list[Text], left: int) -> int:
    """Puts all of the evidence and of the waste in the place of the lines they were cut to, where no
    more than `left` lines come of it; how many came."""
    more = len(whole) - len(kept)
    if len(kept) <= tries or not 0 < more <= left or kept[-1].plain[:9] != _last_label(whole):
        return 0
    kept[:] = whole
    return more


def _last_label(lines: list[Text]) -> str:
    return next((line.plain[:9] for line in reversed(lines) if line.plain[:9].strip()), "")


def log_tail(snapshot: Snapshot, palette: Palette, width: int, height: int) -> list[Text]:
    """The newest events where advice leaves room for a few; nothing where it does not."""
    room = height - 2
    if room < 2 or not snapshot.events:
        return []
    newest = log_lines(snapshot.events[-room:], snapshot.now_ns, palette, width)
    return [Text(), rule("log", "l: all", palette, width), *newest][:height]


def headline(advisory: Advisory, palette: Palette, width: int) -> Text:
    """`saves ≤42%  the symptom      very sure 92%`, the symptom cut where it does not fit."""
    text = _gain(advisory, palette, width)
    sure = _sure(advisory, palette, width)
    says = shortened(advisory.says, width - text.cell_len - sure.cell_len - 2)
    text.append(says, palette.style("text", bold=True))
    return sided(text, sure, width)


def shortened(sentence: str, room: int) -> str:
    """As many of its clauses as fit, where that is most of the room; else the sentence itself."""
    if cell_len(sentence) <= room:
        return sentence
    ends = (
        at for at, sign in enumerate(sentence) if sign in ",;:" and sentence[at + 1 :][:1] == " "
    )
    fits = [at for at in ends if room // 2 <= cell_len(sentence[:at]) <= room]
    return sentence[: fits[-1]] if fits else sentence


def headlines(advisory: Advisory, palette: Palette, width: int) -> list[Text]:
    """The same with all of the symptom, on as many lines as that takes."""
    sure, text = _sure(advisory, palette, width), _gain(advisory, palette, width)
    first, *rest = wrapped(advisory.says, max(10, width - text.cell_len - sure.cell_len - 2)) or [
        ""
    ]
    text.append(first, palette.style("text", bold=True))
    bold = palette.style("text", bold=True)
    return [sided(text, sure, width), *hanging(" " * 11, " ".join(rest), width - 1, bold, bold)]


def _gain(advisory: Advisory, palette: Palette, width: int) -> Text:
    """What it saves; the range of what was simulated where that leaves room for the sentence."""
    gain = whatif.gain(advisory, "<=" if palette.ascii else "≤")
    if gain is None:
        return palette.text("to know    ", "muted")
    if width < RANGED:
        gain = gain.split(" (")[0]
    return palette.text(f"{gain:<{10 + palette.ascii}} ", "good", bold=True)


def _sure(advisory: Advisory, palette: Palette, width: int) -> Text:
    percent = units.share(advisory.confidence)
    words = f"{sureness(advisory.confidence)} {percent}" if width >= WORDY else f"{percent} sure"
    return palette.text(words, "muted")


def detail_lines(
    advisory: Advisory, palette: Palette, width: int, *, cut: bool = True
) -> list[Text]:
    """What to try, wrapped; the evidence and what would be a waste, each cut to a line or not."""
    pieces = (
        ("try", advisory.suggests, "good"),
        ("evidence", evidence_text(advisory.evidence), "muted"),
        *([("waste", advisory.waste, "muted")] if advisory.waste else []),
    )
    lines = []
    for label, words, hue in pieces:
        lead, style = f"{label:>9}  ", palette.style("text" if hue == "good" else hue)
        if cut and label != "try":
            lines.append(clipped(palette.text(lead, hue).append(words, style), width))
        else:
            lines += hanging(lead, words, width - 1, palette.style(hue), style)
    return lines


def _room(width: int) -> int:
    """Cells beside the labels."""
    return max(10, width - 12)


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """`input 42%, step 36.6 ms`: figures that there are; the view of all advice has the rest too."""
    plain = {
        key: value
        for key, value in evidence.items()
        if value is not None and not isinstance(value, list | tuple)
    }
    return ", ".join(f"{label} {value}" for label, value in evidence_pairs(plain))


def evidence_pairs(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labels and values in words, units taken from the keys' suffixes."""
    pairs = []
    for key, value in evidence.items():
        if isinstance(value, list | tuple) and not value:
            continue
        label, shown = key, str(value)
        if value is None:
            label, shown = _measured_line(key, 0.0)[0], units.UNMEASURED
        elif isinstance(value, bool):
            shown = "yes" if value else "no"
        elif isinstance(value, int | float):
            label, shown = _measured_line(key, value)
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
