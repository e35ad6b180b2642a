"""The process that samples hardware counters: frames on stdout, what it is told on stdin.

A process of its own, because CUPTI's PM sampling has crashed the one it ran in (H200, CUPTI 13.4)
and may hang it. Told are JSON lines, `{"match": …}`, `{"expect": …}` or `{"traced": …}` with the
values that `CounterThread` takes. Beside frames of gauges and samples go STATUS frames with its
`notes`, `active` and `settling`, whenever one is new. Ends with its stdin, and killed with the
monitor where it hangs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, BinaryIO

import numpy as np

from collectors.gpu.counters.sampler import CounterThread
from collectors.process.proc import end_with
from collectors.protocol.frames import OBSERVED, Frame, Kind, encode

_EVERY_S = 0.05


def serve(counters: CounterThread, requests: BinaryIO, out: BinaryIO) -> None:
    """Until `requests` ends, or nobody reads `out`."""
    ended = threading.Event()
    threading.Thread(target=_heed, args=(counters, requests, ended), daemon=True).start()
    counters.start()
    before: dict[str, Any] = {}
    try:
        while not ended.wait(_EVERY_S):
            frames = counters.drain()
            state = {
                "notes": counters.says, "active": counters.active, "settling": counters.settling,
            }  # fmt: skip
            if state != before:
                frames.append(Frame(Kind.STATUS, state, time.time_ns()))
                before = state
            out.write(b"".join(map(encode, frames)))
            out.flush()
    except BrokenPipeError:
        pass
    finally:
        counters.close()


def _heed(counters: CounterThread, requests: BinaryIO, ended: threading.Event) -> None:
    try:
        for line in requests:
            _obey(counters, *next(iter(json.loads(line).items())))
    except ValueError:  # a monitor that was killed in the middle of a line
        pass
    finally:
        ended.set()


def _obey(counters: CounterThread, what: str, value: Any) -> None:
    if what == "match":
        counters.match({int(number): uuid for number, uuid in value.items()})
    elif what == "expect":
        counters.expect(value)
    elif what == "traced":
        rows = np.zeros(len(value), OBSERVED)
        for row, (start_ns, end_ns) in zip(rows, value, strict=True):
            row["start_ns"], row["end_ns"] = start_ns, end_ns
        counters.traced(rows)


def main() -> None:
    """Its argument is the number of the monitor, to whom the terminal's interrupt belongs."""
    end_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever CUPTI prints is no frame
    serve(CounterThread(), sys.stdin.buffer, frames)
    os._exit(0)  # a driver that hangs in its own end must not keep us
