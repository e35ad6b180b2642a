"""The models of the part *fresh*: nothing was tuned on them, and they were chosen before any was measured."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.gains.language import SMALL, hugging, words
from benchmarks.gains.loops import Step, Tools, public
from benchmarks.gains.networks import VAE, PlainUNet
from benchmarks.gains.vision import timm, torchvision


def segment_small(t: Tools) -> Step:
    from torchvision.models import segmentation

    side = t.pick(512, 64)
    model = segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=21
    )
    batches = t.feed(lambda: (t.randn(t.batch, 3, side, side), t.randint(21, t.batch, side, side)))
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x)["out"], y), 1e-3)


def masks(t: Tools) -> Step:
    """The U-Net of milesial/Pytorch-UNet: cross entropy, and the loss read back in every step."""
    side = t.pick(512, 64)
    batches = t.feed(lambda: (t.randn(t.batch, 3, side, side), t.randint(2, t.batch, side, side)))
    model = PlainUNet(t.pick(64, 8))
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x), y), 1e-5, clip=1.0)


def vae(t: Tools) -> Step:
    """pytorch/examples/vae, which adds each loss up on the host."""

    def loss(m: Any, x: torch.Tensor) -> torch.Tensor:
        made, mean, spread = m(x)
        lost = F.binary_cross_entropy_with_logits(made, x, reduction="sum")
        return lost - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())

    batches = t.feed(lambda: (torch.rand(t.batch, 784, device=t.device),))
    return t.train(VAE(), batches, loss, 1e-3)


def letters(t: Tools) -> Step:
    """Wav2Letter over waves with torchaudio's 40 characters and a CTC loss."""
    from torchaudio.models import Wav2Letter

    length = t.pick(160_000, 32_000)

    def loss(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chances = m(x).permute(2, 0, 1).float()
        lengths = torch.full((len(y),), len(chances), device=y.device)
        return F.ctc_loss(chances, y, lengths, torch.full_like(lengths, y.shape[1]))

    batches = t.feed(lambda: (t.randn(t.batch, 1, length), 1 + t.randint(39, t.batch, 20)))
    return t.train(Wav2Letter(), batches, loss)


def edges(t: Tools) -> Step:
    """Full-batch node classification with an EdgeCNN, on a citation graph's sizes."""
    from torch_geometric.nn import models

    nodes, many = t.pick((20_000, 150_000), (200, 800))
    model = models.EdgeCNN(128, 64, 3, out_channels=40, norm="batch_norm")
    batches = t.feed(lambda: (t.randn(nodes, 128), t.randint(nodes, 2, many), t.randint(40, nodes)))
    return t.train(model, batches, lambda m, x, e, y: F.cross_entropy(m(x, e), y), 1e-2)


def both(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    """Pictures with their texts."""
    side, length = config.vision_config.image_size, config.text_config.max_position_embeddings
    tokens = t.randint(config.text_config.vocab_size, t.batch, length)
    return {
        "input_ids": tokens,
        "pixel_values": t.randn(t.batch, 3, side, side),
        "return_loss": True,
    }  # type: ignore[dict-item]


def pictures(t: Tools, config: Any) -> dict[str, torch.Tensor]:
    return {"pixel_values": t.randn(t.batch, 3, config.image_size, config.image_size)}


def _public(name: str, maker: Any, batch: int, **facts: Any) -> None:
    public(name, maker, batch, fresh=True, **facts)


def _hf(name: str, batch: int, auto: str, kind: str, example: Any, tiny: Any, options: Any = None,
        **facts: Any) -> None:  # fmt: skip
    maker = partial(hugging, auto=auto, kind=kind, example=example, tiny=tiny, **(options or {}))
    _public(f"hf_{name}", maker, batch, **facts)


_conv: dict[str, Any] = {"images": True, "optimizer": "sgd"}
_bart = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 1000}  # fmt: skip
_clip = {"text_config": SMALL, "vision_config": {**SMALL, "image_size": 64}}
_opt = {"hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "word_embed_proj_dim": 64, "vocab_size": 1000}  # fmt: skip
_mae = {"decoder_num_hidden_layers": 1, "decoder_hidden_size": 64, "decoder_intermediate_size": 64,
        "decoder_num_attention_heads": 2, **SMALL}  # fmt: skip
_public("tv_googlenet", partial(torchvision, name="googlenet", aux_logits=False, init_weights=False),
        128, **_conv)  # fmt: skip
_public("tv_resnext50_pageable", partial(torchvision, name="resnext50_32x4d"), 64, feed="pageable",
        **_conv)  # fmt: skip
_public("tv_squeezenet", partial(torchvision, name="squeezenet1_1"), 128, **_conv)
_public("tv_resnet18_imagenet", partial(torchvision, name="resnet18"), 256, **_conv)
_public("tv_lraspp", segment_small, 16, precision="bf16", **_conv)
_public("timm_hrnet_w18_small", partial(timm, name="hrnet_w18_small"), 64, **_conv)
_public("timm_convnextv2_tiny", partial(timm, name="convnextv2_tiny"), 64, images=True)
_public("timm_nf_resnet50", partial(timm, name="nf_resnet50"), 96, **_conv)
_public("timm_repvgg_a2_fp16", partial(timm, name="repvgg_a2"), 128, precision="fp16", **_conv)
_public(
    "timm_cspdarknet53", partial(timm, name="cspdarknet53", size=256), 96, precision="bf16", **_conv
)
_public("timm_levit_256", partial(timm, name="levit_256"), 128)
_public("timm_poolformer_s12", partial(timm, name="poolformer_s12"), 96, images=True)
_public("example_unet", masks, 4, optimizer="adam", images=True, waits=True)
_public("audio_wav2letter", letters, 32, optimizer="adam")
_public("pyg_edgecnn", edges, 1, optimizer="adam", whole=True)
_hf("albert_base", 16, "AutoModelForMaskedLM", "albert", partial(words, length=256, masked=True), SMALL,
    {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12})  # fmt: skip
_hf(
    "opt_125m",
    8,
    "AutoModelForCausalLM",
    "opt",
    partial(words, length=512),
    _opt,
    {"use_cache": False},
)
_hf("bart_base_bf16", 8, "AutoModelForSeq2SeqLM", "bart", partial(words, length=256), _bart,
    {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
     "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
     "use_cache": False}, precision="bf16", written=True)  # fmt: skip
_hf("clip_b32", 64, "AutoModel", "clip", both, _clip)
_hf("vit_mae", 64, "AutoModelForPreTraining", "vit_mae", pictures, _mae)
