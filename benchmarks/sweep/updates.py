"""Updates of weights: optimizers, averages, clipping and fills on the shapes of real models.

A part of `training_parts.py`. Long lists come fused or as foreach, loops over short ones: an update
launches many kernels that are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import torch
from cases import Case, Pool, Run
from torch import nn

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
Size = tuple[int, ...]
Parts = tuple[Size, ...]
STAGES = ((64, 64, 256, 3), (256, 128, 512, 4), (512, 256, 1024, 6), (1024, 512, 2048, 3))
"""ResNet-50's: channels into a stage, within and out of its blocks, blocks."""


def resnet() -> Iterator[Size]:
    yield from ((64, 3, 7, 7), (64,), (64,))
    for cin, mid, out, blocks in STAGES:
        yield from ((out, cin, 1, 1), (out,), (out,))
        for i in range(blocks):
            yield from (
                (mid, out if i else cin, 1, 1),
                (mid,),
                (mid,),
                (mid, mid, 3, 3),
                (mid,),
                (mid,),
            )
            yield from ((out, mid, 1, 1), (out,), (out,))
    yield from ((1000, 2048), (1000,))


def block(width: int) -> Parts:
    """A layer of GPT-2."""
    of = (
        (3 * width, width),
        (3 * width,),
        (width, width),
        (width,),
        (4 * width, width),
        (4 * width,),
        (width, 4 * width),
    )
    return (*of, *[(width,)] * 5)


LISTS: dict[str, Parts] = {
    "resnet": tuple(resnet()),
    "gpt": ((50257, 768), (1024, 768), *block(768) * 12, (768,), (768,)),
    "block": block(1024),
    "small block": block(384),
    "llama": (*[(4096, 4096), (1024, 4096), (14336, 4096)] * 2, (4096, 14336), (4096,), (4096,)),
    "mlp": ((512, 13), (512,), (256, 512), (256,), (64, 256), (64,)),
    "head": ((32000, 1024),),
    "layer": ((4096, 1024), (4096,)),
}  # fmt: skip


@cache
def weights(name: str, dtype: torch.dtype, p: Pool) -> list[torch.Tensor]:
    """One list a model and dtype, with gradients; every update of it writes to the same."""
    listed = [p.own(*size, dtype=dtype).mul_(0.02).requires_grad_() for size in LISTS[name]]
    for one in listed:
        one.grad = torch.randn_like(one) * 1e-4
    return listed


def grads(name: str, dtype: torch.dtype, p: Pool) -> list[torch.Tensor]:
    return [one.grad for one in weights(name, dtype, p) if one.grad is not None]


def optimizer(kind: str, way: str, name: str, dtype: torch.dtype, p: Pool) -> Run:
    options: dict[str, object] = {"lr": 1e-9}
    if kind == "SGD":
        options |= {"momentum": 0.9, "weight_decay": 1e-4}
    options |= {"fused": True} if way == "fused" else {"foreach": way == "foreach"}
    return getattr(torch.optim, kind)(weights(name, dtype, p), **options).step


OPTIMIZED = (
    ("SGD", "foreach", "resnet", FP32), ("SGD", "fused", "gpt", FP32), ("SGD", "loop", "layer", BF16),
    ("AdamW", "fused", "gpt", FP32), ("AdamW", "fused", "llama", BF16), ("AdamW", "fused", "resnet", FP32),
    ("Adam", "fused", "mlp", FP32), ("AdamW", "foreach", "block", FP32), ("Adam", "foreach", "mlp", FP32),
    ("Adam", "foreach", "small block", FP16), ("AdamW", "loop", "head", FP32),
    ("Adagrad", "foreach", "block", FP32), ("Adagrad", "loop", "head", FP32),
    ("RMSprop", "foreach", "small block", FP32), ("NAdam", "foreach", "block", FP32),
    ("Adafactor", "loop", "head", FP32),
)  # fmt: skip


