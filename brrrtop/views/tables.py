"""The tables beside the kernels, for the report: as lines of text and as plain data for JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from brrrtop.model.host_tables import HostTables, MemoryUse, ModuleRow, Queue
from brrrtop.text import units

_MOST = 100
"""Rows of one table in JSON; exports have all."""
_SHOWN: Mapping[str, int] = {
    "ops": 8,
    "modules": 14,
    "stalls": 5,
    "copies": 6,
    "collectives": 6,
    "annotations": 6,
    "alive": 5,
}
ALL_OF_IT = dict.fromkeys(_SHOWN, 40)
"""For a view that scrolls."""
_INSTANCE = re.compile(r"_\d+$")
"""By which torch.profiler numbers the modules of one class."""
_ALIKE = 1.25
"""Times the shortest of equal layers that the longest takes at most."""
_WORTH = 0.005
"""Of the device's time, or of the window: smaller modules and stalls are left out of the text."""


def document(tables: HostTables, most: int | None = _MOST) -> dict[str, Any]:
    """The tables for JSON; what was not recorded is null, and lists have their `most` largest rows."""
    rows: dict[str, Any] = {
        "ops": tables.ops[:most] or None,
        "op_shapes": tables.op_shapes[:most] or None,
        "ops_of_one_step": tables.ops_of_one_step,
        "modules": tables.modules[:most] or None,
        "frames": tables.frames[:most] or None,
        "stalls": tables.stalls[:most] or None,
        "loaders": tables.loaders[:most] or None,
        "queue": tables.queue,
        "copies": tables.copies[:most],
        "collectives": tables.collectives[:most],
        "annotations": tables.annotations[:most],
        "inference": tables.phases[:most] or None,
        "memory": None,
        "unattributed_ns": tables.unattributed_ns,
    }
    if tables.memory is not None:
        memory = asdict(tables.memory)
        points = zip(memory.pop("times_ns"), memory.pop("allocated_bytes"), strict=True)
        rows["memory"] = memory | {"timeline": list(points)}
    return rows


def lines(tables: HostTables, window_ns: int, most: Mapping[str, int] = _SHOWN) -> Iterator[str]:
    """The text; nothing for tables without rows.

    Args:
        most: Rows of each table.
    """
    yield from _ops(tables, most["ops"])
    yield from _modules(tables.modules, most["modules"])
    yield from _stalls(tables, most["stalls"])
    yield from _queue(tables.queue)
    yield from _copies(tables, most["copies"])
    yield from _collectives(tables, most["collectives"])
    yield from _annotations(tables, window_ns, most["annotations"])
    yield from _inference(tables)
    yield from _memory_lines(tables.memory, most["alive"])


def _ops(tables: HostTables, most: int) -> Iterator[str]:
    rows = [row for row in tables.ops if row.device_self_ns]
    if not rows:
        return
    yield ""
    of_one = ", of one recorded step" if tables.ops_of_one_step else ""
    yield f"{'Ops by GPU time' + of_one:<38} count  GPU self GPU total  CPU self"
    for row in rows[:most]:
        times = "".join(
            f"{units.duration(ns):>10}"
            for ns in (row.device_self_ns, row.device_total_ns, row.cpu_self_ns)
        )
        yield f"  {_cut(row.name, 35):<36}{units.count(row.count):>6}{times}"
    if len(rows) > most:
        rest = sum(row.device_self_ns for row in rows[most:])
        yield f"  and {len(rows) - most} more with {units.duration(rest)}"


def _modules(rows: Sequence[ModuleRow], most: int) -> Iterator[str]:
    whole = sum(row.device_self_ns for row in rows)
    shown = [row for row in merge_siblings(rows) if row.device_total_ns >= _WORTH * whole and whole]
    if not shown:
        return
    yield ""
    yield f"{'Modules':<27} calls     each  GPU time  back  comp   mem  roof"
    for row in shown[:most]:
        name = _cut("  " * min(row.depth, 6) + row.name, 25)
        back, compute, memory = (
            units.share(ns / row.device_total_ns)
            for ns in (
                row.backward_ns, row.sides_ns.get("compute", 0), row.sides_ns.get("memory", 0),
            )
        )  # fmt: skip
        each = units.duration(row.device_total_ns / row.count)
        figures = f"{units.count(row.count):>6}{each:>9}{units.duration(row.device_total_ns):>10}"
        roof = units.share(row.roof_share)
        yield f"  {name:<26}{figures}{back:>6}{compute:>6}{memory:>6}{roof:>6}"
    if len(shown) > most:
        yield f"  and {len(shown) - most} more"


def merge_siblings(rows: Sequence[ModuleRow]) -> list[ModuleRow]:
    """Modules of one class and about one time under one parent as a row each: `24 × Qwen2DecoderLayer`,
    and what they hold likewise; order kept."""
    below: dict[str | None, list[ModuleRow]] = {}
    for row in rows:
        below.setdefault(row.parent, []).append(row)
    names = {row.name for row in rows}
    outer = [row for row in rows if row.parent is None or row.parent not in names]
    return [one for group in _alike(outer) for one in _merge_tree(group, below)]


def _merge_tree(
    group: list[ModuleRow], below: dict[str | None, list[ModuleRow]]
) -> Iterator[ModuleRow]:
    yield _merge(group)
    inner_rows = [child for row in group for child in below.get(row.name, ())]
    for children in _alike(inner_rows):
        yield from _merge_tree(children, below)


