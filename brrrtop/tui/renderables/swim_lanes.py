"""One step as a picture: what host and GPU did at each moment, and why the GPU did nothing."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from rich.style import Style
from rich.text import Text

from brrrtop.model.snapshot import Bars, StepPicture
from brrrtop.model.tables import I8, Span
from brrrtop.text import causes, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.history import Layers, level, stacked_area
from brrrtop.tui.renderables.line import fitted, styled

GUTTER = 8
"""Cells for the names of lanes."""
HOST_LANES = ("Python", "calls")
GPU = "GPU"
"""Kernels, and why there are none."""
DEVICE_LANES = ("copies", "communication")
SHORT = {"communication": "comm"}
ORDER = ("compute", "memory", "underfilled", "comm", "copy", "unknown")
BEHIND = ("annotation", "launching", "optimizer", "host")
"""Of the host, from the back: what names a cause is before all of them."""
SHOWN_FROM = 0.3
"""Part of a cell from which a bar in front hides what is behind it."""

F8 = npt.NDArray[np.float64]


class Row(Struct, frozen=True):
    """One lane as it is drawn: for each cell what is in it, by kind and share of the cell."""

    name: str
    cells: tuple[Layers, ...]


@lru_cache(4)
def lanes(picture: StepPicture, view: Span, width: int) -> tuple[Row, ...]:
    """The lanes that there are, host first, each cut into `width` equal times of `view`."""
    # From the begin of the view: nanoseconds since 1970 are too fine for floats.
    edges = np.linspace(0, view.duration_ns, width + 1)
    rows = []
    for name in (*HOST_LANES, GPU, *DEVICE_LANES):
        lane = picture.lane(name)
        if name == GPU:
            rows.append(Row(GPU, _device(picture, edges, view.t0_ns)))
        elif lane is not None:
            cells = _cover_cells(lane.bars, picture, edges, view.t0_ns)
            rows.append(Row(name, tuple(map(_front, cells)) if name in HOST_LANES else cells))
    return tuple(rows)


def _device(picture: StepPicture, edges: F8, t0_ns: int) -> tuple[Layers, ...]:
    """Kernels by side and idle time by cause; copies and collectives where nothing hides them."""
    shares: list[dict[str, float]] = [{} for _ in range(len(edges) - 1)]
    for name in ("kernels", "communication", "copies", "gaps"):
        lane = picture.lane(name)
        if lane is None:
            continue
        for cell, more in zip(shares, _cover_cells(lane.bars, picture, edges, t0_ns), strict=True):
            for kind, share in more.items():
                left = 1 - sum(cell.values())
                if left > 0:
                    cell[kind] = cell.get(kind, 0.0) + min(share, left)
    return tuple(shares)


def _cover_cells(bars: Bars, picture: StepPicture, edges: F8, t0_ns: int) -> tuple[Layers, ...]:
    """The part of each cell that bars of each kind cover; bars of a kind count once where they overlap."""
    size = float(edges[1] - edges[0]) or 1.0
    cells: list[dict[str, float]] = [{} for _ in range(len(edges) - 1)]
    starts, ends = bars.starts_ns - t0_ns, bars.ends_ns - t0_ns
    near = (ends > 0) & (starts < edges[-1])
    for kind in np.unique(bars.kinds[near]).tolist():
        of_kind = near & (bars.kinds == kind)
        part = _union(starts[of_kind], ends[of_kind], edges) / size
        for cell in np.flatnonzero(part > 0).tolist():
            cells[cell][picture.kinds[kind]] = min(1.0, float(part[cell]))
    return tuple(cells)


def _union(starts: I8, ends: I8, edges: F8) -> F8:
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    begins = np.maximum(starts, np.concatenate(([starts[0]], reach[:-1])))
    reach = np.maximum(reach, begins)
    opened = np.concatenate(([0], np.cumsum(begins)))
    closed = np.concatenate(([0], np.cumsum(reach)))
    first = np.searchsorted(begins, edges, "left")
    last = np.searchsorted(reach, edges, "left")
    up_to = (first * edges - opened[first]) - (last * edges - closed[last])
    return np.asarray(np.diff(up_to))


def _front(cell: Layers) -> Layers:
    """The one kind that a host's cell shows: the most specific that covers enough of it."""
    if not cell:
        return cell
    by_place = sorted(cell, key=lambda kind: BEHIND.index(kind) if kind in BEHIND else len(BEHIND))
    for kind in reversed(by_place):
        if cell[kind] >= SHOWN_FROM:
            return {kind: cell[kind]}
    kind = max(cell, key=lambda one: cell[one])
    return {kind: cell[kind]}


