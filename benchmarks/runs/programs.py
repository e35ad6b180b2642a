"""Runs one program as its author would, with a stopwatch of its own: `python programs.py NAME --clock out.json`.

The programs are in `images.py`, `text.py`, `loops.py` and `fresh.py`, written after public scripts and not after what brrrtop
looks for. Each keeps its clock in its own loop, as pytorch/examples' AverageMeter does: which phase it is in, how long it
waited for its data, how many steps it made. `--list` names them all.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from clock import args, clock

HOMES = {
    "images": "imagenet_j4 resnet18_slow4 embeddings",
    "text": "hf_trainer gpt2_saves text_by_hand gpt_bf16 compile_shapes checkpoint_10s server",
    "loops": "ppo item_eval",
    "fresh": "late_loader thread_queue encode a2c_pipes http_generate sage_in_loop",
}
MODULES = {name: module for module, names in HOMES.items() for name in names.split()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=[*MODULES])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seconds", type=float, default=40.0, help="of steps, from the first one")
    parser.add_argument("--clock", type=Path, help="where its own figures are written")
    parser.add_argument("--wait", action="store_true", help="load, then wait for a line on stdin")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="sizes for a check on a CPU")
    parser.add_argument("--data", type=Path, default=args.data)
    parser.parse_args(namespace=args)
    if args.list or args.name is None:
        print("\n".join(MODULES))
        return
    args.data.mkdir(parents=True, exist_ok=True)
    module = importlib.import_module(MODULES[args.name])
    module.prepare()
    if args.wait:
        print("loaded", flush=True)
        sys.stdin.readline()
    clock.open(args.name, args.clock, args.seconds)
    module.PROGRAMS[args.name]()


if __name__ == "__main__":
    main()
