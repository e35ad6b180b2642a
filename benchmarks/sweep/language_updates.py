"""Returns of a learner from rewards, and optimizer steps over one layer's parameters.

A part of `language_layers.py`.
"""

from __future__ import annotations

import torch
from cases import Pool, Run
from torch import Tensor, nn

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def returns(batch: int, length: int, steps: int, p: Pool) -> Run:
    """A few steps back of generalised advantages, masked and whitened."""
    reward, value = p.randn(batch, length), p.randn(batch, length)
    mask = p.mask(batch, length).float()

    def f() -> Tensor:
        last, kept = torch.zeros_like(reward[:, 0]), []
        after = torch.cat((value[:, 1:], torch.zeros_like(value[:, :1])), 1)
        delta = reward + 0.99 * after - value
        for t in reversed(range(min(steps, reward.shape[1]))):
            last = torch.addcmul(delta[:, t], last, mask[:, t], value=0.94)
            kept.append(last)
        x = torch.stack(kept[::-1], 1)
        return (x - x.mean()) * torch.rsqrt(x.var() + 1e-8)

    return f


LISTS = {
    "llama": ((2048, 2048), (512, 2048), (512, 2048), (2048, 2048), (8192, 2048), (8192, 2048), (2048, 8192), (2048,), (2048,)),
    "bert": ((768, 768), (768,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,)),
    "glue": ((512, 256, 1), (256, 1, 31), (256,)),
    "lora": ((16, 4096), (4096, 16), (16, 4096), (1024, 16), (16, 4096), (14336, 16)),
    "t5": ((1024, 1024), (1024, 1024), (2816, 1024), (1024, 2816), (1024,)),
}  # fmt: skip


def updated(of: str, kind: str, dtype: torch.dtype, p: Pool) -> Run:
    """One layer's parameters after their gradients came."""
    weights = [nn.Parameter(p.own(*shape, dtype=dtype)) for shape in LISTS[of]]
    for w in weights:
        w.grad = torch.randn_like(w) * 0.01
    moments = [torch.zeros_like(w) for w in weights]
    made = {
        "fused": lambda: torch.optim.AdamW(weights, 1e-4, fused=True),
        "foreach": lambda: torch.optim.AdamW(weights, 1e-4, foreach=True),
        "single": lambda: torch.optim.Adam(weights, 1e-4, foreach=False),
        "sgd": lambda: torch.optim.SGD(weights, 1e-4, momentum=0.9, nesterov=True),
    }
    if kind in made:
        return made[kind]().step

    @torch.no_grad()
    def lion() -> None:
        for w, m in zip(weights, moments, strict=True):
            w.mul_(1 - 1e-5).add_(torch.lerp(w.grad, m, 0.9).sign_(), alpha=-1e-4)
            m.lerp_(w.grad, 0.01)

    @torch.no_grad()
    def muon() -> None:
        w, m = weights[0], moments[0].lerp_(weights[0].grad, 0.05)
        x = m.to(BF16) / (m.norm() + 1e-7).to(BF16)
        for _ in range(3):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        w.add_(x.to(dtype), alpha=-0.02)

    @torch.no_grad()
    def factored() -> None:
        w, g = weights[0], weights[0].grad
        sq = g.square() + 1e-30
        row, col = sq.mean(1, keepdim=True), sq.mean(0, keepdim=True)
        update = g * torch.rsqrt(row / row.mean()) * torch.rsqrt(col)
        w.sub_(update / (update.norm() / w.numel() ** 0.5).clamp(min=1), alpha=1e-3)

    @torch.no_grad()
    def clipped() -> None:
        nn.utils.clip_grad_norm_(weights, 1.0)
        torch._foreach_lerp_(moments, weights, 0.001)

    return {"lion": lion, "muon": muon, "factored": factored, "clipped": clipped}[kind]


TABLE = (
    (returns, (512, 1024, 6)),
    *((updated, given) for given in (
        ("llama", "fused", BF16), ("llama", "muon", FP32), ("bert", "foreach", FP32), ("glue", "single", FP32),
        ("t5", "factored", FP32), ("lora", "lion", FP32), ("bert", "clipped", FP16), ("t5", "sgd", BF16),
    )),
)  # fmt: skip
