"""More attention: chains of known models written out, the fused ops, windows, linear kinds, rotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from attention import Shape, heads
from cases import Case, Pool, Run, both, building, with_tf32
from harness import main
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
CUDNN, MATH = SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH
Tensor = torch.Tensor
Change = tuple[Callable[..., Tensor], list[Tensor]]
Scored = tuple[str, Shape, torch.dtype, bool]

FUSED: tuple[tuple[SDPBackend, torch.dtype, tuple[Shape, ...]], ...] = (
    (FLASH, BF16, (
        Shape(16, 12, 512, 64, True), Shape(4, 16, 1024, 64, True), Shape(1, 16, 8192, 128, True),
        Shape(4, 25, 1024, 64, True), Shape(2, 24, 2048, 128, True, None, 8),
        Shape(1, 32, 4096, 64, True, None, 4), Shape(32, 6, 197, 64), Shape(16, 16, 256, 72),
        Shape(64, 8, 100, 32), Shape(2, 8, 4096, 32), Shape(4, 16, 577, 88))),
    (FLASH, FP16, (
        Shape(64, 12, 77, 64, True), Shape(8, 20, 1500, 64), Shape(1, 8, 4096, 160),
        Shape(2, 10, 1024, 192), Shape(8, 8, 448, 64, True), Shape(3, 5, 333, 48),
        Shape(2, 8, 2048, 256, True, None, 1), Shape(128, 4, 64, 16))),
    (EFFICIENT, BF16, (
        Shape(8, 16, 384, 64), Shape(2, 16, 2048, 128, True), Shape(1, 8, 4096, 96),
        Shape(16, 8, 300, 32), Shape(4, 4, 1024, 256), Shape(2, 5, 1500, 64, False, 448))),
    (EFFICIENT, FP16, (Shape(32, 3, 197, 64), Shape(2, 8, 2304, 40), Shape(1, 16, 8192, 32, True))),
    (EFFICIENT, FP32, (
        Shape(4, 6, 256, 64, True), Shape(32, 8, 50, 32), Shape(8, 12, 384, 64),
        Shape(1, 8, 2048, 128, True), Shape(2, 4, 1024, 48), Shape(16, 4, 100, 96),
        Shape(64, 2, 20, 16), Shape(2, 8, 900, 32, False, 1600))),
    (CUDNN, BF16, (
        Shape(8, 16, 1024, 64, True), Shape(1, 32, 8192, 128, True), Shape(16, 12, 384, 64),
        Shape(2, 32, 2048, 64, True, None, 8), Shape(4, 8, 577, 96), Shape(4, 10, 4096, 64, False, 128))),
    (CUDNN, FP16, (Shape(32, 12, 256, 64), Shape(2, 16, 3000, 80), Shape(64, 6, 197, 64))),
    (MATH, BF16, (Shape(16, 8, 256, 32), Shape(4, 12, 577, 64), Shape(2, 8, 1024, 128, True, None, 2))),
    (MATH, FP16, (Shape(64, 3, 64, 64), Shape(1, 16, 1024, 80, True))),
    (MATH, FP32, (Shape(8, 8, 128, 32, True), Shape(2, 12, 512, 64), Shape(256, 4, 30, 16))),
)  # fmt: skip
"""Which backend comes first; the others may stand in for it."""
MASKED = (
    (Shape(8, 12, 384, 64), BF16, False), (Shape(16, 12, 128, 64), FP16, True),
    (Shape(4, 8, 1024, 64), BF16, True), (Shape(64, 4, 50, 32), FP32, False),
    (Shape(2, 32, 1024, 128), BF16, False), (Shape(8, 8, 100, 32, False, 850), FP32, True),
)  # fmt: skip
"""With a mask added to the scores, or one of booleans."""
DROPPED = ((Shape(8, 12, 512, 64), BF16), (Shape(4, 12, 1024, 64, True), FP16),
           (Shape(32, 12, 128, 64), FP32))  # fmt: skip
BATCHED = (
    (Shape(4, 16, 1024, 64), BF16),
    (Shape(16, 8, 128, 64), FP16),
    (Shape(8, 4, 300, 36), FP32),
)
KEPT = (
    Shape(8, 16, 1, 64, False, 512), Shape(4, 24, 1, 128, False, 3000, 8), Shape(64, 8, 1, 64, False, 448),
    Shape(1, 32, 16, 128, False, 4096, 8), Shape(32, 12, 1, 64, False, 1500),
)  # fmt: skip
"""New positions against what was kept of the others."""
WRITTEN: tuple[Scored, ...] = (
    ("causal", Shape(8, 6, 256, 64), BF16, False), ("causal", Shape(4, 16, 1024, 64), FP16, False),
    ("causal", Shape(12, 12, 512, 64), FP32, True), ("causal", Shape(1, 32, 2048, 64), BF16, True),
    ("padded", Shape(16, 12, 384, 64), FP16, False), ("padded", Shape(64, 8, 50, 32), FP32, False),
    ("padded", Shape(8, 16, 512, 64), BF16, True), ("padded", Shape(32, 2, 200, 32), FP32, False),
    ("relative", Shape(8, 8, 512, 64), BF16, False), ("relative", Shape(4, 12, 512, 64), FP32, True),
    ("alibi", Shape(4, 16, 1024, 64), BF16, False), ("alibi", Shape(2, 12, 2048, 64), FP16, False),
    ("alibi", Shape(16, 8, 200, 32), FP32, False), ("capped", Shape(2, 8, 1024, 256), BF16, False),
    ("banded", Shape(2, 16, 2048, 128), BF16, True), ("plain", Shape(64, 3, 197, 64), FP16, False),
    ("plain", Shape(8, 16, 577, 64), BF16, False), ("plain", Shape(32, 12, 197, 64), FP32, True),
    ("plain", Shape(2, 8, 1024, 40), FP32, False), ("plain", Shape(256, 4, 26, 16), FP32, False),
)  # fmt: skip
"""What is done to the scores, and whether softmax is in fp32."""
WINDOWS = (
    (2048, 3, 49, 32, FP32), (512, 6, 49, 32, FP16), (128, 12, 49, 32, BF16), (512, 4, 64, 32, BF16),
    (256, 6, 144, 32, FP16), (64, 24, 49, 32, BF16), (1024, 6, 64, 30, FP32),
)  # fmt: skip
"""Windows of all images, heads, positions, head dim: Swin, Swin at 384, SwinIR."""
SPLIT = ((32, 56, 96, 7, FP32), (64, 28, 192, 7, BF16), (8, 64, 180, 8, FP16))
"""Images, their side, channels and the side of a window."""
CROSSED = (
    (4, 8, 4096, 77, 40, FP16), (4, 8, 256, 77, 160, FP16), (16, 12, 128, 577, 64, BF16),
    (4, 8, 512, 6400, 32, FP32), (2, 8, 100, 1064, 32, FP32), (32, 8, 448, 1500, 64, FP16),
)  # fmt: skip
"""Batch, heads, queries, keys and head dim: text of images, captions, objects, latents, speech."""
LINEAR = (
    (8, 8, 1024, 64, BF16), (2, 16, 4096, 64, FP16), (16, 8, 512, 32, FP32), (32, 6, 196, 64, BF16),
    (4, 4, 16384, 16, FP32),
)  # fmt: skip
CHUNKED = (
    (4, 8, 2048, 64, 128, BF16), (2, 4, 4096, 256, 256, BF16), (8, 8, 512, 64, 64, FP32),
    (1, 16, 8192, 64, 64, BF16),
)  # fmt: skip
"""Batch, heads, positions, head dim, chunk: retention and Mamba-2."""
TURNED = (
    ("halves", (2, 2048, 32, 128), BF16), ("halves", (8, 1024, 12, 64), FP16),
    ("halves", (4, 512, 8, 64), FP32), ("complex", (2, 2048, 16, 128), BF16),
    ("complex", (4, 1024, 32, 64), FP16), ("pairs", (4, 2048, 16, 64), FP16),
    ("pairs", (1, 4096, 8, 256), BF16), ("part", (8, 2048, 16, 96), BF16),
    ("part", (16, 256, 8, 64), FP32), ("complex", (4, 1024, 16, 72), FP32),
)  # fmt: skip
"""Rotary embeddings: batch, positions, heads, head dim."""


def laid_out(p: Pool, shape: Shape, dtype: torch.dtype, layout: int) -> list[Tensor]:
    """Queries, keys and values: transposed views, copied apart, or of one projection (2)."""
    views = heads(p, shape, dtype)
    if layout == 1:
        return [p.like(x.contiguous()).requires_grad_() for x in views]
    if layout == 0 or shape.keys or shape.shared:
        return views
    size = (shape.batch, shape.length, 3, shape.heads, shape.dim)
    q, k, v = p.randn(*size, dtype=dtype).permute(2, 0, 3, 1, 4).unbind(0)
    return [q.requires_grad_(), k.requires_grad_(), v.requires_grad_()]


def fused(shape: Shape, first: SDPBackend, dtype: torch.dtype, layout: int, p: Pool) -> Run:
    """One backend before the others, forward and backward."""
    q, k, v = laid_out(p, shape, dtype, layout)
    order = [MATH] if first is MATH else [first, FLASH, EFFICIENT]
    call = partial(attend, is_causal=shape.causal, enable_gqa=shape.shared is not None)

    def f(*given: Tensor) -> Tensor:
        with sdpa_kernel(order, set_priority=True):
            return call(*given)

    return both(p, f, q, k, v)


def masked(shape: Shape, dtype: torch.dtype, true_false: bool, p: Pool) -> Run:
    """As torch chooses: numbers added to the scores, or which of them count."""
    q, k, v = heads(p, shape, dtype)
    size = (q.shape[0], 1, q.shape[2], k.shape[2])
    if true_false:
        mask = torch.ones(size, dtype=torch.bool, device=p.device).tril(k.shape[2] // 2)
    else:
        mask = p.like(torch.empty(size, dtype=dtype, device="meta"))
    return both(p, partial(attend, attn_mask=mask), q, k, v)


def dropped(shape: Shape, dtype: torch.dtype, p: Pool) -> Run:
    q, k, v = heads(p, shape, dtype)
    return both(p, partial(attend, dropout_p=0.1, is_causal=shape.causal), q, k, v)


def repeated(shape: Shape, dtype: torch.dtype, p: Pool) -> Run:
    """Shared heads copied for every query head first."""
    q, k, v = heads(p, shape, dtype)
    times = q.shape[1] // k.shape[1]

    def f(q: Tensor, *shared: Tensor) -> Tensor:
        return attend(q, *(x.repeat_interleave(times, 1) for x in shared), is_causal=True)

    return both(p, f, q, k, v)


def kept(shape: Shape, dtype: torch.dtype, p: Pool) -> Run:
    q, k, v = (x.detach() for x in laid_out(p, shape, dtype, 1))
    return lambda: attend(q, k, v, enable_gqa=shape.shared is not None)


def scoring(kind: str, shape: Shape, dtype: torch.dtype, p: Pool) -> Change:
    """What a model does to its scores, and the weights it learns for that."""
    many, length = p.n(shape.heads), p.n(shape.length)
    at = torch.arange(length, device=p.device)
    away = at[None] - at[:, None]
    if kind == "causal":
        return lambda s: s.masked_fill(away > 0, torch.finfo(dtype).min), []
    if kind == "banded":
        hidden = (away > 0) | (away < -(length // 4))
        return lambda s: s.masked_fill(hidden, float("-inf")), []
    if kind == "padded":
        ends = p.index(shape.length, shape.batch)[:, None, None, None]
        added = (at > ends).to(dtype) * -1e4
        return lambda s: s + added, []
    if kind == "relative":
        bucket = away.clamp(-15, 16) + 15
        table = p.like(torch.empty(32, many, dtype=dtype, device="meta")).requires_grad_()
        return lambda s, t: s + F.embedding(bucket, t).permute(2, 0, 1)[None], [table]
    if kind == "alibi":
        slopes = torch.logspace(-1, -8, many, 2.0, device=p.device)
        added = (slopes[:, None, None] * away.masked_fill(away > 0, -(10**4))).to(dtype)
        return lambda s: s + added, []
    if kind == "capped":
        return lambda s: torch.tanh(s / 50.0) * 50.0, []
    return lambda s: s, []


def written(part: str, scored: Scored, layout: int, p: Pool) -> Run:
    """The chain or a part of it; queries are scaled before the product or the scores after it."""
    kind, shape, dtype, wide = scored
    q, k, v = laid_out(p, shape, dtype, layout)
    change, learnt = scoring(kind, shape, dtype, p)
    scale = shape.dim**-0.5

    def scores(q: Tensor, k: Tensor, *weights: Tensor) -> Tensor:
        return change((q * scale) @ k.mT if layout == 2 else q @ k.mT * scale, *weights)

    def values(s: Tensor, v: Tensor) -> Tensor:
        kept = F.softmax(s, -1, dtype=torch.float32).to(dtype) if wide else s.softmax(-1)
        return (F.dropout(kept, 0.1) if layout != 1 else kept) @ v

    if part == "scores":
        run = both(p, scores, q, k, *learnt)
    elif part == "values":
        form = torch.empty(*q.shape[:3], k.shape[2], dtype=dtype, device="meta")
        run = both(p, values, p.like(form).requires_grad_(), v)
    else:
        run = both(p, lambda q, k, v, *w: values(scores(q, k, *w), v), q, k, v, *learnt)
    return with_tf32(kind != "padded", run)


def by_batches(shape: Shape, dtype: torch.dtype, p: Pool) -> Run:
    """Bloom's and torch's own: heads in the batch, bias and scale inside the product."""
    size = (shape.batch * shape.heads, shape.length, shape.dim)
    q, k, v = (p.leaf(*size, dtype=dtype) for _ in range(3))
    bias = p.randn(size[0], 1, shape.length, dtype=dtype)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.baddbmm(bias.expand(-1, q.shape[1], -1), q, k.mT, alpha=0.125)
        return torch.bmm(F.softmax(scores, -1), v)

    return both(p, f, q, k, v)


def window(size: tuple[int, ...], dtype: torch.dtype, moved: bool, p: Pool) -> Run:
    """Swin's: a bias looked up in a table and, in moved windows, a mask for each place of the image."""
    many, head, length, dim = size
    q, k, v = laid_out(p, Shape(many, head, length, dim), dtype, 2)
    places, count = min(q.shape[0], 16), q.shape[2]
    table = p.like(torch.empty(4 * count, p.n(head), dtype=dtype, device="meta")).requires_grad_()
    at = torch.arange(count, device=p.device)
    index = (at[:, None] - at + count).view(-1)
    mask = torch.zeros(places, 1, count, count, dtype=dtype, device=p.device)
    mask[:, :, : count // 2, count // 2 :] = -100.0

    def f(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        scores = (q * dim**-0.5) @ k.mT
        scores = scores + table[index].view(count, count, -1).permute(2, 0, 1)[None]
        if moved:
            scores = (scores.view(-1, places, *scores.shape[1:]) + mask).view(scores.shape)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    return both(p, f, q, k, v, table)


def split(many: int, side: int, width: int, size: int, dtype: torch.dtype, p: Pool) -> Run:
    """An image moved by half a window and cut into windows."""
    x = p.leaf(many, side, side, width, dtype=dtype)
    size = x.shape[1] // max(1, x.shape[1] // size)

    def f(x: Tensor) -> Tensor:
        x = x.roll((-(size // 2), -(size // 2)), (1, 2))
        x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)
        return x.reshape(-1, size * size, x.shape[-1])

    return both(p, f, x)


def crossed(size: tuple[int, ...], dtype: torch.dtype, by_rule: bool, p: Pool) -> Run:
    """Queries of one sequence and keys of another, by matmul or by einsum as in latent diffusion."""
    batch, many, length, keys, dim = size
    q, k, v = heads(p, Shape(batch, many, length, dim, False, keys), dtype)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not by_rule:
            return (q @ k.mT * dim**-0.5).softmax(-1) @ v
        kept = (torch.einsum("bhid,bhjd->bhij", q, k) * dim**-0.5).softmax(-1)
        return torch.einsum("bhij,bhjd->bihd", kept, v)

    return with_tf32(True, both(p, f, q, k, v))


def linear(kind: str, size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    """Without the square of positions: kernel features, channels against channels, fewer keys."""
    batch, many, length, dim = size
    q, k, v = heads(p, Shape(batch, many, length, dim), dtype)

    def features(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        below = torch.einsum("bhnd,bhd->bhn", q, k.sum(2)) + 1e-6
        return torch.einsum("bhnd,bhde->bhne", q, k.mT @ v) / below[..., None]

    def channels(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = F.normalize(q, dim=2), F.normalize(k, dim=2)
        return v @ (q.mT @ k).softmax(-1)

    def projected(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        return (q @ (w @ k).mT * dim**-0.5).softmax(-1) @ (w @ v)

    if kind == "projected":
        return both(p, projected, q, k, v, p.leaf(256, length, dtype=dtype))
    return both(p, features if kind == "features" else channels, q, k, v)


def chunked(size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    """Retention: squares inside a chunk, decayed, and a state carried from chunk to chunk."""
    batch, many, length, dim, chunk = size
    chunk = p.n(chunk)
    leaves = heads(p, Shape(batch, many, length, dim), dtype)
    at = torch.arange(chunk, device=p.device, dtype=torch.float32)
    decay = (1 - torch.logspace(-5, -9, p.n(many), 2.0, device=p.device)).log()[:, None]
    inside = ((at[:, None] - at) * decay[..., None]).exp().tril()[:, None].to(dtype)
    far = (at * decay, (chunk - at) * decay)
    before, after = (x.exp()[:, None, :, None].to(dtype) for x in far)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.unflatten(2, (-1, chunk)) for x in (q, k, v))
        within = (q @ k.mT * inside) @ v
        states = (k * after).mT @ v
        return within + (q * before) @ (states.cumsum(2) - states)

    return both(p, f, *leaves)


def turned(kind: str, size: tuple[int, ...], dtype: torch.dtype, p: Pool) -> Run:
    """Rotary embeddings by halves, as complex numbers, by pairs or of a part."""
    x = p.leaf(*size, dtype=dtype)
    length, dim = x.shape[1], x.shape[3]
    rates = 1e4 ** (torch.arange(dim // 2, device=p.device) * (-2 / dim))
    turn = torch.arange(length, device=p.device)[:, None] * rates
    cos, sin = (f(turn)[None, :, None].to(dtype) for f in (torch.cos, torch.sin))
    both_cos, both_sin = cos.repeat(1, 1, 1, 2), sin.repeat(1, 1, 1, 2)
    angles = torch.polar(torch.ones_like(turn), turn)[None, :, None]

    def halves(x: Tensor, cos: Tensor = both_cos, sin: Tensor = both_sin) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def numbers(x: Tensor) -> Tensor:
        wide = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(wide * angles).flatten(3).to(dtype)

    def pairs(x: Tensor) -> Tensor:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(3)

    def part(x: Tensor) -> Tensor:
        few = dim // 4 * 2
        front = halves(x[..., :few], both_cos[..., :few], both_sin[..., :few])
        return torch.cat((front, x[..., few:]), -1)

    kinds = {"halves": halves, "complex": numbers, "pairs": pairs, "part": part}
    return both(p, kinds[kind], x)


def cases() -> Iterator[Case]:
    i = 0
    for backend, dtype, shapes in FUSED:
        for shape in shapes:
            name = f"{backend.name} first {shape} {dtype}"
            yield Case(name, partial(fused, shape, backend, dtype, i % 3))
            i += 1
    for shape, dtype, true_false in MASKED:
        yield Case(f"masked {shape} {dtype}", partial(masked, shape, dtype, true_false))
    for shape, dtype in DROPPED:
        yield Case(f"dropped {shape}", partial(dropped, shape, dtype))
    for shape in (Shape(2, 32, 1024, 64, True, None, 8), Shape(1, 16, 4096, 128, True, None, 2)):
        yield Case(f"repeated {shape}", partial(repeated, shape, BF16))
    for i, shape in enumerate(KEPT):
        yield Case(f"kept {shape}", partial(kept, shape, (BF16, FP16)[i % 2]))
    for i, scored in enumerate(WRITTEN):
        part = ("whole", "scores", "values")[i % 3]
        yield Case(f"{part} {scored}", partial(written, part, scored, i // 3 % 3))
    for shape, dtype in BATCHED:
        yield Case(f"by batches {shape}", partial(by_batches, shape, dtype))
    yield from without_squares()


def without_squares() -> Iterator[Case]:
    """Windows, two sequences, linear kinds and rotations."""
    for i, (*size, dtype) in enumerate(WINDOWS):
        yield Case(f"window {size} {dtype}", partial(window, tuple(size), dtype, i % 2 == 1))
    for many, side, width, size, dtype in SPLIT:
        yield Case(f"split {many} {side} {width}", partial(split, many, side, width, size, dtype))
    for i, (*size, dtype) in enumerate(CROSSED):
        yield Case(f"crossed {size} {dtype}", partial(crossed, tuple(size), dtype, i % 2 == 0))
    for i, (*size, dtype) in enumerate(LINEAR):
        for kind in (("features", "channels"), ("features", "projected"))[i % 2]:
            yield Case(f"{kind} {size} {dtype}", partial(linear, kind, tuple(size), dtype))
    for *size, dtype in CHUNKED:
        yield Case(f"chunked {size} {dtype}", partial(chunked, tuple(size), dtype))
    for kind, size, dtype in TURNED:
        yield Case(f"rotary {kind} {size} {dtype}", partial(turned, kind, size, dtype))


build = building("attention_more", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
