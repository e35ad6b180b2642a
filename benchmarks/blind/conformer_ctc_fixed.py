"""conformer_ctc.py with torch's AdamW in one fused kernel."""

import functools

import conformer_ctc
import torch
from harness import main

# Still launched one small kernel at a time: about 1700 kernels, 11 ms of host work against about 5 ms of GPU work. Step about 12 ms.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: a small model's forward and backward, kernel by kernel",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "fused-optimizer",
        "dataloader-stall",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "none-healthy",
    ],
}
build = functools.partial(conformer_ctc.build, optimizer_class=torch.optim.AdamW, fused=True)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
