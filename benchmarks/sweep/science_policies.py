"""Parts of reinforcement learning: losses of policies and values, small networks, models of worlds, draws of plans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from cases import Case, Pool, Run
from science_parts import BF16, FP32, Part, learnt, listed, mlp, put, seen
from torch import nn
from torch.nn import functional as F


def ppo(rows: int, actions: int, p: Pool) -> Run:
    """Clipped, over classes, with values and entropy."""
    at, old, gain, back = p.index(actions, rows), p.randn(rows), p.randn(rows), p.randn(rows)

    def f(logits: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        said = torch.distributions.Categorical(logits=logits, validate_args=False)
        ratio = (said.log_prob(at) - old.detach()).clamp(-2, 2).exp()
        good = (gain - gain.mean()) / (gain.std() + 1e-8)
        clipped = torch.max(-good * ratio, -good * ratio.clamp(0.8, 1.2)).mean()
        return clipped + 0.5 * F.mse_loss(value, back) - 0.01 * said.entropy().mean()

    return learnt(p, f, p.leaf(rows, actions), p.leaf(rows))


def robots(rows: int, seen_: int, actions: int, p: Pool) -> Run:
    """PPO of thousands of simulated robots: an MLP and a Gaussian of fixed width."""
    n, a = p.n(seen_), p.n(actions)
    policy = mlp(p, n, 256, 128, a, act=nn.ELU)
    done, old, gain = p.randn(rows, a), p.randn(rows), p.randn(rows)

    def f(x: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
        mean, scale = policy(x), width.exp()
        log = (-0.5 * ((done - mean) / scale).square() - width).sum(-1)
        ratio = (log - old).clamp(-1, 1).exp()
        loss = -torch.min(gain * ratio, gain * ratio.clamp(0.8, 1.2)).mean()
        return loss - 0.005 * width.sum()

    return learnt(p, f, p.randn(rows, n), p.leaf(a), of=(policy,), fast=True)


def soft_actor(rows: int, seen_: int, actions: int, width: int, p: Pool) -> Run:
    """SAC's actor: a squashed draw and its likelihood."""
    a, w = p.n(actions), p.n(width)
    net = mlp(p, p.n(seen_), w, 2 * a)

    def f(x: torch.Tensor) -> torch.Tensor:
        mean, log = net(x).chunk(2, -1)
        log = -5 + 3.5 * (torch.tanh(log) + 1)
        drawn = mean + log.exp() * torch.randn_like(mean)
        said = -0.5 * ((drawn - mean) / log.exp()).square() - log - 0.5 * math.log(2 * math.pi)
        said = said - 2 * (math.log(2) - drawn - F.softplus(-2 * drawn))
        return torch.cat((torch.tanh(drawn), 0.2 * said.sum(-1, keepdim=True)), -1)

    return learnt(p, f, p.randn(rows, p.n(seen_)), of=(net,))


def critics(many: int, rows: int, fin: int, width: int, dtype: torch.dtype, p: Pool) -> Run:
    """An ensemble by batched products against the least of two targets."""
    m, w = p.n(many), p.n(width)
    reward, going = p.randn(rows, dtype=dtype), p.randn(rows, dtype=dtype)
    ahead = p.randn(m, rows, dtype=dtype)

    def f(
        x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor
    ) -> torch.Tensor:
        h = F.layer_norm(torch.baddbmm(b, x.expand(m, *x.shape), a), (w,)).relu()
        q = torch.bmm(F.relu(torch.bmm(h, d)), c)[..., 0]
        goal = reward + 0.99 * going * ahead[:2].amin(0)
        return F.mse_loss(q, goal.expand_as(q), reduction="none").sum(0).mean()

    a, b, c, d = (p.leaf(m, *s, dtype=dtype) for s in ((fin, w), (1, w), (w, 1), (w, w)))
    return learnt(p, f, p.randn(rows, fin, dtype=dtype), a, b, c, d)


class Pixels(nn.Module):
    """The convolutions of the first deep Q network on bytes of frames."""

    def __init__(self, size: int, actions: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten()
        )
        side = ((size - 8) // 4 + 1 - 4) // 2 + 1
        self.head = nn.Linear(64 * side * side, actions)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.convs(x / 255.0))


def frames(rows: int, actions: int, cast: torch.dtype | None, fast: bool, p: Pool) -> Run:
    """Double Q learning's loss of chosen actions."""
    size = 20 if p.tiny else 84
    (net,) = put(p, Pixels(size, actions))
    x = torch.randint(256, (p.n(rows), 4, size, size), dtype=torch.uint8, device=p.device)
    at, goal = torch.randint(actions, (len(x), 1), device=p.device), p.randn(rows)

    def f() -> torch.Tensor:
        return F.smooth_l1_loss(net(x).gather(1, at)[:, 0].float(), goal)

    return learnt(p, f, of=(net,), cast=cast, fast=fast)


