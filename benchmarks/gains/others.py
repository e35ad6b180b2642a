"""Graphs, speech, diffusion, GANs, recommenders, tables and policies."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gains.loops import Step, Tools, public
from benchmarks.gains.networks import DLRM, MNIST, UNet, discriminator, generator, mlp


def graph(t: Tools, kind: str) -> Step:
    """Full-batch node classification, as PyG's examples do it."""
    from torch_geometric.nn import models

    nodes, edges = t.pick((100_000, 1_000_000), (200, 800))
    options = {"heads": 4} if kind == "GAT" else {}
    model = getattr(models, kind)(128, 128, 3, out_channels=40, dropout=0.5, **options)
    batches = t.feed(
        lambda: (t.randn(nodes, 128), t.randint(nodes, 2, edges), t.randint(40, nodes))
    )
    return t.train(model, batches, lambda m, x, e, y: F.cross_entropy(m(x, e), y), 1e-2)


def molecules(t: Tools) -> Step:
    """A batch of small graphs with GIN and a sum over each graph."""
    from torch_geometric.nn import global_add_pool, models

    each, bonds = 24, 52
    model = models.GIN(32, 128, 5, out_channels=1, norm="batch_norm")

    def example() -> tuple[torch.Tensor, ...]:
        first = torch.arange(t.batch, device=t.device).repeat_interleave(bonds) * each
        edges = first + t.randint(each, 2, t.batch * bonds)
        owner = torch.arange(t.batch, device=t.device).repeat_interleave(each)
        return t.randn(t.batch * each, 32), edges, owner, t.randn(t.batch, 1)

    def loss(m: Any, x: Any, e: Any, owner: Any, y: Any) -> torch.Tensor:
        return F.l1_loss(global_add_pool(m(x, e), owner, len(y)), y)

    return t.train(model, t.feed(example), loss, 1e-3)


def separation(t: Tools) -> Step:
    from torchaudio.models import ConvTasNet

    wave = t.pick(32_000, 1600)
    batches = t.feed(lambda: (t.randn(t.batch, 1, wave), t.randn(t.batch, 2, wave)))
    return t.train(ConvTasNet(), batches, lambda m, x, y: F.mse_loss(m(x), y), 1e-3, clip=5.0)


def diffusion(t: Tools, width: int) -> Step:
    side = t.pick(64, 32)

    def example() -> tuple[torch.Tensor, ...]:
        return t.randn(t.batch, 3, side, side), t.randint(1000, t.batch)

    def loss(m: Any, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(x)
        level = (steps.float() / 1000)[:, None, None, None]
        return F.mse_loss(m(x * (1 - level).sqrt() + noise * level.sqrt(), steps), noise)

    return t.train(UNet(t.pick(width, 32), side=side), t.feed(example), loss, 2e-4, clip=1.0)


def dcgan(t: Tools) -> Step:
    """pytorch/examples/dcgan: two networks, two optimizers, losses read back in every iteration."""
    plain_g, plain_d = generator(width=t.pick(64, 8)), discriminator(t.pick(64, 8))
    net_g, net_d = t.prepare(plain_g), t.prepare(plain_d)
    step_g, step_d = t.optimizer(plain_g, 2e-4), t.optimizer(plain_d, 2e-4)
    batches = t.feed(lambda: (t.randn(t.batch, 3, 64, 64),))
    real = torch.ones(t.batch, device=t.device)
    fake = torch.zeros(t.batch, device=t.device)

    def judge(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        span = net_d(images).view(-1)
        return F.binary_cross_entropy_with_logits(span, labels), span.mean()

    def step() -> torch.Tensor:
        (images,) = batches()
        noise = torch.randn(t.batch, 100, 1, 1, device=t.device)
        with t.amp():
            loss_real, said_x = judge(images, real)
        loss_real.backward()
        with t.amp():
            made = net_g(noise)
            loss_fake, said_z1 = judge(made.detach(), fake)
        loss_fake.backward()
        step_d()
        with t.amp():
            loss_g, said_z2 = judge(made, real)
        loss_g.backward()
        step_g()
        plain_d.zero_grad()
        if t.waits:
            t.log(loss_d=loss_real + loss_fake, loss_g=loss_g, x=said_x, z1=said_z1, z2=said_z2)
        return loss_g.detach()

    return step


def recommender(t: Tools) -> Step:
    rows = t.pick(100_000, 100)

    def example() -> tuple[torch.Tensor, ...]:
        clicked = t.randint(2, t.batch).float()
        return t.randn(t.batch, 13), t.randint(rows, 26, t.batch), clicked

    def loss(m: Any, x: Any, s: Any, y: Any) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(m(x, s).float(), y)

    return t.train(DLRM(26, rows), t.feed(example), loss, 0.1)


def table(t: Tools, features: int, width: int) -> Step:
    model = mlp(features, width, width, width, 2)
    batches = t.feed(lambda: (t.randn(t.batch, features), t.randint(2, t.batch)))
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x), y), 1e-3)


def digits(t: Tools) -> Step:
    batches = t.feed(lambda: (t.randn(t.batch, 1, 28, 28), t.randint(10, t.batch)))
    return t.train(MNIST(), batches, lambda m, x, y: F.nll_loss(m(x), y), 1.0)


def policy(t: Tools) -> Step:
    """CleanRL's PPO on a small control task: one minibatch update, its statistics read back."""

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = mlp(17, 64, 64, 1, act=nn.Tanh)
            self.actor_mean = mlp(17, 64, 64, 6, act=nn.Tanh)
            self.actor_logstd = nn.Parameter(torch.zeros(1, 6))

        def forward(self, x: Any, action: Any) -> tuple[torch.Tensor, ...]:
            mean = self.actor_mean(x)
            spread = self.actor_logstd.expand_as(mean).exp()
            chances = torch.distributions.Normal(mean, spread, validate_args=False)
            return (
                chances.log_prob(action).sum(1),
                chances.entropy().sum(1),
                self.critic(x).view(-1),
            )

    def example() -> tuple[torch.Tensor, ...]:
        x, action = t.randn(t.batch, 17), t.randn(t.batch, 6)
        return x, action, t.randn(t.batch), t.randn(t.batch), t.randn(t.batch)

    def loss(m: Any, x: Any, action: Any, old: Any, gain: Any, wanted: Any) -> torch.Tensor:
        chance, entropy, value = m(x, action)
        change = chance - old
        ratio = change.clamp(-5, 5).exp()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        lost = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 0.8, 1.2)).mean()
        if t.waits:
            far = ((ratio - 1.0).abs() > 0.2).float().mean()
            t.log(old_kl=(-change).mean(), kl=((ratio - 1) - change).mean(), far=far)
        return lost - 0.01 * entropy.mean() + 0.25 * ((value - wanted) ** 2).mean()

    return t.train(Agent(), t.feed(example), loss, 3e-4, clip=0.5)


for _kind in ("GCN", "GAT", "GraphSAGE"):
    public(f"pyg_{_kind.lower()}", partial(graph, kind=_kind), 1, optimizer="adam", whole=True)
public("pyg_gin_molecules", molecules, 256, optimizer="adam")
public("audio_conv_tasnet", separation, 4, optimizer="adam")
public("example_dcgan", dcgan, 128, optimizer="adam", images=True, waits=True)
public("example_mnist", digits, 64, optimizer="adadelta", images=True)
public("table_dlrm", recommender, 8192, optimizer="sgd")
public("table_mlp", partial(table, features=64, width=256), 1024, optimizer="adam")
public("rl_ppo", policy, 2048, optimizer="adam", waits=True)
