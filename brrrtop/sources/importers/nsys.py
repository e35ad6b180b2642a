"""A report of Nsight Systems, exported as SQLite, as a `Source`.

The file may be anybody's. It is opened immutable: no lock is taken, no journal replayed, nothing written.
Only plain tables are read, and none of their generated columns: a view may run for ever, an expression take
all memory. A file whose pages lead in circles has rows without end, so rows and work are bounded by the
size of the file.

Tables and columns are those of the user guide's "SQLite Schema Reference", checked on exports of
2024.6 and 2026.2. Tables are written only where something was recorded, and columns came over time
(`graphNodeId`, `graphId`), so whatever is missing counts as not recorded. Left out on purpose:
CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, whose waits are calls of CUPTI_ACTIVITY_KIND_RUNTIME too.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from brrrtop.errors import BadInput
from brrrtop.model.tables import I8
from brrrtop.sources.importers.trace.columns import (
    BAD_NS,
    CALL,
    COPY,
    KERNEL,
    OP,
    RANGE,
    Array,
    Collected,
    Columns,
    name_alone,
)
from brrrtop.sources.importers.trace.host import rows_of
from brrrtop.sources.importers.trace.source import TraceSource
from brrrtop.sources.source import open_input
from collectors.protocol import bodies
from collectors.protocol.frames import Frame
from collectors.vocabulary import COPY_NAMES, MEMORY_NAMES

MAGIC = b"SQLite format 3\x00"
MOST_TEXT = 4_096
"""Characters of a name that are kept."""
_LEAST_ROW_BYTES = 8
"""A row of a table with times takes at least so much of the file."""
_STEPS = 10_000
"""Instructions of SQLite's machine between two looks at what was spent."""
_STEPS_A_BYTE = 20
"""Real exports take 1 to 4."""
_FREE_STEPS = 10_000_000
_INTEGERS = "coalesce(cast({} as integer), {})"


class Database:
    """Tables of an SQLite file. Use as a context manager: `with opened(path) as database`."""

    def __init__(self, connection: sqlite3.Connection, label: str, size_bytes: int):
        self._connection = connection
        self._label = label
        self._most_rows = size_bytes // _LEAST_ROW_BYTES
        self.tables = self._schema()
        """Names of plain tables, with those of their columns."""

    def _schema(self) -> dict[str, frozenset[str]]:
        rows = self._connection.execute(  # virtual tables have no page
            "select name from sqlite_master where type = 'table' and rootpage > 0"
        )
        plain = [str(name) for (name,) in rows.fetchmany(10_000)]
        return {
            name: frozenset(
                str(row[1])
                for row in self._connection.execute("select * from pragma_table_info(?)", (name,))
            )
            for name in plain
        }

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, frozenset())

    def integers(self, table: str, columns: dict[str, int], where: str = "1") -> dict[str, Array]:
        """Columns of whole numbers by name, all of one length; empty where there is no such table.

        Args:
            columns: With what stands for a missing column or an empty field. SQLite's own `rowid` too.
            where: Of SQL; on columns that the table has.
        """
        here = self.tables.get(table)
        if here is None:
            return {name: np.zeros(0, np.int64) for name in columns}
        wanted = [
            _INTEGERS.format(f'"{name}"', default)
            if name in here or name == "rowid"
            else str(default)
            for name, default in columns.items()
        ]
        dtype = np.dtype([(name, np.int64) for name in columns])
        rows = self._connection.execute(f'select {", ".join(wanted)} from "{table}" where {where}')
        fromiter = np.fromiter(self._counted(rows), dtype)
        return {name: np.ascontiguousarray(fromiter[name]) for name in columns}

    def texts(
        self, table: str, key: str, value: str, where: str = "1"
    ) -> Iterator[tuple[int, str]]:
        if self.has(table, value) and (key == "rowid" or self.has(table, key)):
            yield from self._counted(
                self._connection.execute(
                    f"select {_INTEGERS.format(_quoted(key), 0)}, "
                    f"substr(cast({_quoted(value)} as text), 1, {MOST_TEXT}) "
                    f'from "{table}" where {_quoted(value)} is not null and {where}'
                )
            )

    def _counted(self, rows: sqlite3.Cursor) -> Iterator[Any]:
        left = self._most_rows
        while batch := rows.fetchmany(10_000):
            left -= len(batch)
            if left < 0:
                raise BadInput(
                    f"{self._label} has more rows than it has room for", "export the report again"
                )
            yield from batch