def projected(rows: int, atoms: int, p: Pool) -> Run:
    """C51: the target's distribution moved and laid onto its atoms again, and the cross entropy."""
    n = p.n(atoms)
    support, step = torch.linspace(-10, 10, n, device=p.device), 20 / (n - 1)
    share, reward = p.randn(rows, n).softmax(-1), p.randn(rows, 1)
    first = torch.arange(len(share), device=p.device)[:, None] * n

    def f(x: torch.Tensor) -> torch.Tensor:
        at = ((reward + 0.99 * support).clamp(-10, 10) + 10) / step
        low, high = at.floor().long(), at.ceil().long()
        m = torch.zeros(x.numel(), device=x.device)
        m.index_add_(0, (first + low).flatten(), (share * (high + (low == high) - at)).flatten())
        m.index_add_(0, (first + high.clamp(max=n - 1)).flatten(), (share * (at - low)).flatten())
        return -(m.view_as(x) * F.log_softmax(x, -1)).sum(-1)

    return learnt(p, f, p.leaf(rows, n))


def quantiles(rows: int, width: int, taus: int, goals: int, p: Pool) -> Run:
    """IQN: cosines of drawn quantiles, and the Huber loss of all pairs."""
    w, n = p.n(width), p.n(taus)
    embed, head, goal = mlp(p, 64, w), mlp(p, w, 512, 1), p.randn(rows, 1, goals)
    waves = math.pi * torch.arange(64, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        tau = torch.rand(len(x), n, 1, device=x.device)
        q = head(x[:, None] * F.relu(embed(torch.cos(tau * waves))))
        off = goal - q
        huber = torch.where(off.abs() < 1, 0.5 * off * off, off.abs() - 0.5)
        return ((tau - (off < 0).float()).abs() * huber).sum(1).mean(1)

    return learnt(p, f, p.leaf(rows, width), of=(embed, head), fast=True)


def impala(rows: int, cin: int, cout: int, size: int, dtype: torch.dtype, p: Pool) -> Run:
    """A stage of its residual network, channels last in half."""
    first, one, two = (nn.Conv2d(i, cout, 3, padding=1) for i in (cin, cout, cout))
    put(p, first, one, two, dtype=dtype)
    last = torch.channels_last if dtype == BF16 else torch.contiguous_format
    nn.ModuleList((first, one, two)).to(memory_format=last)
    n = 16 if p.tiny else size
    x = p.like(
        torch.empty(p.n(rows), cin, n, n, dtype=dtype).to(memory_format=last)
    ).requires_grad_()

    def f(x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(first(x), 3, 2, 1)
        return x + two(F.relu(one(F.relu(x))))

    return learnt(p, f, x, of=(first, one, two))


def v_trace(steps: int, rows: int, actions: int, p: Pool) -> Run:
    """Importance weights cut, targets step by step from behind, the loss of the policy."""
    at, old, reward = p.index(actions, steps, rows), p.randn(steps, rows), p.randn(steps, rows)

    def f(logits: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        log = -F.cross_entropy(logits.flatten(0, 1), at.flatten(), reduction="none").view_as(old)
        with torch.no_grad():
            rho = (log - old).exp().clamp(max=1)
            ahead = torch.cat((value[1:], value[-1:]))
            delta, acc, out = rho * (reward + 0.99 * ahead - value), torch.zeros_like(value[0]), []
            for i in reversed(range(len(value))):
                acc = delta[i] + 0.99 * rho[i] * acc
                out.append(acc)
            goal = torch.stack(out[::-1]) + value
        return -(log * (goal - value).detach()).mean() + 0.5 * (goal - value).square().mean()

    return learnt(p, f, p.leaf(steps, rows, actions), p.leaf(steps, rows))


def advantages(steps: int, rows: int, p: Pool) -> Run:
    """GAE by a few steps of a loop over stored rollouts."""

    def f(reward: torch.Tensor, value: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
        out, last, going = torch.zeros_like(reward), torch.zeros_like(value[0]), 1.0 - over.float()
        for i in reversed(range(len(reward) - 1)):
            delta = reward[i] + 0.99 * value[i + 1] * going[i + 1] - value[i]
            out[i] = last = delta + 0.99 * 0.95 * going[i + 1] * last
        return out + value

    return seen(f, p.randn(steps, rows), p.randn(steps, rows), p.mask(steps, rows))


def dreamer(rows: int, width: int, classes: int, cast: torch.dtype, p: Pool) -> Run:
    """A step imagined: codes drawn, a normed GRU, the next prior."""
    w, n = p.n(width), p.n(classes)
    gates, prior = put(p, nn.Linear(w + n * n, 3 * w, bias=False), nn.Linear(w, n * n))
    (norm,) = put(p, nn.LayerNorm(3 * w))

    def f(h: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        log = (0.99 * logits.unflatten(-1, (n, n)).softmax(-1) + 0.01 / n).log()
        drawn = F.one_hot((log - torch.empty_like(log).exponential_().log()).argmax(-1), n)
        with torch.autocast(p.device.type, cast):
            joint = torch.cat((h, drawn.flatten(1)), -1)
            reset, new, update = norm(gates(joint)).chunk(3, -1)
            update = torch.sigmoid(update - 1)
            h = update * torch.tanh(torch.sigmoid(reset) * new) + (1 - update) * h
            return h, prior(h)

    return seen(f, p.randn(rows, w), p.like(torch.empty(p.n(rows), n * n)))


def two_hot(rows: int, bins: int, p: Pool) -> Run:
    """Returns squeezed, between two of many bins, cross entropy."""
    n, y = p.n(bins), p.randn(rows) * 50
    edges = torch.linspace(-20, 20, n, device=p.device)

    def f(x: torch.Tensor) -> torch.Tensor:
        goal = y.sign() * torch.log1p(y.abs())
        at = torch.bucketize(goal, edges).clamp(1, n - 1)
        share = ((goal - edges[at - 1]) / (edges[at] - edges[at - 1]))[:, None]
        hot = F.one_hot(at - 1, n) * (1 - share) + F.one_hot(at, n) * share
        return -(hot * F.log_softmax(x, -1)).sum(-1)

    return learnt(p, f, p.leaf(rows, n))


def models(many: int, rows: int, width: int, p: Pool) -> Run:
    """PETS: an ensemble of Gaussian models by einsum, variances within learnt bounds."""
    m, w = p.n(many), p.n(width)
    y = p.randn(m, rows, w)

    def f(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
        h = F.silu(torch.einsum("eni,eio->eno", x, a))
        mean, log = torch.einsum("eni,eio->eno", h, b).chunk(2, -1)
        log = top - F.softplus(top - log)
        return ((mean - y).square() * (-log).exp() + log).mean((1, 2)).sum()

    b = p.like(torch.empty(m, w, 2 * w)).requires_grad_()
    return learnt(p, f, p.randn(m, rows, w), p.leaf(m, w, w), b, p.leaf(w))


def planned(rows: int, samples: int, horizon: int, actions: int, p: Pool) -> Run:
    """The cross-entropy method: draw plans, score them, keep the best."""
    goal, k = p.randn(rows, 1, horizon, actions), min(64, p.n(samples))

    def f(mean: torch.Tensor, scale: torch.Tensor) -> object:
        size = (mean.shape[0], p.n(samples), *mean.shape[1:])
        plans = (mean[:, None] + scale[:, None] * torch.randn(size, device=mean.device)).clamp(
            -1, 1
        )
        value, at = (-(plans - goal).square().sum((-1, -2))).topk(k, 1)
        best = plans.gather(1, at[..., None, None].expand(-1, -1, *plans.shape[2:]))
        share = (value - value[:, :1]).mul(0.5).exp()[..., None, None]
        mean = (share * best).sum(1) / share.sum(1)
        return mean, ((best - mean[:, None]).square() * share).sum(1).div(share.sum(1)).sqrt()

    return seen(f, p.randn(rows, horizon, actions), p.randn(rows, horizon, actions).abs())


def replayed(held: int, rows: int, width: int, p: Pool) -> Run:
    """Priorities to draws to transitions, and the weights of draws."""
    weight, obs, other = p.randn(held).abs(), p.randn(held, width), p.randn(held, 8)

    def f() -> object:
        sums = weight.pow(0.6).cumsum(0)
        at = torch.searchsorted(sums, torch.rand(p.n(rows), device=sums.device) * sums[-1]).clamp_(
            max=len(sums) - 1
        )
        share = (len(sums) * weight[at] / sums[-1]).pow(-0.4)
        return obs[at], obs[(at + 1) % len(sums)], other[at], share / share.max()

    return seen(f)


def shifted(rows: int, size: int, p: Pool) -> Run:
    """DrQ's random shifts by a sampled grid."""
    n = p.n(size)
    x = torch.randint(256, (p.n(rows), 9, n, n), dtype=torch.uint8, device=p.device)

    def f() -> torch.Tensor:
        y = F.pad(x.float(), (4, 4, 4, 4), "replicate")
        at = torch.linspace(-1 + 1 / (n + 8), 1 - 1 / (n + 8), n + 8, device=y.device)[:n]
        grid = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)
        move = torch.randint(0, 9, (len(y), 1, 1, 2), device=y.device) * 2.0 / (n + 8)
        return F.grid_sample(y, grid + move, padding_mode="zeros", align_corners=False) / 255 - 0.5

    return seen(f)


def qmix(rows: int, agents: int, state: int, width: int, p: Pool) -> Run:
    """Values mixed by weights of the state that are positive."""
    a, w = p.n(agents), p.n(width)
    one, two = mlp(p, p.n(state), 64, a * w), mlp(p, p.n(state), 64, w)

    def f(q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        h = F.elu(torch.bmm(q[:, None], one(s).abs().view(-1, a, w)))
        return torch.bmm(h, two(s).abs()[..., None])[:, 0, 0]

    return learnt(p, f, p.leaf(rows, a), p.randn(rows, state), of=(one, two))


def conservative(rows: int, drawn: int, fin: int, width: int, p: Pool) -> Run:
    """CQL: values of drawn actions pushed down."""
    n = p.n(fin)
    net = mlp(p, n + 6, p.n(width), 1)

    def f(x: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        other = torch.empty(len(x), p.n(drawn), 6, device=x.device).uniform_(-1, 1)
        wide = x[:, None].expand(-1, other.shape[1], -1)
        low = net(torch.cat((wide, other), -1))[..., 0].logsumexp(1)
        return (low - net(torch.cat((x, done), -1))[:, 0]).mean()

    return learnt(p, f, p.randn(rows, n), p.randn(rows, 6), of=(net,))


def chosen(games: int, nodes: int, moves: int, p: Pool) -> Run:
    """A step down the trees of many games at once, then the way's counts raised."""
    count, prior = p.own(games, nodes, moves).abs(), p.randn(games, nodes, moves).softmax(-1)
    total, child = p.own(games, nodes, moves), p.index(nodes, games, nodes, moves)
    game, at = torch.arange(p.n(games), device=p.device), p.index(nodes, games)

    def f() -> torch.Tensor:
        n = count[game, at]
        score = total[game, at] / (1 + n) + 1.25 * prior[game, at] * n.sum(
            -1, keepdim=True
        ).sqrt() / (1 + n)
        move = score.argmax(-1)
        count[game, at, move] += 1
        return child[game, at, move]

    return seen(f)


def physics(worlds: int, p: Pool) -> Run:
    """A step of cart poles, resets included."""

    def f(x: torch.Tensor) -> torch.Tensor:
        at, speed, angle, turn = x.unbind(-1)
        force = torch.where(torch.rand_like(at) < 0.5, 10.0, -10.0)
        sin, cos = angle.sin(), angle.cos()
        temp = (force + 0.05 * turn.square() * sin) / 1.1
        fall = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
        out = torch.stack(
            (at + 0.02 * speed, speed + 0.02 * temp, angle + 0.02 * turn, turn + 0.02 * fall), -1
        )
        over = (out[:, 0].abs() > 2.4) | (out[:, 2].abs() > 0.21)
        return torch.where(over[:, None], torch.rand_like(out) * 0.1 - 0.05, out)

    return seen(f, p.randn(worlds, 4))


def followed(many: int, width: int, foreach: bool, p: Pool) -> Run:
    """Targets that follow their networks."""
    own = [p.own(width, width) for _ in range(many)]
    new = [p.randn(width, width) for _ in range(many)]
    if foreach:
        return partial(torch._foreach_lerp_, own, new, 0.005)
    return lambda: [a.mul_(0.995).add_(b, alpha=0.005) for a, b in zip(own, new, strict=True)]


PARTS: tuple[Part, ...] = (
    (ppo, (32768, 6)), (robots, (65536, 48, 12)), (soft_actor, (4096, 376, 17, 256)),
    (critics, (2, 256, 393, 256, FP32)), (critics, (10, 4096, 128, 512, BF16)), (frames, (256, 18, None, False)),
    (frames, (1024, 6, BF16, True)), (projected, (4096, 51)), (quantiles, (512, 3136, 64, 64)),
    (impala, (640, 4, 16, 84, FP32)), (impala, (1024, 32, 64, 42, BF16)), (v_trace, (5, 4096, 18)),
    (advantages, (4, 262144)), (dreamer, (1024, 1024, 32, BF16)), (two_hot, (16384, 255)), (models, (7, 2048, 200)),
    (planned, (64, 512, 12, 20)), (replayed, (1000000, 4096, 64)), (shifted, (512, 84)), (qmix, (8192, 8, 120, 32)),
    (conservative, (1024, 20, 17, 512)), (chosen, (128, 50, 362)), (physics, (1048576,)), (followed, (6, 1024, True)),
    (followed, (4, 512, False)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    yield from listed(PARTS)
