"""Direct preference optimisation of a GPT-2-like model (vocabulary 50257) with a frozen reference."""

# Arithmetic (H200): 4 pairs x 2 x 1024 = 8192 tokens, d 1024, 6 layers (75M), bf16 weights.
# Blocks: policy 6 x + reference 2 x 8192 x 75M = 4.9 TFLOP 8 ms, flash attention 0.5 ms, pointwise 4 ms.
# Head 8192x1024x50257: 4 products (3 policy, 1 reference) of 0.84 TFLOP = 3.4 TFLOP; rows of 50257 bf16 are
# only 2-byte aligned: at about 150 TFLOP/s 22 ms (aligned: 5.5 ms). fp32 log-softmax of 412M logits:
# 20 GB 5 ms. Sum 40 ms: compute 31 ms (76 %), memory 9 ms (23 %). Aligned: 23 ms.

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "compute",
    "cause": "vocabulary of 50257: rows of the logits are not 16-byte aligned, slow head GEMMs",
    "advice": ["tensor-core-alignment"],
    "not_advice": [
        "dataloader-stall",
        "launch-bound-compile",
        "sync-point",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
    ],
}


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.c_attn(self.ln_1(h)).chunk(3, -1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.c_proj(a.transpose(1, 2).flatten(2))
        return h + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(h)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocab, width, heads, depth, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        where = torch.arange(ids.size(1), device=ids.device)
        h = self.h(self.wte(ids) + self.wpe(where))
        return self.ln_f(h) @ self.wte.weight.T  # tied head


def sequence_logp(model, ids, answer):
    """Sum of log p(token) over the answer's tokens, one figure per sequence."""
    logits = model(ids[:, :-1]).float()
    token_logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (token_logp * answer[:, 1:]).sum(-1)


def build(cfg, vocabs=(50257, 257)):
    vocab = cfg.pick(*vocabs)
    pairs, context, width, heads, depth = cfg.pick((4, 1024, 1024, 16, 6), (1, 16, 32, 4, 1))
    beta, warmup = 0.1, 20
    with cfg.device:
        policy = GPT2(vocab, width, heads, depth, context).to(torch.bfloat16)
    reference = copy.deepcopy(policy).requires_grad_(False).eval()
    decay = [p for p in policy.parameters() if p.dim() >= 2]
    plain = [p for p in policy.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=5e-6,
        fused=True,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / warmup))

    batches = []
    for _ in range(3):
        # chosen answers first, rejected ones second; the prompt is the first quarter
        ids = torch.randint(vocab - 1, (2 * pairs, context + 1))
        ids[pairs:, : context // 4] = ids[:pairs, : context // 4]
        answer = torch.zeros(2 * pairs, context + 1)
        answer[:, context // 4 :] = 1
        batches.append((ids.to(cfg.device), answer.to(cfg.device)))
    reward_margin = torch.zeros((), device=cfg.device)  # running mean, read by nobody in the loop

    def step(i):
        ids, answer = batches[i % 3]
        with torch.no_grad():
            ref = sequence_logp(reference, ids, answer)
        logp = sequence_logp(policy, ids, answer)
        chosen, rejected = (logp - ref).split(pairs)
        margin = beta * (chosen - rejected)
        loss = -F.logsigmoid(margin).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        reward_margin.lerp_(margin.detach().mean(), 0.01)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
