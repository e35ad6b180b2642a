"""The models of the fifth round: chosen on 2026-11-28, before any of them was measured here."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.gains.language import SMALL, classes, hugging, words
from benchmarks.gains.loops import Step, Tools, moved, public
from benchmarks.gains.vision import timm, torchvision

PERIOD = 16


def detector(t: Tools, build: str) -> Step:
    """torchvision's reference for detection: pictures of several sizes, boxes, a sum of losses."""
    from torchvision.models import detection

    side = t.pick(800, 96)
    sizes = {"min_size": side, "max_size": 2 * side} if "rcnn" in build else {}
    options: dict[str, Any] = {"weights": None, "weights_backbone": None, "num_classes": 91}
    model = getattr(detection, build)(**options, **sizes)

    def example() -> tuple[Any, ...]:
        high, wide = ((3 + t.randint(4, 2)) * side // 6).tolist()
        images = [torch.rand(3, high, wide, device=t.device) for _ in range(t.batch)]
        corner = torch.rand(t.batch, 7, 2, device=t.device) * side / 4
        boxes = torch.cat([corner, corner + side / 8 + corner], -1)
        return images, [{"boxes": b, "labels": 1 + t.randint(90, 7)} for b in boxes]

    return t.train(model, t.feed(example), lambda m, x, y: sum(m(x, y).values()), 1e-4)


def translate(t: Tools) -> Step:
    """Marian on sentences, each batch padded to its own longest."""
    import transformers

    tiny = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "vocab_size": 1000, "pad_token_id": 999, "decoder_start_token_id": 999}  # fmt: skip
    full = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
            "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}  # fmt: skip
    config = transformers.AutoConfig.for_model("marian", use_cache=False, **t.pick(full, tiny))
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)

    def example() -> tuple[dict[str, torch.Tensor]]:
        longest = t.pick(16, 8) + int(torch.randint(t.pick(112, 8), ()))
        tokens = t.randint(config.vocab_size - 1, t.batch, longest)
        ends = 1 + t.randint(longest, t.batch, 1)
        mask = (torch.arange(longest, device=t.device) < ends).long()
        labels = t.randint(config.vocab_size - 1, t.batch, longest).masked_fill(mask == 0, -100)
        return ({"input_ids": tokens, "attention_mask": mask, "labels": labels},)

    turns = itertools.cycle([moved(example(), t.device) for _ in range(PERIOD)])
    return t.train(model, lambda: next(turns), lambda m, x: m(**x).loss, 1e-4)


