"""What a fork of a trainer costs before it is watched, while it is, and after the monitor has left.

    python benchmarks/forks.py [--load torch] [--python PYTHON] [--rounds 3]

The trainer has loaded modules: those of `--load`, else what the agent itself loads. A bare Python pays for
these once it is watched, a trainer has them. Prints medians of 300 forks, in microseconds: until `fork` has
returned, and until the child has ended; and the size of the process. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from collectors.attach import agent_library  # noqa: E402
from collectors.attach.attach import attach  # noqa: E402

AGENTS_OWN = "ctypes,linecache,platform,selectors,socket,threading,typing,weakref"
_TRAINER = """
import json, os, sys, time
for name in sys.argv[1].split(","): __import__(name)
def forks(count=300):
    returned, ended = [], []
    for _ in range(count):
        began = time.perf_counter()
        child = os.fork()
        if child == 0: os._exit(0)
        returned.append(time.perf_counter() - began)
        os.waitpid(child, 0)
        ended.append(time.perf_counter() - began)
    maps = len(open("/proc/self/maps").readlines())
    middle = [round(sorted(times)[count // 2] * 1e6) for times in (returned, ended)]
    return dict(zip(("fork_us", "child_ended_us", "maps"), (*middle, maps)))
for _ in sys.stdin: print(json.dumps(forks()), flush=True)
"""


def _ask(trainer: subprocess.Popen[bytes]) -> bytes:
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    trainer.stdin.write(b"\n")
    trainer.stdin.flush()
    return trainer.stdout.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default=AGENTS_OWN, help="modules of the trainer, with commas")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    command = [given.python, "-c", _TRAINER, given.load]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:

        def measure(label: str, before_s: float = 1.0) -> None:
            time.sleep(before_s)
            print(f"{label:8} {json.loads(_ask(trainer))}", flush=True)

        for _ in range(given.rounds):
            measure("alone")
            attached = attach(trainer.pid, agent_library.agent_files(), need_torch=False)
            measure("watched")
            attached.leave()
            measure("after")
        trainer.kill()


if __name__ == "__main__":
    main()