@lru_cache(4)
def drawn(
    picture: StepPicture, view: Span, palette: Palette, width: int, height: int
) -> tuple[Text, ...]:
    """The lanes over `width` cells; the GPU's own takes the lines that the others leave. A picture stays for
    seconds, and what is around it moves on: it is drawn once."""
    rows = list(lanes(picture, view, max(1, width - GUTTER)))
    while len(rows) > height and len(rows) > 1:
        least = min(
            rows, key=lambda row: (row.name == GPU, sum(sum(c.values()) for c in row.cells))
        )
        rows.remove(least)
    lines: list[Text] = []
    for row in rows:
        name = palette.text(fitted(SHORT.get(row.name, row.name), GUTTER), "muted")
        if row.name != GPU:
            lines.append(name.append_text(_thin(row, palette)))
            continue
        tall = max(1, height - len(rows) + 1)
        body = stacked_area(row.cells, palette, tall, _order(row))
        body[tall // 2] = _lane_name(row, body[tall // 2], view, palette)
        for at, line in enumerate(body):
            lead = name if at == tall // 2 else Text(" " * GUTTER)
            lines.append(lead.copy().append_text(line))
    return tuple(lines)


def _order(row: Row) -> tuple[str, ...]:
    kinds = {kind for cell in row.cells for kind in cell}
    return (*ORDER, *sorted(kind for kind in kinds if kind not in ORDER))


def _thin(row: Row, palette: Palette) -> Text:
    def sign(cell: Layers) -> tuple[str, Style]:
        if not cell:
            return " ", Style.null()
        kind = max(cell, key=lambda one: cell[one])
        height = level(cell[kind], palette) if palette.colour else palette.fill(kind)
        return height, palette.style(kind)

    return styled(map(sign, row.cells))


def _lane_name(row: Row, line: Text, view: Span, palette: Palette) -> Text:
    """The middle line of the GPU's lane, with their causes written into the gaps that have room."""
    each_ns = view.duration_ns / max(1, len(row.cells))
    named = Text(no_wrap=True)
    at = written = 0
    for kind, run in groupby(row.cells, _gap):
        cells = list(run)
        label = "" if kind is None else _gap_label(kind, cells, each_ns)
        if kind is not None and label:
            left = at + (len(cells) - len(label)) // 2
            named.append_text(line[written:left]).append(label, palette.filled(kind))
            written = left + len(label)
        at += len(cells)
    return named.append_text(line[written:])


def _gap_label(kind: str, cells: Sequence[Layers], each_ns: float) -> str:
    """What fits of how long a gap is and why; empty where nothing does."""
    spent = units.duration(each_ns * sum(cell[kind] for cell in cells))
    names = causes.CAUSES[kind].names
    wordings = (*(f" {name} {spent} " for name in names), f" {names[-1]} ")
    return next((one for one in wordings if len(one) <= len(cells)), "")


def _gap(cell: Layers) -> str | None:
    """The cause of the idle time that most of a cell is; None where the GPU mostly works."""
    if not cell:
        return None
    kind = max(cell, key=lambda one: cell[one])
    return kind if kind.startswith("idle_") and cell[kind] > 0.5 else None


def axis(view: Span, origin_ns: int, palette: Palette, width: int) -> Text:
    room = max(1, width - GUTTER)
    signs = [" "] * room
    for part in range(5):
        at_ns = view.t0_ns + view.duration_ns * part / 4 - origin_ns
        label = "0" if abs(at_ns) < view.duration_ns / 1e6 else units.duration(at_ns)
        at = min(
            room - len(label), max(0, round(part * room / 4) - (len(label) // 2 if part else 0))
        )
        signs[at : at + len(label)] = label
    return palette.text(" " * GUTTER + "".join(signs[:room]), "muted")


def kinds_shown(rows: Sequence[Row]) -> list[str]:
    total: dict[str, float] = {}
    for row in rows:
        for cell in row.cells:
            for kind, share in cell.items():
                total[kind] = total.get(kind, 0.0) + share
    return sorted(total, key=lambda kind: -total[kind])
