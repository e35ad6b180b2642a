"""Feature distillation: a frozen wide ViT teaches a narrow one, layer by layer (as in FitNets / TinyViT)."""

from collections import deque

import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# H200, full size: 128 images x 196 patches = 25088 tokens. Teacher (d 768, 6 layers, no grad) 2.1 TFLOP =
# ~4 ms with its pointwise work; student (d 384, 6 layers) 1.6 TFLOP fwd+bwd = ~3.5 ms + ~4 ms pointwise; projections,
# losses, AdamW ~1.5 ms: ~13 ms of kernels (host ~700 launches = 6 ms, hidden).
# Plant: 4 feature maps of 25088 x 768 fp32 = 77 MB each go to pageable host memory every step, 308 MB at
# 4-8 GB/s (fresh pages each time) = 40-75 ms with the SMs idle. Step 55-90 ms, at least 3/4 of it copies.
# Reading a few rows every 200 steps instead: ~13 ms.
TRUTH = {
    "regime": "overhead",
    "cause": "exposed_copy: four whole feature maps are read back to the host in every step",
    "advice": ["readback-traffic"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "use-bf16",
        "flash-attention",
        "launch-bound-compile",
        "activation-checkpointing",
        "fused-optimizer",
        "none-healthy",
    ],
}


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Returns the pooled logits and the token features after half and after all layers."""

    def __init__(self, d, heads, depth, patches, patch_dim, classes):
        super().__init__()
        self.embed = nn.Linear(patch_dim, d)
        self.pos = nn.Parameter(0.02 * torch.randn(patches, d))
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, patches):
        x = self.embed(patches) + self.pos
        taps = []
        for k, layer in enumerate(self.layers, 1):
            x = layer(x)
            if k in (len(self.layers) // 2, len(self.layers)):
                taps.append(x)
        return self.head(self.norm(x).mean(1)), taps


def linear_cka(x, y):
    x, y = x - x.mean(0), y - y.mean(0)
    cross = (y.T @ x).norm() ** 2
    return float(cross / ((x.T @ x).norm() * (y.T @ y).norm() + 1e-12))


class SimilarityReport:
    """How alike the features are: linear CKA over some tokens, every `every` steps."""

    def __init__(self, every=200, keep=256):
        self.every, self.keep = every, keep
        self.latest = deque(maxlen=1)
        self.history = []

    def observe(self, i, student, teacher):
        pairs = [
            (s.detach().float().cpu(), t.detach().float().cpu()) for s, t in zip(student, teacher)
        ]
        self.latest.append(pairs)
        if i % self.every == self.every - 1:
            rows = [(s.flatten(0, 1)[: self.keep], t.flatten(0, 1)[: self.keep]) for s, t in pairs]
            self.history.append([linear_cka(s, t) for s, t in rows])


def build(cfg, report=None):
    batch, patches, patch_dim, classes = cfg.pick((128, 196, 768, 1000), (2, 9, 12, 10))
    wide, narrow, depth = cfg.pick(((768, 12), (384, 6), 6), ((16, 2), (8, 2), 2))
    report = report or SimilarityReport()
    with cfg.device:
        teacher = ViT(*wide, depth, patches, patch_dim, classes).to(torch.bfloat16)
        student = ViT(*narrow, depth, patches, patch_dim, classes).to(torch.bfloat16)
        project = nn.ModuleList(nn.Linear(narrow[0], wide[0]) for _ in range(2))
        project = project.to(torch.bfloat16)
        images = torch.randn(4, batch, patches, patch_dim, dtype=torch.bfloat16)
        labels = torch.randint(classes, (4, batch))
    teacher.eval().requires_grad_(False)
    params = [*student.parameters(), *project.parameters()]
    optimizer = torch.optim.AdamW(params, lr=5e-4, weight_decay=0.05, fused=True)
    temperature = 2.0

    def step(i):
        x, y = images[i % 4], labels[i % 4]
        with torch.no_grad():
            t_logits, t_taps = teacher(x)
        s_logits, s_taps = student(x)
        s_taps = [p(f) for p, f in zip(project, s_taps)]

        soft = F.kl_div(
            F.log_softmax(s_logits.float() / temperature, -1),
            F.softmax(t_logits.float() / temperature, -1),
            reduction="batchmean",
        )
        hint = sum(F.mse_loss(s, t) for s, t in zip(s_taps, t_taps))
        loss = F.cross_entropy(s_logits.float(), y) + temperature**2 * soft + hint.float()

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.observe(i, s_taps, t_taps)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
