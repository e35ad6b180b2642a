"""
DETR-like set prediction: CNN, transformer, 100 object queries, auxiliary losses.
Structure follows the original repository (backbone / transformer / matcher / criterion).
"""

import numpy as np
import torch
import torch.nn.functional as F
from harness import main
from torch import nn

# H200, 16 images of 384 x 384, CNN of ResNet-34 size in bf16 NHWC, 6+6 layers of d 256 over 144 tokens:
# CNN 1 TF at 300 = 3.5 ms + BN/ReLU 5 ms, transformer (small GEMMs) 5 ms: about 14 ms of kernels, 2500 launches = 16 ms of host.
# Matcher: 6 outputs x 16 images = 96 assignments of ~18 targets to 100 queries, numpy, ~0.45 ms each = 43 ms with the GPU drained
# (each output's cost matrix is awaited with .cpu(); six waits themselves cost under 1 ms beyond the work they wait for).
# Plus 200 tiny copies of indices, 3 ms. Sum about 65 ms: the GPU idles for three quarters of it.
TRUTH = {
    "regime": "overhead",
    "cause": "host: Hungarian matching in numpy, per image and decoder layer, while the GPU has nothing queued",
    "advice": ["host-stall"],
    "not_advice": [
        "dataloader-stall",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "tensor-core-alignment",
        "pin-memory",
        "fuse-pointwise",
        "activation-checkpointing",
    ],
}


def linear_sum_assignment(cost):
    """Shortest augmenting paths; cost is (rows <= columns); returns rows, columns."""
    n, m = cost.shape
    assert n <= m
    u, v = np.zeros(n + 1), np.zeros(m + 1)
    match = np.zeros(m + 1, dtype=np.int64)  # row of each column, 1-based, 0 = free
    for r in range(1, n + 1):
        match[0] = r
        j0 = 0
        least = np.full(m + 1, np.inf)
        way = np.zeros(m + 1, dtype=np.int64)
        used = np.zeros(m + 1, dtype=bool)
        while True:
            used[j0] = True
            i0 = match[j0]
            free = ~used
            free[0] = False
            reduced = cost[i0 - 1] - u[i0] - v[1:]
            better = free[1:] & (reduced < least[1:])
            least[1:][better] = reduced[better]
            way[1:][better] = j0
            masked = np.where(free, least, np.inf)
            j1 = int(masked.argmin())
            delta = masked[j1]
            u[match[used]] += delta
            v[used] -= delta
            least[free] -= delta
            j0 = j1
            if match[j0] == 0:
                break
        while j0:
            j1 = way[j0]
            match[j0] = match[j1]
            j0 = j1
    cols = np.nonzero(match[1:])[0]
    return match[1:][cols] - 1, cols


def box_cxcywh_to_xyxy(x):
    cx, cy, w, h = x.unbind(-1)
    return torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], dim=-1)


def generalized_box_iou(a, b):
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
    inter = (
        (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2]))
        .clamp(min=0)
        .prod(2)
    )
    union = area_a[:, None] + area_b - inter
    hull = (
        (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2]))
        .clamp(min=0)
        .prod(2)
    )
    return inter / union - (hull - union) / hull


class HungarianMatcher:
    @torch.no_grad()
    def __call__(self, outputs, targets):
        bs, num_queries = outputs["pred_logits"].shape[:2]
        out_prob = outputs["pred_logits"].flatten(0, 1).softmax(-1)
        out_bbox = outputs["pred_boxes"].flatten(0, 1)
        tgt_ids = torch.cat([v["labels"] for v in targets])
        tgt_bbox = torch.cat([v["boxes"] for v in targets])
        cost_bbox = torch.cdist(out_bbox, tgt_bbox, p=1)
        cost_giou = -generalized_box_iou(box_cxcywh_to_xyxy(out_bbox), box_cxcywh_to_xyxy(tgt_bbox))
        C = 5 * cost_bbox - out_prob[:, tgt_ids] + 2 * cost_giou
        C = C.view(bs, num_queries, -1).cpu()
        sizes = [len(v["boxes"]) for v in targets]
        indices = []
        for i, c in enumerate(C.split(sizes, -1)):
            tgt, src = linear_sum_assignment(np.nan_to_num(c[i].T.double().numpy()))
            indices.append((torch.as_tensor(src), torch.as_tensor(tgt)))
        return indices


