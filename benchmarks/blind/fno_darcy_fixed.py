"""fno_darcy.py in float32."""

import functools

import fno_darcy
import numpy as np
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "float32 operator: FFTs and pointwise passes, bound by traffic",
    "advice": [],
    "not_advice": ["double-precision", *fno_darcy.TRUTH["not_advice"]],
}

build = functools.partial(fno_darcy.build, np_dtype=np.float32)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
