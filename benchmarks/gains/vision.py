"""Image and video models of torchvision and timm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional as F

from benchmarks.gains.loops import Step, Tools, public


def classify(t: Tools, build: Callable[[], nn.Module], size: int = 224, rate: float = 1e-3) -> Step:
    """An image classifier with a cross entropy over 1,000 classes."""
    batches = t.feed(lambda: (t.randn(t.batch, 3, size, size), t.randint(1000, t.batch)))
    return t.train(build(), batches, lambda m, x, y: F.cross_entropy(m(x), y), rate)


def torchvision(t: Tools, name: str, **options: Any) -> Step:
    from torchvision import models

    return classify(t, lambda: models.get_model(name, weights=None, **options))


def timm(t: Tools, name: str, size: int = 224, **options: Any) -> Step:
    from timm import create_model

    return classify(
        t, lambda: create_model(name, pretrained=False, num_classes=1000, **options), size
    )


def segment(t: Tools, name: str) -> Step:
    from torchvision.models import segmentation

    side = t.pick(512, 64)
    build = getattr(segmentation, name)
    model = build(weights=None, weights_backbone=None, num_classes=21)
    batches = t.feed(lambda: (t.randn(t.batch, 3, side, side), t.randint(21, t.batch, side, side)))
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x)["out"], y), 1e-3)


def video(t: Tools) -> Step:
    from torchvision.models.video import r3d_18

    side = t.pick(112, 32)
    batches = t.feed(lambda: (t.randn(t.batch, 3, 16, side, side), t.randint(400, t.batch)))
    model = r3d_18(weights=None, num_classes=400)
    return t.train(model, batches, lambda m, x, y: F.cross_entropy(m(x), y), 1e-3)


def _tv(name: str, batch: int, model: str, **facts: Any) -> None:
    public(f"tv_{name}", partial(torchvision, name=model), batch, **facts)


def _timm(name: str, batch: int, model: str, size: int = 224, **facts: Any) -> None:
    public(f"timm_{name}", partial(timm, name=model, size=size), batch, **facts)


_conv: dict[str, Any] = {"images": True, "optimizer": "sgd"}
_tv("resnet50", 128, "resnet50", **_conv)
_tv("resnet50_bf16", 192, "resnet50", precision="bf16", **_conv)
_tv("resnet18_small", 32, "resnet18", **_conv)
_tv("efficientnet_b0", 128, "efficientnet_b0", precision="bf16", **_conv)
_tv("mobilenet_v3_large", 128, "mobilenet_v3_large", **_conv)
_tv("shufflenet_v2_small", 32, "shufflenet_v2_x1_0", **_conv)
_tv("convnext_tiny", 48, "convnext_tiny", images=True)
_tv("vit_b_16", 64, "vit_b_16")
_tv("swin_t", 96, "swin_t", precision="bf16")
public("tv_deeplabv3", partial(segment, name="deeplabv3_resnet50"), 8, **_conv)
public("tv_r3d_18", video, 16, optimizer="sgd")
_timm("convnext_small", 64, "convnext_small", precision="bf16", images=True)
_timm("efficientnetv2_s", 96, "tf_efficientnetv2_s", precision="bf16", **_conv)
_timm("mixer_b16", 64, "mixer_b16_224")
_timm("regnety_032", 128, "regnety_032", precision="bf16", **_conv)
_timm("vit_small", 128, "vit_small_patch16_224", precision="bf16")
_timm("ghostnet", 128, "ghostnet_100", **_conv)
_timm("mobilevit_s", 64, "mobilevit_s", size=256, images=True)
