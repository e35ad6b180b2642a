"""Image captioning: ViT encoder, causal decoder with cross-attention, blocks compiled one by one."""

import math

import torch
from harness import main
from torch import nn
from torch.nn import functional as F

# 96 images x 256 patches = 24.6 k tokens, 8 encoder layers of d 1024: 72 d^2 = 75 MFLOP a token
# and layer = 14.8 TFLOP; 6.1 k caption tokens x 6 decoder layers (14 d^2) + cross keys = 5.1 TFLOP;
# head 1.2 TFLOP. 21 TFLOP at ~600 = 35 ms; attention (256 keys) 0.7 TFLOP at 300 = 2.5 ms.
# Fused elementwise ~60 d bytes: 14 GB = 3.5 ms; logits and cross-entropy 4 GB = 1 ms; AdamW on
# 270 M floats 2 ms; clipping and weight casts 1.5 ms. Step ~46 ms, 82 % compute.
TRUTH = {
    "regime": "compute",
    "cause": "healthy: d=1024 bf16 GEMMs and flash attention, pointwise work fused by the compiler",
    "advice": ["none-healthy"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "recompilation",
        "tensor-core-alignment",
    ],
}

PAD = 0


def heads_of(t, n):
    return t.unflatten(-1, (n, -1)).transpose(1, 2)


class Attn(nn.Module):
    def __init__(self, d, n, causal=False):
        super().__init__()
        self.n, self.causal = n, causal
        self.q = nn.Linear(d, d)
        self.kv = nn.Linear(d, 2 * d)
        self.o = nn.Linear(d, d)

    def forward(self, x, ctx):
        k, v = self.kv(ctx).chunk(2, -1)
        y = F.scaled_dot_product_attention(
            heads_of(self.q(x), self.n), heads_of(k, self.n), heads_of(v, self.n),
            is_causal=self.causal,
        )  # fmt: skip
        return self.o(y.transpose(1, 2).flatten(2))


def mlp(d):
    return nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))


class EncoderBlock(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.n1, self.attn = nn.LayerNorm(d), Attn(d, n)
        self.n2, self.mlp = nn.LayerNorm(d), mlp(d)

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attn(h, h)
        return x + self.mlp(self.n2(x))


class DecoderBlock(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.n1, self.self_attn = nn.LayerNorm(d), Attn(d, n, causal=True)
        self.n2, self.cross = nn.LayerNorm(d), Attn(d, n)
        self.n3, self.mlp = nn.LayerNorm(d), mlp(d)

    def forward(self, x, memory):
        h = self.n1(x)
        x = x + self.self_attn(h, h)
        x = x + self.cross(self.n2(x), memory)
        return x + self.mlp(self.n3(x))


class Captioner(nn.Module):
    def __init__(self, size, patch, d, n, enc, dec, vocab, length):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, d)
        self.pos = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, d))
        self.encoder = nn.ModuleList(EncoderBlock(d, n) for _ in range(enc))
        self.enc_norm = nn.LayerNorm(d)
        self.tok = nn.Embedding(vocab, d)
        self.tpos = nn.Parameter(0.02 * torch.randn(1, length, d))
        self.decoder = nn.ModuleList(DecoderBlock(d, n) for _ in range(dec))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, images, tokens):
        p = self.patch
        b, c, hh, ww = images.shape
        x = images.view(b, c, hh // p, p, ww // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.embed(x.reshape(b, -1, c * p * p)) + self.pos
        for block in self.encoder:
            x = block(x)
        memory = self.enc_norm(x)
        y = self.tok(tokens) + self.tpos
        for block in self.decoder:
            y = block(y, memory)
        return self.head(self.norm(y))


def build(cfg):
    size, patch, d, n = cfg.pick((256, 16, 1024, 16), (32, 16, 32, 2))
    enc, dec, vocab, length, batch = cfg.pick((8, 6, 32768, 64, 96), (2, 2, 128, 8, 2))
    torch.set_float32_matmul_precision("high")
    with cfg.device:
        model = Captioner(size, patch, d, n, enc, dec, vocab, length)
        images = torch.randint(0, 256, (2, batch, 3, size, size), dtype=torch.uint8)
        captions = torch.randint(1, vocab, (2, batch, length + 1))
        lengths = torch.randint(length // 2, length + 1, (2, batch, 1))
        captions.masked_fill_(torch.arange(length + 1) > lengths, PAD)
    # Regional compilation: one graph for all encoder blocks, one for all decoder blocks.
    backend = "inductor" if cfg.cuda else "aot_eager"
    for block in (*model.encoder, *model.decoder):
        block.compile(backend=backend, dynamic=False, fullgraph=True)

    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), fused=True,
    )  # fmt: skip
    warmup, total = 1000, 100_000
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))),
    )

    def step(i):
        x = images[i % 2].float().div_(127.5).sub_(1)
        tokens = captions[i % 2]
        with cfg.amp():
            logits = model(x, tokens[:, :-1])
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=PAD
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
