"""Which of the agent's calls to CUPTI holds up a training thread, for how long, and which order holds it up least.

    python benchmarks/lab/stalls.py                  # every sequence, a process each, then one table
    python benchmarks/lab/stalls.py agent no-driver  # only these
    python benchmarks/lab/stalls.py --dense agent  # how long the calls take while the device is never idle
    python benchmarks/lab/stalls.py --list

A thread without Python (stalls.c) makes the calls of a burst, cycle after cycle, while the main thread launches
tiny kernels without pause and notes when each launch returned. For each call: how long it took, and the longest
launch that overlapped it. All times are CLOCK_MONOTONIC; printed in us or ms as said. Every sequence stands
beside `agent`, the one the agent makes, which is played first and last.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CALLS_C = HERE.parents[1] / "collectors" / "agent" / "native" / "calls.c"
STRIDES = {1: 96, 2: 88, 4: 40, 5: 40, 10: 216, 3: 216, 51: 56}  # CUPTI 13.0.85
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10
BUFFER = 1 << 20
LONG_US = 50  # a launch longer than this was held up
(REGISTER, ENABLE, DISABLE, RUNTIME_IDS, DRIVER_IDS, FLUSH, FINALIZE, WAIT, ATTRIBUTE) = range(9)
NAMES = (
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivityEnableRuntimeApi",
    "cuptiActivityEnableDriverApi",
    "cuptiActivityFlushAll",
    "cuptiFinalize",
    "cuptiActivitySetAttribute",
)


class Step(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_int32),
        ("a", ctypes.c_uint32),
        ("b", ctypes.c_int64),
        ("keep", ctypes.c_int32),
        ("once", ctypes.c_int32),
    ]


Named = tuple[str, Step]


def step(label: str, op: int, a: int = 0, b: int = 0, keep: int = 0, once: bool = False) -> Named:
    return label, Step(op, a, b, keep, once)


def wait(label: str, ms: float) -> Named:
    return step(label, WAIT, b=int(ms * 1000))


def id_sets() -> np.ndarray:
    """[6, 1024] of 0 or 1, which ids stay on: the agent's runtime ones, its driver ones, none, and of
    the driver's only cuLaunchKernelEx, only cuLaunchKernel, only those that wait."""
    ids = np.zeros((6, 1024), np.uint8)
    row = re.compile(r"\{(\d+), (RUNTIME|DRIVER), (\w+), (WANT_\w+), \d+,")
    for cbid, api, kind, want in row.findall(CALLS_C.read_text()):
        if want != "WANT_ALLOCS":
            ids[int(api == "DRIVER"), int(cbid)] = 1
            ids[5, int(cbid)] = api == "DRIVER" and kind == "CALL_SYNC"
    ids[3, [652, 653]] = 1
    ids[4, [307, 442]] = 1
    return ids


def kinds(op: int) -> list[Named]:
    does = "enable" if op == ENABLE else "disable"
    return [
        step(f"{does} kernels", op, KERNEL),
        step(f"{does} memcpy", op, MEMCPY),
        step(f"{does} memset", op, MEMSET),
    ]


def calls(
    driver: bool,
    chunk: int = 0,
    pause_us: int = 0,
    once: bool = False,
    ids_first: bool = False,
    keep: int | None = None,
) -> list[Named]:
    api, kind, op = ("DRIVER", DRIVER, DRIVER_IDS) if driver else ("RUNTIME", RUNTIME, RUNTIME_IDS)
    less = step(f"{api} ids off", op, chunk, pause_us, int(driver) if keep is None else keep, once)
    whole = step(f"enable {api}", ENABLE, kind)
    return [less, whole] if ids_first else [whole, less]


def attributes(**more: int) -> list[Named]:
    numbers = {"size": 0, "zeroed": 5, "prealloc": 6, "pinned": 8, "per_thread": 9}
    given = {"per_thread": 1} | more
    return [step("attribute pool limit", ATTRIBUTE, 2, 8)] + [
        step(f"attribute {name}", ATTRIBUTE, numbers[name], value) for name, value in given.items()
    ]


def burst(
    start: list[Named],
    driver: bool,
    *,
    runtime: bool = True,
    flush_before: bool = True,
    register: str = "each",
    finalize: bool = True,
    given: list[Named] | None = None,
    settle_ms: float = 10,
    register_ahead_ms: float = 0,
) -> list[Named]:
    """One cycle: nothing on, what turns tracing on, tracing, what turns it off."""
    out = [wait("nothing on", 40), *(attributes() if given is None else given)]
    out.append(step("register", REGISTER, once=register == "once"))
    if register_ahead_ms:
        out.append(wait("registered only", register_ahead_ms))
    out += [*start, wait("tracing, first 5 ms", 5), wait("tracing", 35)]
    if flush_before:
        out.append(step("flush before", FLUSH))
    if driver:
        out.append(step("disable DRIVER", DISABLE, DRIVER))
    if runtime:
        out.append(step("disable RUNTIME", DISABLE, RUNTIME))
    out += [
        *kinds(DISABLE),
        step("flush after", FLUSH),
        wait("drain", settle_ms),
        step("flush again", FLUSH),
    ]
    if finalize:
        out.append(step("finalize", FINALIZE))
    return [*out, wait("over, first 5 ms", 5)]


