"""LLaVA-like visual instruction tuning: frozen ViT, projector and decoder trained in bf16.

gradient_checkpointing=True came with the recipe (it was written for 24 GB cards).
"""

import torch
from harness import main
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

TRUTH = {
    "regime": "compute",
    "cause": "large bf16 GEMMs, a fifth of them recomputed by needless checkpointing",
    "advice": ["remove-checkpointing"],
    "not_advice": [
        "activation-checkpointing",
        "launch-bound-compile",
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "bigger-batch",
    ],
}
# N = 12*(144 + 880) = 12288 tokens, d = 2560, 3 blocks of 79 M; U = 63 MB.
# Block GEMMs 8*N*238e6 (forward twice) = 23.4 TFLOP at ~650 = 36 ms, ~8 of them recomputed; head
# 6*10560*82e6 = 5.2 TFLOP = 8 ms; attention 0.87 TFLOP at ~350 = 2.5 ms; ViT forward 0.9 TFLOP = 2 ms.
# Pointwise ~0.75 ms forward, again, ~1.3 ms backward a block = 8 ms; loss over 32064 3 ms; AdamW+clip 2.3.
# Sum ~62 ms: compute 48 (78 %), memory 14. Without checkpointing ~52 ms (-16 %) and ~14 GB, not ~10, of 141.


class ViTBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class VisionTower(nn.Module):
    def __init__(self, image, patch, d, heads, layers):
        super().__init__()
        self.grid = image // patch
        self.patch = nn.Conv2d(3, d, patch, stride=patch, bias=False)
        self.pos = nn.Parameter(0.02 * torch.randn(1, self.grid**2, d))
        self.blocks = nn.Sequential(*(ViTBlock(d, heads) for _ in range(layers)))

    def forward(self, pixels):
        x = self.blocks(self.patch(pixels).flatten(2).transpose(1, 2) + self.pos)
        b, _, d = x.shape
        g = self.grid // 2  # pixel shuffle: four neighbours become one token
        x = x.view(b, g, 2, g, 2, d).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(b, g * g, 4 * d)


class DecoderBlock(nn.Module):
    def __init__(self, d, heads, ffn):
        super().__init__()
        self.heads = heads
        self.attn_norm = nn.RMSNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.o_proj = nn.Linear(d, d, bias=False)
        self.mlp_norm = nn.RMSNorm(d)
        self.gate_proj = nn.Linear(d, ffn, bias=False)
        self.up_proj = nn.Linear(d, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        qkv = self.qkv(self.attn_norm(x)).view(b, t, 3, self.heads, -1).transpose(1, 3)
        q, k, v = qkv.unbind(2)
        q, k = (self.rope(z, cos, sin) for z in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(b, t, d))
        h = self.mlp_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))

    @staticmethod
    def rope(z, cos, sin):
        a, b = z.chunk(2, dim=-1)
        return z * cos + torch.cat((-b, a), dim=-1) * sin


class Llava(nn.Module):
    def __init__(self, tower, vision_d, vocab, d, heads, ffn, layers, length):
        super().__init__()
        self.vision_tower = tower
        self.mm_projector = nn.Sequential(nn.Linear(4 * vision_d, d), nn.GELU(), nn.Linear(d, d))
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(DecoderBlock(d, heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.gradient_checkpointing = False
        for m in (self.embed_tokens, self.lm_head):
            nn.init.normal_(m.weight, std=0.02)
        hd = d // heads
        freq = 1e4 ** (-torch.arange(0, hd, 2).float() / hd)
        angle = torch.outer(torch.arange(length).float(), freq).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, pixels, ids, labels):
        with torch.no_grad():
            seen = self.vision_tower(pixels)
        images = self.mm_projector(seen)
        x = torch.cat((images, self.embed_tokens(ids)), dim=1)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        text = self.norm(x[:, images.shape[1] :])
        logits = self.lm_head(text).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def build(cfg):
    image, patch, vd, vheads, vlayers = cfg.pick((336, 14, 1024, 16, 6), (32, 8, 32, 2, 1))
    vocab, d, heads, ffn, layers = cfg.pick((32064, 2560, 20, 6912, 3), (96, 64, 4, 128, 2))
    batch, text = cfg.pick((12, 880), (2, 28))
    length = (image // patch // 2) ** 2 + text
    with cfg.device:
        tower = VisionTower(image, patch, vd, vheads, vlayers).requires_grad_(False)
        model = Llava(tower, vd, vocab, d, heads, ffn, layers, length).to(torch.bfloat16)
        mean = torch.tensor((0.481, 0.458, 0.408)).view(1, 3, 1, 1) * 255
        std = torch.tensor((0.269, 0.261, 0.276)).view(1, 3, 1, 1) * 255
    model.train()
    model.gradient_checkpointing = True

    shards = []
    for _ in range(4):
        pixels = torch.randint(256, (batch, 3, image, image), dtype=torch.uint8)
        ids = torch.randint(vocab, (batch, text + 1))
        labels = ids[:, 1:].clone()
        labels[:, : text // 8] = -100  # the instruction itself is not learned
        shard = (pixels, ids[:, :-1].contiguous(), labels)
        shards.append(tuple(t.pin_memory() for t in shard) if cfg.cuda else shard)

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-5, total_steps=100_000, pct_start=0.03, cycle_momentum=False
    )

    def step(i):
        pixels, ids, labels = (t.to(cfg.device, non_blocking=True) for t in shards[i % len(shards)])
        pixels = ((pixels - mean) / std).to(torch.bfloat16)
        loss = model(pixels, ids, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