def lion(name: str, dtype: torch.dtype, p: Pool) -> Run:
    """Written out over foreach ops."""
    w, g = [one.detach() for one in weights(name, dtype, p)], grads(name, dtype, p)
    m = [torch.zeros_like(one) for one in w]

    def run() -> None:
        update = torch._foreach_lerp(m, g, 0.1)
        torch._foreach_sign_(update)
        torch._foreach_add_(w, update, alpha=-1e-9)
        torch._foreach_lerp_(m, g, 0.01)

    return run


def lamb(name: str, dtype: torch.dtype, p: Pool) -> Run:
    """Written out over the matrix: a step's length by the norms of weight and update."""
    w, g = weights(name, dtype, p)[0].detach(), grads(name, dtype, p)[0]
    m, v = torch.zeros_like(w), torch.zeros_like(w)

    def run() -> None:
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        update = m / v.sqrt().add_(1e-6) + 0.01 * w
        w.sub_(update * (1e-9 * w.norm() / (update.norm() + 1e-6)))

    return run


KEEPING = ("average", "average by loop", "add up", "fill", "fill by loop")
"""What needs a second list, to be written to."""


def on_lists(kind: str, name: str, dtype: torch.dtype, p: Pool) -> Run:
    """What is done to all weights or gradients of a model at once, or by a loop over a few."""
    listed = weights(name, dtype, p)
    w, g = [one.detach() for one in listed], grads(name, dtype, p)
    kept = [torch.zeros_like(one) for one in w] if kind in KEEPING else []
    found, scale = torch.zeros(1, device=p.device), torch.ones(1, device=p.device)
    runs: dict[str, Run] = {
        "average": lambda: torch._foreach_lerp_(kept, w, 0.001),
        "average by loop": lambda: [a.mul_(0.999).add_(b, alpha=0.001) for a, b in zip(kept, w, strict=True)],
        "add up": lambda: torch._foreach_add_(kept, g),
        "clip": lambda: nn.utils.clip_grad_norm_(listed, 1e9, foreach=True),
        "clip by loop": lambda: nn.utils.clip_grad_norm_(listed, 1e9, foreach=False),
        "clip values": lambda: nn.utils.clip_grad_value_(listed, 1.0, foreach=True),
        "norms": lambda: torch.stack(torch._foreach_norm(g)).norm(),
        "unscale": lambda: torch._amp_foreach_non_finite_check_and_unscale_(g, found, scale),
        "fill": lambda: torch._foreach_zero_(kept),
        "fill by loop": lambda: [one.zero_() for one in kept],
        "decay": lambda: torch._foreach_mul_(w, 1 - 1e-9),
        "decay by loop": lambda: [one.mul_(1 - 1e-9) for one in w],
        "flat": lambda: torch.cat([one.flatten() for one in g]),
        "sum of squares": lambda: torch.stack([one.square().sum() for one in w]).sum(),
        "half copy": lambda: [one.to(BF16) for one in w],
    }  # fmt: skip
    return runs[kind]


LISTED = (
    ("average", "gpt", FP32), ("average", "resnet", FP32), ("average", "head", BF16),
    ("average by loop", "layer", FP32), ("fill", "resnet", FP32), ("fill", "head", BF16),
    ("fill by loop", "layer", FP32), ("add up", "block", FP32), ("add up", "resnet", FP32),
    ("clip", "gpt", FP32), ("clip", "llama", BF16), ("clip", "mlp", FP32), ("clip by loop", "layer", FP32),
    ("clip values", "small block", FP32), ("norms", "resnet", FP32), ("unscale", "resnet", FP32),
    ("unscale", "gpt", FP32), ("unscale", "small block", FP32), ("decay", "gpt", FP32),
    ("decay by loop", "layer", FP32), ("flat", "resnet", FP32), ("flat", "mlp", FP32),
    ("sum of squares", "layer", FP32), ("half copy", "layer", FP32),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for one in OPTIMIZED:
        yield Case(f"update {one}", partial(optimizer, *one))
    for name, dtype in (("block", FP32), ("llama", BF16), ("mlp", FP32)):
        yield Case(f"lion {name}", partial(lion, name, dtype))
    yield Case("lamb head", partial(lamb, "head", FP32))
    for some in LISTED:
        yield Case(f"{some}", partial(on_lists, *some))