ON = kinds(ENABLE)
R, D = calls(False), calls(True)
SEQUENCES: dict[str, Callable[[], list[Named]]] = {
    "agent": lambda: burst(ON + R + D, True),
    "no-driver": lambda: burst(ON + R, False),
    "kernels-only": lambda: burst(ON, False, runtime=False),
    "calls-first": lambda: burst(R + D + ON, True),
    "calls-first-no-driver": lambda: burst(R + ON, False),
    "ids-before-kind": lambda: burst(calls(False, ids_first=True) + ON, False),
    "flush-only-after": lambda: burst(R + ON, False, flush_before=False),
    "chunks-50us": lambda: burst(ON + calls(False, 32, 50), False),
    "chunks-200us": lambda: burst(ON + calls(False, 32, 200), False),
    "calls-first-chunks-50us": lambda: burst(calls(False, 32, 50) + ON, False),
    "register-ahead": lambda: burst(R + ON, False, register_ahead_ms=20),
    "prealloc-1": lambda: burst(R + ON, False, given=attributes(prealloc=1)),
    "prealloc-1-small": lambda: burst(R + ON, False, given=attributes(prealloc=1, size=400_000)),
    "pinned": lambda: burst(R + ON, False, given=attributes(pinned=1)),
    "zeroed": lambda: burst(R + ON, False, given=attributes(zeroed=1)),
    "one-buffer": lambda: burst(R + ON, False, given=attributes(per_thread=0)),
    "kept": lambda: burst(R + ON, False, register="once", finalize=False),
    "kept-register-each": lambda: burst(R + ON, False, finalize=False),
    "kept-ids-once": lambda: burst(
        calls(False, once=True) + ON, False, register="once", finalize=False
    ),
    "kept-with-driver": lambda: burst(R + D + ON, True, register="once", finalize=False),
    "driver-no-ids": lambda: burst(R + calls(True, keep=2) + ON, True),
    "driver-ex-only": lambda: burst(R + calls(True, keep=3) + ON, True),
    "driver-launch-only": lambda: burst(R + calls(True, keep=4) + ON, True),
    "driver-waits-only": lambda: burst(R + calls(True, keep=5) + ON, True),
    "runtime-no-ids": lambda: burst(calls(False, keep=2) + ON, False),
    "agent-again": lambda: burst(ON + R + D, True),
}


class Player:
    """The shared library of stalls.c around one libcupti."""

    def __init__(self, cupti_path: str) -> None:
        folder = tempfile.mkdtemp()
        library = f"{folder}/stalls.so"
        source = str(HERE / "stalls.c")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True
        )
        self.shim, cupti = ctypes.CDLL(library), ctypes.CDLL(cupti_path)
        self.done = ctypes.c_int.in_dll(self.shim, "stalls_done")
        table = (ctypes.c_void_p * len(NAMES))(
            *(ctypes.cast(getattr(cupti, name), ctypes.c_void_p) for name in NAMES)
        )
        strides = (ctypes.c_uint32 * 64)(*(STRIDES.get(kind, 0) for kind in range(64)))
        ids = id_sets().tobytes()
        if self.shim.stalls_setup(table, strides, ids, ctypes.c_size_t(BUFFER)) != 0:
            sys.exit("no memory for the buffers")

    def play(self, script: list[Named], cycles: int, launch: Callable[[], object]) -> Played:
        steps = (Step * len(script))(*(one for _, one in script))
        stamps = np.zeros((cycles, len(script), 3), np.int64)
        log = array("q", bytes(8 * 12_000_000))
        now, done, at, room = time.perf_counter_ns, self.done, 0, len(log) - 256
        out = ctypes.c_void_p(stamps.ctypes.data)
        gc.collect()
        gc.disable()
        if self.shim.stalls_start(steps, len(script), cycles, out) != 0:
            sys.exit("no thread")
        while done.value == 0 and at < room:
            for _ in range(128):
                launch()
                log[at] = now()
                at += 1
        gc.enable()
        while done.value == 0:
            time.sleep(0.01)
        return Played([label for label, _ in script], stamps, np.array(log[:at], np.int64))

    def rows(self) -> dict[str, int]:
        out = (ctypes.c_uint64 * 68)()
        self.shim.stalls_rows(out)
        said = {"kernels": 10, "runtime": 5, "driver": 4, "of them wanted": 64}
        said |= {"and wanted driver": 65, "unknown": 66, "buffers too few": 67}
        return {name: out[at] for name, at in said.items()}


