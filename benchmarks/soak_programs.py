"""Programs without an optimizer or without torch: `python soak_programs.py NAME` runs one for ever.

Each prints a line now and then, `ROUND DIGEST`, of what it has computed: the same whoever watches.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any


def tell(number: int, array: Any) -> None:
    print(number, hashlib.sha256(array.tobytes()).hexdigest()[:16], flush=True)


def by_hand() -> None:
    """As pytorch/examples' word_language_model: no optimizer object, parameters updated in place."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    layers = [torch.nn.Linear(512, 512) for _ in range(6)]
    model = torch.nn.Sequential(*(m for one in layers for m in (one, torch.nn.Tanh()))).cuda()
    data = torch.randn(64, 512).cuda()
    number = 0
    while True:
        number += 1
        model.zero_grad()
        loss = ((model(data) - data) ** 2).mean()
        loss.backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.01)
        if number % 500 == 0:
            tell(
                number, torch.cat([p.detach().flatten() for p in model.parameters()]).cpu().numpy()
            )


def with_jax() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    @jax.jit
    def step(weights: Any, data: Any) -> Any:
        def loss(w: Any) -> Any:
            x = data
            for one in w:
                x = jnp.tanh(x @ one)
            return jnp.mean((x - data) ** 2)

        return [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]

    keys = jax.random.split(jax.random.PRNGKey(1), 7)
    weights = [jax.random.normal(key, (512, 512)) * 0.04 for key in keys[:6]]
    data = jax.random.normal(keys[6], (64, 512))
    number = 0
    while True:
        number += 1
        weights = step(weights, data)
        if number % 20 == 0:
            jax.block_until_ready(weights)
        if number % 500 == 0:
            tell(number, np.concatenate([np.asarray(w).ravel() for w in weights]))


def with_cupy() -> None:
    import cupy

    x = cupy.arange(1 << 18, dtype=cupy.uint32)
    number = 0
    while True:
        number += 1
        x = (x * cupy.uint32(1664525) + cupy.uint32(number)) ^ (x >> cupy.uint32(7))
        if number % 2000 == 0:
            tell(number, cupy.asnumpy(x))


PROGRAMS = {"by_hand": by_hand, "jax": with_jax, "jax_graphs": with_jax, "cupy": with_cupy}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
