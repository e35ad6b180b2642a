"""GRPO in one file: sample groups of completions with a KV cache, score them, take a policy step."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "launch: 80 one-token decode passes of ~160 microscopic kernels each; they dwarf the update",
    "advice": ["launch-bound-compile"],
    "not_advice": [
        "none-healthy",
        "dataloader-stall",
        "sync-point",
        "enable-tf32-or-amp",
        "flash-attention",
        "pin-memory",
        "fused-optimizer",
        "tensor-core-alignment",
        "activation-checkpointing",
    ],
}
# Rollout: 80 tokens * (6 layers * 25 + 11) = 13 k launches; at 4-6 us each 52-77 ms of host. The GPU
# part of one is 2-6 us (64 rows a GEMM, 3-6 MB weights, grids under one wave): underfilled.
# Update: 64*128 = 8192 tokens, 68 M + 17 M head: 6.7 + 1.5 ms GEMMs, reference forward 2.5 ms,
# pointwise ~5 ms, log-probabilities 5120*16384 fp32 ~1.3 ms, AdamW 0.4 ms = ~17 ms, host hidden mostly.
# Sum ~85 ms: overhead ~75 %, compute ~12 %, memory ~10 %.


class Layer(nn.Module):
    def __init__(self, d, heads, kv_heads, ffn):
        super().__init__()
        self.h, self.kv, self.hd = heads, kv_heads, d // heads
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv = nn.Linear(d, (heads + 2 * kv_heads) * self.hd, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.gate = nn.Linear(d, ffn, bias=False)
        self.up = nn.Linear(d, ffn, bias=False)
        self.down = nn.Linear(ffn, d, bias=False)

    def forward(self, x, rope, cache=None, pos=0):
        b, t, d = x.shape
        qkv = self.qkv(self.n1(x)).view(b, t, -1, self.hd).transpose(1, 2)
        q, k, v = qkv.split((self.h, self.kv, self.kv), dim=1)
        cos, sin = rope[0][pos : pos + t], rope[1][pos : pos + t]
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        if cache is not None:
            keys, values = cache
            keys[:, :, pos : pos + t] = k
            values[:, :, pos : pos + t] = v
            k, v = keys[:, :, : pos + t], values[:, :, : pos + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Policy(nn.Module):
    def __init__(self, vocab, d, heads, kv_heads, ffn, layers, context):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(Layer(d, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.lm_head.weight, std=0.02)
        hd = d // heads
        freq = 1.0 / 10000 ** (torch.arange(0, hd, 2) / hd)
        angle = torch.outer(torch.arange(context), freq).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, cache=None, pos=0):
        x = self.embed(ids)
        for n, layer in enumerate(self.layers):
            x = layer(x, (self.cos, self.sin), None if cache is None else cache[n], pos)
        return self.norm(x)

    def new_cache(self, rows, length):
        l0, w = self.layers[0], self.lm_head.weight
        shape = (rows, l0.kv, length, l0.hd)
        return [(w.new_zeros(shape), w.new_zeros(shape)) for _ in self.layers]


@torch.no_grad()
def generate(policy, prompts, new_tokens, temperature=1.0):
    rows, length = prompts.shape
    total = length + new_tokens
    out = torch.empty(rows, total, dtype=torch.long, device=prompts.device)
    out[:, :length] = prompts
    cache = policy.new_cache(rows, total)
    hidden = policy(prompts, cache, 0)[:, -1]
    for pos in range(length, total):
        logits = policy.lm_head(hidden).float() / temperature
        gumbel = -torch.empty_like(logits).exponential_().log()
        token = (logits + gumbel).argmax(-1)
        out[:, pos] = token
        if pos + 1 < total:
            hidden = policy(token[:, None], cache, pos)[:, -1]
    return out


def token_logps(model, ids, start):
    hidden = model(ids)[:, start - 1 : -1]
    logits = model.lm_head(hidden).float()
    picked = logits.gather(-1, ids[:, start:, None]).squeeze(-1)
    return picked - logits.logsumexp(-1)


def reward_fn(completions, vocab):
    """Verifiable toy reward: even tokens, and not the same one over and over."""
    even = (completions % 2 == 0).float().mean(1)
    repeats = (completions[:, 1:] == completions[:, :-1]).float().mean(1)
    return even - 0.5 * repeats


def build(cfg):
    size = cfg.pick((16384, 1024, 16, 4, 2816, 6), (128, 64, 4, 2, 128, 2))
    questions, group = cfg.pick((8, 8), (2, 3))
    prompt_len, new_tokens = cfg.pick((48, 80), (8, 8))
    vocab, clip, beta = size[0], 0.2, 0.04
    with cfg.device:
        policy = Policy(*size, prompt_len + new_tokens).to(torch.bfloat16)
        prompts = torch.randint(vocab, (64, prompt_len))
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    running = torch.zeros((), device=cfg.device)

    def step(i):
        at = (i * questions) % (len(prompts) - questions + 1)
        batch = prompts[at : at + questions].repeat_interleave(group, dim=0)

        ids = generate(policy, batch, new_tokens)

        rewards = reward_fn(ids[:, prompt_len:], vocab).view(questions, group)
        advantage = (rewards - rewards.mean(1, keepdim=True)) / (
            rewards.std(1, keepdim=True) + 1e-4
        )
        advantage = advantage.view(-1, 1)
        running.lerp_(rewards.mean(), 0.05)

        with torch.no_grad():
            ref = token_logps(reference, ids, prompt_len)
        logp = token_logps(policy, ids, prompt_len)
        ratio = torch.exp(logp - logp.detach())  # one update per rollout: on policy
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        kl = torch.exp(ref - logp) - (ref - logp) - 1
        loss = (beta * kl - surrogate).mean()

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
