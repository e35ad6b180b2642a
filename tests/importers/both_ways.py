"""Events read by the scanner and by msgspec, as one thing to compare."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

import numpy as np

from brrrtop.sources.importers.kineto.scanned import Scanned
from brrrtop.sources.importers.kineto.scanner_library import scanner_library
from brrrtop.sources.importers.kineto.source import take
from brrrtop.sources.importers.trace.columns import COLUMNS, Collected
from brrrtop.sources.importers.trace.events import Torn

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


@cache
def library() -> ctypes.CDLL | None:
    """As `scanner_library`, asked for once."""
    return scanner_library()


def contents(collected: Collected) -> dict[str, Any]:
    """What was collected, with names, threads and signatures as such instead of their numbers."""
    result: dict[str, Any] = {"events": collected.event_count, "losses": dict(collected.losses),
                             "categories": sorted(collected.categories)}  # fmt: skip
    texts = {
        "name_id": list(collected.names),
        "pid": list(collected.processes),
        "tid": {number: key for key, number in collected.threads.items()},
        "signature": list(collected.signatures),
    }
    for name in COLUMNS:
        for key, column in collected.joined(name).items():
            values = np.asarray(column).tolist()
            result[f"{name}.{key}"] = [texts[key][n] for n in values] if key in texts else values
    return result


def read_runs(runs: list[bytes], scan: bool) -> tuple[str, dict[str, Any], int]:
    """How it ended, what was collected, and how many runs the scanner took."""
    collected, taken = Collected(), 0
    result = library() if scan else None
    scanned = Scanned(result, collected) if result is not None else None
    if scanned is not None:
        reads = scanned.take

        def counted(run: bytes) -> bool:
            nonlocal taken
            done = reads(run)
            taken += done
            return done

        collected.scan = counted
    end = ""
    for run in runs:
        try:
            take(collected, run)
        except Torn as torn:
            end += f"torn {torn.damaged};"
    if scanned is not None:
        scanned.finish()
    return end, contents(collected), taken


def runs_of(data: bytes) -> list[bytes]:
    """The events of a whole trace, as well as they can be told, in two runs."""
    match = _EVENTS.search(data)
    body = data[match.end() if match else 0 :]
    body = body[: body.rfind(b"]")] if b"]" in body else body
    cut = body.find(b"},", len(body) // 2)
    return [body] if cut < 0 else [body[: cut + 1], body[cut + 2 :]]


def assert_same(runs: list[bytes]) -> int:
    """The scanner changes nothing; how many runs it took."""
    end, result, taken = read_runs(runs, scan=True)
    wanted_end, wanted, _ = read_runs(runs, scan=False)
    assert end == wanted_end
    # The scanner also keeps those of events before a place where it gave up, and no very long ones.
    seen = set(result.pop("categories"))
    assert {one for one in wanted.pop("categories") if len(one.encode()) < 40} <= seen
    for key in wanted:
        assert result.get(key, []) == wanted[key], key
    assert result.keys() == wanted.keys()
    return taken