class Played:
    """labels [S]; stamps [C, S, 3] ns began, ended, code; log [L] ns when each launch returned."""

    def __init__(self, labels: list[str], stamps: np.ndarray, log: np.ndarray) -> None:
        self.labels, self.stamps = labels, stamps
        self.starts, self.ends = log[:-1], log[1:]
        self.took = np.diff(log)

    def launches(self, began: int, ended: int) -> slice:
        """Those that overlap."""
        first = int(np.searchsorted(self.ends, began, "right"))
        return slice(first, max(first, int(np.searchsorted(self.starts, ended, "left"))))

    def of_step(self, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[C] each, us: how long the call took, the longest launch beside it, and how much of it was inside."""
        rows = []
        for began, ended, _ in self.stamps[:, at]:
            here = self.launches(began, ended)
            took = self.took[here]
            inside = np.minimum(self.ends[here], ended) - np.maximum(self.starts[here], began)
            rows.append((ended - began, took.max(initial=0), inside.max(initial=0)))
        whole, longest, held = np.array(rows, np.float64).T / 1e3
        return whole, longest, held

    def cycles(self) -> tuple[np.ndarray, np.ndarray]:
        """[C] each: longest launch from the first call to the end, us; time lost to long launches, us."""
        longest, lost = [], []
        for row in self.stamps:
            took = self.took[self.launches(row[1, 0], row[-1, 1])] / 1e3
            longest.append(took.max(initial=0))
            lost.append(took[took > LONG_US].sum())
        return np.array(longest), np.array(lost)

    def mean_us(self, label: str) -> float:
        """Of the launches within a wait, long ones left out."""
        at = self.labels.index(label)
        took = (
            np.concatenate([self.took[self.launches(b, e)] for b, e, _ in self.stamps[:, at]]) / 1e3
        )
        short = took[took <= LONG_US]
        return float(short.mean()) if len(short) else float(took.mean())

    def idle(self) -> np.ndarray:
        """[C] longest launch while nothing is on, us: what the machine does by itself."""
        return self.of_step(0)[1]


def show(played: Played) -> None:
    print(f"{'call':22} {'code':>5} {'us: median':>11} {'max':>9} | longest launch {'median':>8} {'p95':>9}"
          f" {'max':>9} | held inside {'median':>8} {'max':>9}")  # fmt: skip
    for at, label in enumerate(played.labels):
        whole, longest, held = played.of_step(at)
        code = sorted({int(c) for c in played.stamps[:, at, 2]})
        said = ",".join(str(c) for c in code[:2])
        print(f"{label:22} {said:>5} {np.median(whole):11.0f} {whole.max():9.0f} | {'':14} "
              f"{np.median(longest):8.0f} {np.percentile(longest, 95):9.0f} {longest.max():9.0f} | {'':11} "
              f"{np.median(held):8.0f} {held.max():9.0f}")  # fmt: skip


def summary(played: Played, rows: dict[str, int]) -> dict[str, float | str]:
    longest, lost = played.cycles()
    return {
        "longest us, median": round(float(np.median(longest))),
        "p95": round(float(np.percentile(longest, 95))),
        "max": round(float(longest.max())),
        "lost us a cycle, median": round(float(np.median(lost))),
        "idle longest, median": round(float(np.median(played.idle()))),
        "idle max": round(float(played.idle().max())),
        "us a launch, off": round(played.mean_us("nothing on"), 3),
        "tracing": round(played.mean_us("tracing"), 3),
        "rows": " ".join(f"{name} {count}" for name, count in rows.items() if count),
    }


def one(name: str, cycles: int, dense: bool) -> None:
    import torch

    x = torch.zeros(1024, device="cuda")
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next(line.split()[-1] for line in maps if "libcupti.so" in line)
    print(f"== {name}: {path}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    player = Player(path)
    launch: Callable[[], object] = (
        (lambda: torch.mm(a, a, out=out)) if dense else (lambda: x.add_(1))
    )
    for _ in range(1000 if dense else 50_000):
        launch()
    torch.cuda.synchronize()
    played = player.play(SEQUENCES[name](), cycles, launch)
    torch.cuda.synchronize()
    show(played)
    print("SUMMARY " + json.dumps(summary(played, player.rows())), flush=True)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("names", nargs="*", help="sequences; all of them if none")
    options.add_argument("--cycles", type=int, default=40)
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options.add_argument(
        "--dense",
        action="store_true",
        help="large products: the device is never idle, the queue full",
    )
    options.add_argument("--list", action="store_true")
    given = options.parse_args()
    unknown = set(given.names) - set(SEQUENCES)
    if unknown:
        options.error(f"unknown: {', '.join(sorted(unknown))}; --list names them all")
    if given.list:
        print("\n".join(SEQUENCES))
        return
    if given.one:
        one(given.names[0], given.cycles, given.dense)
        return
    found: dict[str, dict[str, float | str]] = {}
    for name in given.names or SEQUENCES:
        command = [sys.executable, __file__, "--one", "--cycles", str(given.cycles), name]
        command += ["--dense"] * given.dense
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
            said, code = (
                done.stdout,
                str(done.returncode) + done.stderr[-600:] * (done.returncode != 0),
            )
        except subprocess.TimeoutExpired:
            said, code = "", "no end within 90 s"
        print(said, f"-- {name} ended with {code}\n", sep="", flush=True)
        for line in said.splitlines():
            if line.startswith("SUMMARY "):
                found[name] = json.loads(line.removeprefix("SUMMARY "))
    for name, row in found.items():
        print(f"{name:24}", ", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
