"""Self-supervised speech encoder (BEST-RQ targets on stacked filter banks), bf16 autocast.

Settings inherited from a fine-tuning recipe for 24 GB cards.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main
from torch.utils.checkpoint import checkpoint

# 24 crops x 768 frames = 18.4 k tokens, d 1280, 8 layers. Linear layers: 24 d^2 = 39 MFLOP a token
# forward; x (1 + 1 recomputed + 2 back) x 8 layers = 23 TFLOP at 600 = 39 ms; attention 2.6 TFLOP at
# 350 = 7 ms; head 0.6 TFLOP 1 ms. LN, casts, GELU, dropout, adds: ~270 d bytes = 50 GB = 13 ms;
# cross-entropy and AdamW 2.5 ms. Step ~62 ms, 75 % compute. The recomputation alone is ~15 ms (24 %)
# and dropping it costs ~14 GB of 141.
TRUTH = {
    "regime": "compute",
    "cause": "every encoder layer is checkpointed although a tenth of the memory is in use",
    "advice": ["remove-checkpointing"],
    "not_advice": [
        "activation-checkpointing",
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "fused-optimizer",
        "tensor-core-alignment",
    ],
}


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (
            t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.in_proj(x).chunk(3, dim=-1)
        )
        o = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(o.transpose(1, 2).reshape(B, T, D))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, ffn, p):
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, ffn)
        self.fc2 = nn.Linear(ffn, dim)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        x = x + self.drop(self.attn(self.attn_norm(x)))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.ffn_norm(x)))))


class SpeechEncoder(nn.Module):
    def __init__(self, mels, dim, heads, layers, codes, p=0.1, gradient_checkpointing=True):
        super().__init__()
        self.norm_in = nn.LayerNorm(mels)
        self.proj_in = nn.Linear(mels, dim)
        self.mask_emb = nn.Parameter(torch.empty(dim).uniform_(-0.1, 0.1))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 4096, dim))
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, 4 * dim, p) for _ in range(layers))
        self.norm_out = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, codes)
        self.gradient_checkpointing = gradient_checkpointing

    def forward(self, feats, mask):
        x = self.proj_in(self.norm_in(feats))
        x = torch.where(mask[..., None], self.mask_emb.to(x.dtype), x)
        x = x + self.pos[:, : x.shape[1]]
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return self.head(self.norm_out(x))


class RandomProjectionQuantizer(nn.Module):
    """Frozen projection and codebook: the nearest code's number is the target."""

    def __init__(self, mels, codes, width=16):
        super().__init__()
        self.register_buffer("proj", torch.randn(mels, width) / math.sqrt(mels))
        self.register_buffer("codebook", F.normalize(torch.randn(codes, width), dim=-1))

    @torch.no_grad()
    def forward(self, feats):
        z = F.normalize(F.layer_norm(feats, feats.shape[-1:]) @ self.proj, dim=-1)
        return (z.bfloat16() @ self.codebook.bfloat16().t()).argmax(-1)


def span_mask(batch, frames, device, p=0.04, span=10):
    starts = (torch.rand(batch, 1, frames, device=device) < p).float()
    return F.max_pool1d(F.pad(starts, (span - 1, 0)), span, stride=1)[:, 0] > 0


def lr_at(i, peak=5e-4, warmup=2000):
    return peak * min((i + 1) / warmup, (warmup / (i + 1)) ** 0.5)


def build(cfg):
    mels, dim, heads, layers, codes = cfg.pick((160, 1280, 16, 8, 8192), (16, 32, 2, 2, 64))
    batch, frames, clips = cfg.pick((24, 768, 96), (2, 32, 4))
    model = SpeechEncoder(mels, dim, heads, layers, codes).to(cfg.device).train()
    quantizer = RandomProjectionQuantizer(mels, codes).to(cfg.device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lr_at(0), betas=(0.9, 0.98), weight_decay=0.01, fused=cfg.cuda
    )
    # stacked 80-bin filter banks of some long recordings, cut at random
    bank = torch.randn(clips, 2 * frames, mels, device=cfg.device)
    rng = torch.Generator().manual_seed(7)
    running = {"masked_accuracy": torch.zeros((), device=cfg.device)}

    def step(i):
        first = int(torch.randint(clips - batch + 1, (), generator=rng))
        offset = int(torch.randint(frames, (), generator=rng))
        feats = bank[first : first + batch, offset : offset + frames]
        targets = quantizer(feats)
        mask = span_mask(batch, frames, cfg.device)
        with cfg.amp():
            logits = model(feats, mask)
        per_frame = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        weight = mask.flatten().float()
        loss = (per_frame.float() * weight).sum() / weight.sum().clamp_min(1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = lr_at(i)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i % 50 == 0:
            with torch.no_grad():
                hit = (logits.argmax(-1) == targets) & mask
                running["masked_accuracy"] = hit.sum() / mask.sum().clamp_min(1)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
