"""cell_unet.py in channels_last: no layout transposes around the convolutions."""

import functools

import cell_unet
import torch
from harness import main

# About 20 ms: BN/ReLU/concat/loss traffic 10.6 ms and convolutions 8 to 9 ms, without some 6 ms of transposes: close to even.
TRUTH = {
    "regime": "mixed",
    "cause": "batch norm, ReLU, concat and narrow convolutions on large images",
    "advice": [],
    "not_advice": [*cell_unet.TRUTH["not_advice"], "channels-last"],
}
build = functools.partial(cell_unet.build, memory_format=torch.channels_last)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
