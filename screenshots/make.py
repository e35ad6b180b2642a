"""Draws every picture in this folder anew, from recordings of real runs: a session, and a demo.

    python screenshots/make.py            all of them, beside this file, and demo.svg of a session
    python screenshots/make.py DIRECTORY  the same, and more sizes and looks, into DIRECTORY

Each recording is played at a fixed pace by a clock of its own up to a fixed place, so that the
same code draws the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from brrrtop.cli.commands.replay import scenarios
from brrrtop.cli.files import FromFirstActivity, open_job
from brrrtop.cli.files import baseline as judged
from brrrtop.cli.options import Options
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.palette import Palette
from brrrtop.tui.screens.view import svg_of

DARK, LIGHT = Palette(), Palette("light")
NO_COLOUR, ASCII = Palette(colour=False), Palette(colour=False, ascii=True)
LOOKS = {
    "dark": DARK, "light": LIGHT, "high-contrast": Palette("high-contrast"),
    "colour-blind": Palette("colour-blind"), "no-color": NO_COLOUR, "ascii": ASCII,
}  # fmt: skip
VIEWS = {
    "help": ("f1",),
    "roofline": ("r",),
    "advice": ("a",),
    "log": ("l",),
    "compare": ("b",),
    "whatif": ("w",),
    "edit": ("w", "enter"),
    "kernel": ("enter",),
    "step": ("p", "g"),
    "code": ("C",),
    "commands": ("colon",),
    "filter": ("slash", "g"),
}
SIZES = ((80, 24), (120, 40), (200, 60))
INTERVAL_S = 0.5
WITH_SHAPES = "healthy"
"""What the roofline is drawn of: most demos were recorded without shapes."""


@dataclass(frozen=True)
class Picture:
    """One file: which recording (a demo by name), how far into it, and what is pressed."""

    name: str
    scenario: str | Path
    size: tuple[int, int]
    palette: Palette = DARK
    keys: tuple[str, ...] = ()
    place: float = 0.95
    before: Path | None = None
    """The recording that it is compared with."""


PICTURES = (Picture("ranks-120x40", "straggler", (120, 40), place=1.0),)
"""Kept beside this file: those that README and docs show."""

SESSION = Path(__file__).parent / "session"
"""A trainer watched live on an H100, and again with the patch that brrrtop made: README.md there."""
BEFORE, AFTER, WIDE = SESSION / "before.brrr", SESSION / "after.brrr", (112, 36)
IN_TURN = (
    *((Picture("", BEFORE, WIDE, DARK, (), at / 100), 1) for at in (8, 12, 16, 20, 25)),
    (Picture("", BEFORE, WIDE, DARK, ("p",), 0.3), 4),
    (Picture("", BEFORE, WIDE, DARK, ("C",), 0.4), 3),
    (Picture("", BEFORE, WIDE, DARK, ("C", "e"), 0.45), 5),
    (Picture("", BEFORE, WIDE, DARK, ("w",), 0.55), 4),
    *((Picture("", AFTER, WIDE, DARK, (), at / 100, BEFORE), 1) for at in (15, 25, 35)),
    (Picture("", AFTER, WIDE, DARK, ("b",), 0.6, BEFORE), 3),
    (Picture("", AFTER, WIDE, DARK, ("b",), 1.0, BEFORE), 3),
)
"""What the README shows first, and for how many seconds: a session from the verdict to the line, the edit,
and what it won."""


def extras() -> list[Picture]:
    """Every demo at every size, every look, every view: to be looked at, not to be kept."""
    pictures = [Picture(f"{n}-{w}x{h}", n, (w, h)) for n in scenarios() for w, h in SIZES]
    pictures += [
        Picture("roofline-120x40", WITH_SHAPES, (120, 40), DARK, ("r",)),
        Picture("tables-120x40", WITH_SHAPES, (120, 40), DARK, ("T",)),
        Picture("one-step-120x40", "sync-bound", (120, 40), DARK, ("p",)),
        Picture("what-if-120x40", "launch-bound", (120, 40), DARK, ("w",)),
    ]
    for look_name, palette in LOOKS.items():
        pictures += [
            Picture(f"{look_name}-{w}x{h}", "memory-bound", (w, h), palette) for w, h in SIZES
        ]
        pictures += [
            Picture(f"{view}-{look_name}", "healthy", (120, 40), palette, keys)
            for view, keys in VIEWS.items()
        ]
    return pictures


def played(scenario: str | Path, place: float, before: Path | None = None) -> list[Snapshot]:
    """The snapshots of a recording up to `place` of it, one each `INTERVAL_S`."""
    baseline = judged(Options(baseline=str(before))) if before is not None else None
    path = scenarios()[scenario] if isinstance(scenario, str) else scenario
    ticks = count()

    def clock() -> float:
        return next(ticks) * INTERVAL_S

    if path.is_dir():
        files = sorted(map(str, path.iterdir()))
        replay: Replay = open_job(files, Options(), clock=clock)
    else:
        source = FromFirstActivity(open_source(str(path)))
        replay = Replay(Session(source, keep_ns=None, baseline=baseline), clock=clock)
    snapshots = [replay.advance()]
    while (snapshots[-1].progress or 0.0) < place - 1e-6:
        snapshots.append(replay.advance())
    replay.close()
    return snapshots


class Still:
    """A driver that shows prepared snapshots and stands still at the last one."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self._snapshots = snapshots

    def advance(self) -> Snapshot:
        return self._snapshots.pop(0) if len(self._snapshots) > 1 else self._snapshots[0]

    def close(self) -> None:
        pass


