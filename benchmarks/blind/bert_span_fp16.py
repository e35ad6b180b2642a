"""Fine-tune a DistilBERT-size encoder for extractive question answering, fp16 with loss scaling.

Micro batches of 16, accumulated twice, clipped, linear schedule. Someone ran out of memory
on a smaller card once and left torch.cuda.empty_cache() behind every micro batch.
"""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from _common import forever, main
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "regime": "overhead",
    "cause": "allocator: empty_cache() after every micro batch, so each one starts with cudaMalloc",
    "advice": ["allocation-churn"],
    "not_advice": [
        "none-healthy",
        "dataloader-stall",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
        "activation-checkpointing",
        "tensor-core-alignment",
    ],
}
# Micro batch: 16*256 = 4096 tokens, 6 layers of 7.1 M: 6*4096*43e6 = 1.05 TFLOP at ~450 = 2.4 ms,
# plus eager autocast pointwise (fp32 residual 12.6 MB, ffn 25 MB) ~3 ms: the GPU is busy ~5.5 ms.
# Dispatch of ~700 kernels ~5 ms. Segments: ~9 a layer (>10 MB each, or 20 MB pools), casts, grads:
# ~60 cudaMalloc + 60 cudaFree at ~0.15 ms = 18 ms, free after a device sync, so hardly overlapped.
# 2 micro batches * ~24 ms + clip and AdamW 66 M fp32 ~1 ms = ~49 ms, busy ~12 ms: overhead ~75 %
# (at 0.05 ms a call still ~11 ms a micro batch with 5.5 ms busy: overhead 50 %).


class SquadLike(Dataset):
    """Already tokenised: [CLS] question [SEP] context [SEP], padded to max_len."""

    def __init__(self, count, max_len, vocab):
        rnd = random.Random(3)
        self.ids = torch.randint(5, vocab, (count, max_len))
        self.types = torch.zeros(count, max_len, dtype=torch.long)
        self.mask = torch.ones(count, max_len, dtype=torch.bool)
        self.spans = torch.zeros(count, 2, dtype=torch.long)
        for n in range(count):
            q = rnd.randint(6, max_len // 4)
            end = rnd.randint(max_len // 2, max_len)
            self.types[n, q:end] = 1
            self.mask[n, end:] = False
            self.ids[n, end:] = 0
            first = rnd.randint(q, end - 4)
            self.spans[n] = torch.tensor((first, first + rnd.randint(0, 3)))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, n):
        return self.ids[n], self.types[n], self.mask[n], self.spans[n]


class EncoderLayer(nn.Module):
    def __init__(self, d, heads, p):
        super().__init__()
        self.heads, self.p = heads, p
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.norm1 = nn.LayerNorm(d, eps=1e-12)
        self.lin1 = nn.Linear(d, 4 * d)
        self.lin2 = nn.Linear(4 * d, d)
        self.norm2 = nn.LayerNorm(d, eps=1e-12)
        self.drop = nn.Dropout(p)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=self.p if self.training else 0.0
        )
        x = self.norm1(x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, d))))
        return self.norm2(x + self.drop(self.lin2(F.gelu(self.lin1(x)))))


class SpanModel(nn.Module):
    def __init__(self, vocab, d, heads, layers, max_len, p=0.1):
        super().__init__()
        self.word = nn.Embedding(vocab, d, padding_idx=0)
        self.position = nn.Embedding(max_len, d)
        self.kind = nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, eps=1e-12)
        self.drop = nn.Dropout(p)
        self.layers = nn.ModuleList(EncoderLayer(d, heads, p) for _ in range(layers))
        self.qa_outputs = nn.Linear(d, 2)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids, types, mask):
        at = torch.arange(ids.shape[1], device=ids.device)
        x = self.drop(self.norm(self.word(ids) + self.position(at) + self.kind(types)))
        wide = mask[:, None, None, :]
        for layer in self.layers:
            x = layer(x, wide)
        logits = self.qa_outputs(x).float().masked_fill(~mask[..., None], -1e4)
        return logits.unbind(-1)


def build(cfg):
    vocab, d, heads, layers = cfg.pick((30528, 768, 12, 6), (200, 48, 4, 2))
    micro, max_len, accumulate = cfg.pick((16, 256, 2), (2, 32, 2))
    data = SquadLike(cfg.pick(1536, 16), max_len, vocab)
    loader = DataLoader(data, batch_size=micro, shuffle=True, drop_last=True, pin_memory=cfg.cuda)
    batches = forever(loader)
    model = SpanModel(vocab, d, heads, layers, max_len).to(cfg.device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=500)
    scaler = torch.amp.GradScaler(cfg.device.type, enabled=cfg.cuda)
    half = torch.float16 if cfg.cuda else torch.bfloat16

    def step(i):
        total = torch.zeros((), device=cfg.device)
        for _ in range(accumulate):
            ids, types, mask, spans = (t.to(cfg.device, non_blocking=True) for t in next(batches))
            with cfg.amp(half):
                start, end = model(ids, types, mask)
                loss = (F.cross_entropy(start, spans[:, 0]) + F.cross_entropy(end, spans[:, 1])) / 2
                loss = loss / accumulate
            scaler.scale(loss).backward()
            total += loss.detach()
            del start, end, loss
            torch.cuda.empty_cache()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
