"""Trains a little model with torch on the CPU; its products launch kernels on the stand-in CUPTI.

Arguments: the stand-in libcuda and the stand-in libcupti.
"""

import ctypes
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))  # this is a program of its own
from descent import Descent

GEMM = ctypes.create_string_buffer(b"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT")
POINTERS = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint32]


def main():
    ctypes.CDLL(sys.argv[1])
    cupti = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
    cupti.fake_version(130001)
    cupti.fake_launch.argtypes = POINTERS

    def product(a, b):
        cupti.fake_launch(ctypes.addressof(GEMM), 1, 100_000, 0, 7)
        time.sleep(1e-5)  # the stand-in's calls are over long before the end that they tell
        return (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)

    torch.set_num_threads(1)
    library = torch.library.Library("aten", "IMPL")
    library.impl("mm", product, "CPU")
    layers = [torch.nn.Linear(64, 32, bias=False), torch.nn.Linear(32, 8, bias=False)]
    model = torch.nn.Sequential(*layers)
    optimizer = Descent(model.parameters())
    x = torch.ones(16, 64)
    step = 0
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
        print("step", step, torch._C._autograd._profiler_enabled(), flush=True)
        step += 1


if __name__ == "__main__":
    main()
