"""AlphaZero-style learner for 9x9 Go with a prioritised replay buffer."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import main

# Host: the sum tree is plain Python, 2^17 leaves. Sampling 2048 descends 17 levels each (~1.8 us) = 3.7 ms,
# 2048 + 64 new priorities climb 17 levels (~1.7 us) = 3.5 ms, powers and lists 1 ms; ~200 launches ~2.5 ms.
# GPU: 2048 x 81 x 96 channels (bf16, 32 MB): a 3x3 convolution is 28 GFLOP, ~0.06 ms; 9 of them with
# gradients 1.7 ms, batch norm / ReLU / adds 9 x 0.12 = 1.1 ms, heads + gathers + SGD 0.4 ms: ~3.2 ms.
# Step = host ~10.5 ms, GPU busy ~30 % of it: overhead ~70 %. The tree in numpy (17 vector operations
# each way, < 0.5 ms) leaves ~3.3 ms: -65 %.
TRUTH = {
    "regime": "overhead",
    "cause": "host: the prioritised replay's sum tree is walked leaf by leaf in Python each step",
    "advice": ["python-overhead"],
    "not_advice": [
        "fuse-pointwise",
        "enable-tf32-or-amp",
        "channels-last",
        "flash-attention",
        "pin-memory",
        "sync-point",
        "fused-optimizer",
        "gc-pause",
    ],
}


class SumTree:
    """Binary tree of priority sums: leaves hold priorities, sampling is O(log n)."""

    def __init__(self, capacity):
        assert capacity & (capacity - 1) == 0
        self.capacity = capacity
        self.nodes = [0.0] * (2 * capacity)

    def rebuild(self, priorities):
        self.nodes[self.capacity :] = priorities
        for n in range(self.capacity - 1, 0, -1):
            self.nodes[n] = self.nodes[2 * n] + self.nodes[2 * n + 1]

    def update(self, leaf, priority):
        nodes = self.nodes
        n = leaf + self.capacity
        nodes[n] = priority
        n >>= 1
        while n:
            nodes[n] = nodes[2 * n] + nodes[2 * n + 1]
            n >>= 1

    def find(self, mass):
        nodes, capacity = self.nodes, self.capacity
        n = 1
        while n < capacity:
            n *= 2
            left = nodes[n]
            if mass >= left:
                mass -= left
                n += 1
        return n - capacity

    def sample(self, k):
        total = self.nodes[1]
        segment = total / k
        leaves = [self.find((j + random.random()) * segment) for j in range(k)]
        weights = [self.nodes[leaf + self.capacity] / total for leaf in leaves]
        return leaves, weights


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(ch)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + x, inplace=True)


class PolicyValueNet(nn.Module):
    def __init__(self, planes, ch, blocks, size):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(planes, ch, 3, padding=1, bias=False), nn.BatchNorm2d(ch), nn.ReLU(True)
        )
        self.tower = nn.Sequential(*[ResBlock(ch) for _ in range(blocks)])
        self.p_conv, self.v_conv = nn.Conv2d(ch, 8, 1), nn.Conv2d(ch, 8, 1)
        self.p_out = nn.Linear(8 * size * size, size * size + 1)
        self.v_hidden, self.v_out = nn.Linear(8 * size * size, 64), nn.Linear(64, 1)

    def forward(self, x):
        x = self.tower(self.stem(x))
        p = self.p_out(F.relu(self.p_conv(x)).flatten(1))
        v = F.relu(self.v_hidden(F.relu(self.v_conv(x)).flatten(1)))
        return p, torch.tanh(self.v_out(v)).squeeze(-1)


class Mailbox:
    """Pinned host buffers in a ring, so that neither side waits for the other."""

    def __init__(self, cfg, n, dtype, depth=4):
        self.cuda = cfg.cuda
        self.slots = [torch.zeros(n, dtype=dtype, pin_memory=cfg.cuda) for _ in range(depth)]
        self.events = [torch.cuda.Event() if cfg.cuda else None for _ in range(depth)]

    def slot(self, i):
        return self.slots[i % len(self.slots)]

    def fetch(self, i, tensor):
        self.slot(i).copy_(tensor, non_blocking=True)
        if self.cuda:
            self.events[i % len(self.events)].record()

    def read(self, i):
        if self.cuda:
            self.events[i % len(self.events)].synchronize()
        return self.slot(i).tolist()


def build(cfg):
    size, planes = 9, 17
    ch, blocks, batch, capacity, fresh = cfg.pick((96, 4, 2048, 1 << 17, 64), (8, 1, 16, 256, 4))
    random.seed(3)
    device = cfg.device
    net = PolicyValueNet(planes, ch, blocks, size).to(device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, fused=True)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [100_000, 200_000], gamma=0.1)

    # Positions live on the GPU as bytes; the actors' games are stood in for by random ones.
    boards = torch.randint(2, (capacity, planes, size, size), dtype=torch.uint8, device=device)
    visits = torch.rand(capacity, size * size + 1, device=device).pow_(8)
    visits = (visits / visits.sum(1, keepdim=True)).half()
    outcomes = torch.randint(2, (capacity,), device=device).float().mul_(2).sub_(1)

    tree = SumTree(capacity)
    tree.rebuild([random.random() + 0.1 for _ in range(capacity)])
    leaves_of = {}
    index_box = Mailbox(cfg, batch, torch.int64)
    weight_box = Mailbox(cfg, batch, torch.float32)
    error_box = Mailbox(cfg, batch, torch.float32)
    cursor = 0

    def step(i):
        nonlocal cursor
        # Priorities of the batch before last: its errors have long arrived.
        if i - 2 in leaves_of:
            for leaf, err in zip(leaves_of.pop(i - 2), error_box.read(i - 2)):
                tree.update(leaf, (err + 1e-3) ** 0.6)
        for _ in range(fresh):  # newly played positions enter with top priority
            tree.update(cursor, 1.1)
            cursor = (cursor + 1) % capacity
        leaves, probs = tree.sample(batch)
        leaves_of[i] = leaves
        floor = min(probs)
        index_box.slot(i).copy_(torch.tensor(leaves))
        weight_box.slot(i).copy_(torch.tensor([(floor / p) ** 0.4 for p in probs]))

        idx = index_box.slot(i).to(device, non_blocking=True)
        weight = weight_box.slot(i).to(device, non_blocking=True)
        x = boards.index_select(0, idx).float().contiguous(memory_format=torch.channels_last)
        pi, z = visits.index_select(0, idx).float(), outcomes.index_select(0, idx)
        with cfg.amp():
            logits, value = net(x)
        p_loss = -(pi * F.log_softmax(logits.float(), dim=1)).sum(1)
        v_loss = (value.float() - z).square()
        loss = (weight * (p_loss + v_loss)).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        error_box.fetch(i, v_loss.detach().sqrt())
        return loss.detach()

    return step


if __name__ == "__main__":
    main(__file__, TRUTH, build)
