"""Which of our acts makes which step of a training long, and where a leaving that takes long hangs.

    python benchmarks/lab/holds.py --script zoo/tiny_mlp.py --out DIR [--rounds 5]

Attaches, has some bursts traced and leaves, round after round, with a moment alone in between. Prints
each act with its time, and every step longer than twice the median with what was going on. Where
leaving takes longer than 0.8 s, the trainer's threads print their Python and native frames (DIR/*.out).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import step_log  # noqa: E402
import stepped  # noqa: E402

TGKILL = 234
"""The number of the system call on x86-64."""
PRELUDE = "import faulthandler, signal; faulthandler.register(signal.SIGUSR2, all_threads=True)\n"


def launch(script: Path, out: Path) -> step_log.SteppedTrainer:
    """Under a launcher that answers SIGUSR2 with Python frames, SIGPROF with native ones."""
    library = out / "crash.so"
    source = str(HERE / "crash.c")
    words = ["cc", "-O1", "-g", "-shared", "-fPIC", "-o", str(library), source, "-ldl"]
    subprocess.run(words, check=True)
    launcher = out / "stepped_with_frames.py"
    text = Path(stepped.__file__).read_text()
    launcher.write_text(text.replace("import argparse\n", f"{PRELUDE}import argparse\n", 1))
    real, step_log.stepped.__file__ = stepped.__file__, str(launcher)
    os.environ["LD_PRELOAD"] = str(library)
    try:
        return step_log.SteppedTrainer(script, ["--seconds", "600"], out)
    finally:
        del os.environ["LD_PRELOAD"]
        step_log.stepped.__file__ = real


def show_frames(pid: int) -> None:
    os.kill(pid, signal.SIGUSR2)
    time.sleep(0.05)
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith(("brrrtop", "python", "pt_")) or task.name == str(pid):
            ctypes.CDLL(None).syscall(TGKILL, pid, int(task.name), int(signal.SIGPROF))


def one_round(trainer: step_log.SteppedTrainer, acts: list[tuple[int, str]], bursts: int) -> None:
    import select

    from collectors import control, native
    from collectors.attach import attach
    from collectors.wire import Kind

    def act(name: str) -> None:
        acts.append((time.monotonic_ns(), name))

    act("attach begins")
    attached = attach(trainer.pid, native.agent_files())
    act(f"attached, held {attached.stopped_ns / 1e6:.2f} ms")

    def read(seconds: float, until: str = "") -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            select.select([attached.client], [], [], 0.005)
            for frame in attached.client.frames():
                if (
                    frame.kind == Kind.STATUS
                    and isinstance(frame.body, dict)
                    and frame.body.get("by") == "agent"
                ):
                    act(f"{frame.body.get('state')} {frame.body.get('traced', '')}")
                    if until and until in frame.body:
                        return

    read(0.6)
    for _ in range(bursts):
        act("burst asked")
        attached.client.send(control.burst(3, 2_000_000_000))
        read(2.5, "traced")
        read(0.4)
    act("leave begins")
    late = threading.Timer(0.8, lambda: (act("leaving is late"), show_frames(trainer.pid)))
    late.start()
    ended = attached.leave()
    late.cancel()
    act(f"left: {ended}")
    time.sleep(0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--script", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for script in args.script:
        trainer = launch(script, args.out)
        try:
            if not trainer.wait_for_steps(30, 120):
                print(script.stem, "does not train:", trainer.tail())
                continue
            time.sleep(2)
            first = trainer.count
            time.sleep(1.5)
            acts: list[tuple[int, str]] = [(time.monotonic_ns(), "alone")]
            for number in range(args.rounds):
                acts.append((time.monotonic_ns(), f"round {number}"))
                one_round(trainer, acts, 0 if number == args.rounds - 1 else 2)
            last = trainer.count
            words = trainer._words
            ends = np.asarray(words[stepped.WORDS + np.arange(first, last) % stepped.SLOTS])
            lengths = np.diff(ends)
            usual = float(np.median(lengths))
            print(
                f"{script.stem}: {len(lengths)} steps, median {usual / 1e6:.2f} ms, longest {lengths.max() / 1e6:.2f}"
            )
            rows = [(t, f"  {what}") for t, what in acts]
            rows += [
                (int(ends[i + 1]), f"    step of {lengths[i] / 1e6:.1f} ms ends")
                for i in np.flatnonzero(lengths > max(2 * usual, np.sort(lengths)[-60:][0]))
            ]
            for t, what in sorted(rows):
                print(f"{(t - acts[0][0]) / 1e6:10.1f} {what}", flush=True)
        except Exception as fault:
            print(script.stem, type(fault).__name__, fault, trainer.tail(), flush=True)
        finally:
            trainer.kill()


if __name__ == "__main__":
    main()
