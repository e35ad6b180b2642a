"""A small training loop on the CPU whose loader is the bottleneck: `brrrtop try -- python slow_loader.py`.

Each sample takes 2 ms to "decode", in the training process, for want of workers.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Random pictures of ten classes that take their time."""

    def __init__(self, samples: int, takes_s: float) -> None:
        self._samples, self._takes_s = samples, takes_s

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._takes_s)
        noise = torch.Generator().manual_seed(index)
        return torch.randn(3 * 32 * 32, generator=noise) + index % 10, index % 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--takes", type=float, default=0.002, help="seconds a sample")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Slow(options.samples, options.takes), batch_size=options.batch)
    model = nn.Sequential(nn.Linear(3 * 32 * 32, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for epoch in range(options.epochs):
        for step, (pictures, classes) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(pictures), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
