"""Event-token GPT for piano music in strict fp32: TF32 switched off "for reproducibility", SDPA, EMA."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 4x1024 tokens, d 1024, 7 layers: 88 M weights, heads (pitch/time/velocity) 4.2 M.
# SIMT sgemm: 6*92e6*4096 = 2.27 TFLOP at ~48 TFLOP/s = 47 ms; fp32 memory-efficient attention
# (0.18 TFLOP causal at ~15 TFLOP/s) 12 ms. Norms, GELU, dropout, residuals ~70 passes of 17-67 MB
# a layer, ~12 GB = 3 ms; AdamW + EMA + clip over 94 M weights (~52 B each) 5 GB = 1.3 ms.
# Compute 59 of ~64 ms. Under TF32 the products would take ~7 ms.
TRUTH = {
    "regime": "compute",
    "cause": "fp32 matrix products on the CUDA cores: TF32 off and no autocast",
    "advice": ["enable-tf32-or-amp"],
    "not_advice": [
        "channels-last",
        "tensor-core-alignment",
        "launch-bound-compile",
        "sync-point",
        "dataloader-stall",
        "pin-memory",
        "fused-optimizer",
        "none-healthy",
    ],
}

FIELDS = {"pitch": 1024, "time": 2048, "velocity": 1024}


class Layer(nn.Module):
    def __init__(self, d, heads, p):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_f = nn.LayerNorm(d), nn.LayerNorm(d)
        self.to_q, self.to_kv = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.out = nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(p))

    def forward(self, x):
        b, t, d = x.shape
        h = self.norm_a(x)
        q = self.to_q(h).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.to_kv(h).view(b, t, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.norm_f(x))


class MusicModel(nn.Module):
    def __init__(self, d, heads, depth, context, fields):
        super().__init__()
        self.embed = nn.ModuleDict({k: nn.Embedding(n, d) for k, n in fields.items()})
        self.place = nn.Parameter(0.02 * torch.randn(context, d))
        self.layers = nn.Sequential(*[Layer(d, heads, 0.1) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.heads = nn.ModuleDict({k: nn.Linear(d, n) for k, n in fields.items()})

    def forward(self, events):
        x = self.place + sum(self.embed[k](events[k]) for k in self.embed)
        x = self.norm(self.layers(x))
        return {k: head(x) for k, head in self.heads.items()}


class Trainer:
    def __init__(self, cfg):
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_tf32 = False
        d, heads, depth, context, self.batch = cfg.pick((1024, 16, 7, 1024, 4), (64, 4, 2, 32, 2))
        fields = cfg.pick(FIELDS, dict.fromkeys(FIELDS, 64))
        with cfg.device:
            self.model = MusicModel(d, heads, depth, context, fields)
            self.songs = [
                {k: torch.randint(n, (self.batch, context + 1)) for k, n in fields.items()}
                for _ in range(6)
            ]
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=2e-4, total_steps=1_000_000
        )

    def loss(self, song):
        logits = self.model({k: v[:, :-1] for k, v in song.items()})
        parts = [F.cross_entropy(logits[k].flatten(0, 1), song[k][:, 1:].flatten()) for k in logits]
        return torch.stack(parts).mean()

    @torch.no_grad()
    def update_average(self, decay=0.999):
        torch._foreach_lerp_(
            list(self.average.parameters()), list(self.model.parameters()), 1 - decay
        )

    def step(self, i):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.songs[i % len(self.songs)])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.schedule.step()
        self.update_average()
        return loss.detach()


def build(cfg):
    return Trainer(cfg).step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