def adapted(t: Tools) -> Step:
    """Phi with PEFT's low-rank adapters: only they are trained."""
    import transformers
    from peft import LoraConfig, get_peft_model

    sizes = {"hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 32, "intermediate_size": 8192}  # fmt: skip
    config = transformers.AutoConfig.for_model("phi", use_cache=False, **t.pick(sizes, SMALL))
    model = transformers.AutoModelForCausalLM.from_config(config)
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    batches = t.feed(lambda: (words(t, config, 512),))
    return t.train(model, batches, lambda m, x: m(**x).loss)


class Reversal(torch.autograd.Function):
    """Hands the gradient on with its sign turned."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, alpha: float) -> torch.Tensor:
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0].neg() * ctx.alpha, None


def domains(t: Tools) -> Step:
    """Domain-adversarial training of digits (fungtion/DANN): an autograd function of its own."""

    class Adversarial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feature = nn.Sequential(
                nn.Conv2d(3, 64, 5), nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.ReLU(True),
                nn.Conv2d(64, 50, 5), nn.BatchNorm2d(50), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(True),
                nn.Flatten(),
            )  # fmt: skip
            self.digit = nn.Sequential(
                nn.Linear(800, 100), nn.BatchNorm1d(100), nn.ReLU(True), nn.Dropout(),
                nn.Linear(100, 100), nn.BatchNorm1d(100), nn.ReLU(True), nn.Linear(100, 10), nn.LogSoftmax(1),
            )  # fmt: skip
            self.domain = nn.Sequential(
                nn.Linear(800, 100), nn.BatchNorm1d(100), nn.ReLU(True), nn.Linear(100, 2), nn.LogSoftmax(1),
            )  # fmt: skip

        def forward(self, x: torch.Tensor, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
            feature = self.feature(x)
            return self.digit(feature), self.domain(Reversal.apply(feature, alpha))

    def loss(m: Any, source: Any, digits: Any, target: Any) -> torch.Tensor:
        zeros = torch.zeros(len(source), dtype=torch.long, device=source.device)
        digit, here = m(source, 0.5)
        there = m(target, 0.5)[1]
        return F.nll_loss(digit, digits) + F.nll_loss(here, zeros) + F.nll_loss(there, zeros + 1)

    def example() -> tuple[torch.Tensor, ...]:
        return t.randn(t.batch, 3, 28, 28), t.randint(10, t.batch), t.randn(t.batch, 3, 28, 28)

    return t.train(Adversarial(), t.feed(example), loss, 1e-3)


def properties(t: Tools) -> Step:
    """PyG's example of PNA: the property of small graphs, in batches."""
    from torch_geometric.nn import global_add_pool, models

    each, bonds = 24, 52
    degrees = torch.bincount(torch.randint(1, 5, (1000,)))
    model = models.PNA(
        75, 80, 4, out_channels=1, norm="batch_norm", deg=degrees,
        aggregators=["mean", "min", "max", "std"], scalers=["identity", "amplification", "attenuation"],
    )  # fmt: skip

    def example() -> tuple[torch.Tensor, ...]:
        first = torch.arange(t.batch, device=t.device).repeat_interleave(bonds) * each
        edges = first + t.randint(each, 2, t.batch * bonds)
        owner = torch.arange(t.batch, device=t.device).repeat_interleave(each)
        return t.randn(t.batch * each, 75), edges, owner, t.randn(t.batch, 1)

    def loss(m: Any, x: Any, e: Any, owner: Any, y: Any) -> torch.Tensor:
        return F.l1_loss(global_add_pool(m(x, e), owner, len(y)), y)

    return t.train(model, t.feed(example), loss, 1e-3)


_deberta = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072,
            "vocab_size": 128_100, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256,
            "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False}  # fmt: skip
_llama = {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 2048,
          "use_cache": False}  # fmt: skip
public(
    "tv_fasterrcnn",
    partial(detector, build="fasterrcnn_resnet50_fpn"),
    4,
    optimizer="sgd",
    fresh=True,
)
public("hf_marian_lengths", translate, 32, precision="bf16", period=PERIOD, fresh=True)
public(
    "hf_llama_compiled",
    partial(hugging, auto="AutoModelForCausalLM", kind="llama", example=partial(words, length=512),
            tiny=SMALL, **_llama),
    16, precision="bf16", compiled=True, whole=True, fresh=True,
)  # fmt: skip
public(
    "hf_deberta_small",
    partial(hugging, auto="AutoModelForSequenceClassification", kind="deberta-v2",
            example=partial(classes, length=128), tiny=SMALL, **_deberta),
    8, fresh=True,
)  # fmt: skip
public("peft_phi_lora", adapted, 4, precision="bf16-weights", fresh=True)
public("timm_davit_tiny", partial(timm, name="davit_tiny"), 128, precision="bf16", images=True, fresh=True)  # fmt: skip
public("timm_res2net50", partial(timm, name="res2net50_26w_4s"), 16, precision="bf16", optimizer="sgd",
       images=True, fresh=True)  # fmt: skip
public("example_dann", domains, 128, optimizer="adam", images=True, fresh=True)
public("pyg_pna", properties, 128, optimizer="adam", fresh=True)
public("tv_vgg16_bn", partial(torchvision, name="vgg16_bn"), 64, optimizer="sgd", images=True, fresh=True)  # fmt: skip
