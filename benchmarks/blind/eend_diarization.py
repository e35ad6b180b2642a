"""Self-attentive end-to-end neural diarization (SA-EEND): per-frame activity of three speakers, trained with a
permutation-free objective."""

from itertools import permutations

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# 64 recordings x 500 frames, d = 256, 4 layers. Matching: 64 x 6 permutations x 3 terms = 1152 reads cost[b, i, j].item(),
# each ~4 us of indexing + ~12 us of copy and wait: 16 to 20 ms in which the GPU does nothing but 1.5 us copies.
# Encoder bf16: 32k tokens x 3.3M x 6 = 0.63 TFLOP, 1.6 ms at these small widths; attention 0.7 ms; norms, ReLU,
# residuals and casts on 16 to 64 MB tensors ~2.5 ms: the GPU is busy ~5 ms. Launching them: forward 2 ms, backward +
# fused Adam 3 ms; partly overlapped. Step ~24 ms: the GPU waits for ~19 (about 80 %).
TRUTH = {
    "regime": "overhead",
    "cause": "sync: the permutation search reads the cost matrix element by element with .item(), 1152 times a step",
    "advice": ["sync-point"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "fuse-pointwise",
        "flash-attention",
        "pin-memory",
        "tensor-core-alignment",
        "fused-optimizer",
    ],
}

PERMS = list(permutations(range(3)))


class EncoderLayer(nn.Module):
    def __init__(self, n_units, h, e_units, p=0.1):
        super().__init__()
        self.h, self.p = h, p
        self.lnorm1 = nn.LayerNorm(n_units)
        self.in_proj = nn.Linear(n_units, 3 * n_units)
        self.out_proj = nn.Linear(n_units, n_units)
        self.lnorm2 = nn.LayerNorm(n_units)
        self.ff = nn.Sequential(
            nn.Linear(n_units, e_units), nn.ReLU(), nn.Dropout(p), nn.Linear(e_units, n_units)
        )

    def forward(self, e):
        b, t, n = e.shape
        qkv = self.in_proj(self.lnorm1(e)).view(b, t, 3, self.h, n // self.h)
        q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
        s = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)
        e = e + F.dropout(self.out_proj(s.transpose(1, 2).reshape(b, t, n)), self.p, self.training)
        return e + F.dropout(self.ff(self.lnorm2(e)), self.p, self.training)


class EEND(nn.Module):
    def __init__(self, idim, n_units, h, layers, n_speakers):
        super().__init__()
        self.linear_in = nn.Linear(idim, n_units)
        self.layers = nn.ModuleList([EncoderLayer(n_units, h, 4 * n_units) for _ in range(layers)])
        self.lnorm_out = nn.LayerNorm(n_units)
        self.linear_out = nn.Linear(n_units, n_speakers)

    def forward(self, x):
        e = self.linear_in(x)
        for layer in self.layers:
            e = layer(e)
        return self.linear_out(self.lnorm_out(e))


@torch.no_grad()
def pairwise_bce(logits, labels):
    """cost[b, i, j]: mean BCE of output i against reference speaker j."""
    frames = logits.shape[1]
    cross = torch.einsum("bti,btj->bij", logits, labels) / frames
    return F.softplus(logits).mean(1).unsqueeze(2) - cross


def find_permutations(cost):
    best = []
    for b in range(cost.shape[0]):
        totals = []
        for perm in PERMS:
            totals.append(sum(cost[b, i, j].item() for i, j in enumerate(perm)))
        best.append(PERMS[totals.index(min(totals))])
    return best


def pit_loss(logits, labels):
    logits = logits.float()
    order = find_permutations(pairwise_bce(logits, labels))
    index = torch.tensor(order, device=logits.device).unsqueeze(1).expand_as(labels)
    return F.binary_cross_entropy_with_logits(logits, labels.gather(2, index))


class NoamScheduler(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer, d_model, warmup, scale=1.0):
        def rate(step):
            step = step + 1
            return scale * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)

        super().__init__(optimizer, rate)


def simulate(cfg, recordings, frames, idim):
    """Mixtures whose speakers come and go; features carry the activity plus noise."""
    with cfg.device:
        toggles = (torch.rand(recordings, frames, 3) < 0.03).cumsum(1)
        activity = ((toggles + torch.randint(2, (recordings, 1, 3))) % 2).float()
        voices = torch.randn(recordings, 3, idim)
        feats = torch.bmm(activity, voices) + 0.5 * torch.randn(recordings, frames, idim)
    return feats.to(torch.bfloat16), activity


def build(cfg):
    batch, frames, idim = cfg.pick((64, 500, 320), (3, 20, 16))
    n_units, h, layers = cfg.pick((256, 4, 4), (16, 2, 1))
    model = EEND(idim, n_units, h, layers, 3).to(cfg.device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=cfg.cuda
    )
    scheduler = NoamScheduler(optimizer, n_units, 25000)
    feats, activity = simulate(cfg, 8 * batch, frames, idim)
    model.train()

    def step(i):
        rows = slice(batch * (i % 8), batch * (i % 8 + 1))
        with cfg.amp():
            logits = model(feats[rows])
        loss = pit_loss(logits, activity[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
