"""A recurrent acoustic model over long sequences: cuDNN LSTM, thousands of small dependent products."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "overhead",
    "advice": [],
    "not_advice": ["dataloader-stall", "sync-point", "pin-memory", "flash-attention"],
}


def build(s: Setting) -> Step:
    hidden, frames, batch = s.pick(512, 16), s.pick(400, 20), s.pick(16, 2)
    lstm = nn.LSTM(80, hidden, 3, batch_first=True, bidirectional=True).to(s.device)
    head = nn.Linear(2 * hidden, 64).to(s.device)
    optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=1e-4)
    x = torch.randn(batch, frames, 80, device=s.device)
    y = torch.randint(64, (batch, frames), device=s.device)

    def step(i: int) -> torch.Tensor:
        logits = head(lstm(x)[0])
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
