"""Ops on both sides of one wave of a GPU: matrices of 64 thousand to 8 million elements, in four dtypes.

A kind of op has its ops, and a case takes a few of them in turn, each at the next size and dtype of
the tables: after all cases of a kind each op was at sizes below, about and above a wave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, building, with_tf32
from harness import main
from small_parts import (
    Maker,
    by_heads,
    classified,
    convolved,
    grouped,
    grown,
    layer,
    of_lines,
    of_volumes,
    on_lists,
    on_weights,
    over_images,
    placed,
    plain,
    smooth,
    updated,
    written,
)
from torch import Tensor, nn
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
SIZES = (
    (64, 1024), (1000, 64), (256, 256), (128, 1024), (2000, 64), (512, 200), (64, 2048), (197, 1024),
    (1600, 128), (600, 320), (3136, 64), (300, 1024), (1568, 192), (4096, 72), (528, 768), (1024, 400),
    (6400, 64), (200, 2048), (1064, 512), (2112, 256), (4320, 128), (700, 1000), (1800, 384), (350, 2000),
    (896, 1024), (7056, 128), (3500, 256), (1576, 768), (2400, 512), (12544, 96), (600, 2000), (1600, 1000),
    (3136, 512), (8192, 200), (16384, 96), (2112, 1024), (5500, 384), (1056, 2048), (2800, 1000), (3640, 768),
    (11000, 256), (3600, 1024), (1800, 2000), (14000, 256), (4400, 1024), (6000, 768), (2200, 2048),
    (6272, 960), (12000, 512), (3000, 2000), (8192, 1024), (4000, 2048), (16384, 512),
)  # fmt: skip
"""Rows and width, by their product. Their number is a prime, so any step goes through all of them."""
STEP = 41
"""The step at which, of the numbers of ops below, rounds of the same op lie farthest apart."""
Mode = tuple[torch.dtype, bool]
Drawn = tuple[Maker, tuple[int, int], Mode]
MODES: tuple[Mode, ...] = (
    (torch.float32, False), (torch.bfloat16, False), (torch.float32, True), (torch.float16, False),
)  # fmt: skip
"""Dtype, and whether products may take TF32."""


def rotated(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    a, c = x.chunk(2, -1)
    return x * y.cos() + torch.cat((-c, a), -1) * y.sin()


def root_mean(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def causal(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    far = torch.ones(x.shape, dtype=torch.bool, device=x.device).triu(1)
    return (x * 0.125).masked_fill(far, -1e4).softmax(-1)


def distilled(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.kl_div((x / 2).log_softmax(-1), (y / 2).softmax(-1), reduction="batchmean")


def lion(w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> None:
    w.add_(torch.lerp(m, g, 0.1).sign_(), alpha=-1e-9)
    m.lerp_(g, 0.01)


def adam(w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> None:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    w.addcdiv_(m, v.sqrt().add_(1e-4), value=-1e-9)


def factored(w: Tensor, g: Tensor, m: Tensor, v: Tensor) -> None:
    square = g.float().square() + 1e-12
    row, col = square.mean(1, keepdim=True), square.mean(0, keepdim=True)
    w.sub_((g * torch.rsqrt(row / row.mean()) * torch.rsqrt(col) * 1e-9).to(w.dtype))


PRODUCTS: tuple[Maker, ...] = (
    partial(layer, 1, True, None), partial(layer, 4, True, F.gelu), partial(layer, 0.25, False, None),
    partial(layer, 3, False, None), partial(grouped, 8), partial(layer, 2, True, F.relu),
    partial(classified, 1000), partial(layer, 0.5, True, torch.tanh), partial(by_heads, 64, 64, True),
    partial(smooth, lambda x, y, w, b: x.mT @ y), partial(layer, 1.5, False, F.silu), partial(by_heads, 128, 32, True),
    partial(plain, lambda x, y: torch.addmm(x[:, :1], x, y.mT[:, :256])), partial(grouped, 32),
)  # fmt: skip
ATTENTIONS: tuple[Maker, ...] = (
    partial(by_heads, 128, 64, False), partial(written, 64, 32), partial(by_heads, 256, 128, False),
    partial(written, 197, 64), partial(by_heads, 49, 32, False), partial(written, 128, 64), partial(by_heads, 512, 64, False),
)  # fmt: skip
CONVS: tuple[Maker, ...] = (
    partial(convolved, 14, 3, 1, 1, False), partial(convolved, 28, 1, 1, 1, True), partial(convolved, 16, 3, 1, 0, False),
    partial(convolved, 32, 3, 2, 1, True), partial(of_lines, 128, 5, 1), partial(convolved, 7, 3, 1, 1, True),
    partial(convolved, 28, 5, 1, 8, False), partial(grown, 8, 4, True), partial(of_volumes, 8, 3),
    partial(convolved, 8, 1, 1, 1, False), partial(convolved, 14, 7, 1, 0, True), partial(of_lines, 250, 3, 4),
    partial(convolved, 20, 3, 1, 1, True), partial(grown, 16, 2, False), partial(convolved, 56, 3, 2, 4, True),
)  # fmt: skip
NORMS: tuple[Maker, ...] = (
    partial(smooth, lambda x, y, w, b: F.layer_norm(x, x.shape[-1:], w, b)),
    partial(over_images, lambda x, w, b: F.batch_norm(x, None, None, w, b, True), 14, False),
    partial(smooth, lambda x, y, w, b: F.rms_norm(x, x.shape[-1:], w)), partial(smooth, root_mean),
    partial(over_images, lambda x, w, b: F.group_norm(x, 8, w, b), 16, False),
    partial(smooth, lambda x, y, w, b: F.layer_norm(x + y, x.shape[-1:], w, b)),
    partial(smooth, lambda x, y, w, b: F.batch_norm(x, None, None, w, b, True)),
    partial(over_images, lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)), 8, True),
    partial(smooth, lambda x, y, w, b: F.normalize(x, dim=-1)), partial(over_images, lambda x, w, b: F.instance_norm(x), 28, False),
    partial(smooth, lambda x, y, w, b: F.layer_norm(x.float(), x.shape[-1:]).to(x.dtype) * (1 + w) + b),
    partial(over_images, lambda x, w, b: F.group_norm(x, 4, w, b), 12, True),
    partial(smooth, lambda x, y, w, b: (x - x.mean(0)) / (x.std(0) + 1e-3)),
    partial(smooth, lambda x, y, w, b: F.rms_norm(x.float(), x.shape[-1:]).to(x.dtype) + y),
)  # fmt: skip
POINTWISE: tuple[Maker, ...] = (
    partial(smooth, lambda x, y, w, b: x + y), partial(smooth, lambda x, y, w, b: F.gelu(x)),
    partial(smooth, lambda x, y, w, b: F.silu(x) * y), partial(smooth, lambda x, y, w, b: x * w + b),
    partial(smooth, lambda x, y, w, b: F.dropout(x, 0.1)), partial(smooth, rotated),
    partial(smooth, lambda x, y, w, b: torch.where(y > 0, x, y)), partial(smooth, lambda x, y, w, b: x.float().exp()),
    partial(plain, lambda x, y: x.to(torch.float16) if x.dtype == torch.float32 else x.float()),
    partial(over_images, lambda x, w, b: F.relu(x + w[:, None, None]), 16, False), partial(smooth, lambda x, y, w, b: x.clamp(-1, 1)),
    partial(smooth, lambda x, y, w, b: torch.lerp(x, y, 0.3)), partial(smooth, lambda x, y, w, b: F.softplus(x)),
    partial(plain, lambda x, y: torch.addcmul(x, x, y).abs() > 0.5), partial(smooth, lambda x, y, w, b: torch.atan2(x, y)),
    partial(smooth, lambda x, y, w, b: x * torch.sigmoid(b)), partial(over_images, lambda x, w, b: F.interpolate(x, scale_factor=2.0), 14, False),
    partial(smooth, lambda x, y, w, b: (x * 0.5).tanh() * 30), partial(over_images, lambda x, w, b: F.max_pool2d(x, 2), 16, True),
)  # fmt: skip
REDUCTIONS: tuple[Maker, ...] = (
    partial(smooth, lambda x, y, w, b: x.sum(0)), partial(smooth, lambda x, y, w, b: x.mean(-1)),
    partial(smooth, lambda x, y, w, b: F.mse_loss(x, y)), partial(plain, lambda x, y: x.argmax(-1)),
    partial(smooth, lambda x, y, w, b: x.var(-1)), partial(smooth, lambda x, y, w, b: x.amax(0)),
    partial(smooth, lambda x, y, w, b: (x * y).sum(-1)), partial(smooth, lambda x, y, w, b: x.norm()),
    partial(plain, lambda x, y: ((x > y).sum(0), x.isfinite().all())), partial(smooth, lambda x, y, w, b: F.smooth_l1_loss(x, y)),
    partial(over_images, lambda x, w, b: x.mean((2, 3)), 14, True), partial(smooth, lambda x, y, w, b: x.logsumexp(0)),
    partial(smooth, lambda x, y, w, b: F.binary_cross_entropy_with_logits(x, y.sigmoid())), partial(smooth, lambda x, y, w, b: x.cumsum(-1)),
    partial(over_images, lambda x, w, b: F.avg_pool2d(x, 2), 28, False), partial(smooth, lambda x, y, w, b: F.cosine_similarity(x, y)),
    partial(smooth, lambda x, y, w, b: torch.linalg.vector_norm(x, dim=0)),
    partial(plain, lambda x, y: (x.max(), y.min(-1).values, x.std())), partial(smooth, lambda x, y, w, b: x.cumsum(0)),
)  # fmt: skip
GATHERS: tuple[Maker, ...] = (
    partial(placed, lambda x, at, of: x[at]), partial(placed, lambda x, at, of: x.gather(1, of)),
    partial(placed, lambda x, at, of: torch.zeros_like(x).index_add(0, at, x)), partial(placed, lambda x, at, of: F.embedding(at, x)),
    partial(smooth, lambda x, y, w, b: torch.cat((x, y), -1)), partial(smooth, lambda x, y, w, b: x.mT.contiguous()),
    partial(placed, lambda x, at, of: torch.zeros_like(x).scatter_add(1, of, x)), partial(plain, lambda x, y: x.topk(8, -1)),
    partial(smooth, lambda x, y, w, b: x.roll(3, 0)), partial(placed, lambda x, at, of: x.masked_fill(of == 3, 0)),
    partial(smooth, lambda x, y, w, b: F.pad(x, (4, 4))), partial(placed, lambda x, at, of: x.index_select(1, of[0])),
    partial(smooth, lambda x, y, w, b: torch.stack((x, y), 1)), partial(plain, lambda x, y: x.sort(-1)),
    partial(smooth, lambda x, y, w, b: x.tril()), partial(placed, lambda x, at, of: x[at[: len(at) // 4]]),
    partial(over_images, lambda x, w, b: F.pixel_unshuffle(x, 2), 16, False), partial(smooth, lambda x, y, w, b: x.repeat_interleave(2, 0)),
    partial(over_images, lambda x, w, b: x.permute(0, 2, 3, 1).contiguous(), 14, False),
)  # fmt: skip
SOFTENED: tuple[Maker, ...] = (
    partial(smooth, lambda x, y, w, b: x.softmax(-1)), partial(placed, lambda x, at, of: F.cross_entropy(x, of[:, 0])),
    partial(smooth, lambda x, y, w, b: x.log_softmax(-1)), partial(smooth, causal), partial(smooth, distilled),
    partial(smooth, lambda x, y, w, b: x.float().softmax(-1).to(x.dtype)), partial(smooth, lambda x, y, w, b: x.softmax(0)),
    partial(placed, lambda x, at, of: F.nll_loss(x.log_softmax(-1), of[:, 0])),
    partial(placed, lambda x, at, of: F.cross_entropy(x, of[:, 0], label_smoothing=0.1)),
    partial(smooth, lambda x, y, w, b: F.gumbel_softmax(x.float(), 0.5)), partial(over_images, lambda x, w, b: x.softmax(1), 16, False),
    partial(smooth, lambda x, y, w, b: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)),
)  # fmt: skip
UPDATES: tuple[Maker, ...] = (
    partial(updated, "AdamW", {"foreach": True}), partial(updated, "Adam", {"fused": True}),
    partial(updated, "SGD", {"momentum": 0.9, "foreach": True}), partial(on_weights, lion), partial(on_weights, adam),
    partial(updated, "SGD", {"momentum": 0.9, "fused": True}), partial(on_lists, lambda w, g: torch._foreach_lerp_(w, g, 0.01)),
    partial(updated, "Adam", {"foreach": False}), partial(on_weights, factored), partial(updated, "RMSprop", {"foreach": True}),
    partial(on_lists, lambda w, g: nn.utils.get_total_norm(g)), partial(updated, "AdamW", {"fused": True}),
    partial(on_lists, lambda w, g: torch._foreach_addcmul_(w, w, g, value=1e-6)), partial(updated, "Adagrad", {"foreach": True}),
    partial(on_lists, lambda w, g: [a.mul_(0.999).add_(b, alpha=0.001) for a, b in zip(w, g, strict=True)]),
)  # fmt: skip
KINDS: dict[str, tuple[tuple[Maker, ...], int, int]] = {
    "products": (PRODUCTS, 14, 7), "attention": (ATTENTIONS, 6, 5), "convolutions": (CONVS, 14, 5),
    "norms": (NORMS, 9, 6), "pointwise": (POINTWISE, 11, 8), "reductions": (REDUCTIONS, 9, 7),
    "gathers": (GATHERS, 10, 7), "softmax": (SOFTENED, 7, 6), "updates": (UPDATES, 6, 6),
}  # fmt: skip
"""Ops, cases, and ops a case."""


def several(ops: list[Drawn], p: Pool) -> Run:
    runs: list[Callable[[], object]] = []
    for make, size, (dtype, fast) in ops:
        runs.append(with_tf32(fast, make(p, *size, dtype)))
    return lambda: [run() for run in runs]


def drawn(kind: int, ops: tuple[Maker, ...], i: int) -> Drawn:
    """The `i`th op of a kind: a round later the same op is at a far size and the next dtype."""
    turn, op = divmod(i, len(ops))
    return ops[op], SIZES[(7 * kind + STEP * i) % len(SIZES)], MODES[(op + turn) % len(MODES)]


def cases() -> Iterator[Case]:
    for kind, (name, (ops, many, each)) in enumerate(KINDS.items()):
        for i in range(many):
            few = [drawn(kind, ops, i * each + j) for j in range(each)]
            sizes = [(*size, mode) for _, size, mode in few]
            yield Case(f"{name} {i} {sizes}", partial(several, few))


build = building("layers_small", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
