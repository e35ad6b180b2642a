"""A vision transformer in fp16 under autocast with a gradient scaler: odd token counts, residuals in fp32."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "compute",
    "advice": [],
    "not_advice": ["pin-memory", "flash-attention", "enable-tf32-or-amp", "launch-bound-compile"],
}


class ViT(nn.Module):
    def __init__(self, dim: int, heads: int, depth: int, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.places = nn.Parameter(torch.zeros(1, (side // 16) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.token.expand(len(h), -1, -1), h), 1) + self.places
        return self.head(self.body(h)[:, 0])


def build(s: Setting) -> Step:
    dim, heads, side = s.pick(768, 32), s.pick(12, 2), s.pick(224, 32)
    model = ViT(dim, heads, s.pick(4, 1), side).to(s.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    scaler = torch.amp.GradScaler(s.device.type)
    x = torch.randn(s.pick(192, 2), 3, side, side, device=s.device)
    y = torch.randint(1000, (len(x),), device=s.device)

    def step(i: int) -> torch.Tensor:
        with torch.autocast(s.device.type, torch.float16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
