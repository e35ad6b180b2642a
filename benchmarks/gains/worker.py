"""One model in one process: measures its loop with each edit, then has it watched live.

    python -m benchmarks.gains.worker NAME --parts base,compile,…,live --cpus 0-15 --out DIR

Started by `measure`, which it asks for the GPU: a JSON line `{"ask": …}` on stdout is answered by a line on
stdin, and from then until its next line no other process of that GPU runs. The loops with the cheap edits lie
ready beside the base loop and are measured in turns with it. Compiled ones are made by a process of their own
(`--serve`) and measured in turns with the base loop of this one, where nothing was ever compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FEW = 6
"""Processors that a measured loop has."""


class Parent:
    """The two ends of the pipe to `measure`; what libraries print goes to stderr instead."""

    def __init__(self, serves: bool = False) -> None:
        self.serves = serves
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def tell(self, **facts: Any) -> None:
        self._out.write(json.dumps(facts) + "\n")

    def alone(self, part: str, limit_s: float) -> None:
        """Returns once no other process runs on the GPU. Whatever is told next ends that."""
        self.tell(ask=part, limit_s=limit_s)
        if not sys.stdin.readline():
            raise SystemExit("measure is gone")


class Loop:
    """The base loop, or the one with an edit made; warm once it is there."""

    def __init__(self, edit: str, args: argparse.Namespace) -> None:
        import torch

        from benchmarks.gains import timing
        from benchmarks.gains.loops import MODELS, make

        self.edit, self._seconds = edit, args.seconds
        compiles = "compile" in edit or MODELS[args.name].compiled
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        self.step, self._tools = make(args.name, edit, args.device, args.tiny)
        steps = timing.warm(self.step, compiles)
        warm_s = round(time.perf_counter() - began, 1)
        self.facts = {"batch": self._tools.batch, "warm_s": warm_s, "warm_steps": steps}
        if compiles:
            from torch._dynamo.utils import counters

            self.facts["graphs"] = counters["stats"]["unique_graphs"]
            self.facts["breaks"] = sum(counters["graph_break"].values())
            self.facts["cudagraph_skips"] = counters["inductor"]["cudagraph_skips"]
        if torch.cuda.is_available():
            self.facts["peak_gb"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)

    def measured(self) -> dict[str, Any]:
        from benchmarks.gains import timing

        self._tools.set_precision()
        public = self._tools.public
        # What workers had made ready is used up first, and what they make for another loop is made.
        settle_s, seconds = (1.0, 3 * self._seconds) if public.feed == "loader" else (
            timing.SETTLE_S, self._seconds)  # fmt: skip
        return timing.measured(self.step, seconds, public.period, settle_s) | self.facts


class Compiled:
    """Loops of compiled edits, one after the other, in a process of this one's group."""

    def __init__(self, edits: list[str], args: argparse.Namespace) -> None:
        self.edit = ""
        command = [sys.executable, "-m", "benchmarks.gains.worker", *sys.argv[1:], "--serve",
                   "--parts", ",".join(edits)]  # fmt: skip
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self._process.wait()}")
        facts: dict[str, Any] = json.loads(line)
        if "failed" in facts:
            raise RuntimeError(facts["failed"])
        return facts

    def ready(self, edit: str) -> Compiled:
        """Once the loop with the next edit is warm."""
        self.edit = edit
        self._next()
        return self

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    def measured(self) -> dict[str, Any]:
        self._say("measure")
        return self._next()

    def drop(self) -> None:
        self._say("drop")


def serve(parent: Parent, args: argparse.Namespace) -> None:
    """The other end of `Compiled`."""
    for edit in args.parts.split(","):
        loop = attempted(parent, lambda edit=edit: Loop(edit, args))
        if not isinstance(loop, Loop):
            parent.tell(**loop)
            clean()
            continue
        parent.tell(ready=edit)
        while sys.stdin.readline() == "measure\n":
            gc.collect()
            gc.freeze()
            with few_cpus(args.cpus):
                value = attempted(parent, loop.measured)
            parent.tell(**value, own_process=True)
        del loop
        gc.unfreeze()
        clean()


