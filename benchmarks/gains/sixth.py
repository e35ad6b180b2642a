"""The models of the sixth round: chosen on 2026-11-28, before any of them was measured here."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gains.fifth import detector
from benchmarks.gains.language import SMALL, hugging, words
from benchmarks.gains.loops import Step, Tools, public
from benchmarks.gains.networks import NanoGPT, mlp
from benchmarks.gains.vision import timm


def flow(t: Tools) -> Step:
    """torchvision's reference for optical flow: RAFT refines its guess twelve times, and each counts."""
    from torchvision.models.optical_flow import raft_small

    high, wide = t.pick((256, 448), (128, 128))

    def example() -> tuple[torch.Tensor, ...]:
        pictures = (t.randn(t.batch, 3, high, wide).clamp(-1, 1) for _ in range(2))
        return *pictures, t.randn(t.batch, 2, high, wide)

    def loss(m: Any, first: Any, second: Any, true: Any) -> torch.Tensor:
        guesses = m(first, second)
        parts = [0.8 ** (11 - i) * (g - true).abs().mean() for i, g in enumerate(guesses)]
        return torch.stack(parts).sum()

    return t.train(raft_small(weights=None), t.feed(example), loss, 1e-4, clip=1.0)


def atoms(t: Tools) -> Step:
    """PyG's SchNet on the energies of small molecules."""
    from torch_geometric.nn.models import SchNet

    each, bonds = 18, 12
    many = t.batch * each
    first = torch.arange(many, device=t.device).repeat_interleave(bonds)
    second = first // each * each + torch.randint(each, first.shape, device=t.device)

    def near(position: torch.Tensor, owner: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack((first, second)), (position[first] - position[second]).norm(dim=-1)

    model = SchNet(128, 128, t.pick(6, 2), interaction_graph=near)
    owner = torch.arange(t.batch, device=t.device).repeat_interleave(each)
    batches = t.feed(lambda: (1 + t.randint(9, many), 3 * t.randn(many, 3), t.randn(t.batch, 1)))
    return t.train(model, batches, lambda m, z, x, y: F.l1_loss(m(z, x, owner), y), 5e-4)


class VAE(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder, self.open = down(width, 256), nn.Linear(128, 256 * width)
        sizes = (4 * width, 2 * width, width)
        layers = [
            part
            for a, b in itertools.pairwise(sizes)
            for part in (nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
        ]
        self.decoder = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (spread / 2).exp()
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).mean()
        return self.decoder(self.open(z).view(len(x), -1, 8, 8)), divergence


def down(width: int, last: int) -> nn.Sequential:
    layers = [
        part
        for a, b in itertools.pairwise((3, width, 2 * width, 4 * width))
        for part in (nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * width, last))


def autoencoder(t: Tools) -> Step:
    """VAE/GAN (Larsen and others): an autoencoder and who tells its pictures from real ones."""
    images = t.feed(lambda: (t.randn(t.batch, 3, 64, 64),))
    plain, judge = VAE(t.pick(64, 8)), down(t.pick(64, 8), 1)
    vae, critic = t.prepare(plain), t.prepare(judge)
    update, update_judge = t.optimizer(plain, 3e-4), t.optimizer(judge, 3e-4)

    def step() -> torch.Tensor:
        (x,) = images()
        with t.amp():
            made, divergence = vae(x)
            against = F.softplus(-critic(x)).mean() + F.softplus(critic(made.detach())).mean()
        t.backward(against)
        update_judge()
        with t.amp():
            loss = F.mse_loss(made, x) + divergence + 0.01 * F.softplus(-critic(made)).mean()
        t.backward(loss)
        update()
        judge.zero_grad()
        return loss.detach()

    return step


class Selective(nn.Module):
    """A layer of mamba-minimal: its state goes from token to token in Python."""

    def __init__(self, width: int, state: int = 16) -> None:
        super().__init__()
        self.norm, self.enter = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.conv = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.choose, self.rate = (
            nn.Linear(2 * width, 2 * state + 1),
            nn.Parameter(torch.zeros(2 * width)),
        )
        self.decay = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(2 * width, 1))
        self.leave, self.state = nn.Linear(2 * width, width), state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner, gate = self.enter(self.norm(x)).chunk(2, -1)
        inner = F.silu(self.conv(inner.mT)[..., : x.shape[1]].mT)
        into, out, rate = self.choose(inner).split((self.state, self.state, 1), -1)
        rate = F.softplus(rate + self.rate)
        keep = (rate[..., None] * -self.decay.exp()).exp()
        new = (rate * inner)[..., None] * into[:, :, None]
        state, given = torch.zeros_like(keep[:, 0]), []
        for i in range(x.shape[1]):
            state = keep[:, i] * state + new[:, i]
            given.append((state * out[:, i, None]).sum(-1))
        return x + self.leave(torch.stack(given, 1) * F.silu(gate))


def selective(t: Tools) -> Step:
    vocab, width, length = t.pick(16_000, 100), t.pick(384, 16), t.pick(64, 6)
    layers = [Selective(width) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(vocab, width), *layers, nn.Linear(width, vocab))
    batches = t.feed(
        lambda: (t.randint(vocab, t.batch, length), t.randint(vocab, t.batch * length))
    )
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y), 1e-3)


