"""The user's own file with a heat column: where the training thread stands, line by line."""

from __future__ import annotations

import re
from pathlib import Path

from rich.text import Text

from brrrtop.model.run import CodeLine
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.line import clipped
from collectors.printable import printable

AROUND = 3
"""Lines shown before and after one at which samples were."""
BAR = 10
MOST_BYTES = 1 << 20
"""Nobody writes a longer file of code by hand."""
_PLACE = re.compile(r"(?P<path>.+\.py):(?P<line>\d+)$")


def gutter(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    """Each file with time in it, most first: its lines around those that samples were at, with their share.

    A file that cannot be read, or is another one than the trainer's, has the sampled lines alone.
    """
    files: dict[str, dict[int, CodeLine]] = {}
    for one in snapshot.run.lines if snapshot.run is not None else ():
        if match := _PLACE.match(one.place):
            files.setdefault(match["path"], {})[int(match["line"])] = one
    lines: list[Text] = []
    for path, hot in files.items():
        source = source_of(path, hot, snapshot)
        total = sum(one.share for one in hot.values())
        head = palette.text(path, "compute", bold=True)
        lines.append(head.append(f"  {units.share(total)} of the time", palette.style("muted")))
        last = 0
        for number in sorted({n for at in hot for n in around(at, source)}):
            if last and number != last + 1:
                lines.append(palette.text(f"{'':>{BAR + 6}}  ⋮", "muted"))
            last = number
            text = source[number - 1] if source else hot[number].source
            lines.append(clipped(_line(number, text, hot.get(number), palette), width))
        lines.append(Text())
    return lines


def around(number: int, source: list[str]) -> range:
    """Numbers of the lines shown for one."""
    if not source:
        return range(number, number + 1)
    return range(max(1, number - AROUND), min(len(source), number + AROUND) + 1)


def _line(number: int, source: str, hot: CodeLine | None, palette: Palette) -> Text:
    """`▐██████    72% 88 │ for x, y in loader:`."""
    if hot is None:
        text = Text(" " * (BAR + 5))
    else:
        waits = hot.waits > hot.share / 2
        text = meter(hot.share, palette, BAR, "idle_input" if waits else "good")
        text.append(f"{units.share(hot.share):>5}", palette.style("text", bold=True))
    text.append(f" {number:>5} │ ", palette.style("muted"))
    return text.append(printable(source.expandtabs(4)), palette.style("text" if hot else "muted"))


def source_of(path: str, hot: dict[int, CodeLine], snapshot: Snapshot) -> list[str]:
    """The lines of the file that the end of a path names; none where it is not found, or where a line differs
    from the sampled one."""
    for folder in folders(snapshot):
        for tail in (path, path.rpartition("/")[2]):
            lines = _read(folder / tail)
            known = [(number, one.source) for number, one in hot.items() if one.source]
            if (
                lines
                and known
                and all(
                    number <= len(lines) and lines[number - 1].strip() == source.strip()
                    for number, source in known
                )
            ):
                return lines
    return []


def folders(snapshot: Snapshot) -> list[Path]:
    """Where the trainer's own files may lie: its working folder, its script's, and this one."""
    here = Path.cwd()
    pid = snapshot.source.pid if snapshot.source.kind == "live" else None
    base = Path(f"/proc/{pid}/cwd") if pid is not None else here
    scripts = [word for word in (snapshot.source.cmdline or "").split() if word.endswith(".py")]
    near = [base / Path(word).parent for word in scripts]
    return [base, *near, *(one.parent for one in near), here]


def _read(path: Path) -> list[str]:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return []
        return path.read_text("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return []