def in_turns(parent: Parent, base: Loop, loops: list[Any], args: argparse.Namespace) -> list[Any]:
    """(part, what was found) each, of one turn on the GPU."""
    from benchmarks.gains import timing

    gc.collect()
    gc.freeze()  # or each collection would go through all that compilers have left
    parent.alone(",".join(loop.edit for loop in loops) or "base", limit_s=90)
    with few_cpus(args.cpus):
        result = list(timing.in_turns(base, loops))
    parent.tell(release=True)
    gc.unfreeze()
    return result


@contextlib.contextmanager
def few_cpus(cpus: list[int] | None) -> Iterator[None]:
    """All threads on a few processors, always the same: elsewhere the same loop may take another time."""

    def put(some: Iterable[int]) -> None:
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread.name), some)

    if not cpus:
        yield
        return
    put(cpus[:FEW])
    try:
        yield
    finally:
        put(cpus)


def live(parent: Parent, base: Loop, args: argparse.Namespace) -> dict[str, Any]:
    """A recording of the base loop, which goes on in this process, by `brrrtop attach`."""
    file = args.out / f"{args.name}.brrr"
    parent.alone("live", limit_s=args.live_s + 30)
    with few_cpus(args.cpus):
        base.measured()
        result: dict[str, Any] = {}

        def watch() -> None:
            if args.cpus:  # its own ones
                os.sched_setaffinity(0, args.cpus[FEW:] or args.cpus)
            result.update(watched(os.getpid(), file, args))

        beside = threading.Thread(target=watch, daemon=True)
        beside.start()
        while beside.is_alive():
            base.step()
    parent.tell(release=True)
    if not file.exists():
        raise RuntimeError(f"no recording: {result}")
    return {**result, "bytes": file.stat().st_size}


def watched(pid: int, file: Path, args: argparse.Namespace) -> dict[str, Any]:
    """brrrtop's last report of a trainer, and what it said on stderr."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("GAINS_MONITOR_PATH")]))
    command = [sys.executable, "-m", "brrrtop", "attach", str(pid), "--yes", "--json", "--interval", "1",
               "--record", str(file), *args.attach.split()]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as monitor:  # fmt: skip
        try:
            out, text = monitor.communicate(timeout=args.live_s)
        except subprocess.TimeoutExpired:
            monitor.send_signal(signal.SIGINT)
            try:
                out, text = monitor.communicate(timeout=12)
            except subprocess.TimeoutExpired:
                monitor.kill()
                out, text = monitor.communicate()
    lines = out.splitlines()
    report = json.loads(lines[-1]) if lines else {}
    kept = ("run", "window", "split", "regime", "confidence", "whatif", "losses")
    advice = [(a["id"], a.get("saves_at_most"), a["waste"]) for a in report.get("advisories") or ()]
    facts = {key: report[key] for key in kept if key in report}
    return {
        "exit": monitor.returncode,
        "said": text[-400:],
        "report": {**facts, "advisories": advice},
        **(chosen(report, args) if args.advised and report else {}),
    }


def chosen(report: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The first edits that a report advises, in its order, and one more: the first that it calls a waste, else the
    first of `ORDER` that needs no compiler."""
    from benchmarks.gains.loops import MODELS
    from benchmarks.gains.report import prediction

    told, edits = prediction(report), MODELS[args.name].edits
    waste = [edit for edit in edits if edit in told.waste]
    plain = [edit for edit in edits if "compile" not in edit]
    first = [edit for edit in told.advised if edit in edits]
    picked = list(dict.fromkeys([*first[: args.advised], *waste[:1], *plain]))[: args.advised + 1]
    note = f"first: {', '.join(first)}; waste: {', '.join(waste)}"
    return {"note": note, "chosen": [edit for edit in edits if edit in picked]}


