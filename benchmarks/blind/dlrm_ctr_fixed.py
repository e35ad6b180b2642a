"""dlrm_ctr.py with sparse embedding gradients: only the rows of the batch are touched."""

import functools

import dlrm_ctr
from harness import main

# GPU work falls to ~1.5-2 ms (MLPs, interaction, ten index_adds); ~330 launches take the host ~3 ms.
TRUTH = {
    "regime": "overhead",
    "cause": "launch: what remains is a small ranking model with some hundred short kernels",
    "advice": [],
    "not_advice": [
        "zero-grad-fill",
        "dataloader-stall",
        "pin-memory",
        "flash-attention",
        "activation-checkpointing",
        "enable-tf32-or-amp",
    ],
}

build = functools.partial(dlrm_ctr.build, sparse=True)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
