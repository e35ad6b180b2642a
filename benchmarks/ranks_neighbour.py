"""A program that keeps a GPU busy beside a rank: `ranks_neighbour.py cuda:1`; waits for a line on stdin first."""

from __future__ import annotations

import sys

import torch


def main() -> None:
    sys.stdin.readline()
    device = torch.device(sys.argv[1])
    side = 8192 if device.type == "cuda" else 256
    torch.set_num_threads(1)
    x = torch.randn(side, side, device=device)
    x = x.to(torch.bfloat16 if device.type == "cuda" else torch.float32)
    y = x @ x
    if device.type == "cuda":
        torch.cuda.synchronize()
    print("ready", flush=True)
    while True:
        for _ in range(20):
            torch.mm(x, x, out=y)
        if device.type == "cuda":
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
