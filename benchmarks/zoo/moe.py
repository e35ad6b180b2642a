"""A mixture of experts routed in a Python loop: index, scatter and one product an expert."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "overhead",
    "advice": ["sync-point"],
    "not_advice": ["dataloader-stall", "flash-attention", "channels-last", "pin-memory"],
}


def build(s: Setting) -> Step:
    dim, experts, tokens = s.pick(1024, 16), s.pick(16, 4), s.pick(8192, 32)
    router = nn.Linear(dim, experts, bias=False).to(s.device, torch.bfloat16)
    ffn = nn.ModuleList(
        nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        for _ in range(experts)
    )
    ffn = ffn.to(s.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(
        [*router.parameters(), *ffn.parameters()], lr=1e-4, fused=s.device.type == "cuda"
    )
    x = torch.randn(tokens, dim, device=s.device, dtype=torch.bfloat16)

    def step(i: int) -> torch.Tensor:
        weight, chosen = router(x).float().softmax(-1).topk(2)
        y = torch.zeros_like(x)
        for e, expert in enumerate(ffn):
            rows, slot = (chosen == e).nonzero(as_tuple=True)
            y.index_add_(0, rows, expert(x[rows]) * weight[rows, slot].unsqueeze(1).to(x.dtype))
        loss = F.mse_loss(y.float(), x.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