def _quoted(name: str) -> str:
    return f'"{name}"'


@contextmanager
def open_database(path: Path, size_bytes: int, force: bool = False) -> Iterator[Database]:
    """The database of a file.

    Raises:
        BadInput: It is none, is damaged, or takes more work than its size explains.
    """
    connection = None
    looks = iter(range((_FREE_STEPS + _STEPS_A_BYTE * size_bytes) // _STEPS))
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        connection.execute("pragma query_only = on")
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma cell_size_check = on")
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        if not force:
            connection.set_progress_handler(lambda: next(looks, None) is None, _STEPS)
        yield Database(connection, path.name, size_bytes)
    except UnicodeDecodeError as fault:  # of the sentence in which SQLite names what is broken
        raise BadInput(
            f"{path.name} is a damaged SQLite file", "export the report again"
        ) from fault
    except sqlite3.Error as fault:
        if next(looks, None) is None:
            raise BadInput(
                f"{path.name} takes more work than its size explains",
                "--force reads it all the same",
            ) from fault
        raise BadInput(
            f"{path.name} is a damaged SQLite file: {fault}", "export the report again"
        ) from fault
    finally:
        if connection is not None:
            connection.close()


_PREFIX = "CUPTI_ACTIVITY_KIND_"
KERNELS, COPIES, MEMSETS, CALLS, GRAPHS = (
    _PREFIX + name for name in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE")
)
TABLES = frozenset({KERNELS, COPIES, MEMSETS, CALLS, GRAPHS, "NVTX_EVENTS"})
"""One of which makes an SQLite file an export of Nsight Systems that is worth reading."""
_TIMES = dict.fromkeys(("start", "end"), BAD_NS)
_ACTIVITY = {
    **_TIMES,
    **dict.fromkeys(("deviceId", "streamId", "correlationId", "globalPid", "graphNodeId"), 0),
}
_SIZES = dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 0)
_KERNEL = {
    **_ACTIVITY, **_SIZES, "demangledName": -1, "shortName": -1, "registersPerThread": 0,
    "staticSharedMemory": 0, "dynamicSharedMemory": 0, "graphId": 0,
}  # fmt: skip
_COPY_NAMES = {**COPY_NAMES, 11: "HtoD", 12: "DtoH", 13: "DtoD"}
"""ENUM_CUDA_MEMCPY_OPER: CUPTI's, and three of unified memory's migrations, which tell no kind of memory."""
_MIGRATIONS = (11, 12, 13)
_MEMORY_NAMES = {kind - 1: name for kind, name in MEMORY_NAMES.items() if kind}
"""ENUM_CUDA_MEM_KIND, one less than CUPTI's; the table of that name counts where a file has it."""
_RANGES = "eventType in (59, 60) and end is not null"
"""ENUM_NSYS_EVENT_TYPE: ranges pushed and popped, and started and ended."""
_VERSION = re.compile(r"_v\d+(_ptds|_ptsz)?$|_pt[ds]s?z?$")
"""`cudaLaunchKernel_v7000`: since which CUDA a call is as it is."""
_TORCH = re.compile(r"^(.*?), (?:seq|op_id|sizes) = ")
"""`aten::mm, seq = 5, op_id = 12, sizes = […]`, as torch.autograd.profiler.emit_nvtx names ops."""
_GRAPH = "CUDA graph, its kernels were not recorded"
_TID = (1 << 24) - 1
_WARP = 32
_GPU_TABLES = (
    ("TARGET_INFO_GPU", (
        "id", "smCount", "totalMemory", "maxShmemPerSm", "maxRegistersPerSm", "maxWarpsPerSm",
        "computeMajor", "computeMinor",
    )),
    ("TARGET_INFO_CUDA_GPU", (
        "deviceId", "numMultiprocessors", "globalMemorySize", "maxSharedMemoryPerMultiprocessor",
        "maxRegistersPerMultiprocessor", "maxWarpsPerMultiprocessor", "computeCapabilityMajor",
        "computeCapabilityMinor",
    )),
)  # fmt: skip
"""Of today's exports, and of those before 2022: number, SMs, memory, and what an SM holds."""


def _devices(database: Database) -> tuple[dict[int, dict[str, Any]], dict[tuple[int, int], int]]:
    """The GPUs of an export.

    Returns:
        Facts by GPU number, and the GPU number by process and device number.
    """
    facts: dict[int, dict[str, Any]] = {}
    for table_name, keys in _GPU_TABLES:
        number, sms, memory, shared, registers, warps, *capability = keys
        table = database.integers(table_name, dict.fromkeys(keys, -1))
        names = dict(database.texts(table_name, number, "name"))
        for row, gpu in enumerate(table[number].tolist()):
            known = {key: int(column[row]) for key, column in table.items() if column[row] >= 0}
            if number not in known or gpu in facts:
                continue
            facts[gpu] = {
                "name": names.get(gpu),
                "sm_count": known.get(sms),
                "memory_bytes": known.get(memory),
                "shared_bytes_per_sm": known.get(shared),
                "registers_per_sm": known.get(registers),
                "max_threads_per_sm": known.get(warps, 0) * _WARP or None,
                "capability": [known.get(key) for key in capability],
            }
    cuda = database.integers("TARGET_INFO_CUDA_DEVICE", {"gpuId": -1, "cudaId": -1, "pid": -1})
    of_process = {
        (pid, device): gpu
        for gpu, device, pid in zip(*(cuda[key].tolist() for key in cuda), strict=True)
        if gpu in facts
    }
    return facts, of_process


class _Reader:
    """Everything used, on the clock of the export, and notes on what is missing."""

    def __init__(self, database: Database, collected: Collected) -> None:
        self._database = database
        self._collected = collected
        self._strings = dict(database.texts("StringIds", "id", "value"))
        self._memories = _MEMORY_NAMES | dict(database.texts("ENUM_CUDA_MEM_KIND", "id", "label"))
        self.gpus, self._gpu_of = _devices(database)
        self.notes: list[str] = []

    def read(self) -> None:
        tables = {
            KERNELS: self._database.integers(KERNELS, _KERNEL),
            COPIES: self._database.integers(
                COPIES, {**_ACTIVITY, "bytes": 0, "copyKind": 8, "srcKind": -1, "dstKind": -1}
            ),
            MEMSETS: self._database.integers(MEMSETS, {**_ACTIVITY, "bytes": 0, "memKind": -1}),
            GRAPHS: self._database.integers(GRAPHS, {**_ACTIVITY, "graphId": 0}),
            CALLS: self._database.integers(
                CALLS, {**_TIMES, "correlationId": 0, "globalTid": 0, "nameId": -1}
            ),
        }
        tables[GRAPHS] = self._unresolved(tables)
        _tell_processes_apart(list(tables.values()))
        self._kernels(tables[KERNELS])
        self._graphs(tables[GRAPHS])
        self._copies(tables[COPIES])
        sets = tables[MEMSETS]
        self._copied(sets, sets["memKind"], lambda kind: f"Memset ({self._memory(kind)})")
        self._calls(tables[CALLS])
        self._ranges()

    def _unresolved(self, tables: dict[str, Columns]) -> Columns:
        """Launches of graphs of which no node was recorded: those were recorded as a whole."""
        graphs = tables[GRAPHS]
        keys = [_key(tables[name]) for name in (KERNELS, COPIES, MEMSETS)]
        rest = ~np.isin(_key(graphs), np.concatenate(keys))
        return {name: column[rest] for name, column in graphs.items()}

    def _name_ids(self, ids: Array) -> I8:
        """Names of ours for the export's numbers; those of no string are empty."""
        names = self._collected.names
        return _mapped(ids, lambda number: names[self._strings.get(number, "")])

    def _add(self, code: int, table: Columns, batch: Columns) -> None:
        if len(table["start"]):
            times = {"start_ns": table["start"], "end_ns": table["end"]}
            self._collected.add_batch(code, {**batch, **times})

    def _activity(self, table: Columns, name_ids: I8) -> Columns:
        pids = (table["globalPid"] >> 24) & _TID
        places = np.stack([pids, table["deviceId"]], axis=1)
        return {
            "name_id": name_ids,
            "device": _mapped(places, lambda place: self._gpu_of.get(tuple(place), place[1])),
            "stream": table["streamId"],
            "correlation": table["correlationId"],
            **({"graph": np.maximum(table["graphId"], 0)} if "graphId" in table else {}),
        }

    def _kernels(self, table: Columns) -> None:
        names = np.where(table["demangledName"] >= 0, table["demangledName"], table["shortName"])
        grid, block = (
            np.stack([table[f"{key}{axis}"] for axis in "XYZ"], axis=1) for key in ("grid", "block")
        )
        self._add(KERNEL, table, {
            **self._activity(table, self._name_ids(names)),
            "grid": grid,
            "block": block,
            "registers": table["registersPerThread"],
            "shared_bytes": table["staticSharedMemory"] + table["dynamicSharedMemory"],
            "graph_node": np.maximum(table["graphNodeId"], 0),
        })  # fmt: skip

    def _graphs(self, table: Columns) -> None:
        count = len(table["start"])
        if not count:
            return
        self.notes.append(
            f"{count:,} launches of CUDA graphs were recorded as a whole: what their kernels did is "
            "unknown; profile with --cuda-graph-trace=node"
        )
        graph = np.full(count, self._collected.names[_GRAPH])
        self._add(KERNEL, table, self._activity(table, graph))

    def _copies(self, table: Columns) -> None:
        keys = np.stack([table["copyKind"], table["srcKind"], table["dstKind"]], axis=1)
        self._copied(table, keys, lambda kinds: (
            f"Memcpy {_COPY_NAMES.get(kinds[0], 'DtoD')} "
            + ("(Managed -> Managed)" if kinds[0] in _MIGRATIONS
               else f"({self._memory(kinds[1])} -> {self._memory(kinds[2])})")
        ))  # fmt: skip

    def _copied(self, table: Columns, kinds: Array, name_of: Callable[[Any], str]) -> None:
        ids = _mapped(kinds, lambda kind: self._collected.names[name_of(kind)])
        self._add(COPY, table, {**self._activity(table, ids), "size_bytes": table["bytes"]})

    def _memory(self, kind: int) -> str:
        name = self._memories.get(kind, "Unknown")
        return name if re.fullmatch(r"\w[\w ]*", name) else "Unknown"

    def _calls(self, table: Columns) -> None:
        for number in np.unique(table["nameId"]).tolist():
            self._strings[number] = _VERSION.sub("", self._strings.get(number, ""))
        self._add(CALL, table, {
            "name_id": self._name_ids(table["nameId"]),
            **self._places(table["globalTid"]),
            "correlation": table["correlationId"],
        })  # fmt: skip

    def _places(self, threads: Array) -> Columns:
        """Thread and process of each row; a thread's number here is unique on its machine."""
        pids = (threads >> 24) & _TID
        _mapped(pids, self._collected.pids.__getitem__)
        ours = _mapped(pids, self._collected.processes.__getitem__)
        return {"tid": threads & _TID, "pid": ours}

    def _ranges(self) -> None:
        """NVTX: ops of torch's emit_nvtx as ops, all else as ranges that somebody named."""
        table = self._database.integers(
            "NVTX_EVENTS", {**_TIMES, "globalTid": 0, "textId": -1, "rowid": 0}, _RANGES
        ) if self._database.has("NVTX_EVENTS", "start", "end", "eventType") else None  # fmt: skip
        if table is None or not len(table["start"]):
            return
        texts = dict(self._database.texts("NVTX_EVENTS", "rowid", "text", _RANGES))
        names = [
            texts.get(row) or self._strings.get(text, "")
            for row, text in zip(table["rowid"].tolist(), table["textId"].tolist(), strict=True)
        ]
        called = [_TORCH.match(name) for name in names]
        is_op = np.array([match is not None for match in called])
        ours = self._collected.names
        ids = np.array([ours[m[1] if m else n] for n, m in zip(names, called, strict=True)])
        ranges = {"name_id": ids, **self._places(table["globalTid"])}
        self._add(RANGE, rows_of(table, ~is_op), rows_of(ranges, ~is_op))
        self._add(OP, rows_of(table, is_op), self._ops(rows_of(ranges, is_op)))

    def _ops(self, ranges: Columns) -> Columns:
        names, signatures = list(self._collected.names), self._collected.signatures
        calls = _mapped(ranges["name_id"], lambda i: signatures[name_alone(names[i])])
        return {**ranges, "signature": calls}


def _mapped(values: Array, number_of: Callable[[Any], int]) -> I8:
    """The number of each value, or of each row of values; asked for once for each that differs."""
    known, inverse = np.unique(values, axis=0, return_inverse=True)
    return np.array([number_of(one) for one in known.tolist()], np.int64)[inverse.reshape(-1)]


def _key(table: Columns) -> Array:
    """Process and correlation in one number."""
    pids = table["globalTid"] if "globalTid" in table else table["globalPid"]
    return ((pids >> 24) & _TID) << 38 | (table["correlationId"] & ((1 << 38) - 1))


def _tell_processes_apart(tables: list[Columns]) -> None:
    """Correlations that count in each process anew, as numbers of the whole file; 0 stays none."""
    pids = np.concatenate([_key(table) >> 38 for table in tables])
    if not len(pids) or pids.min() == pids.max():
        return
    keys = np.unique(np.concatenate([_key(table) for table in tables]))
    for table in tables:
        numbers = np.searchsorted(keys, _key(table)) + 1
        table["correlationId"] = np.where(table["correlationId"] == 0, 0, numbers)


_HOW_TO_RECORD = "profile with nsys profile --trace=cuda,nvtx, and export it again"
_OF_AMD = (
    "no tool of AMD's makes a readable file of it: record the program with torch.profiler, and "
    'prof.export_chrome_trace("trace.json") writes one'
)


class NsysSource(TraceSource):
    kind = "nsys"

    def _read(self) -> list[Frame]:
        file, size_bytes = open_input(self._path)
        file.close()
        with open_database(self._path, size_bytes, self._force) as database:
            if any(name.startswith("rocpd_") for name in database.tables):
                raise BadInput(
                    f"{self._path.name} is a rocpd database of AMD's rocprofiler, which is not read",
                    _OF_AMD,
                )
            if TABLES.isdisjoint(database.tables):
                raise BadInput(
                    f"{self._path.name} is an SQLite file, but none with GPU work that Nsight Systems "
                    "exported",
                    _HOW_TO_RECORD,
                )
            reader = _Reader(database, collected := Collected())
            reader.read()
            if not collected.has_gpu_work:
                raise BadInput(f"{self._path.name} has no GPU activity in it", _HOW_TO_RECORD)
            base_ns = _start_ns(database)

        def described(active: list[int]) -> list[dict[str, Any]]:
            facts = ({"device_id": gpu, **reader.gpus.get(gpu, {})} for gpu in active)
            return [bodies.plausible_device(one) for one in facts]

        return self._framed(collected, base_ns, {"notes": reader.notes}, described)


def _start_ns(database: Database) -> int:
    """Time of day at the export's time 0; 0 where it is not told."""
    integers = database.integers("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": 0}, "rowid = 1")
    start = int(integers["utcEpochNs"][0]) if len(integers["utcEpochNs"]) else 0
    return start if 0 < start < 1 << 62 else 0
