"""What every imported trace is: a file read whole, as frames cut by the time things ended.

An importer turns its file into `Collected` columns (`columns.py`); `records.py` joins
launches, ops and activities of whatever trace, and here the records become frames.
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.errors import BadInput
from brrrtop.model.host_tables import HostDetails
from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import BROKEN_OFF, Span
from brrrtop.sources.importers.trace.columns import Collected
from brrrtop.sources.importers.trace.records import Records, build
from brrrtop.sources.source import open_input, with_hello
from collectors.printable import printable, printable_data
from collectors.protocol.frames import WIRE_VERSION, Frame, Kind

Array = npt.NDArray[Any]

SLICE_NS = 100_000_000
_LEAST_SLICES, _MOST_SLICES = 100, 4_000
"""A trace of a few steps lasts 0.1 s: a replay of it in one or two slices would show nothing."""
_MOST_ROWS = 250_000
"""Of one frame: 20 MB of kernels, under what a frame may carry."""


class TraceSource(ABC):
    """The frames of a trace, as if they had come over the wire.

    The file is opened at once and read whole when frames or times are first asked for.
    """

    kind: str

    def __init__(self, path: str | Path, force: bool = False) -> None:
        """`force`: however large it is. Raises: BadInput: The file cannot be read at all."""
        self._path = Path(path)
        self._force = force
        open_input(self._path)[0].close()
        self.info = SourceInfo(kind=self.kind, label=printable(self._path.name), tier="trace")
        self._frames: list[Frame] | None = None
        self.details: HostDetails | None = None
        """Ops, Python frames and memory of the trace; None before it was read."""
        self._next = 0

    @property
    def span(self) -> Span | None:
        frames = self._all()
        return Span(frames[0].sent_ns, frames[-1].sent_ns)

    @property
    def ended(self) -> bool:
        return self._frames is not None and self._next >= len(self._frames)

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        frames = self._all()
        while self._next < len(frames):
            frame = frames[self._next]
            if until_ns is not None and frame.sent_ns > until_ns:
                return
            self._next += 1
            yield frame

    def seek(self, t_ns: int) -> None:
        self._next = 0

    def close(self) -> None:
        self._frames = []
        self.details = None
        self._next = 0

    def _all(self) -> list[Frame]:
        if self._frames is None:
            was_on = gc.isenabled()
            gc.disable()  # looking through a million short-lived events for cycles takes long
            try:
                self._frames = self._read()
            finally:
                if was_on:
                    gc.enable()
        return self._frames

    @abstractmethod
    def _read(self) -> list[Frame]:
        """All frames of the file. Raises: BadInput: It cannot be judged, and why."""

    def _framed(
        self,
        collected: Collected,
        base_ns: int,
        hello: dict[str, Any],
        devices: Callable[[list[int]], list[dict[str, Any]]],
    ) -> list[Frame]:
        """Frames of what was collected, which is used up.

        Args:
            base_ns: Nanoseconds since 1970 at the time 0 of the columns.
            hello: Facts of the trainer; `notes` among them.
            devices: What is known of the GPUs that did something.

        Raises:
            BadInput: Nothing is left of the GPU's work.
        """
        records = build(collected, base_ns)
        self.details = records.details
        kernels, copies = (records.tables[kind][0] for kind in (Kind.KERNELS, Kind.COPIES))
        if not len(kernels) and not len(copies):
            raise BadInput(
                f"{self._path.name} has GPU activity only at impossible times", "record it again"
            )
        if collected.broken_off:
            collected.lose(BROKEN_OFF, records.silent)
        lost = [
            f"{count:,} event{'s' if count > 1 else ''} left out: {place}"
            for place, count in collected.losses.items()
            if place not in ("records", BROKEN_OFF)
        ]
        pid = next((pid for pid in collected.pids if isinstance(pid, int)), None)
        body = {"wire": WIRE_VERSION, "origin": self.kind, "tier": "trace", "pid": pid, **hello}
        body["notes"] = [*hello.get("notes", ()), *lost]
        if (
            records.threads
        ):  # ranks of one job in one file: what it says of a rank is the first one's
            gpus = ", ".join(map(str, sorted(records.threads)))
            body["rank"] = None
            body["threads"] = {str(device): tids for device, tids in records.threads.items()}
            body["notes"].append(
                f"Several processes in one file: GPU {gpus} by its own process each."
            )
        self.info = with_hello(self.info, body)
        active = np.unique(np.concatenate([kernels["device"], copies["device"]]))
        return list(_frames(records, body, devices(active.tolist()), collected.losses))


def _frames(
    records: Records, hello: dict[str, Any], devices: list[dict[str, Any]], losses: dict[str, int]
) -> Iterator[Frame]:
    """All frames in order: what is known from the start, then slices by the time things ended."""
    tables = records.tables.items()
    first = min(int(r["start_ns"].min()) for k, (r, _) in tables if k != Kind.LINKS and len(r))
    last = max(int(times[-1]) for _, (_, times) in tables if len(times))
    yield Frame(Kind.HELLO, printable_data(hello), first)
    for device in devices:
        yield Frame(Kind.DEVICE, printable_data(device), first)
    yield Frame(Kind.NAMES, printable_data(records.names), first)
    yield Frame(Kind.OPS, printable_data(records.ops), first)
    yield Frame(Kind.LOSS, losses, first)
    finest = max(1, (last - first) // _LEAST_SLICES)
    step = max(min(SLICE_NS, finest), -(-(last - first) // _MOST_SLICES))
    edges = np.arange(first + step, last + step, step, dtype=np.int64)
    edges = np.minimum(edges, last) if len(edges) else np.array([last], np.int64)
    cuts = {kind: np.searchsorted(times, edges, "right") for kind, (_, times) in tables}
    low = dict.fromkeys(cuts, 0)
    for index, edge in enumerate(edges.tolist()):
        for kind, (rows, _) in tables:
            high = int(cuts[kind][index])
            for start in range(low[kind], high, _MOST_ROWS):
                yield Frame(kind, rows[start : min(start + _MOST_ROWS, high)], edge)
            low[kind] = high
    yield Frame(Kind.END, {"reason": "the trace ends here"}, last)