def _alike(rows: Sequence[ModuleRow]) -> list[list[ModuleRow]]:
    """Rows of one class whose times are near each other, by the time of all."""
    classes: dict[str, list[ModuleRow]] = {}
    for row in rows:
        classes.setdefault(_INSTANCE.sub("", row.name), []).append(row)
    groups: list[list[ModuleRow]] = []
    for members in classes.values():
        members = sorted(members, key=lambda row: -row.device_total_ns)
        while members:
            least = members[0].device_total_ns / _ALIKE
            alike = [row for row in members if row.device_total_ns >= least]
            groups.append(alike)
            members = members[len(alike) :]
    return sorted(groups, key=lambda group: -sum(row.device_total_ns for row in group))


def _merge(group: list[ModuleRow]) -> ModuleRow:
    first = group[0]
    if len(group) == 1:
        return first
    total = sum(row.device_total_ns for row in group)
    sides = {
        side: sum(row.sides_ns.get(side, 0) for row in group)
        for side in {side for row in group for side in row.sides_ns}
    }
    known = [row for row in group if row.roof_share is not None]
    weight = sum(row.device_total_ns for row in known)
    roof = (
        sum((row.roof_share or 0.0) * row.device_total_ns for row in known) / weight
        if weight
        else None
    )
    return replace(
        first,
        name=f"{len(group)} × {_INSTANCE.sub('', first.name)}",
        count=sum(row.count for row in group),
        host_ns=sum(row.host_ns for row in group),
        device_total_ns=total,
        device_self_ns=sum(row.device_self_ns for row in group),
        backward_ns=sum(row.backward_ns for row in group),
        sides_ns=sides,
        roof_share=roof,
    )  # fmt: skip


def _stalls(tables: HostTables, most: int) -> Iterator[str]:
    rows = [row for row in tables.stalls if row.share >= _WORTH][:most]
    if not rows:
        return
    yield ""
    yield f"{'Where the host was while the GPU idled':<62}{'idle':>8}{'share':>8}"
    for row in rows:
        place = row.place + (f" → {row.inside}" if row.inside else "")
        yield f"  {_cut(place, 57):<59}{units.duration(row.idle_ns):>9}{units.share(row.share):>8}"


def _queue(queue: Queue | None) -> Iterator[str]:
    if queue is None or queue.length_max < 2:
        return
    yield ""
    text = f"Launch queue: {queue.length_p50} waiting (median), at most {queue.length_max}."
    if queue.full_launches:
        blocked = units.duration(queue.blocked_ns)
        text += f" It was full {queue.full_launches} times, which blocked the host for {blocked}."
    yield text


def _copies(tables: HostTables, most: int) -> Iterator[str]:
    rows = [row for row in tables.copies if row.total_ns][:most]
    if not rows:
        return
    yield ""
    yield f"{'Copies by kind':<40} count      size      time        rate"
    for row in rows:
        figures = f"{units.size(row.size_bytes or None):>10}{units.duration(row.total_ns):>10}"
        rate = units.rate(row.bytes_per_s, "B/s")
        yield f"  {_cut(row.kind, 37):<38}{units.count(row.count):>6}{figures}{rate:>12}"


def _collectives(tables: HostTables, most: int) -> Iterator[str]:
    if not tables.collectives:
        return
    yield ""
    yield f"{'Collectives of this rank':<28} count     size  type     time  exposed    algbw"
    for row in tables.collectives[:most]:
        name = f"{row.name}" + (f" ({row.algorithm})" if row.algorithm else "")
        yield (
            f"  {_cut(name, 25):<26}{units.count(row.count):>6}{units.size(row.size_bytes):>10}"
            f"{row.precision or units.UNMEASURED:>5}{units.duration(row.total_ns):>10}"
            f"{units.duration(row.exposed_ns):>9}{units.rate(row.bytes_per_s, 'B/s'):>11}"
        )
    if len(tables.collectives) > most:
        yield f"  and {len(tables.collectives) - most} more kinds"
    yield "  algbw: at least, since waits for late ranks are in the time."


def _annotations(tables: HostTables, window_ns: int, most: int) -> Iterator[str]:
    rows = tables.annotations[:most]
    if not rows:
        return
    yield ""
    yield f"{'Annotated ranges':<42} count  GPU time host time GPU share"
    for row in rows:
        times = f"{units.duration(row.device_ns):>10}{units.duration(row.host_ns):>10}"
        share = units.share(row.device_ns / window_ns if window_ns else None)
        yield f"  {_cut(row.name, 39):<40}{units.count(row.count):>6}{times}{share:>10}"


def _inference(tables: HostTables) -> Iterator[str]:
    if not tables.phases:
        return
    yield ""
    yield f"{'Inference':<41} count  GPU time    tokens  per token"
    for row in tables.phases:
        each = units.duration(row.device_ns / row.tokens) if row.tokens else units.duration(None)
        figures = f"{units.duration(row.device_ns):>10}{units.count(row.tokens):>10}{each:>11}"
        yield f"  {row.phase:<39}{units.count(row.count):>6}{figures}"


def _memory_lines(memory: MemoryUse | None, most: int) -> Iterator[str]:
    if memory is None:
        return
    yield ""
    peak, before = units.size(memory.peak_bytes), units.size(memory.before_bytes)
    reserved = f" of {units.size(memory.reserved_bytes)} reserved" if memory.reserved_bytes else ""
    yield f"Memory at its peak: {peak} in use{reserved}"
    yield f"  {'in use since before the trace':<52}{before:>10}"
    for row in memory.alive[:most]:
        yield f"  {_cut(row.name, 50):<52}{units.size(row.size_bytes):>10}{row.blocks:>7} blocks"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
