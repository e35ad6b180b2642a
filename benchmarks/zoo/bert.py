"""A masked language model in plain fp32 with TF32 off: products on the CUDA cores, dropout, embeddings tied to the head."""

import torch
from harness import Setting, Step, main
from torch import nn
from torch.nn import functional as F

TRUTH = {
    "regime": "compute",
    "advice": ["enable-tf32-or-amp"],
    "not_advice": [
        "dataloader-stall",
        "sync-point",
        "flash-attention",
        "channels-last",
        "tensor-core-alignment",
        "launch-bound-compile",
    ],
}


def build(s: Setting) -> Step:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dim, vocab, t = s.pick(768, 32), s.pick(30522, 60), s.pick(128, 16)
    layer = nn.TransformerEncoderLayer(dim, s.pick(12, 2), 4 * dim, 0.1, "gelu", batch_first=True)
    body = nn.TransformerEncoder(layer, s.pick(4, 1)).to(s.device)
    words, places = nn.Embedding(vocab, dim).to(s.device), nn.Embedding(t, dim).to(s.device)
    parts = nn.ModuleList((body, words, places))
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4)
    ids = torch.randint(vocab, (s.pick(32, 2), t), device=s.device)
    chosen = torch.rand(ids.shape, device=s.device).argsort(1)[:, : t // 8]
    targets = ids.gather(1, chosen)
    hidden = ids.scatter(1, chosen, 3)
    at = torch.arange(t, device=s.device)

    def step(i: int) -> torch.Tensor:
        h = body(words(hidden) + places(at))
        picked = h.gather(1, chosen.unsqueeze(-1).expand(-1, -1, dim))
        logits = picked @ words.weight.T
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