async def draw(picture: Picture) -> str:
    """The picture as SVG."""
    snapshots = played(picture.scenario, picture.place, picture.before)
    driver = Still(snapshots[-20:] if "r" in picture.keys else snapshots[-1:])
    app = BrrrtopApp(driver, palette=picture.palette, interval_s=0.01)  # type: ignore[arg-type]
    async with app.run_test(size=picture.size) as pilot:
        await pilot.pause(0.1)
        await pilot.press(*picture.keys)
        for _ in range(300):
            if app.snapshot is snapshots[-1] or len(snapshots) == 1:
                break
            await pilot.pause(0.02)
        await pilot.pause(0.3)
        return slim(svg_of(app))


def slim(drawn: str) -> str:
    """The same picture in a third of the bytes: short names, the background is drawn once, and no line is
    clipped, for each has the length that it is given."""
    number = re.search(r"terminal-(\d+)", drawn)
    size = re.search(r'clip-terminal">\s*(<rect x="0" y="0" [^/]*)/>', drawn)
    fills = Counter(re.findall(r'<rect fill="(#\w+)" x=', drawn))
    if number is None or size is None or not fills:
        return drawn
    crisp = ' shape-rendering="crispEdges"'
    ground, count = fills.most_common(1)[0]
    if count < drawn.count("-line-") // 2:  # without colours only the chosen row has a background
        ground = "#292929"
    drawn = re.sub(rf'<rect fill="{ground}" x=[^>]*{crisp}/>', "", drawn).replace(crisp, "")
    clipped = r'(<g transform="[^"]*" clip-path="url\(#[^)]*clip-terminal\)">)'
    drawn = re.sub(clipped, rf'\1{size[1]} fill="{ground}"/>', drawn)
    name = f"t{int(number[1]) % 100_000}"
    drawn = drawn.replace("<style>", f"<style>.{name}- rect {{ shape-rendering: crispEdges }}", 1)
    drawn = drawn.replace('class="rich-terminal"', f'class="{name}-"', 1)
    drawn = re.sub(r"\n\s+", "\n", drawn.replace(f"terminal-{number[1]}-", f"{name}-"))
    drawn = re.sub(r'<clipPath id="[^"]*-line-\d+">\n<rect [^>]*>\n</clipPath>\n?', "", drawn)
    drawn = re.sub(r' clip-path="url\(#[^)]*-line-\d+\)"', "", drawn)
    drawn = re.sub(r"<text [^>]*>\n</text>", "", drawn).replace(' xml:space="preserve"', "")
    preserving = 'xmlns="http://www.w3.org/2000/svg" xml:space="preserve"'
    return drawn.replace('xmlns="http://www.w3.org/2000/svg"', preserving, 1).replace(
        "&#160;", "\xa0"
    )


def in_turn(frames: list[tuple[str, int]]) -> str:
    """One SVG that shows one after the other, each so many seconds; the first alone where nothing moves."""
    head = re.match(r"<svg [^>]*>", frames[0][0])
    assert head is not None
    whole, at = sum(seconds for _, seconds in frames), 0
    style = (
        ".frame { visibility: hidden }\n.frame:first-of-type { visibility: visible }\n"
        "@media (prefers-reduced-motion: reduce) { .frame { animation: none !important } }\n"
    )
    parts = []
    for number, (frame, seconds) in enumerate(frames):
        begin, end = (f"{100 * second / whole:.4g}%" for second in (at, at + seconds))
        style += (
            f"@keyframes f{number} {{ 0% {{ visibility: {'visible' if not number else 'hidden'} }} "
            f"{begin} {{ visibility: visible }} {end} {{ visibility: hidden }} }}\n"
        )
        turn = f"animation: f{number} {whole}s step-end infinite"
        parts.append(f'<g class="frame" style="{turn}">{frame}</g>')
        at += seconds
    return "\n".join([head[0], f"<style>\n{style}</style>", *parts, "</svg>\n"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIRECTORY")
    elsewhere = parser.parse_args().directory
    os.environ.pop("NO_COLOR", None)
    os.environ.update(TZ="UTC", TERM="xterm-256color", COLORTERM="truecolor")
    time.tzset()
    folder = elsewhere or Path(__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    wanted = [*PICTURES, *extras()] if elsewhere else PICTURES
    for picture in wanted:
        path = folder / f"{picture.name}.svg"
        path.write_text(asyncio.run(draw(picture)), "utf-8")
        print(path.name, path.stat().st_size)
    demo = folder / "demo.svg"
    os.chdir(SESSION)  # where the trainer's file is
    frames = [(asyncio.run(draw(picture)), seconds) for picture, seconds in IN_TURN]
    demo.write_text(in_turn(frames), "utf-8")
    print(demo.name, demo.stat().st_size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
