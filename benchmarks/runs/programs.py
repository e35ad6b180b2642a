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
    "images": "imagenet_j4 resnet50_amp_j8 timm_vit_j8 resnet18_j0 resnet50_j1 resnet18_slow4 resnet50_j16 stalls "
              "webdataset mean_teacher gan embeddings lightning diffusion",
    "text": "hf_trainer gpt2_generate gpt2_saves nanogpt text_by_hand grad_accum gpt_bf16 compile_shapes "
            "checkpoint_10s lstm_by_hand server",
    "loops": "ppo dqn graph tiny_mlp item_eval",
    "fresh": "late_loader late_eval speech_j0 unet_j2 gusts_j8 thread_queue tar_pipeline seq2seq lightning_saves "
             "accelerate_accum detection flow_pictures encode a2c_pipes http_generate timm_ema sage_in_loop wgan_gp gp pinn_lbfgs",
}  # fmt: skip
MODULES = {name: module for module, names in HOMES.items() for name in names.split()}
FIRST = (
    "imagenet_j4 hf_trainer ppo resnet18_j0 gpt2_generate timm_vit_j8 gpt2_saves resnet50_amp_j8 resnet50_j1 "
    "resnet18_slow4 server nanogpt stalls lightning tiny_mlp"
).split()
"""What is watched first: the nine of which brrrtop once was wrong, and some of every other kind."""
ORDER = [*FIRST, *(name for name in MODULES if name not in FIRST)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=ORDER)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seconds", type=float, default=40.0, help="of steps, from the first one")
    parser.add_argument("--clock", type=Path, help="where its own figures are written")
    parser.add_argument("--wait", action="store_true", help="load, then wait for a line on stdin")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="sizes for a check on a CPU")
    parser.add_argument("--data", type=Path, default=args.data)
    parser.parse_args(namespace=args)
    if args.list or args.name is None:
        print("\n".join(ORDER))
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
