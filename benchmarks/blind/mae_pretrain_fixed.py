"""mae_pretrain.py with TF32 matrix products."""

import functools

import mae_pretrain
from harness import main

# 3.7 TFLOP at about 280 T/s = 13 ms, attention 2 ms, fp32 pointwise and AdamW 5 ms -> about 20 ms, 70 % compute.
TRUTH = {
    "regime": "compute",
    "cause": "TF32 GEMMs on the tensor cores",
    "advice": [],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "channels-last",
        "pin-memory",
        "fused-optimizer",
    ],
}
build = functools.partial(mae_pretrain.build, precision="high")

if __name__ == "__main__":
    main(__file__, TRUTH, build)
