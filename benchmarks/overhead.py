"""What watching costs a training script: attached and not, in turns, in one process of the script.

    python benchmarks/overhead.py --zoo DIR --out DIR [--only tiny_mlp,gpt_bf16]
        [--pairs 20] [--phase 1.0] [--budget 75] [--site DIR] [--control]

Per script: some windows before any attach; one `brrrtop attach` for the time to its first verdict;
then off, on, off, on, … where each *on* is a real attach, some time left out (`--settle-on`: what an
attach costs is told by the longest step, a watch lasts hours), a window under the governor at its
defaults, and a real detach. The governor's clock stands still in between, so that
bursts come as often as in one long watch. Then the same in continuous mode, and in the same process
torch.profiler and cupti-python switched on and off. A window lies between two moments at which the
trainer's next step ended and the device was drained. Cost: mean over the pairs of on / (mean of the
offs around it) − 1, with a 95 % bootstrap interval. Writes overhead.json and overhead.md to --out.

`--control` goes through the same turns and attaches to nobody: what the method says of nothing, and
how far a script drifts by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu_options
import overhead_table
from paired import Cost, apart, between
from step_log import BucketStyle, SteppedTrainer, Window

CHOSEN = "tiny_mlp,gpt_bf16,slow_loader,item_sync,pointwise_chain,gpt_bf16_compiled,resnet50_fp32"
WARM_STEPS = 30
WARM_LIMIT_S = 150.0
VIRGIN_WINDOWS = 6
RIVAL_PAIRS = 3
STEPS_A_WINDOW = 8
"""A window has at least about so many steps, however long they are."""


class Subject:
    """One script, and everything that was measured of it."""

    def __init__(self, trainer: SteppedTrainer, args: argparse.Namespace) -> None:
        self.trainer, self.args = trainer, args
        self.off: list[Window] = []
        self.longest_on_ns = 0
        self.holds_ns: list[int] = []
        self.main_holds_ns: list[int] = []
        self.failures: list[str] = []
        self.bursts = 0
        self.phase_s = args.phase

    # --- windows ----------------------------------------------------------------

    def window(
        self, watch: Callable[[float], None] = time.sleep
    ) -> tuple[BucketStyle, BucketStyle, Window]:
        start = self.trainer.mark()
        watch(self.phase_s)
        limit = time.monotonic() + 20
        while self.trainer.count - start.count < 3 and time.monotonic() < limit:
            watch(0.1)
        end = self.trainer.mark()
        window = self.trainer.window(start, end)
        if window is None:
            raise RuntimeError(f"{self.trainer.name}: steps are longer than a window")
        return start, end, window

    def off_window(self) -> Window:
        time.sleep(self.args.settle)
        off_window = self.window()[2]
        self.off.append(off_window)
        return off_window

    def set_phase(self) -> None:
        """Long enough for some steps."""
        start, first = time.perf_counter(), self.trainer.count
        self.trainer.wait_for_steps(first + STEPS_A_WINDOW, 30)
        done = max(self.trainer.count - first, 1)
        step_s = (time.perf_counter() - start) / done
        self.phase_s = max(self.args.phase, STEPS_A_WINDOW * step_s)

    def in_turns(
        self, on: Callable[[], Window], pairs: int, deadline: float
    ) -> tuple[Cost | None, list[float], list[float]]:
        """Off, on, off, …, off; at least three pairs, as many of `pairs` as fit."""
        offs, ons = [self.off_window().mean_ns], []
        while len(ons) < pairs and (len(ons) < 3 or time.monotonic() < deadline):
            try:
                ons.append(on().mean_ns)
            except Stop as fault:
                self.failures.append(str(fault))
                break
            offs.append(self.off_window().mean_ns)
        return between(offs, ons), offs, ons

    # --- ways of being on ---------------------------------------------------------

    def watched(self, governor: Any, continuous: bool = False) -> Window:
        from watched import Watch

        from collectors.errors import CollectorError

        if self.args.control:
            time.sleep(self.args.settle_on)
            window = self.window()[2]
            self.longest_on_ns = max(self.longest_on_ns, window.longest_ns)
            return window
        left = self.trainer.mark()
        try:
            watch = Watch(self.trainer.pid, governor)
        except CollectorError as fault:
            raise Stop(f"attach: {fault}") from fault
        try:
            self.holds_ns.append(watch.attached.stopped_ns)
            stops = (stop for attempt in watch.attached.attempts for stop in attempt.stops)
            main = watch.attached.process.pid
            self.main_holds_ns.append(sum(stop.stopped_ns for stop in stops if stop.tid == main))
            if continuous:
                watch.controller.continuous(True)
            watch.watch_for(self.args.settle_on)
            start, end, window = self.window(lambda s: watch.watch_for(s, until_idle_s=1.5))
        finally:
            if not watch.close():
                self.failures.append("the agent did not end when asked")
        time.sleep(0.1)
        back = self.trainer.mark()
        if not continuous:
            edges = [self.trainer.durations(a, b) for a, b in ((left, start), (end, back))]
            self.longest_on_ns = max(
                self.longest_on_ns, window.longest_ns, *(int(e.max()) for e in edges if len(e))
            )
        return window

    def ordered(self, on: int, off: int) -> Window:
        """Under a rival that runs inside the trainer."""
        worked = self.trainer.order(on, 60).worked
        try:
            if not worked:
                raise Stop(self.trainer.tail().rsplit("stepped: ", 1)[-1])
            time.sleep(self.args.settle)
            window = self.window()[2]
        finally:
            if worked and not self.trainer.order(off, 120).worked:
                raise Stop(self.trainer.tail().rsplit("stepped: ", 1)[-1])
        return window


class Stop(Exception):
    """This way of being on does not work here."""


@contextmanager
def device_memory() -> Any:
    """A function that reads the bytes in use on the GPU, or None without NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)
    except Exception:  # any failure of NVML means that it is not there
        yield lambda: None
        return
    yield lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    pynvml.nvmlShutdown()


