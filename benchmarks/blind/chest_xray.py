"""Multi-label chest X-ray classifier, ResNet-50 shape, with a chatty experiment logger."""

import json
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

TRUTH = {
    "regime": "overhead",
    "cause": "sync: per-parameter norms read with .item() every step, histograms every fourth",
    "advice": ["logging-stall"],
    "not_advice": [
        "dataloader-stall",
        "channels-last",
        "enable-tf32-or-amp",
        "fused-optimizer",
        "flash-attention",
        "pin-memory",
        "bigger-batch",
        "checkpoint-stall",
    ],
}
# GPU work: ResNet-50, 48 x 224^2, bf16, channels last: ~2900 images/s = 17 ms a step.
# Every step 161 parameters x 2 norms, each a small reduction + .item(), ~40 us: 13 ms.
# Every 4th step 161 x 2 tensors x (histc 80 us + its copy 30 us + 4 x .item() 140 us) = 80 ms,
# i.e. 20 ms a step.  Step ~50 ms, of which ~33 ms (66 %) the GPU waits or reduces tiny tensors.


class ScalarLog:
    """A stand-in for a SummaryWriter: one JSON line a record."""

    def __init__(self, folder):
        self.file = (Path(folder) / "events.jsonl").open("w")

    def scalar(self, tag, value, k):
        self.file.write(json.dumps({"tag": tag, "step": k, "value": value}) + "\n")

    def histogram(self, tag, t, k, bins=64):
        row = {"tag": tag, "step": k, "counts": torch.histc(t, bins).tolist()}
        row.update(min=t.min().item(), max=t.max().item())
        row.update(mean=t.mean().item(), std=t.std().item())
        self.file.write(json.dumps(row) + "\n")
        if self.file.tell() > 64 << 20:
            self.file.seek(0)

    def close(self):
        self.file.close()


def conv_bn(cin, cout, k, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, k, stride, k // 2, bias=False), nn.BatchNorm2d(cout))


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, stride):
        super().__init__()
        cout = 4 * mid
        self.a = conv_bn(cin, mid, 1)
        self.b = conv_bn(mid, mid, 3, stride)
        self.c = conv_bn(mid, cout, 1)
        self.down = conv_bn(cin, cout, 1, stride) if stride > 1 or cin != cout else None

    def forward(self, x):
        y = F.relu(self.a(x), inplace=True)
        y = F.relu(self.b(y), inplace=True)
        y = self.c(y)
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


def resnet(width, depths, findings):
    layers = [conv_bn(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    cin = width
    for s, depth in enumerate(depths):
        for b in range(depth):
            mid = width << s
            layers.append(Bottleneck(cin, mid, 2 if s and b == 0 else 1))
            cin = 4 * mid
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, findings))


def build(cfg):
    batch, side, findings = cfg.pick((48, 224, 14), (2, 32, 14))
    model = resnet(cfg.pick(64, 4), cfg.pick((3, 4, 6, 3), (1, 1, 1, 1)), findings)
    model = model.to(cfg.device, memory_format=torch.channels_last)
    with cfg.device:
        scans = torch.randn(8, batch, 1, side, side).repeat(1, 1, 3, 1, 1)
        labels = (torch.rand(8, batch, findings) < 0.1).float()
        pos_weight = torch.full((findings,), 4.0)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True, fused=True
    )
    folder = tempfile.TemporaryDirectory()
    log = ScalarLog(folder.name)
    cfg.at_exit(folder.cleanup)
    cfg.at_exit(log.close)

    def watch(k):
        for name, p in model.named_parameters():
            log.scalar(f"grad_norm/{name}", p.grad.norm().item(), k)
            log.scalar(f"weight_norm/{name}", p.detach().norm().item(), k)
        if k % 4 == 0:
            for name, p in model.named_parameters():
                log.histogram(f"weights/{name}", p.detach(), k)
                log.histogram(f"grads/{name}", p.grad, k)

    def step(i):
        x = scans[i % 8].contiguous(memory_format=torch.channels_last)
        with cfg.amp():
            logits = model(x)
        loss = F.binary_cross_entropy_with_logits(
            logits.float(), labels[i % 8], pos_weight=pos_weight
        )
        loss.backward()
        watch(i)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
