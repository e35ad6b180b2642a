"""Steps of torch's optimizers and of those written out, clipping, averages and scales of gradients.

A part of `layers_norms.py`. Lists of many small weights and of few large ones, fp32 and bf16.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import torch
from cases import Case, Pool, Run
from torch import Tensor, nn

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LISTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "many": (*[(96,), (96,), (96, 96), (384, 96), (384,)] * 50, (1000, 96)),
    "convs": ((64, 3, 7, 7), *[(64, 64, 3, 3), (64,), (64,), (256, 64, 1, 1), (256,)] * 16),
    "block": ((3072, 1024), (3072,), (1024, 1024), (4096, 1024), (4096,), (1024, 4096), *[(1024,)] * 6),
    "few": ((4096, 4096), (4096, 1024), (4096,)),
    "head": ((16384, 768),),
    "table": ((400000, 16), (50000, 64)),
    "layer": ((2048, 768), (2048,)),
    "odd": ((1500, 257), (257, 77), (1500,), (77,)),
}  # fmt: skip


@cache
def weights(name: str, dtype: torch.dtype, p: Pool) -> list[Tensor]:
    """One list a name and dtype: every step of it writes to the same."""
    made = [p.own(*size, dtype=dtype).mul_(0.02).requires_grad_() for size in LISTS[name]]
    for one in made:
        one.grad = torch.randn_like(one) * 1e-4
    return made


def lists(name: str, dtype: torch.dtype, p: Pool) -> tuple[list[Tensor], list[Tensor]]:
    made = weights(name, dtype, p)
    return [one.detach() for one in made], [one.grad for one in made if one.grad is not None]


OPTIONS: dict[str, dict[str, object]] = {
    "nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    "momentum": {"momentum": 0.9},
    "decay": {"weight_decay": 0.01},
    "amsgrad": {"amsgrad": True},
    "maximize": {"maximize": True},
    "centered": {"centered": True, "momentum": 0.9},
    "decoupled": {"decoupled_weight_decay": True, "weight_decay": 0.01},
}
OPTIMIZERS = (
    ("SGD", "foreach", "many", FP32, "nesterov"), ("SGD", "fused", "convs", FP32, "momentum"),
    ("SGD", "foreach", "few", BF16, "momentum"),
    ("Adam", "foreach", "many", FP32, ""), ("Adam", "foreach", "few", FP32, "amsgrad"),
    ("Adam", "loop", "head", BF16, "amsgrad"), ("Adam", "foreach", "block", FP32, "captured"), ("Adam", "fused", "odd", FP32, "amsgrad"),
    ("AdamW", "foreach", "convs", BF16, ""),
    ("AdamW", "fused", "few", FP32, "maximize"), ("AdamW", "fused", "block", BF16, ""), ("AdamW", "loop", "layer", FP32, ""),
    ("NAdam", "foreach", "few", FP32, "decoupled"), ("RAdam", "foreach", "block", FP32, "decay"),
    ("Adamax", "foreach", "block", BF16, ""),
    ("Adadelta", "foreach", "few", FP32, ""), ("Adadelta", "loop", "layer", FP32, ""), ("Adagrad", "foreach", "table", FP32, ""),
    ("Adagrad", "fused", "block", FP32, ""), ("RMSprop", "foreach", "few", BF16, "centered"), ("RMSprop", "loop", "head", FP32, "momentum"),
    ("Rprop", "foreach", "odd", FP32, ""), ("ASGD", "foreach", "few", FP32, "captured"),
    ("ASGD", "loop", "layer", FP32, "captured"),
    ("Muon", "own", "head", BF16, ""), ("Muon", "own", "table", FP32, ""),
)  # fmt: skip


def optimizer(kind: str, way: str, name: str, dtype: torch.dtype, more: str, p: Pool) -> Run:
    ways = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
        "own": {},
    }
    # Its steps then stay on the GPU: nothing waits for them.
    captured = {"capturable": True} if more == "captured" and p.device.type == "cuda" else {}
    options = {"lr": 1e-9, **OPTIONS.get(more, {}), **captured, **ways[way]}
    return getattr(torch.optim, kind)(weights(name, dtype, p), **options).step


def scaled(name: str, dtype: torch.dtype, p: Pool) -> Run:
    """Fused, with the scale of GradScaler inside."""
    of = torch.optim.AdamW(weights(name, dtype, p), lr=1e-9, fused=True)
    of.grad_scale = torch.ones((), device=p.device)
    of.found_inf = torch.zeros((), device=p.device)
    return of.step


def adam(name: str, dtype: torch.dtype, p: Pool) -> Run:
    """Half weights and gradients, fp32 masters and moments, as mixed precision is written out."""
    w, g = lists(name, dtype, p)
    master, m, v = ([one.float() * k for one in w] for k in (1, 0, 0))

    def run() -> None:
        wide = [one.float() for one in g]
        torch._foreach_lerp_(m, wide, 0.1)
        torch._foreach_mul_(v, 0.99)
        torch._foreach_addcmul_(v, wide, wide, 0.01)
        under = torch._foreach_sqrt(v)
        torch._foreach_add_(under, 1e-8)
        torch._foreach_addcdiv_(master, m, under, -1e-9)
        torch._foreach_copy_(w, master)

    return run


def alone(kind: str, name: str, dtype: torch.dtype, p: Pool) -> Run:
    """Updates of one matrix written out, as papers' code has them."""
    w, g = (some[0] for some in lists(name, dtype, p))
    m, v, slow = (torch.zeros_like(w) for _ in range(3))

    def lion() -> None:
        w.mul_(1 - 1e-10).add_((m * 0.9 + g * 0.1).sign_(), alpha=-1e-9)
        m.mul_(0.99).add_(g, alpha=0.01)

    def lars() -> None:
        step = torch.where(
            w.norm() > 0, 0.001 * w.norm() / (g.norm() + 1e-4 * w.norm() + 1e-9), 1.0
        )
        m.mul_(0.9).add_((g + 1e-4 * w) * step)
        w.add_(m, alpha=-1e-9)

    def sophia() -> None:
        m.mul_(0.96).add_(g, alpha=0.04)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        w.addcmul_(m.sign(), (m.abs() / (0.05 * v + 1e-12)).clamp(max=1), value=-1e-9)

    def ahead() -> None:
        slow.add_(w - slow, alpha=0.5)
        w.copy_(slow)

    def centred() -> None:
        m.mul_(0.9).add_(g - g.mean(1, keepdim=True))
        w.sub_(1e-9 * m)

    def factored() -> None:
        square = g.float().square().add_(1e-30)
        row, column = square.mean(-1), square.mean(-2)
        step = g * (row / row.mean())[:, None].rsqrt() * column[None].rsqrt()
        w.sub_((1e-9 * step / (step.square().mean().sqrt().clamp(min=1))).to(w.dtype))

    def rounded() -> None:
        """Stochastic rounding to bf16 by random low bits."""
        wide = w.float() - 1e-9 * g.float()
        bits = wide.view(torch.int32) + torch.randint_like(g, 1 << 16, dtype=torch.int32)
        w.copy_((bits & -65536).view(FP32))

    def eights() -> None:
        """Moments kept in 8 bits with a scale a block."""
        parts = (m.float() * 0.9 + g.float() * 0.1).view(-1, 256 if m.numel() % 256 == 0 else 8)
        top = parts.abs().amax(1, keepdim=True) + 1e-12
        held = (parts / top * 127).round().to(torch.int8)
        w.sub_((held.float() * (top / 127e9)).view_as(w).to(w.dtype))

    def pruned() -> None:
        kept = w.abs() > 0.001
        w.mul_(kept)
        g.mul_(kept)

    def orthogonal() -> None:
        """Newton-Schulz as Muon has it."""
        x = g[: g.shape[1]].bfloat16()
        x = x / (x.norm() + 1e-7)
        for _ in range(2):
            a = x @ x.mT
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x

    runs: dict[str, Run] = {
        "lion": lion, "lars": lars, "sophia": sophia, "ahead": ahead, "centred": centred,
        "factored": factored, "rounded": rounded, "eights": eights, "pruned": pruned, "orthogonal": orthogonal,
    }  # fmt: skip
    return runs[kind]