class SetCriterion(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.matcher = HungarianMatcher()
        weight = torch.ones(num_classes + 1)
        weight[-1] = 0.1
        self.register_buffer("empty_weight", weight)
        self.num_classes = num_classes

    def one(self, outputs, targets, num_boxes):
        indices = self.matcher(outputs, targets)
        logits = outputs["pred_logits"]
        device = logits.device
        batch_idx = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)]).to(
            device
        )
        src_idx = torch.cat([src for src, _ in indices]).to(device)
        classes = torch.cat([t["labels"][j.to(device)] for t, (_, j) in zip(targets, indices)])
        boxes = torch.cat([t["boxes"][j.to(device)] for t, (_, j) in zip(targets, indices)])
        wanted = torch.full(logits.shape[:2], self.num_classes, dtype=torch.int64, device=device)
        wanted[batch_idx, src_idx] = classes
        loss = F.cross_entropy(logits.transpose(1, 2), wanted, self.empty_weight)
        pred = outputs["pred_boxes"][batch_idx, src_idx]
        loss = loss + 5 * F.l1_loss(pred, boxes, reduction="sum") / num_boxes
        giou = torch.diag(generalized_box_iou(box_cxcywh_to_xyxy(pred), box_cxcywh_to_xyxy(boxes)))
        return loss + 2 * (1 - giou).sum() / num_boxes

    def forward(self, outputs, targets):
        num_boxes = max(1, sum(len(t["labels"]) for t in targets))
        return sum(self.one(o, targets, num_boxes) for o in outputs)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.down is None else self.down(x)))


class DETR(nn.Module):
    def __init__(self, widths, depths, d, heads, layers, num_classes, num_queries, tokens):
        super().__init__()
        stages, cin = (
            [
                nn.Conv2d(3, widths[0], 7, 2, 3, bias=False),
                nn.BatchNorm2d(widths[0]),
                nn.ReLU(),
                nn.MaxPool2d(3, 2, 1),
            ],
            widths[0],
        )
        for k, (w, n) in enumerate(zip(widths, depths)):
            for j in range(n):
                stages.append(BasicBlock(cin, w, 2 if k and not j else 1))
                cin = w
        self.backbone = nn.Sequential(*stages)
        self.input_proj = nn.Conv2d(cin, d, 1)
        enc = nn.TransformerEncoderLayer(d, heads, 8 * d, 0.1, batch_first=True)
        dec = nn.TransformerDecoderLayer(d, heads, 8 * d, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, layers)
        self.decoder_layers = nn.TransformerDecoder(dec, layers).layers
        self.norm = nn.LayerNorm(d)
        self.pos = nn.Parameter(0.02 * torch.randn(tokens, d))
        self.query_embed = nn.Parameter(torch.randn(num_queries, d))
        self.class_embed = nn.Linear(d, num_classes + 1)
        self.bbox_embed = nn.Sequential(
            nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4)
        )

    def forward(self, images):
        src = self.input_proj(self.backbone(images)).flatten(2).transpose(1, 2)
        memory = self.encoder(src + self.pos)
        hs = self.query_embed.expand(len(images), -1, -1)
        outs = []
        for layer in self.decoder_layers:
            hs = layer(hs, memory)
            h = self.norm(hs)
            outs.append(
                {
                    "pred_logits": self.class_embed(h).float(),
                    "pred_boxes": self.bbox_embed(h).float().sigmoid(),
                }
            )
        return outs


def build(cfg):
    widths, depths, d, heads, layers = cfg.pick(
        ((64, 128, 256, 512), (3, 4, 6, 3), 256, 8, 6), ((8, 16), (1, 1), 32, 4, 2)
    )
    batch, side, num_queries = cfg.pick((16, 384, 100), (2, 32, 40))
    num_classes = 91
    tokens = (side // 2 ** (1 + len(widths))) ** 2
    model = DETR(widths, depths, d, heads, layers, num_classes, num_queries, tokens)
    model = model.to(cfg.device, memory_format=torch.channels_last)
    criterion = SetCriterion(num_classes).to(cfg.device)
    backbone = [p for n, p in model.named_parameters() if "backbone" in n]
    rest = [p for n, p in model.named_parameters() if "backbone" not in n]
    optimizer = torch.optim.AdamW(
        [{"params": rest}, {"params": backbone, "lr": 1e-5}], lr=1e-4, weight_decay=1e-4, fused=True
    )
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20_000)

    rng = np.random.default_rng(0)
    pool = []
    for _ in range(4):  # a few prefetched batches on the device
        images = torch.randn(batch, 3, side, side, device=cfg.device).contiguous(
            memory_format=torch.channels_last
        )
        targets = []
        for _ in range(batch):
            n = int(rng.integers(8, 29))
            boxes = np.concatenate(
                [rng.uniform(0.25, 0.75, (n, 2)), rng.uniform(0.05, 0.4, (n, 2))], 1
            )
            labels = rng.integers(0, num_classes, n)
            targets.append(
                {
                    "labels": torch.as_tensor(labels, device=cfg.device),
                    "boxes": torch.as_tensor(boxes, dtype=torch.float32, device=cfg.device),
                }
            )
        pool.append((images, targets))

    def step(i):
        images, targets = pool[i % len(pool)]
        with cfg.amp():
            outputs = model(images)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        lr_scheduler.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
