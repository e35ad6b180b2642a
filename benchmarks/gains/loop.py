"""A base loop as its users run it, until it is ended:  python -m benchmarks.gains.loop NAME

Prints READY once it is warm, then a line a second.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from benchmarks.gains import timing
from benchmarks.gains.loops import make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--wait", action="store_true", help="once warm, for a line on stdin")
    args = parser.parse_args()
    cuda = torch.cuda.is_available() and not args.tiny
    step, _ = make(args.name, "", torch.device("cuda" if cuda else "cpu"), args.tiny)
    timing.warm(step, compiles=False)
    print("READY", flush=True)
    if args.wait:
        sys.stdin.readline()
    began = last = time.perf_counter()
    count = 0
    while last - began < args.seconds:
        step()
        count += 1
        now = time.perf_counter()
        if now - last > 1.0:
            print(f"it/s={count / (now - last):.2f}", flush=True)
            last, count = now, 0


if __name__ == "__main__":
    main()
