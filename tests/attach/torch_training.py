"""Trains a little model on the CPU, with two loader workers, until it is ended."""

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).parents[1]))  # this is a program of its own
from descent import Descent


class Noise(Dataset):
    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        time.sleep(0.001)  # leaves the cores to others
        return torch.randn(64), index % 10


def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = Descent(model.parameters())
    loader = DataLoader(Noise(), batch_size=16, num_workers=2)
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, flush=True)


if __name__ == "__main__":
    main()
