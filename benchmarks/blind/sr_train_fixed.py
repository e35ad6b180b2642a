"""sr_train.py with torch's own Mish: one kernel forward, one backward."""

import functools

import sr_train
import torch.nn as nn
from harness import main

# About 17 ms: narrow convolutions 10 ms (2.8 TFLOP; their traffic 8 ms, so near the ridge), Mish 4 ms, adds and tail 3 ms.
TRUTH = {
    "regime": "mixed",
    "cause": "narrow convolutions and single-pass activations on large feature maps",
    "advice": [],
    "not_advice": list(sr_train.TRUTH["not_advice"]),
}
build = functools.partial(sr_train.build, act=nn.Mish)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
