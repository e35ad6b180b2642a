"""Trains a little model on the CPU, with two loader workers, until it is ended."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        time.sleep(0.001)  # leaves the cores to others
        return torch.randn(64), index % 10


class Descent(torch.optim.Optimizer):
    """SGD without torch._dynamo, which torch's own optimizers import: two seconds of a core."""

    add_param_group = torch.optim.Optimizer.add_param_group.__wrapped__

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                one.sub_(one.grad, alpha=group["lr"])


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
