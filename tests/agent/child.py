"""A trainer without a GPU: loads the stand-in libraries and the agent, and does as told on stdin.

Each line on stdin is a JSON string of Python, run in one namespace; what it leaves in `answer` goes
back as one line of JSON.
"""

import ctypes
import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

U64 = ctypes.c_uint64
ROOM: dict[str, Any] = {one.__name__: one for one in (ctypes, json, os, sys, threading, time)}


def comms() -> list[str]:
    """The names of this process's threads."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # one that ended meanwhile
            names.append((task / "comm").read_text())
    return names


def load(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL if "libcupti" in path else 0)


def agent(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.brrr_start.argtypes = [ctypes.c_char_p] * 3
    library.brrr_last_error.restype = ctypes.c_char_p
    library.brrr_mark.argtypes = [ctypes.c_uint16, *[ctypes.c_int64] * 3, *[ctypes.c_uint32] * 2]
    library.brrr_mark.restype = None
    library.brrr_step.argtypes = [ctypes.c_int64, ctypes.c_uint32]
    library.brrr_step.restype = None
    library.brrr_name.argtypes = [ctypes.c_char_p]
    library.brrr_name.restype = ctypes.c_uint32
    library.brrr_json = lambda kind, text: library.brrr_frame(kind, text, len(text), 0)  # type: ignore[attr-defined]
    library.brrr_yield.argtypes = [ctypes.c_char_p]
    library.brrr_stats.argtypes = [ctypes.POINTER(U64), ctypes.c_int]
    return library


def fake(path: str) -> ctypes.CDLL:
    library = load(path)
    wide, pointer = ctypes.c_int64, ctypes.c_void_p
    library.fake_launch.argtypes = [pointer, ctypes.c_int, wide, wide, ctypes.c_uint32]
    library.fake_launch_driver.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
    library.fake_graph.argtypes = [pointer, ctypes.c_int, wide, ctypes.c_uint32]
    library.fake_work.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.fake_copy.argtypes = [ctypes.c_int, U64, ctypes.c_int64]
    library.fake_memset.argtypes = [U64, ctypes.c_int64]
    library.fake_call.argtypes = [ctypes.c_uint32, ctypes.c_int, ctypes.c_int64, ctypes.c_int]
    library.fake_feed.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.fake_clock_shift.argtypes = [ctypes.c_int64]
    library.fake_drop.argtypes = [ctypes.c_size_t]
    library.fake_set_attribute.argtypes = [ctypes.c_int, ctypes.c_size_t]
    for name in ("fake_calls", "fake_forced", "fake_no_buffer", "fake_attribute"):
        getattr(library, name).restype = U64
    return library


KEPT: dict[str, ctypes.Array[ctypes.c_char]] = {}


def name(text: str) -> int:
    """The address of a kernel's name, the same each time, as in a loaded module."""
    if text not in KEPT:
        KEPT[text] = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(KEPT[text])


def stats(library: ctypes.CDLL) -> list[int]:
    out = (U64 * 32)()
    return list(out)[: library.brrr_stats(out, 32)] and list(out)


def train(cupti: ctypes.CDLL, lib: ctypes.CDLL, steps: int, kernels: int = 10) -> None:
    """Steps of some kernels, each closed by a mark."""
    for _ in range(steps):
        cupti.fake_launch(name("gemm"), kernels, 20_000, 0, 7)
        lib.brrr_step(time.time_ns(), threading.get_native_id())
        time.sleep(0.002)


def next_line() -> str:
    """The next line. A main thread that blocks runs no pending calls, by which the agent meets it."""
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        pass
    return sys.stdin.readline()


def work(
    cupti: ctypes.CDLL, lib: ctypes.CDLL, done: Callable[[], Any], steps: bool,
    longest_s: float = 30, step_ms: int = 3,
) -> list[float]:  # fmt: skip
    """Launches without pause until `done`, in steps of 3 ms or so many; how long each step's end took, in ms."""
    took: list[float] = []
    until = time.monotonic() + longest_s
    while not done() and time.monotonic() < until:
        cupti.fake_work(name("gemm"), step_ms)
        began = time.perf_counter()
        if steps:
            lib.brrr_step(time.time_ns(), threading.get_native_id())
        took.append((time.perf_counter() - began) * 1e3)
    return took


def after(seconds: float) -> Callable[[], bool]:
    """Says when that time is over."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def wait_in_c(fifo: str) -> None:
    """A call into C that lasts until the test opens the other end."""
    os.close(os.open(fifo, os.O_RDONLY))


def hurry() -> bool:
    """Goes before all other processes, with every thread begun from here on, so that what is timed
    is this program and not its neighbours; False where that is not permitted, or another does so:
    two that never pause leave two cores to nobody, not even to the monitor that they wait for."""
    try:
        ROOM["only one"] = name = socket.socket(socket.AF_UNIX)
        name.bind("\0brrrtop-test-in-a-hurry")
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return len(os.sched_getaffinity(0)) > 1


def main() -> None:
    offered = (load, agent, fake, name, stats, train, work, comms, after, wait_in_c, hurry)
    ROOM.update({one.__name__: one for one in offered})
    while line := next_line():
        ROOM["answer"] = None
        try:
            exec(json.loads(line), ROOM)
            message = {"answer": ROOM["answer"]}
        except Exception:  # noqa: BLE001 - told to the test
            message = {"fault": traceback.format_exc()}
        print(json.dumps(message), flush=True)


main()