def accumulated(t: Tools) -> Step:
    """A small GPT: four batches an update, the loss of all read back."""
    vocab, block = t.pick(8_192, 65), t.pick(256, 16)
    plain = NanoGPT(t.pick(6, 1), 6, t.pick(384, 48), block, vocab, 0.1, True)
    model, update = t.prepare(plain), t.optimizer(plain, 6e-4)
    batches = t.feed(lambda: (t.randint(vocab, t.batch, block), t.randint(vocab, t.batch, block)))

    def step() -> torch.Tensor:
        total = torch.zeros((), device=t.device)
        for _ in range(4):
            with t.amp():
                loss = model(*batches()) / 4
            t.backward(loss)
            total += loss.detach()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        update()
        if t.waits:
            t.log(loss=total)
        return total

    return step


def actor_critic(t: Tools) -> Step:
    """pytorch/examples: an episode of a pole on a cart, an action at a time, then one update."""
    plain = mlp(4, 128, 3)
    model, update = t.prepare(plain), t.optimizer(plain, 3e-2)

    def step() -> torch.Tensor:
        at, kept = [0.0, 0.0, 0.02, 0.0], []
        for _ in range(t.pick(60, 5)):
            with t.amp():
                *chances, value = model(torch.tensor(at, device=t.device)).float().unbind()
            action = torch.distributions.Categorical(logits=torch.stack(chances))
            push = action.sample()
            kept.append((action.log_prob(push), value))
            force, lean = 20.0 * push.item() - 10.0, at[2]
            turn = (9.8 * math.sin(lean) - math.cos(lean) * force / 1.1) / 0.63
            at = [
                at[0] + 0.02 * at[1],
                at[1] + 0.02 * force,
                (lean + 0.02 * at[3]) % 1.0,
                (at[3] + 0.02 * turn) % 1.0,
            ]
        gains = torch.arange(len(kept), 0, -1.0, device=t.device)
        gains = (gains - gains.mean()) / gains.std()
        parts = [
            -p * (g - v.item()) + F.smooth_l1_loss(v, g)
            for (p, v), g in zip(kept, gains, strict=True)
        ]
        loss = torch.stack(parts).sum()
        t.backward(loss)
        update()
        return loss.detach()

    return step


_long = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
         "attention_window": 256, "max_position_embeddings": 1026}  # fmt: skip
public("tv_raft_small", flow, 4, images=True, fresh=True)
public(
    "tv_ssd300",
    partial(detector, build="ssd300_vgg16"),
    8,
    optimizer="sgd",
    images=True,
    fresh=True,
)
public("timm_efficientformer_l1", partial(timm, name="efficientformer_l1"), 96, precision="bf16",
       images=True, fresh=True)  # fmt: skip
public("timm_xcit_small", partial(timm, name="xcit_small_12_p16_224"), 48, images=True, fresh=True)
public("hf_longformer", partial(hugging, auto="AutoModelForMaskedLM", kind="longformer",
       example=partial(words, length=1024), tiny={**SMALL, "attention_window": 8}, **_long), 8, fresh=True)  # fmt: skip
public("pyg_schnet", atoms, 64, optimizer="adam", fresh=True)
public("example_vae_gan", autoencoder, 64, optimizer="adam", images=True, fresh=True)
public("example_mamba", selective, 8, fresh=True)
public("example_gpt_accumulates", accumulated, 16, precision="bf16", waits=True, fresh=True)
public("rl_actor_critic", actor_critic, 1, optimizer="adam", whole=True, fresh=True)