ALONE = (
    ("lion", "head", FP32), ("lion", "layer", BF16), ("lars", "few", FP32), ("sophia", "head", BF16), ("ahead", "few", BF16),
    ("centred", "block", FP32), ("factored", "few", BF16), ("rounded", "few", BF16), ("eights", "few", FP32), ("pruned", "table", FP32),
    ("orthogonal", "head", FP32),
)  # fmt: skip


def whole(kind: str, name: str, dtype: torch.dtype, p: Pool) -> Run:
    """What is done to all weights or gradients of a model between two steps."""
    made, (w, g) = weights(name, dtype, p), lists(name, dtype, p)
    kept = [torch.zeros_like(one) for one in w] if kind in KEEPING else []
    found, scale = torch.zeros(1, device=p.device), torch.ones(1, device=p.device)

    def units() -> None:
        """Adaptive clipping by the norms of a weight's rows."""
        for one, grad in zip(w, g, strict=True):
            if one.dim() > 1:
                top = one.flatten(1).norm(dim=1).clamp(min=1e-3) * 10
                now = grad.flatten(1).norm(dim=1)
                small = (top / now.clamp(min=1e-6)).clamp(max=1).view(-1, *[1] * (grad.dim() - 1))
                grad.copy_(grad * small)

    def ascent() -> None:
        """The first half of SAM."""
        size = torch.stack(torch._foreach_norm(g)).norm() + 1e-12
        torch._foreach_copy_(kept, w)
        torch._foreach_add_(w, torch._foreach_mul(g, 1e-9 / size))
        torch._foreach_copy_(w, kept)

    def flat() -> None:
        one = torch.cat([grad.reshape(-1) for grad in g])
        one.div_(8)
        torch._foreach_copy_(
            g,
            [
                part.view_as(grad)
                for part, grad in zip(one.split([grad.numel() for grad in g]), g, strict=True)
            ],
        )

    runs: dict[str, Run] = {
        "clip": lambda: nn.utils.clip_grad_norm_(made, 1e9, foreach=True),
        "clip by loop": lambda: nn.utils.clip_grad_norm_(made, 1e9, foreach=False),
        "clip by largest": lambda: nn.utils.clip_grad_norm_(made, 1e9, norm_type=float("inf"), foreach=True),
        "clip all values": lambda: nn.utils.clip_grad_value_(made, 1.0, foreach=True),
        "unscale": lambda: torch._amp_foreach_non_finite_check_and_unscale_(g, found, scale),
        "average": lambda: torch._foreach_lerp_(kept, w, 0.001),
        "noise": lambda: [one.add_(torch.randn_like(one), alpha=1e-12) for one in g],
        "penalty": lambda: torch.stack([one.square().sum() for one in w]).sum(),
        "units": units, "ascent": ascent, "flat": flat,
    }  # fmt: skip
    return runs[kind]


KEEPING = ("average", "ascent")
WHOLE = (
    ("clip", "few", BF16), ("clip by loop", "block", FP32), ("clip by largest", "convs", FP32),
    ("clip all values", "few", FP32),
    ("unscale", "few", FP16), ("average", "few", BF16),
    ("noise", "odd", FP32),
    ("penalty", "block", FP32), ("units", "few", FP32), ("ascent", "few", FP32),
    ("flat", "few", BF16),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for one in OPTIMIZERS:
        yield Case(f"step {one}", partial(optimizer, *one))
    for name, dtype in (("many", FP32), ("few", BF16)):
        yield Case(f"scaled {name}", partial(scaled, name, dtype))
    for name, dtype in (("few", BF16), ("convs", FP16)):
        yield Case(f"masters' adam {name}", partial(adam, name, dtype))
    for kinds, make in ((ALONE, alone), (WHOLE, whole)):
        for some in kinds:
            yield Case(f"{some}", partial(make, *some))
