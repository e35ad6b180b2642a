"""video_r3d.py with enough loader workers."""

import functools

import video_r3d
from harness import main

# 8 workers: 72 ms / 8 = 9 ms a batch beside 12 ms of GPU work (8 ms convolutions, 3 ms BN/ReLU).
# If the host has fewer than nine free cores the loader still shows; hence no judgement on dataloader-stall.
TRUTH = {
    "regime": "compute",
    "cause": "3-D convolutions in bf16",
    "advice": [],
    "not_advice": [
        "fuse-pointwise",
        "enable-tf32-or-amp",
        "channels-last",
        "pin-memory",
        "fused-optimizer",
        "sync-point",
    ],
}
build = functools.partial(video_r3d.build, workers=8, prefetch=1)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
