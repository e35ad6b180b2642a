"""What the records hold beyond kernels as tables: ops, modules, stalls, copies, memory; and as JSON."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from brrrtop.model.host_tables import AliveRow, HostTables, MemoryUse, ModuleRow
from brrrtop.text import units
from brrrtop.views.table import (
    CALLS,
    Column,
    Table,
    attribute,
    name_column,
    share_column,
    time_column,
)
from brrrtop.views.tables import collective_name

_MOST = 100
"""Rows of one table in JSON; exports have all."""
_INSTANCE = re.compile(r"_\d+$")
"""By which torch.profiler numbers the modules of one class."""
_ALIKE = 1.25
"""Times the shortest of equal layers that the longest takes at most."""
_WORTH = 0.005
"""Of the device's time, of the window or of the run: what takes less is left out of the tables."""


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


def of_host(tables: HostTables, window_ns: int) -> list[Table]:
    """What the records hold beyond kernels, in the order of reports; tables without rows too."""
    ops = (
        name_column("op", most=48),
        CALLS,
        time_column("GPU self", "device_self_ns"),
        time_column("GPU total", "device_total_ns"),
        time_column("CPU self", "cpu_self_ns"),
        Column("module", 30, attribute("module"), words=True, from_width=130),
        Column("line", 40, attribute("place"), words=True, from_width=170),
    )
    shapes = Column("shapes", 0, attribute("shapes"), words=True, most=90)
    of_one = ", of one recorded step" if tables.ops_of_one_step else ""
    alive, memory = _alive(tables.memory)
    window = window_ns or 1
    return [
        Table("ops", f"Ops by GPU time{of_one}", ops, [row for row in tables.ops if row.device_self_ns]),
        Table("op_shapes", "Ops by input shapes", (
            replace(ops[0], width=34), CALLS, ops[2], shapes,
        ), tables.op_shapes, most=0),
        _modules(tables.modules),
        Table("stalls", "Where the host was while the GPU idled", (
            Column("place", 0, lambda row: row.place + (f" → {row.inside}" if row.inside else ""),
                   words=True, most=90),
            time_column("idle", "idle_ns"), share_column("share", "share"),
        ), [row for row in tables.stalls if row.share >= _WORTH], most=5),
        Table("copies", "Copies by kind", (
            name_column("kind", "kind"), CALLS,
            Column("size", 9, lambda row: row.size_bytes or None, units.size),
            time_column("time", "total_ns"),
            Column("rate", 10, attribute("bytes_per_s"), lambda rate: units.rate(rate, "B/s")),
        ), [row for row in tables.copies if row.total_ns], most=6),
        Table("collectives", "Collectives of this rank", (
            Column("collective", 0, collective_name, words=True, most=40), CALLS,
            Column("size", 8, attribute("size_bytes"), units.size),
            Column("type", 5, attribute("precision")),
            time_column("time", "total_ns", 8), time_column("exposed", "exposed_ns", 8),
            Column("algbw", 9, attribute("bytes_per_s"), lambda rate: units.rate(rate, "B/s")),
        ), tables.collectives, ("algbw: at least, since waits for late ranks are in the time.",), most=6),
        Table("annotations", "Annotated ranges", (
            name_column("range"), CALLS, time_column("GPU time", "device_ns"),
            time_column("host time", "host_ns"),
            Column("GPU share", 9, lambda row: row.device_ns / window, units.share),
        ), tables.annotations, most=6),
        Table("inference", "Inference", (
            name_column("phase", "phase"), CALLS, time_column("GPU time", "device_ns"),
            Column("tokens", 9, attribute("tokens"), units.count),
            Column("per token", 9, lambda row: row.device_ns / row.tokens if row.tokens else None,
                   units.duration),
        ), tables.phases),
        Table("memory_alive_at_peak", memory, (
            name_column("in use at the peak"), Column("size", 9, attribute("size_bytes"), units.size),
            Column("blocks", 7, lambda row: row.blocks or None, units.count),
        ), alive, most=6),
    ]  # fmt: skip


def _alive(use: MemoryUse | None) -> tuple[list[Any], str]:
    """What was in use at the peak, what was there before the trace first; and a title: how much it was."""
    if use is None:
        return [], ""
    before = AliveRow("in use since before the trace", use.before_bytes, 0)
    reserved = f" of {units.size(use.reserved_bytes)}" if use.reserved_bytes else ""
    return [before, *use.alive], f"Memory at its peak: {units.size(use.peak_bytes)}{reserved}"


def queue_words(tables: HostTables) -> str:
    queue = tables.queue
    if queue is None or queue.length_max < 2:
        return ""
    text = f"Launch queue: {queue.length_p50} waiting (median), at most {queue.length_max}."
    if queue.full_launches:
        blocked = units.duration(queue.blocked_ns)
        text += f" It was full {queue.full_launches} times, which blocked the host for {blocked}."
    return text


def _modules(rows: Sequence[ModuleRow]) -> Table:
    whole = sum(row.device_self_ns for row in rows)
    shown = [row for row in merge_siblings(rows) if row.device_total_ns >= _WORTH * whole and whole]

    def of(side: str) -> Callable[[ModuleRow], float]:
        return lambda row: row.sides_ns.get(side, 0) / row.device_total_ns

    columns = (
        Column("module", 0, lambda row: "  " * min(row.depth, 6) + row.name, words=True, most=60),
        replace(CALLS, title="calls"),
        Column("each", 8, lambda row: row.device_total_ns / row.count, units.duration),
        time_column("GPU time", "device_total_ns"),
        Column("back", 5, lambda row: row.backward_ns / row.device_total_ns, units.share),
        Column("comp", 5, of("compute"), units.share),
        Column("mem", 5, of("memory"), units.share),
        share_column("roof", "roof_share", 5),
    )
    return Table("modules", "Modules", columns, shown, most=14)


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