def measure(subject: Subject) -> dict[str, Any]:
    """Everything about one script that is running and warm."""
    from watched import by_command_line, skip_time

    from brrrtop.scheduling.governor import Governor

    args, trainer = subject.args, subject.trainer
    began = time.monotonic()
    subject.set_phase()
    virgin = [subject.off_window().mean_ns for _ in range(VIRGIN_WINDOWS)]
    with device_memory() as used:
        rss, memory = trainer.rss_bytes(), used()
        first = {} if args.control else by_command_line(trainer.pid, args.site, args.verdict_limit)
        rss_after = trainer.rss_bytes()
        governor, bare = Governor(), used()
        gone_ns, rss_seen, memory_seen = (
            time.time_ns(),
            [rss_after],
            [m for m in (memory, bare) if m],
        )

        def on() -> Window:
            nonlocal gone_ns
            skip_time(governor, time.time_ns() - gone_ns)
            before = governor.burst_count
            result = subject.watched(governor)
            subject.bursts += governor.burst_count - before
            gone_ns = time.time_ns()
            rss_seen.append(trainer.rss_bytes())
            if (now := used()) is not None:
                memory_seen.append(now)
            return result

        subject.longest_on_ns = 0
        rival_share = 0.42 if trainer.name in args.rivals.split(",") else 0.2
        cost, offs, ons = subject.in_turns(on, args.pairs, began + (1 - rival_share) * args.budget)
    longest_off_ns = max(w.longest_ns for w in subject.off)
    after = [w.mean_ns for w in subject.off[VIRGIN_WINDOWS + 1 :]]
    result = {
        "script": trainer.name, "step_off_ms": statistics.median(offs) / 1e6,
        "step_on_ms": statistics.median(ons) / 1e6 if ons else None, "phase_s": subject.phase_s,
        "default": as_json(cost), "bursts": subject.bursts,
        "off_ms": [o / 1e6 for o in offs], "on_ms": [o / 1e6 for o in ons],
        "longest_off_ms": longest_off_ns / 1e6, "longest_on_ms": subject.longest_on_ns / 1e6,
        "longest_ratio": subject.longest_on_ns / longest_off_ns,
        "residue": as_json(apart(virgin, after)), "virgin_ms": [v / 1e6 for v in virgin],
        "attach_held_ms": [h / 1e6 for h in subject.holds_ns],
        "attach_held_main_ms": [h / 1e6 for h in subject.main_holds_ns], "first": first,
        "host_bytes": max(0, rss_after - rss), "host_bytes_most": max(rss_seen) - rss,
        "device_bytes": max(memory_seen) - memory if memory is not None else None,
    }  # fmt: skip
    if args.continuous_pairs:
        continuous, _, _ = subject.in_turns(
            lambda: subject.watched(Governor(), continuous=True),
            args.continuous_pairs,
            began + args.budget,
        )
        result["continuous"] = as_json(continuous)
    if trainer.name in args.rivals.split(","):
        failures, subject.failures = subject.failures, []
        for name, codes in overhead_table.RIVALS.items():
            rival, _, _ = subject.in_turns(lambda c=codes: subject.ordered(*c), RIVAL_PAIRS, 0)
            result[name] = as_json(rival)
        result["rivals_say"], subject.failures = subject.failures, failures
    return result | {"failures": subject.failures, "took_s": time.monotonic() - began}


