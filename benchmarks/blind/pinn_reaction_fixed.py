"""pinn_reaction.py with TF32 allowed."""

import pinn_reaction
import torch
from harness import main

# ~70 products x 0.11 ms = 8 ms of TF32 and 53 GB of pointwise traffic = 12 ms: traffic leads.
TRUTH = {
    "regime": "memory",
    "cause": "the pointwise passes of the double backward; TF32 products come second",
    "advice": [],
    "not_advice": [
        "enable-tf32-or-amp",
        "dataloader-stall",
        "sync-point",
        "flash-attention",
        "pin-memory",
    ],
}


def build(cfg):
    torch.backends.cuda.matmul.allow_tf32 = True
    return pinn_reaction.build(cfg)


if __name__ == "__main__":
    main(__file__, TRUTH, build)