def cpus(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def clean() -> None:
    """Lets go of a loop: its memory, its graphs, what was compiled."""
    import torch

    gc.collect()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def attempted(parent: Parent, what: Callable[[], Any]) -> Any:
    """What came of it, or `{"failed": why}`. Out of memory is tried again: others may have held it."""
    for left in (2, 1, 0):
        try:
            return what()
        except Exception as fault:
            reason = f"{type(fault).__name__}: {str(fault)[:600]}"
        if not parent.serves:
            parent.tell(release=True)
        if "out of memory" not in reason.lower() or not left:
            return {"failed": reason}
        clean()
        time.sleep(10)
    raise AssertionError("unreachable")


class Worker:
    """Goes through the parts of one model."""

    def __init__(self, parent: Parent, args: argparse.Namespace) -> None:
        self.parent, self.args = parent, args
        self.base: Any = None

    def build(self, edit: str) -> Any:
        return attempted(self.parent, lambda: Loop(edit, self.args))

    def row(self, part: str, result: dict[str, Any]) -> None:
        self.parent.tell(part=part, **result)
        if "CUDA error" in result.get("failed", ""):
            raise SystemExit("nothing more can be done in this process")  # a new one goes on

    def measure(self, edits: list[str], wanted: set[str]) -> None:
        """Those edits in one turn; the rows of the base loop too, if they are wanted."""
        loops = []
        for edit in edits:
            self.parent.tell(begin=edit)
            loop = self.build(edit)
            if isinstance(loop, Loop):
                loops.append(loop)
            else:
                self.row(edit, loop)
        if loops or wanted:
            self.turn(loops, wanted)
        clean()

    def turn(self, loops: list[Any], wanted: set[str]) -> None:
        """One turn on the GPU, and what came of it."""
        self.parent.tell(begin=loops[0].edit if loops else "base")
        value = attempted(self.parent, lambda: in_turns(self.parent, self.base, loops, self.args))
        if isinstance(value, dict):
            value = [(part, value) for part in (*wanted, *(loop.edit for loop in loops))]
        loops.clear()
        for part, row in value:
            if part in wanted or not part.startswith("base"):
                self.row(part, row)

    def go(self, parts: list[str]) -> None:
        if self.args.advised and "live" in parts:
            parts = self.watch_first()
        bases = {part for part in parts if part.startswith("base")}
        edits = [part for part in parts if part not in {*bases, *SEEN}]
        compiled = [edit for edit in edits if "compile" in edit]
        plain = [edit for edit in edits if edit not in compiled]
        # While this process measures nothing that one may compile; it is of the same group.
        other = Compiled(compiled, self.args) if compiled and not plain and not bases else None
        self.parent.tell(begin="base")
        self.base = self.base or self.build("")
        if not isinstance(self.base, Loop):
            for part in parts:
                self.row(part, {"failed": f"the base loop fails: {self.base['failed']}"})
            return
        if plain or bases:
            self.measure(plain, bases)
        other = other or (Compiled(compiled, self.args) if compiled else None)
        for edit in compiled:
            assert other is not None
            self.parent.tell(begin=edit)
            try:
                loop = other.ready(edit)
            except RuntimeError as fault:
                self.row(edit, {"failed": str(fault)})
                continue
            self.turn([loop], set())
            other.drop()
        for part in parts:
            if part in SEEN:
                self.parent.tell(begin=part)
                does = SEEN[part]
                self.row(part, attempted(
                    self.parent, lambda does=does: does(self.parent, self.base, self.args)
                ))  # fmt: skip

    def watch_first(self) -> list[str]:
        """The parts that follow from what the watched loop was advised, which is told before any is made."""
        self.parent.tell(begin="live")
        self.base = self.build("")
        if not isinstance(self.base, Loop):
            self.row("live", {"failed": f"the base loop fails: {self.base['failed']}"})
            return []
        result = attempted(self.parent, lambda: live(self.parent, self.base, self.args))
        parts = ["base", "base-again", *result.pop("chosen", ())]
        self.parent.tell(more=parts)
        self.row("live", result)
        return parts


SEEN = {"live": live}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--parts", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpus", type=cpus, help="first those that a measured loop has")
    parser.add_argument("--seconds", type=float, default=0.35)
    parser.add_argument("--live-s", type=float, default=8.0)
    parser.add_argument("--attach", default="")
    parser.add_argument("--advised", type=int, default=0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--serve", action="store_true", help="loops to a worker")
    args = parser.parse_args()
    parent = Parent(args.serve)
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    import torch

    args.device = torch.device("cuda" if torch.cuda.is_available() and not args.tiny else "cpu")
    if args.serve:
        serve(parent, args)
    else:
        Worker(parent, args).go(args.parts.split(","))


if __name__ == "__main__":
    main()
