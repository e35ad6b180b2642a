"""What torch.compile makes of the parts of models: fused chains, norms, losses, updates, blocks.

Compiling takes minutes the first time; a second process finds it in torch's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from cases import Case, Pool, Run, building
from harness import main
from torch import Tensor
from torch.nn import functional as F

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
Size = tuple[int, ...]
Function = Callable[..., Tensor]


def bias_gelu(x: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x + b, approximate="tanh")


def dropout_add(x: Tensor, b: Tensor) -> Tensor:
    return F.dropout(x, 0.1) + b


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def chain(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(4):
        x = torch.tanh(x * y + 0.5) * torch.sigmoid(x)
    return x


def layer_gelu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, w.shape, w, b))


def rms_residual(x: Tensor, branch: Tensor, w: Tensor) -> Tensor:
    wide = (x + branch).float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def rotary(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = q.chunk(2, -1)
    return q * cos + torch.cat((-b, a), -1) * sin


def scores(x: Tensor, mask: Tensor) -> Tensor:
    return F.softmax(x.float() * 0.125 + mask, -1).to(x.dtype)


def group_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, min(32, x.shape[1]), w, b))


def batch_relu(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True) + y)


def distance(x: Tensor, y: Tensor) -> Tensor:
    return F.kl_div(
        x.float().log_softmax(-1), y.float().log_softmax(-1), reduction="batchmean", log_target=True
    )


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(x), 2)


def moved(x: Tensor) -> Tensor:
    return F.pad(torch.cat((x.roll(1, -1), x.flip(-1)), -1).transpose(-1, -2), (1, 1)).contiguous()


def perceptron(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return x + F.gelu(x @ up) @ down


def block(
    x: Tensor, w: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, up: Tensor, down: Tensor
) -> Tensor:
    """A layer of a transformer with heads of 64 dimensions."""
    heads = (*x.shape[:2], -1, min(64, x.shape[2]))
    normed = F.layer_norm(x, w.shape, w)
    parts = [(normed @ one).view(heads).transpose(1, 2) for one in (q, k, v)]
    mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(x.shape) @ out
    return x + F.gelu(F.layer_norm(x, w.shape, w) @ up) @ down


def convolved(x: Tensor, k: Tensor, w: Tensor, b: Tensor) -> Tensor:
    x = F.conv2d(x, k, padding=1)
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


DIFFERENTIATED: tuple[tuple[Function, torch.dtype, tuple[tuple[Size, ...], ...]], ...] = (
    (bias_gelu, BF16, (((8192, 3072), (3072,)), ((512, 3072), (3072,)))),
    (dropout_add, FP16, (((8192, 768), (8192, 768)), ((16384, 4096), (16384, 4096)))),
    (swiglu, BF16, (((4096, 11008), (4096, 11008)), ((256, 5632), (256, 5632)))),
    (chain, FP32, (((2048, 2048), (2048, 2048)), ((256, 512), (256, 512)), ((8192, 4096), (8192, 4096)))),
    (layer_gelu, BF16, (((8192, 1024), (1024,), (1024,)), ((512, 768), (768,), (768,)))),
    (layer_gelu, FP32, (((32768, 512), (512,), (512,)),)),
    (rms_residual, BF16, (((4096, 4096), (4096, 4096), (4096,)), ((256, 8192), (256, 8192), (8192,)))),
    (rotary, BF16, (((2, 32, 2048, 128), (2048, 128), (2048, 128)), ((2, 8, 256, 64), (256, 64), (256, 64)))),
    (scores, BF16, (((4, 12, 512, 512), (4, 1, 1, 512)), ((2, 4, 2048, 2048), (2, 1, 1, 2048)))),
    (scores, FP32, (((32, 12, 128, 128), (32, 1, 1, 128)),)),
    (group_silu, FP16, (((4, 320, 64, 64), (320,), (320,)), ((2, 64, 16, 16), (64,), (64,)))),
    (batch_relu, FP32, (((32, 256, 28, 28), (32, 256, 28, 28), (256,), (256,)),)),
    (batch_relu, BF16, (((32, 64, 112, 112), (32, 64, 112, 112), (64,), (64,)),)),
    (distance, BF16, (((1024, 32000), (1024, 32000)), ((256, 1000), (256, 1000)))),
    (pooled, FP16, (((32, 64, 112, 112),), ((8, 64, 28, 28),))),
    (moved, FP32, (((16, 512, 512),), ((64, 64, 64),))),
    (perceptron, BF16, (((4096, 1024), (1024, 4096), (4096, 1024)), ((256, 256), (256, 1024), (1024, 256)))),
    (block, BF16, (((8, 512, 768), (768,), *[(768, 768)] * 4, (768, 3072), (3072, 768)),)),
    (convolved, BF16, (((32, 64, 56, 56), (64, 64, 3, 3), (64,), (64,)),)),
)  # fmt: skip
"""Function, dtype, and the shapes of its inputs by size."""


def totals(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(0), x.mean(1), x.var(-1), x.amax()


def norm_of_all(x: Tensor) -> Tensor:
    return x.float().square().sum().sqrt()


def choice(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.softmax(-1).max(-1)


def running(x: Tensor) -> Tensor:
    return x.cumsum(-1) * 0.5


def noise(x: Tensor) -> Tensor:
    return x * 0.9 + torch.randn_like(x) * 0.1


REDUCED: tuple[tuple[Callable[[Tensor], object], tuple[Size, ...]], ...] = (
    (totals, ((4096, 4096), (256, 512))),
    (norm_of_all, ((4096, 8192),)),
    (choice, ((16384, 64), (512, 32000))),
    (running, ((512, 4096),)),
    (noise, ((64, 3, 256, 256),)),
)


def compiled(p: Pool, f: Callable[..., object]) -> Callable[..., object]:
    """In the default mode; where no GPU is, only what comes before code is generated."""
    backend = "inductor" if p.device.type == "cuda" else "aot_eager"
    return torch.compile(f, dynamic=False, fullgraph=True, backend=backend)


def differentiated(p: Pool, f: Function, *inputs: Tensor) -> Run:
    """Forward and backward; the uncompiled function says what shape the gradient has."""
    with torch.no_grad():
        grad = p.like(f(*inputs))
    fast = compiled(p, f)
    return lambda: torch.autograd.grad(fast(*inputs), inputs, grad)


def of_shapes(f: Function, sizes: tuple[Size, ...], dtype: torch.dtype, p: Pool) -> Run:
    # Statistics of a batch take weights of fp32.
    wide = f in (batch_relu, convolved)
    inputs = [p.leaf(*size, dtype=FP32 if wide and len(size) == 1 else dtype) for size in sizes]
    return differentiated(p, f, *inputs)


def alone(f: Callable[[Tensor], object], size: Size, p: Pool) -> Run:
    return partial(compiled(p, f), p.randn(*size))


def cross_entropy(rows: int, classes: int, dtype: torch.dtype, p: Pool) -> Run:
    y = p.index(classes, rows)
    return differentiated(
        p, lambda x: F.cross_entropy(x.float(), y), p.leaf(rows, classes, dtype=dtype)
    )


def embedded(rows: int, width: int, p: Pool) -> Run:
    """Words, positions and a norm; the gradient of the table by atomic additions."""
    at = p.index(rows, 8, 512, hot=True)
    words, places, w = p.leaf(rows, width), p.leaf(at.shape[1], width), p.leaf(width)

    def f(words: Tensor, places: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(F.embedding(at, words) + places, w.shape, w)

    return differentiated(p, f, words, places, w)


def update(sizes: tuple[Size, ...], p: Pool) -> Run:
    """Adam over a list."""
    weights, first, second = ([p.own(*size) for size in sizes] for _ in range(3))
    grads = [p.randn(*size) for size in sizes]
    for one in second:
        one.abs_()

    def f() -> None:
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, grads, grads, 0.001)
        roots = torch._foreach_sqrt(second)
        torch._foreach_add_(roots, 1e-8)
        torch._foreach_addcdiv_(weights, first, roots, -1e-9)

    return compiled(p, f)


def flexible(batch: int, heads: int, length: int, dim: int, p: Pool) -> Run:
    """Attention that torch.compile writes, with a bias by distance."""
    from torch.nn.attention.flex_attention import flex_attention

    def near(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.where(q >= k, score - 0.01 * (q - k), -float("inf"))

    q, k, v = (p.leaf(batch, heads, length, dim, dtype=BF16) for _ in range(3))
    grad, fast = p.like(q), compiled(p, partial(flex_attention, score_mod=near))
    return lambda: torch.autograd.grad(fast(q, k, v), (q, k, v), grad)


def cases() -> Iterator[Case]:
    for f, dtype, listed in DIFFERENTIATED:
        for sizes in listed:
            yield Case(f"{f.__name__} {sizes} {dtype}", partial(of_shapes, f, sizes, dtype))
    for g, single in REDUCED:
        for size in single:
            yield Case(f"{g.__name__} {size}", partial(alone, g, size))
    for rows, classes, dtype in ((1024, 50257, BF16), (256, 1000, FP32), (4096, 32000, BF16)):
        name = f"cross entropy {rows} {classes}"
        yield Case(name, partial(cross_entropy, rows, classes, dtype))
    yield Case("embedded", partial(embedded, 30522, 768))
    yield Case("update large", partial(update, ((4096, 1024), (4096, 4096), (4096,))))
    yield Case("update small", partial(update, ((64, 256), (256,), (256, 64), (64,))))
    yield Case("flexible", partial(flexible, 4, 12, 1024, 64))


build = building("inductor", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
