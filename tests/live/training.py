"""Trains a little model with torch on the CPU; its kernels run on the stand-in CUPTI.

Arguments: the stand-in libcuda and the stand-in libcupti.
"""

import ctypes
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).parents[1]))  # this is a program of its own
from descent import Descent

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
