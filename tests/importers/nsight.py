"""Exports of Nsight Systems by hand: tables and columns as its user guide lists them."""

import random
import sqlite3
from pathlib import Path
from typing import Any

from brrrtop.errors import BadInput
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source

START_NS = 1_779_630_014_975_716_426
PID, TID = 4711, 4712
ACTIVITY = "start, end, deviceId, contextId, streamId, correlationId, globalPid, graphNodeId"
COLUMNS = {
    "StringIds": "id, value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs, utcTime, localTime",
    "TARGET_INFO_GPU": "vmId, id, name, totalMemory, smCount, maxShmemPerSm, maxRegistersPerSm, "
    "threadsPerWarp, maxWarpsPerSm, computeMajor, computeMinor",
    "TARGET_INFO_CUDA_GPU": "vmId, name, globalMemorySize, numMultiprocessors, "
    "maxWarpsPerMultiprocessor, computeCapabilityMajor, computeCapabilityMinor, deviceId, "
    "maxSharedMemoryPerMultiprocessor, maxRegistersPerMultiprocessor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId, cudaId, pid, uuid, numMultiprocessors",
    "META_DATA_EXPORT": "name, value",
    "ENUM_CUDA_MEM_KIND": "id, name, label",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{ACTIVITY}, demangledName, shortName, registersPerThread, gridX, "
    "gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{ACTIVITY}, bytes, copyKind, srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{ACTIVITY}, bytes, value, memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, contextId, streamId, correlationId, "
    "globalPid, graphId, graphExecId",
    "NVTX_EVENTS": "start, end, eventType, text, textId, globalTid, domainId",
}
GPU = (
    1 << 48, 0, "NVIDIA H100 80GB HBM3", 85_045_018_624, 132, 233_472, 65_536, 32, 64, 9, 0,
)  # fmt: skip


def process(pid: int = PID) -> int:
    """Of the export's serialized ids: machine, process, thread."""
    return (1 << 48) | (pid << 24)


class Export:
    """Rows of tables; numbers of strings are given out as they are used."""

    def __init__(self) -> None:
        self.tables: dict[str, list[tuple[Any, ...]]] = {}
        self._strings: dict[str, int] = {}
        self.add("TARGET_INFO_GPU", *GPU)
        self.add("TARGET_INFO_SESSION_START_TIME", START_NS, "2026", "2026")
        self.add("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION", "2026.2.1.210")

    def add(self, table: str, *row: Any) -> None:
        self.tables.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = 100 + len(self._strings)
            self.add("StringIds", self._strings[text], text)
        return self._strings[text]

    def kernel(
        self, start: int, end: int, correlation: int, name: str = "gemm", *,
        pid: int = PID, device: int = 0, node: int | None = None, graph: int | None = None,
        grid: tuple[int, int] = (264, 2),
    ) -> None:  # fmt: skip
        number = self.string(name)
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start, end, device, 1, 7, correlation, process(pid), node,
            number, number, 32, *grid, 1, 128, 1, 1, 1024, 512, graph,
        )  # fmt: skip

    def copy(
        self, start: int, end: int, correlation: int, size: int, kinds: tuple[int, int, int]
    ) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start, end, 0, 1, 7, correlation, process(), None, size, *kinds
        )  # fmt: skip

    def call(
        self, start: int, end: int, correlation: int, name: str, pid: int = PID, tid: int = TID
    ) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start, end, 1, process(pid) | tid, correlation,
            self.string(name), 0,
        )  # fmt: skip

    def range(
        self, start: int, end: int | None, text: str, kind: int = 59, registered: bool = False
    ) -> None:
        number = self.string(text) if registered else None
        self.add(
            "NVTX_EVENTS", start, end, kind, None if registered else text, number, process() | TID, 0
        )  # fmt: skip

    def write(self, path: Path, without: frozenset[str] = frozenset()) -> Path:
        """The file; `without` these tables and columns."""
        with sqlite3.connect(path) as connection:
            for table, columns in COLUMNS.items():
                names = [name.strip() for name in columns.split(",")]
                kept = [i for i, name in enumerate(names) if name not in without]
                if table in without or not kept:
                    continue
                listed = ", ".join(f'"{names[i]}"' for i in kept)
                connection.execute(f'create table "{table}" ({listed})')
                rows = [tuple(row[i] for i in kept) for row in self.tables.get(table, ())]
                marks = ", ".join("?" * len(kept))
                connection.executemany(f'insert into "{table}" values ({marks})', rows)
        connection.close()
        return path


def training(steps: int = 4) -> Export:
    """Steps of 10 ms: an upload, a product, a wait; the loader takes 2 ms of each."""
    export = Export()
    for step in range(steps):
        at, number = 1_000_000 + 10_000_000 * step, 10 * step + 1
        export.range(at, at + 10_000_000, f"ProfilerStep#{step}")
        export.range(
            at, at + 2_000_000, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        )
        export.call(at + 2_000_000, at + 2_010_000, number, "cudaMemcpyAsync_v3020")
        export.copy(at + 2_100_000, at + 2_600_000, number, 1 << 20, (1, 0, 2))
        export.range(at + 2_020_000, at + 2_090_000, f"aten::mm, seq = {step}, op_id = {step}")
        export.call(at + 2_030_000, at + 2_040_000, number + 1, "cudaLaunchKernelExC_v11060")
        export.kernel(
            at + 2_700_000, at + 7_000_000, number + 1, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_TNT"
        )
        export.call(at + 2_100_000, at + 7_100_000, number + 2, "cudaStreamSynchronize_v3020")
    return export


def require_a_sentence_of_what_is_broken(path: Path, whole: bytes, every: int, seed: int) -> None:
    """That each file cut short, and 60 with some other bytes, is read or refused in a line; some are either."""
    chance, refused = random.Random(seed), 0
    broken = [whole[:size] for size in range(1, len(whole), every)]
    for _ in range(60):
        flipped = bytearray(whole)
        for _ in range(chance.choice((1, 3, 40))):
            flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        broken.append(bytes(flipped))
    for data in broken:
        path.write_bytes(data)
        try:
            analyze(open_source(path))
        except BadInput as fault:
            refused += 1
            assert fault.message and "\n" not in fault.message
    assert 5 < refused < len(broken)
