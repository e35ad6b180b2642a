"""Gated dilated convolutions over raw audio in fp32: long rows, few channels, pointwise work between all of them."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "memory",
    "advice": ["fuse-pointwise"],
    "not_advice": ["dataloader-stall", "sync-point", "pin-memory", "flash-attention"],
}


class Gated(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.past = dilation
        self.both = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.skip, self.on = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.both(F.pad(x, (self.past, 0))).chunk(2, 1)
        h = torch.tanh(a) * torch.sigmoid(b)
        return x + self.on(h), self.skip(h)


def build(s: Setting) -> Step:
    width, samples, depth = s.pick(64, 4), s.pick(16000, 64), s.pick(8, 2)
    enter = nn.Embedding(256, width).to(s.device)
    layers = nn.ModuleList(Gated(width, 2**d) for d in range(depth)).to(s.device)
    leave = nn.Conv1d(width, 256, 1).to(s.device)
    parts = nn.ModuleList((enter, layers, leave))
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3)
    x = torch.randint(256, (s.pick(16, 2), samples), device=s.device)

    def step(i: int) -> torch.Tensor:
        h = enter(x).transpose(1, 2)
        heard: torch.Tensor | float = 0.0
        for layer in layers:
            h, skip = layer(h)
            heard = heard + skip
        logits = leave(F.relu(heard))
        loss = F.cross_entropy(logits[:, :, :-1], x[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
