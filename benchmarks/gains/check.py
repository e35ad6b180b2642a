"""Every loop in tiny form on the CPU: does each edit build and train?

python -m benchmarks.gains.check [NAME ...] [--compile]
"""

from __future__ import annotations

import argparse
import traceback

import torch

from benchmarks.gains import MODELS
from benchmarks.gains.loops import in_turn, make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compile", action="store_true", help="the compiled ones, too")
    args = parser.parse_args()
    for model in [MODELS[name] for name in args.names] or in_turn():
        for edit in ("", *model.edits):
            if "compile" in edit and not args.compile:
                continue
            try:
                step, _ = make(model.name, edit, torch.device("cpu"), tiny=True)
                losses = [round(float(step()), 3) for _ in range(3)]
                print(model.name, model.half, edit or "base", losses, flush=True)
            except Exception as fault:
                print(model.name, edit or "base", "FAILED", type(fault).__name__, str(fault)[:300])
                traceback.print_exc(limit=-3)


if __name__ == "__main__":
    main()