def as_json(cost: Cost | None) -> dict[str, Any] | None:
    return cost.to_json() if cost is not None else None


def machine() -> dict[str, Any]:
    """What the table has to say of where it comes from."""
    facts: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(), "python": sys.version.split()[0],
        "gpu": None, "driver": None, "cores": os.cpu_count(),
    }  # fmt: skip
    try:
        facts["torch"] = metadata.version("torch")
        import pynvml

        pynvml.nvmlInit()
        facts["driver"] = pynvml.nvmlSystemGetDriverVersion()
        facts["gpu"] = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception as why:  # no GPU, or no torch: the table says so
        facts["missing"] = str(why)
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in facts.items()}


def start(name: str, args: argparse.Namespace) -> SteppedTrainer:
    extra = ["--device", "cpu", "--tiny"] if args.device == "cpu" else []
    script = args.zoo / f"{name}.py"
    return SteppedTrainer(script, ["--seconds", "3000", *extra], args.out, args.site)


def measure_all(names: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """All scripts on one GPU: started together, warmed up, stopped; then one at a time goes on."""
    trainers = {name: start(name, args) for name in names}
    result: list[dict[str, Any]] = []
    try:
        ready = {n: t.wait_for_steps(WARM_STEPS, WARM_LIMIT_S) for n, t in trainers.items()}
        for trainer in trainers.values():
            trainer.pause()
        for name, trainer in trainers.items():
            if not ready[name]:
                result.append({"script": name, "error": f"did not train: {trainer.tail()}"})
                save(result, args)
                continue
            trainer.resume()
            time.sleep(1.5)
            try:
                result.append(measure(Subject(trainer, args)))
            except Exception as fault:
                result.append(
                    {"script": name, "error": f"{type(fault).__name__}: {fault} {trainer.tail()}"}
                )
            finally:
                trainer.kill()
            save(result, args)
            print(overhead_table.in_a_line(result[-1]), flush=True)
    finally:
        for trainer in trainers.values():
            trainer.kill()
    return result


def save(result: list[dict[str, Any]], args: argparse.Namespace) -> None:
    facts = machine()
    (args.out / "overhead.json").write_text(
        json.dumps({"machine": facts, "scripts": result}, indent=1)
    )
    (args.out / "overhead.md").write_text(overhead_table.markdown(facts, result))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", type=Path, required=True)
    gpu_options.add(parser)
    parser.add_argument("--only", default=CHOSEN)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--continuous-pairs", type=int, default=4)
    parser.add_argument("--phase", type=float, default=1.0, help="seconds of a window")
    parser.add_argument(
        "--settle", type=float, default=0.5, help="seconds left out before a window"
    )
    parser.add_argument(
        "--settle-on", type=float, help="the same where an attach came before; by default as much"
    )
    parser.add_argument("--control", action="store_true", help="attach to nobody")
    parser.add_argument("--budget", type=float, default=75.0, help="about so many seconds a script")
    parser.add_argument(
        "--rivals", default="tiny_mlp,gpt_bf16", help="scripts to try rivals on too"
    )
    parser.add_argument("--verdict-limit", type=float, default=15.0)
    args = parser.parse_args()
    gpu_options.prepare(args)
    if args.settle_on is None:
        args.settle_on = args.settle
    names = [n for n in args.only.split(",") if n]
    result = measure_all(names, args)
    if len(names) > 1:
        print((args.out / "overhead.md").read_text())
    return 1 if any("error" in one or one["failures"] for one in result) else 0


if __name__ == "__main__":
    sys.exit(main())
