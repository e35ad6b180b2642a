"""More models of the part *fresh*, chosen on 2026-11-23 before any was measured: some of them what a compiler
or a CUDA graph does not take (layers dropped at random, lengths that differ, factorizations)."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gains.language import SMALL, hugging, waves, words
from benchmarks.gains.loops import Step, Tools, public
from benchmarks.gains.networks import NanoGPT
from benchmarks.gains.vision import timm, torchvision

LENGTHS = 32


class LogDet(torch.autograd.Function):
    """Log-determinant and solve by a Cholesky factor, as libraries of Gaussian processes have them."""

    @staticmethod
    def forward(ctx: Any, kernel: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        factor = torch.linalg.cholesky(kernel)
        solved = torch.cholesky_solve(y, factor)
        ctx.save_for_backward(factor, solved)
        return (y * solved).sum() / 2 + factor.diagonal().log().sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        factor, solved = ctx.saved_tensors
        return grad * (torch.cholesky_inverse(factor) - solved @ solved.T) / 2, None


class GaussianProcess(nn.Module):
    """An exact one with a radial kernel, its likelihood as loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(width))
        self.height, self.noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-2.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        near = torch.cdist(x / self.scale.exp(), x / self.scale.exp()).square()
        kernel = self.height.exp() * torch.exp(-near / 2)
        kernel = kernel + self.noise.exp() * torch.eye(len(x), device=x.device)
        return LogDet.apply(kernel, y) / len(x)


def gaussian_process(t: Tools) -> Step:
    rows = t.pick(2_000, 50)
    batches = t.feed(lambda: (t.randn(rows, 8), t.randn(rows, 1)))
    return t.train(GaussianProcess(8), batches, lambda m, x, y: m(x, y), 1e-2)


def lengths(t: Tools) -> Step:
    """nanoGPT over batches as long as their longest text, which is another length each time."""
    block, vocab = t.pick(512, 32), t.pick(50_304, 65)
    model = NanoGPT(t.pick(6, 2), 6, t.pick(384, 96), block, vocab, 0.0, True)
    draw = random.Random(0)
    turns = itertools.cycle([draw.randrange(block // 4, block) for _ in range(LENGTHS)])
    whole = t.feed(lambda: (t.randint(vocab, t.batch, block), t.randint(vocab, t.batch, block)))

    def batches() -> tuple[torch.Tensor, ...]:
        length = next(turns)
        x, y = whole()
        return x[:, :length].contiguous(), y[:, :length].contiguous()

    return t.train(model, batches, lambda m, x, y: m(x, y), 1e-3, clip=1.0)


class Letters(nn.Module):
    """A GRU cell that a loop over the text steps."""

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.cell = nn.GRUCell(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, made = torch.zeros_like(self.first(x[:, 0])), []
        for at in range(x.shape[1]):
            state = self.cell(self.first(x[:, at]), state)
            made.append(self.last(state))
        return torch.stack(made, 1)


def letters(t: Tools) -> Step:
    length = t.pick(64, 8)
    batches = t.feed(lambda: (t.randint(96, t.batch, length), t.randint(96, t.batch, length)))
    model = Letters(96, t.pick(256, 16))
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()))


class Columns(nn.Module):
    """FT-Transformer: a token a column."""

    def __init__(self, columns: int, width: int, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(columns, width))
        layer = nn.TransformerEncoderLayer(width, 8, 2 * width, 0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.last = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x[..., None] * self.weight + self.bias).mean(1))


def columns(t: Tools) -> Step:
    batches = t.feed(lambda: (t.randn(t.batch, 24), t.randn(t.batch, 1)))
    model = Columns(24, t.pick(192, 32), t.pick(3, 1))
    return t.train(model, batches, lambda m, x, y: F.mse_loss(m(x), y))


_conv: dict[str, Any] = {"images": True, "optimizer": "sgd"}
_deberta = {**SMALL, "relative_attention": True, "max_position_embeddings": 64}
_neox = {**SMALL, "vocab_size": 1000}
LATER: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "hf_hubert_base": (
        partial(hugging, auto="AutoModelForCTC", kind="hubert", example=waves, tiny=SMALL), 8, {},
    ),
    "gp_exact": (gaussian_process, 1, {"whole": True, "optimizer": "adam"}),
    "nanogpt_lengths": (lengths, 32, {"precision": "bf16", "period": LENGTHS}),
    "timm_coatnet_0": (partial(timm, name="coatnet_0_rw_224"), 64, {"images": True}),
    "timm_pvt_v2_b1": (partial(timm, name="pvt_v2_b1"), 96, {"images": True}),
    "example_gru_letters": (letters, 128, {"optimizer": "adam"}),
    "table_ft_transformer": (columns, 256, {}),
    "tv_regnet_x_8gf_bf16": (partial(torchvision, name="regnet_x_8gf"), 96, {"precision": "bf16", **_conv}),
    "tv_resnet34_fp16": (partial(torchvision, name="resnet34"), 128, {"precision": "fp16", **_conv}),
    "timm_xcit_tiny": (partial(timm, name="xcit_tiny_12_p16_224"), 64, {}),
    "timm_deit3_small_bf16": (
        partial(timm, name="deit3_small_patch16_224", drop_path_rate=0.1), 96, {"precision": "bf16"},
    ),
    "hf_neox_160m_bf16": (
        partial(hugging, auto="AutoModelForCausalLM", kind="gpt_neox", example=partial(words, length=512),
                tiny=_neox, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                intermediate_size=3072, use_cache=False), 8, {"precision": "bf16"},
    ),
    "hf_deberta_v2": (
        partial(hugging, auto="AutoModelForMaskedLM", kind="deberta-v2",
                example=partial(words, length=256, masked=True), tiny=_deberta, hidden_size=512,
                num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, vocab_size=32_000,
                relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"]), 16, {},
    ),
}  # fmt: skip
for _name, (_maker, _batch, _facts) in LATER.items():
    public(_name, _maker, _batch, fresh=True, **_facts)
