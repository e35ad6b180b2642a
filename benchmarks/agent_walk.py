"""How many of CUPTI's records the agent turns into wire records a second, and what a mark costs.

    python benchmarks/agent_walk.py [--buffers 200]

Kernel records and the launch rows beside them, as CUPTI 13.0 lays them out, go through the agent's own
callbacks, its thread, its names and its socket to a reader that throws them away. What is timed is the
CPU time of the agent's thread alone, so that neither the making of the records nor the reader counts.
"""

from __future__ import annotations

import argparse
import ctypes
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from collectors.attach import agent_library  # noqa: E402
from collectors.protocol import requests  # noqa: E402

FAKES = ROOT / "tests" / "fakes" / "cupti"
KERNEL_BYTES, CALL_BYTES = 216, 40
CPU_NS, KERNELS, CALLS, LOST = 9, 2, 3, 4
"""Places in `brrr_stats`."""


def built(folder: Path) -> dict[str, Path]:
    """The agent and the stand-ins, compiled as the wheel compiles them."""
    made = {"agent": agent_library.library_path()}
    for role, source, name in (
        ("cuda", "fake_cuda.c", "libcuda.so.1"),
        ("cupti", "fake_cupti.c", "libcupti.so.13"),
    ):
        made[role] = folder / name
        flags = ["-O2", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
        command = ["cc", *flags, "-o", str(made[role]), str(FAKES / source), "-lpthread"]
        subprocess.run(command, check=True, timeout=60)
    return made


def records(names: list[int], count: int, now_ns: int) -> bytes:
    """`count` kernels, each followed by its launch row."""
    pair = np.zeros(count, np.dtype((np.void, KERNEL_BYTES + CALL_BYTES)))
    raw = pair.view(np.uint8).reshape(count, -1)

    def put(at: int, values: object, kind: str) -> None:
        column = np.broadcast_to(np.asarray(values, kind), (count,))
        raw[:, at : at + column.itemsize] = column.copy().view(np.uint8).reshape(count, -1)

    starts = now_ns + np.arange(count) * 10_000
    put(0, 10, "<u4")
    put(16, starts, "<i8")
    put(24, starts + 8_000, "<i8")
    put(48, 7, "<u4")
    put(92, np.arange(count), "<u4")
    put(104, np.asarray(names)[np.arange(count) % len(names)], "<u8")
    put(KERNEL_BYTES, 5, "<u4")
    put(KERNEL_BYTES + 4, 211, "<u4")
    put(KERNEL_BYTES + 8, starts, "<i8")
    put(KERNEL_BYTES + 16, starts + 3_000, "<i8")
    put(KERNEL_BYTES + 32, np.arange(count), "<u4")
    return pair.tobytes()


def stats(agent: ctypes.CDLL) -> list[int]:
    out = (ctypes.c_uint64 * 32)()
    agent.brrr_stats(out, 32)
    return list(out)


def drain(reader: socket.socket) -> None:
    while reader.recv(1 << 20):
        pass


def walk(agent: ctypes.CDLL, cupti: ctypes.CDLL, reader: socket.socket, buffers: int) -> None:
    texts = [ctypes.create_string_buffer(f"kernel_{i}".encode()) for i in range(200)]
    count = (1 << 20) // (KERNEL_BYTES + CALL_BYTES)
    content = records([ctypes.addressof(text) for text in texts], count, time.time_ns())
    cupti.fake_feed.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    reader.sendall(requests.burst(0, 60_000_000_000))
    time.sleep(0.5)
    before, fed = stats(agent), 0
    began = time.monotonic()
    while fed < buffers:
        fed += cupti.fake_feed(content, len(content))
        time.sleep(0.003)  # the agent's own pace, so that nothing is thrown away
    time.sleep(0.5)
    after = stats(agent)
    done = after[KERNELS] - before[KERNELS] + after[CALLS] - before[CALLS]
    spent = after[CPU_NS] - before[CPU_NS]
    print(f"{done:,} records of {fed * count * 2:,} in {time.monotonic() - began:.1f} s")
    print(f"{spent / done:.1f} ns of the agent's thread per record, sending included")
    print(f"lost: {after[LOST] - before[LOST]}")


def mark_ns(agent: ctypes.CDLL) -> float:
    """The best of some rounds of marks through ctypes with the GIL held, as the probes call it."""
    mark = ctypes.PyDLL(agent._name).brrr_mark
    mark.argtypes = [ctypes.c_uint16, *[ctypes.c_int64] * 3, *[ctypes.c_uint32] * 2]
    mark.restype = None
    best = float("inf")
    for _ in range(20):
        time.sleep(0.15)  # the agent empties its ring
        began = time.perf_counter_ns()
        for _ in range(5000):
            mark(4, 1, 2, 3, 0, 5)
        best = min(best, (time.perf_counter_ns() - began) / 5000)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--buffers", type=int, default=200, help="1 MiB each")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = built(Path(folder))
        ctypes.CDLL(str(made["cuda"]))
        cupti = ctypes.CDLL(str(made["cupti"]))
        agent = ctypes.CDLL(str(made["agent"]))
        path = Path(folder) / "s" / "agent.sock"
        if agent.brrr_start(str(path).encode(), b"{}", b"outbox_bytes=33554432") != 0:
            agent.brrr_last_error.restype = ctypes.c_char_p
            raise SystemExit(agent.brrr_last_error().decode())
        agent.brrr_graphs(0)  # nothing is traced before somebody says so
        unwatched_ns = mark_ns(agent)
        reader = socket.socket(socket.AF_UNIX)
        reader.connect(str(path))
        threading.Thread(target=drain, args=(reader,), daemon=True).start()
        walk(agent, cupti, reader, asked.buffers)
        print(f"a mark: {mark_ns(agent) - unwatched_ns:.0f} ns more than an unwatched call")
        print(f"an unwatched call from Python: {unwatched_ns:.0f} ns, nearly all of it ctypes")
        agent.brrr_stop()
        reader.close()


main()
