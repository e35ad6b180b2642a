"""The models of the fourth round: chosen on 2026-11-27, before any of them was measured here."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gains.fresh import pictures
from benchmarks.gains.language import SMALL, hugging, words
from benchmarks.gains.loops import Step, Tools, public
from benchmarks.gains.vision import timm, torchvision


def spoken(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    """Waves of five seconds with their characters."""
    labels = 1 + t.randint(config.vocab_size - 1, t.batch, 30)
    return {"input_values": t.randn(t.batch, t.pick(80_000, 16_000)), "labels": labels}


def labelled(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    """Pictures of one of two kinds."""
    return {**pictures(t, config), "labels": t.randint(2, t.batch)}


def process(t: Tools) -> Step:
    """GPyTorch's tutorial on exact Gaussian processes, by Cholesky factors: all points in each step, and the
    loss printed."""
    import gpytorch

    points = t.pick(2_000, 50)
    x = t.randn(points, 6)
    y = torch.sin(x.sum(1))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.MaternKernel(ard_num_dims=6)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Process()
    chance = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def loss(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with gpytorch.settings.max_cholesky_size(10_000):
            return -chance(m(x), y)

    return t.train(model, lambda: (x, y), loss, 0.1)


def play(t: Tools) -> Step:
    """CleanRL's DQN on Atari: one update on a batch of the replay buffer."""

    class Values(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(
                nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
                nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512),
                nn.ReLU(), nn.Linear(512, 6),
            )  # fmt: skip

    target = Values().to(t.device)

    def example() -> tuple[torch.Tensor, ...]:
        now, then = t.randn(t.batch, 4, 84, 84), t.randn(t.batch, 4, 84, 84)
        return now, then, t.randint(6, t.batch, 1), t.randn(t.batch), t.randint(2, t.batch).float()

    def loss(m: Any, now: Any, then: Any, chosen: Any, reward: Any, over: Any) -> torch.Tensor:
        with torch.no_grad():
            wanted = reward + 0.99 * target(then).max(dim=1).values * (1 - over)
        return F.mse_loss(m(now).gather(1, chosen).squeeze(), wanted)

    return t.train(Values(), t.feed(example), loss, 1e-4)


def super_resolution(t: Tools) -> Step:
    """pytorch/examples/super_resolution: batches of 4, the loss added up on the host."""
    model = nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip
    side = t.pick(85, 16)

    def example() -> tuple[torch.Tensor, ...]:
        return t.randn(t.batch, 1, side, side), t.randn(t.batch, 1, 3 * side, 3 * side)

    return t.train(model, t.feed(example), lambda m, x, y: F.mse_loss(m(x), y), 1e-3)


def conformer(t: Tools) -> Step:
    """torchaudio's Conformer over 80 mel bands, with a CTC loss."""
    from torchaudio.models import Conformer

    frames, width = t.pick((400, 256), (50, 32))
    body = Conformer(width, 4, 4 * width, t.pick(8, 1), 31, dropout=0.1)

    class Recognizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.body, self.head = nn.Linear(80, width), body, nn.Linear(width, 40)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.before(x), lengths)[0])

    def example() -> tuple[torch.Tensor, ...]:
        lengths = torch.full((t.batch,), frames, device=t.device)
        return t.randn(t.batch, frames, 80), lengths, 1 + t.randint(39, t.batch, 30)

    def loss(m: Any, x: torch.Tensor, lengths: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chances = m(x, lengths).float().log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(chances, y, lengths, torch.full_like(lengths, y.shape[1]))

    return t.train(Recognizer(), t.feed(example), loss, 1e-3)


_conv: dict[str, Any] = {"images": True, "optimizer": "sgd", "fresh": True}


def _hf(name: str, batch: int, auto: str, kind: str, example: Any, tiny: Any, options: Any = None,
        **facts: Any) -> None:  # fmt: skip
    maker = partial(hugging, auto=auto, kind=kind, example=example, tiny=tiny, **(options or {}))
    public(f"hf_{name}", maker, batch, fresh=True, **facts)


_speech = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
           "num_conv_pos_embedding_groups": 4}  # fmt: skip
_distil = {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 2, "vocab_size": 1000}
_dino = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28}
public("tv_densenet121", partial(torchvision, name="densenet121"), 64, **_conv)
public(
    "tv_mnasnet1_0_bf16", partial(torchvision, name="mnasnet1_0"), 128, precision="bf16", **_conv
)
public("tv_wide_resnet50", partial(torchvision, name="wide_resnet50_2"), 64, **_conv)
public(
    "timm_coatnet_0", partial(timm, name="coatnet_0_rw_224"), 48, precision="bf16",
    images=True, fresh=True,
)  # fmt: skip
public("timm_pvt_v2_b1", partial(timm, name="pvt_v2_b1"), 64, images=True, fresh=True)
public("timm_seresnet50", partial(timm, name="seresnet50"), 64, **_conv)
public(
    "timm_edgenext_small",
    partial(timm, name="edgenext_small", size=256),
    64,
    images=True,
    fresh=True,
)
_hf(
    "distilbert",
    32,
    "AutoModelForMaskedLM",
    "distilbert",
    partial(words, length=256, masked=True),
    _distil,
)
_hf("electra_small_bf16", 32, "AutoModelForMaskedLM", "electra", partial(words, length=128, masked=True),
    {**SMALL, "embedding_size": 64}, precision="bf16")  # fmt: skip
_hf("pythia_70m_bf16", 16, "AutoModelForCausalLM", "gpt_neox", partial(words, length=512), SMALL,
    {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
     "use_cache": False}, precision="bf16")  # fmt: skip
_hf("dinov2_small", 64, "AutoModelForImageClassification", "dinov2", labelled, _dino,
    {"hidden_size": 384, "num_attention_heads": 6, "image_size": 224})  # fmt: skip
_hf("hubert_ctc", 8, "AutoModelForCTC", "hubert", spoken, _speech, waits=True)
public("gp_exact", process, 1, optimizer="adam", whole=True, waits=True, fresh=True)
public("rl_dqn_atari", play, 32, optimizer="adam", images=True, fresh=True)
public(
    "example_super_resolution",
    super_resolution,
    4,
    optimizer="adam",
    images=True,
    waits=True,
    fresh=True,
)
public("audio_conformer", conformer, 16, optimizer="adam", fresh=True)
