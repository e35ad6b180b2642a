"""A step is 300 launches of almost nothing and one small update: what a launch costs is all there is.

The launches that follow each other show whether anything stays in their way.
"""

from __future__ import annotations

import argparse
import time

import torch

LAUNCHES = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--device", default="cuda")
    args, _ = parser.parse_known_args()
    x = torch.zeros(1024, device=args.device)
    weight = torch.nn.Parameter(torch.zeros(16, device=args.device))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for _ in range(LAUNCHES):
            x.add_(1)
        optimizer.step()
        float(x[0])


if __name__ == "__main__":
    main()
