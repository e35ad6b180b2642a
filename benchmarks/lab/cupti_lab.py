"""What CUPTI does in a training process: what each state costs a launch, what it delivers, what it breaks.

    python benchmarks/lab/cupti_lab.py cost      # us per launch in each state, interleaved with nothing on
    python benchmarks/lab/cupti_lab.py rows      # which API rows arrive, in which order of calls
    python benchmarks/lab/cupti_lab.py graphs N  # N cycles of tracing and finalizing while graphs replay
    python benchmarks/lab/cupti_lab.py all

Each experiment runs in a process of its own, so that one that crashes is counted and the rest go on.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KERNEL, MEMCPY, RUNTIME, GRAPH_TRACE = 10, 1, 5, 51
LAUNCHES = (211, 430)
STRIDES = {1: 96, 2: 88, 4: 40, 5: 40, 10: 216, 3: 216, 51: 56}


class Lab:
    """CUPTI through ctypes, on the library that torch has mapped."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.zeros(1, device="cuda")
        path = next(
            line.split()[-1]
            for line in Path("/proc/self/maps").read_text().splitlines()
            if "libcupti.so" in line
        )
        self.cupti = ctypes.CDLL(path)
        folder = Path(tempfile.mkdtemp())
        subprocess.run(
            [
                "cc",
                "-O2",
                "-shared",
                "-fPIC",
                "-o",
                str(folder / "counter.so"),
                str(Path(__file__).with_name("counter.c")),
                "-lpthread",
            ],
            check=True,
        )
        self.shim = ctypes.CDLL(str(folder / "counter.so"))
        table = (ctypes.c_uint32 * 64)(*(STRIDES.get(k, 0) for k in range(64)))
        self.shim.lab_strides(table)
        version = ctypes.c_uint32()
        self.cupti.cuptiGetVersion(ctypes.byref(version))
        print(
            f"{path} version {version.value}, torch {torch.__version__}, {torch.cuda.get_device_name()}",
            flush=True,
        )

    def call(self, name: str, *args: object) -> int:
        return int(getattr(self.cupti, name)(*args))

    def register(self) -> int:
        return self.call(
            "cuptiActivityRegisterCallbacks", self.shim.lab_request, self.shim.lab_complete
        )

    def enable(self, kind: int) -> int:
        return self.call("cuptiActivityEnable", kind)

    def disable(self, kind: int) -> int:
        return self.call("cuptiActivityDisable", kind)

    def flush(self) -> int:
        return self.call("cuptiActivityFlushAll", 0)

    def finalize(self) -> int:
        return self.call("cuptiFinalize")

    def api(self, on: int, ids: tuple[int, ...] = LAUNCHES) -> list[int]:
        return [self.call("cuptiActivityEnableRuntimeApi", i, on) for i in ids]

    def taken(self) -> dict[int | str, int]:
        out = (ctypes.c_uint64 * 67)()
        self.shim.lab_take(out)
        return {k: v for k, v in enumerate(out[:64]) if v} | {
            "unknown": out[65],
            "buffers": out[66],
        }

    def launches(self, count: int = 20000) -> float:
        """us per launch of a tiny kernel."""
        x = self.torch.zeros(1024, device="cuda")
        self.torch.cuda.synchronize()
        best = []
        for _ in range(3):
            began = time.perf_counter()
            for _ in range(count // 3):
                x.add_(1)
            best.append((time.perf_counter() - began) / (count // 3) * 1e6)
            self.torch.cuda.synchronize()
        return min(best)


def cost(lab: Lab) -> None:
    def say(state: str) -> None:
        print(
            f"{state:60} {statistics.median(lab.launches() for _ in range(3)):.3f} us", flush=True
        )

    say("nothing")
    lab.register()
    say("callbacks registered")
    lab.enable(KERNEL)
    say("kernel kind")
    print("  api rc", lab.api(1))
    say("kernel kind, launch rows")
    lab.api(0)
    say("kernel kind, launch rows off again")
    lab.flush()
    lab.disable(KERNEL)
    say("all disabled")
    lab.flush()
    say("all disabled, flushed")
    print("  enable all domains off rc", lab.call("cuptiEnableAllDomains", 0, None))
    say("after EnableAllDomains(0)")
    print("  finalize rc", lab.finalize())
    say("finalized")
    lab.register()
    lab.enable(KERNEL)
    say("registered and kernel kind again")
    lab.flush()
    lab.disable(KERNEL)
    lab.flush()
    lab.finalize()
    say("finalized again")
    lab.register()
    lab.enable(MEMCPY)
    say("memcpy kind alone")
    lab.flush()
    lab.disable(MEMCPY)
    say("memcpy kind off")
    lab.finalize()
    say("finalized a third time")
    print("  api alone rc", lab.register(), lab.api(1))
    say("launch rows alone")
    lab.api(0)
    say("launch rows off")
    lab.flush()
    lab.finalize()
    say("finalized a fourth time")
    stalls = []
    for _ in range(20):
        marks = []
        for step in (
            lab.register,
            lambda: lab.enable(KERNEL),
            lambda: lab.api(1),
            lambda: lab.api(0),
            lab.flush,
            lambda: lab.disable(KERNEL),
            lab.finalize,
        ):
            began = time.perf_counter()
            step()
            marks.append((time.perf_counter() - began) * 1e3)
            lab.launches(300)
        stalls.append(marks)
    print(
        "ms per call, median: register enable api-on api-off flush disable finalize",
        [round(statistics.median(c), 3) for c in zip(*stalls, strict=True)],
    )


def rows(lab: Lab) -> None:
    everything = (211, 214, 269, 270, 430, 431, 505, 506, 311, 312, 165, 131, 239, 137, 31, 41, 225)
    driver = (307, 442, 652, 653, 477, 478, 514, 515, 126, 440, 17, 800, 121)

    def burst(title: str) -> None:
        lab.launches(999)
        lab.torch.zeros(10, device="cuda").cpu()
        lab.flush()
        time.sleep(0.3)
        lab.flush()
        print(f"{title:60}", lab.taken(), flush=True)

    lab.register()
    lab.enable(KERNEL)
    print("two ids", lab.api(1))
    burst("kernel, then two ids")
    print("all runtime ids", dict(zip(everything, lab.api(1, everything), strict=True)))
    burst("all runtime ids")
    print("driver ids", {i: lab.call("cuptiActivityEnableDriverApi", i, 1) for i in driver})
    burst("driver ids too")
    lab.enable(MEMCPY), lab.enable(2)
    burst("memcpy and memset too")
    lab.api(0, everything), [lab.call("cuptiActivityEnableDriverApi", i, 0) for i in driver]
    burst("ids off")
    lab.disable(KERNEL), lab.disable(MEMCPY), lab.disable(2)
    burst("kinds off")
    lab.register()
    lab.enable(KERNEL)
    lab.enable(MEMCPY)
    lab.enable(2)
    print("second time", lab.api(1, everything))
    burst("second burst, callbacks registered again")
    print("cudaLaunchKernelExC and others by RUNTIME kind", lab.enable(RUNTIME))
    burst("RUNTIME kind")


def graphs(lab: Lab, cycles: int, late_graph_trace: bool = False) -> None:
    torch = lab.torch
    x = torch.zeros(4096, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1)
    torch.cuda.synchronize()
    if late_graph_trace:
        lab.register()
        print("GRAPH_TRACE rc", lab.enable(GRAPH_TRACE), flush=True)
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()
        print("late GRAPH_TRACE survived", lab.taken(), flush=True)
        return
    stop = threading.Event()
    done = [0]

    def trace() -> None:
        for _ in range(cycles):
            lab.register()
            lab.enable(KERNEL)
            lab.enable(MEMCPY)
            lab.api(1)
            time.sleep(0.02)
            lab.api(0)
            lab.flush()
            lab.disable(KERNEL)
            lab.disable(MEMCPY)
            lab.flush()
            lab.finalize()
            time.sleep(0.02)
            done[0] += 1
        stop.set()

    torch.cuda.synchronize()
    before = float(x[0])
    thread = threading.Thread(target=trace)
    thread.start()
    replays = 0
    y = torch.zeros(64, device="cuda")
    while not stop.is_set():
        graph.replay()
        replays += 1
        y.add_(1)
        if replays % 50 == 0:
            other = torch.cuda.CUDAGraph()
            with torch.cuda.graph(other, capture_error_mode="thread_local"):
                y.mul_(1)
            other.replay()
            torch.cuda.synchronize()
    thread.join()
    torch.cuda.synchronize()
    right = float(x[0]) - before == 100.0 * replays
    print(
        f"graphs: {done[0]} cycles, {replays} replays, result {'right' if right else 'WRONG'}, {lab.taken()}",
        flush=True,
    )


def selective(lab: Lab) -> None:
    """Which sequence of calls delivers only the launch rows, and what it costs."""
    wanted = {211, 430, 311, 165, 131, 137, 31, 41}
    wanted_driver = {307, 652, 477, 514, 126, 17, 121}

    def only(kind: int, call: str, keep: set[int], limit: int) -> None:
        lab.enable(kind)
        for i in range(1, limit):
            if i not in keep:
                lab.call(call, i, 0)

    def look(title: str) -> None:
        lab.launches(999)
        lab.torch.zeros(10, device="cuda").cpu()
        lab.flush(), time.sleep(0.2), lab.flush()
        taken = lab.taken()
        print(
            f"{title:60} {taken} {statistics.median(lab.launches() for _ in range(3)):.3f} us",
            flush=True,
        )
        lab.flush(), lab.taken()

    look("nothing")
    lab.register(), lab.enable(KERNEL)
    look("kernel kind")
    began = time.perf_counter()
    only(RUNTIME, "cuptiActivityEnableRuntimeApi", wanted, 530)
    print(f"  took {(time.perf_counter() - began) * 1e3:.2f} ms")
    look("RUNTIME kind less all but wanted")
    began = time.perf_counter()
    only(4, "cuptiActivityEnableDriverApi", wanted_driver, 830)
    print(f"  took {(time.perf_counter() - began) * 1e3:.2f} ms")
    look("and DRIVER kind less all but wanted")
    lab.disable(4)
    look("DRIVER kind off again")
    lab.disable(RUNTIME)
    look("RUNTIME kind off again")
    lab.api(1)
    look("two ids on, after the kind was on once")
    lab.enable(RUNTIME)
    look("whole RUNTIME kind")
    lab.disable(RUNTIME)
    lab.flush(), lab.disable(KERNEL), lab.flush()
    look("all off")
    print("finalize", lab.finalize())
    look("finalized")
    lab.register(), lab.enable(RUNTIME), lab.enable(KERNEL)
    look("RUNTIME first, then kernel")
    lab.flush(), lab.disable(RUNTIME), lab.disable(KERNEL), lab.finalize()
    look("finalized again")


def hazard(lab: Lab, case: str) -> None:
    """Cycles of tracing and finalizing around a graph, one suspicion a case."""
    torch = lab.torch
    x = torch.zeros(4096, device="cuda")
    y = torch.zeros(4096, device="cuda")

    def captured() -> object:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(50):
                x.add_(1)
        return graph

    torch.cuda.synchronize()
    graph = captured() if case[0] == "b" else None
    for cycle in range(40):
        lab.register(), lab.enable(KERNEL), lab.enable(MEMCPY)
        if "c" in case[1:] and cycle == 0:
            graph = captured()
        for _ in range(50):
            y.mul_(1)
            if "r" in case[1:] and graph is not None:
                graph.replay()
        torch.cuda.synchronize()
        lab.flush(), lab.disable(KERNEL), lab.disable(MEMCPY), lab.flush()
        if "k" not in case[1:]:
            lab.finalize()
        if graph is None:
            graph = captured()
        for _ in range(50):
            graph.replay()
            y.mul_(1)
        torch.cuda.synchronize()
    print(f"hazard {case}: fine, x = {float(x[0])}", flush=True)


CASES = {
    "b": "captured before, replayed only between bursts",
    "br": "captured before, replayed in bursts too",
    "nc": "captured in a burst, replayed only between bursts",
    "n": "captured after the first finalize, replayed only between bursts",
    "nr_": "captured after the first finalize, replayed in bursts too",
    "brk": "captured before, replayed in bursts too, never finalized",
}


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    if what == "all":
        for part in (["selective"], *(["hazard", case] for case in CASES for _ in range(2))):
            code = subprocess.run(
                [sys.executable, __file__, *part], check=False, timeout=150
            ).returncode
            print(f"== {' '.join(part)} ended with {code}", flush=True)
        return
    lab = Lab()
    if what == "cost":
        cost(lab)
    elif what == "rows":
        rows(lab)
    elif what == "selective":
        selective(lab)
    elif what == "hazard":
        print(CASES[sys.argv[2]])
        hazard(lab, sys.argv[2])
    elif what == "late":
        graphs(lab, 0, late_graph_trace=True)
    else:
        graphs(lab, int(sys.argv[2]))


if __name__ == "__main__":
    main()
