"""Trains a little model with torch on the CPU; its kernels run on the stand-in CUPTI.

Arguments: the stand-in libcuda and the stand-in libcupti.
"""

import ctypes
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

GEMM = ctypes.create_string_buffer(b"ampere_sgemm_128x64_nn")
LAUNCH_ARGUMENTS = [
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_uint32,
]


class Slow(Dataset):
    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        time.sleep(0.0005)
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
    ctypes.CDLL(sys.argv[1])
    cupti = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
    cupti.fake_version(130001)
    cupti.fake_launch.argtypes = LAUNCH_ARGUMENTS
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = Descent(model.parameters())
    for step, (x, y) in enumerate(DataLoader(Slow(), batch_size=16)):
        cupti.fake_launch(ctypes.addressof(GEMM), 6, 400_000, 0, 7)
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        print("step", step, flush=True)


if __name__ == "__main__":
    main()
