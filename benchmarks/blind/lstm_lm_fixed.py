"""lstm_lm.py with a checkpoint every 20000 steps."""

# Arithmetic (H200): head GEMMs 2.6 ms, LSTM input GEMMs 2 ms, loss, casts and AdamW 3.5 ms, 128 recurrent
# steps of small cuDNN kernels (10 us each, a fraction of the SMs) 7 ms: 15 ms, the GPU nearly always busy.
# Compute 5 to 8 ms, memory 3.5 ms, small recurrent kernels the rest: no regime leads clearly.

import functools

import lstm_lm
from harness import main

TRUTH = {
    "regime": "mixed",
    "cause": "mended: GEMMs of the head, its loss, and the LSTM's small recurrent kernels",
    "advice": [],
    "not_advice": lstm_lm.TRUTH["not_advice"] + ["checkpoint-stall"],
}

build = functools.partial(lstm_lm.build, every=20000)

if __name__ == "__main__":
    main(__file__, TRUTH, build, **lstm_lm.RECORDING)
