"""Layers and parts of models of images, video, volumes, points and sounds, each once forward and back.

Blocks of classifiers, transformers and generators, heads with their losses, cost volumes, rays,
augmentations, and updates of one block's weights; in the dtypes and layouts they are trained in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import vision_blocks as blocks
import vision_clips as clips
import vision_scenes as scenes
import vision_tasks as tasks
import vision_tokens as tokens
from cases import Case, Pool, Run, both, building, of_module, with_tf32
from harness import main
from torch import nn

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
DTYPES = {"bf16": BF16, "fp16": FP16, "fp32": FP32, "tf32": FP32, "bytes": torch.uint8}


class Given(NamedTuple):
    """An input that wants no gradient: numbers, or indices below `high`."""

    size: tuple[int, ...]
    high: int = 0


Input = tuple[int, ...] | Given


def some(*size: int) -> Given:
    return Given(size)


def ids(high: int, *size: int) -> Given:
    return Given(size, high)


CLASSIFIERS = (
    ("resnet 50", partial(blocks.bottleneck, cin=1024, mid=256, out=1024), ((256, 1024, 14, 14),), "amp fp16 last"),
    ("resnet 50 down", partial(blocks.bottleneck, cin=256, mid=128, out=512, stride=2), ((64, 256, 56, 56),), "tf32"),
    ("resnet 18", partial(blocks.basic, cin=64, cout=64), ((256, 64, 32, 32),), "fp32"),
    ("resnet 34", partial(blocks.basic, cin=256, cout=512, stride=2), ((128, 256, 14, 14),), "bf16 last"),
    ("resnext", partial(blocks.bottleneck, cin=512, mid=256, out=512, groups=32), ((64, 512, 28, 28),), "tf32 last"),
    ("regnet", partial(blocks.regnet, c=440, width=55, stride=1), ((64, 440, 14, 14),), "amp bf16 last alone"),
    ("stem", blocks.stem, (some(128, 3, 224, 224),), "amp bf16 last"),
    ("stem", blocks.stem, (some(48, 3, 299, 299),), "fp32"),
    ("vgg", partial(blocks.vgg, cin=128, cout=256), ((32, 128, 56, 56),), "tf32"),
    ("wide resnet", partial(blocks.preactivated, cin=160, cout=320), ((128, 160, 16, 16),), "fp16"),
    ("mobilenet 2", partial(blocks.inverted, cin=24, mid=144, k=3, act=nn.ReLU6), ((96, 24, 56, 56),), "fp32 last"),
    ("mobilenet 3", partial(blocks.inverted, cin=112, mid=672, k=3, act=nn.Hardswish, squeeze=168), ((256, 112, 14, 14),), "amp fp16 alone"),
    ("efficientnet", partial(blocks.inverted, cin=80, mid=480, k=5, act=nn.SiLU, squeeze=20), ((64, 80, 24, 24),), "amp bf16"),
    ("efficientnet 2", partial(blocks.fused, cin=48, cout=64), ((64, 48, 75, 75),), "bf16 last"),
    ("convnext", partial(blocks.ConvNeXt, c=192), ((64, 192, 28, 28),), "amp bf16"),
    ("convnext 2", partial(blocks.ConvNeXt, c=640, second=True), ((64, 640, 14, 14),), "fp16 last"),
    ("densenet", partial(blocks.Dense, cin=128), ((64, 128, 28, 28),) * 2, "fp32"),
    ("inception", partial(blocks.Inception, cin=288), ((64, 288, 35, 35),), "amp fp16 alone"),
    ("ghostnet", partial(blocks.Ghost, cin=40, cout=240), ((128, 40, 28, 28),), "tf32"),
    ("repvgg", partial(blocks.RepVGG, c=96), ((64, 96, 56, 56),), "amp fp16 last"),
    ("shufflenet", partial(blocks.Shuffled, c=232), ((256, 232, 14, 14),), "fp32"),
    ("cbam", partial(blocks.Gate, c=512), ((32, 512, 28, 28),), "fp32 last alone"),
    ("big transfer", partial(blocks.Standardized, c=512), ((32, 512, 28, 28),), "amp bf16 last"),
    ("poolformer", partial(blocks.Pooled, c=320), ((128, 320, 14, 14),), "bf16"),
    ("head", partial(blocks.Head, c=1280, classes=1000), ((256, 1280, 7, 7), ids(1000, 256)), "amp fp16"),
    ("head of 21841", partial(blocks.Head, c=1536, classes=21841), ((128, 1536, 10, 10), ids(21841, 128)), "tf32 alone"),
)  # fmt: skip
TRANSFORMERS = (
    ("vit b", partial(tokens.Attention, c=768, heads=12, fused=False), ((64, 197, 768),), "amp fp16"),
    ("deit", partial(tokens.Attention, c=192, heads=3, fused=True, mlp=768), ((256, 198, 192),), "bf16"),
    ("siglip", partial(tokens.Attention, c=1152, heads=16, fused=True, normed=True), ((16, 729, 1152),), "bf16"),
    ("dino 2", partial(tokens.Attention, c=1024, heads=16, fused=False, mlp=4096), ((4, 1025, 1024),), "tf32 alone"),
    ("audio transformer", partial(tokens.Attention, c=384, heads=6, fused=True), ((12, 1214, 384),), "fp32"),
    ("swin", partial(tokens.Windowed, c=192, heads=6, window=7, shift=3, sides=28), ((64, 28, 28, 192),), "amp fp16"),
    ("swin of 384", partial(tokens.Windowed, c=128, heads=4, window=12, shift=6, sides=96), ((4, 96, 96, 128),), "bf16 alone"),
    ("maxvit", partial(tokens.Grid, c=96, heads=3), ((32, 96, 56, 56),), "tf32"),
    ("pvt", partial(tokens.Reduced, c=64, heads=1, ratio=8, side=56), ((64, 56, 56, 64),), "amp bf16"),
    ("xcit", partial(tokens.Crossed, c=384, heads=8), ((64, 784, 384),), "fp16"),
    ("segment anything", partial(tokens.Relative, each=64, side=14), ((300, 14, 14, 64),) * 3, "fp32 alone"),
    ("patches of 16", partial(tokens.Embedding, c=768, k=16, stride=16), (some(64, 3, 224, 224), (197, 768)), "amp bf16"),
    ("patches of sound", partial(tokens.Embedding, c=768, k=16, stride=10, cin=1), (some(24, 1, 128, 1024), (1213, 768)), "tf32"),
    ("masked autoencoder", partial(tokens.Masked, c=1024), ((128, 196, 1024),), "amp fp16"),
    ("timesformer", partial(clips.Divided, c=768, heads=12, frames=8), ((8, 1568, 768),), "fp16"),
)  # fmt: skip
GENERATORS = (
    ("stable diffusion", partial(tokens.Unet, cin=640, cout=320), ((8, 640, 64, 64), (8, 1280)), "amp fp16 alone"),
    ("guided diffusion", partial(tokens.Unet, cin=512, cout=256, scaling=True), ((32, 512, 16, 16), (32, 1280)), "fp32"),
    ("sdxl", partial(tokens.Unet, cin=1280, cout=640), ((4, 1280, 64, 64), (4, 1280)), "bf16 last"),
    ("text attention", partial(tokens.Text, c=640, heads=10, text=768), ((8, 1024, 640), some(8, 77, 768)), "amp bf16 alone"),
    ("ddpm attention", partial(tokens.Places, c=256), ((128, 256, 16, 16),), "tf32"),
    ("vae attention", partial(tokens.Places, c=512), ((2, 512, 64, 64),), "fp16 alone"),
    ("vae", partial(tokens.Grow, c=256), ((4, 256, 128, 128),), "bf16 last alone"),
    ("dit", partial(tokens.Adaptive, c=1152), ((32, 256, 1152), (32, 1152)), "amp bf16"),
    ("dit s", partial(tokens.Adaptive, c=384), ((64, 256, 384), (64, 384)), "fp16 alone"),
    ("stable diffusion 3", partial(tokens.Joint, c=1536, heads=24), ((4, 1024, 1536), (4, 154, 1536)), "bf16"),
    ("vq", partial(tokens.Codebook, many=1024, c=256), ((32, 256, 32, 32),), "fp32"),
    ("vq of 8192", partial(tokens.Codebook, many=8192, c=64), ((8, 64, 32, 32),), "tf32"),
    ("stylegan 2", partial(tokens.Modulated, c=256), ((16, 256, 64, 64), (16, 512)), "fp16"),
    ("pix2pix", partial(clips.judged, cin=128, cout=256), ((16, 128, 64, 64),), "fp32"),
    ("sngan", partial(clips.bounded, c=128), ((128, 128, 16, 16),), "tf32"),
    ("cyclegan", partial(clips.mirrored, c=256), ((4, 256, 64, 64),), "amp fp16"),
    ("esrgan", clips.Dense, ((16, 64, 64, 64),), "amp bf16 last"),
    ("glow", partial(clips.Coupled, c=48), ((32, 48, 16, 16),), "fp32"),
    ("pixelcnn", partial(clips.Causal, c=64), ((64, 64, 32, 32),), "tf32 alone"),
)  # fmt: skip
PIXELS = (
    ("yolo 8", partial(blocks.Stages, c=128), ((32, 128, 80, 80),), "amp fp16"),
    ("pyramid", partial(blocks.Pyramid, c=1024), ((4, 1024, 50, 84), (4, 256, 25, 42)), "tf32"),
    ("deeplab", partial(blocks.Atrous, c=1024), ((8, 1024, 33, 33),), "amp bf16 last alone"),
    ("pspnet", partial(blocks.Bins, c=512), ((8, 512, 60, 60),), "fp32 alone"),
    ("u-net", partial(blocks.Up, c=256), ((8, 256, 64, 64), (8, 128, 128, 128)), "amp fp16"),
    ("u-net of volumes", partial(blocks.Up, c=64, dims=3), ((2, 64, 48, 48, 48), (2, 32, 96, 96, 96)), "bf16"),
    ("segformer", partial(blocks.Segformer, fine=64, coarse=512), ((8, 64, 128, 128), (8, 512, 16, 16)), "amp bf16"),
    ("nnu-net", partial(clips.volume, c=32, stride=2), ((2, 32, 96, 96, 96),), "amp fp16"),
    ("r(2+1)d", partial(clips.split, cin=64, mid=144, cout=64), ((8, 64, 8, 56, 56),), "amp bf16 last"),
    ("x3d", partial(clips.Thin, c=48, mid=108), ((16, 48, 13, 28, 28),), "fp16 last"),
    ("x3d again", partial(clips.Thin, c=96, mid=216), ((16, 96, 16, 14, 14),), "fp32 alone"),
    ("convlstm", partial(clips.Cell, c=64), ((32, 64, 64, 64),) * 3, "tf32"),
    ("raft's gru", partial(clips.Motion, c=128), ((6, 128, 46, 96),) * 2, "amp fp16"),
    ("tsm", partial(clips.Shifted, c=256, frames=8), ((64, 256, 28, 28),), "fp16"),
    ("non-local", partial(clips.Nonlocal, c=256), ((4, 256, 4, 28, 28),), "amp bf16 alone"),
    ("cnn 14", partial(clips.heard, cin=64, cout=128), ((32, 64, 500, 32),), "fp32"),
    ("conformer's start", partial(clips.Spoken, c=256, bands=80), (some(16, 1000, 80),), "amp fp16"),
)  # fmt: skip
"""Of detectors, segmenters, video and sound."""
LOSSES = (
    (tasks.retina, ((4, 76725, 80), (4, 76725, 4), ids(80, 4, 76725), some(4, 76725, 4)), "fp32"),
    (tasks.matched, (some(120000, 4), some(40, 4)), "fp32"),
    (tasks.distributed, ((16, 2100, 64), some(16, 2100, 4)), "fp16"),
    (tasks.distant, ((60000, 4), some(60000, 4)), "fp32"),
    (tasks.suppressed, (some(21824, 4), some(21824)), "fp32"),
    (tasks.peaks, (some(32, 80, 128, 128), some(32, 2, 128, 128)), "fp16"),
    (tasks.hardest, ((32, 8732, 21), ids(21, 32, 8732)), "fp32"),
    (tasks.costs, (some(16, 300, 92), some(16, 300, 4), ids(92, 160), some(160, 4)), "fp32"),
    (tasks.pooled, ((4, 256, 100, 136), some(4, 512)), "fp32"),
    (tasks.deformed, ((8, 128, 48, 64), (8, 9, 2, 48, 64), (8, 9, 48, 64), (128, 128, 9)), "tf32"),
    (tasks.multiscale, ((4, 6400, 256), (4, 1500, 8, 4, 2), (4, 1500, 8, 4)), "fp32"),
    (tasks.masks, ((4, 100, 256), (4, 256, 128, 128), some(4, 100, 128, 128)), "amp bf16"),
    (tasks.mined, ((4, 19, 128, 256), ids(19, 4, 128, 256)), "bf16"),
    (tasks.lovasz, ((2, 19, 256, 256), ids(19, 2, 256, 256)), "fp32"),
    (tasks.uncertain, ((64, 1, 128, 128), some(64, 32, 56, 56)), "fp32"),
    (tasks.correlated, ((6, 256, 46, 62),) * 2, "fp32"),
    (tasks.looked_up, ((17112, 1, 46, 62), some(6, 2, 46, 62)), "fp32"),
    (tasks.shifted, ((8, 96, 64, 112),) * 2, "fp16"),
    (tasks.convex, ((6, 2, 46, 62), (6, 576, 46, 62)), "fp32"),
    (tasks.alike, (some(12, 3, 192, 640),) * 2, "fp32"),
    (tasks.structural, (some(8, 3, 256, 256),) * 2, "tf32"),
    (tasks.smooth, ((12, 1, 192, 640), some(12, 3, 192, 640)), "fp32"),
    (tasks.perceived, ((16, 128, 128, 128), some(16, 128, 128, 128), some(128)), "bf16"),
    (tasks.stereo, ((4, 32, 64, 128),) * 2, "fp16"),
    (tasks.disparity, ((2, 1, 96, 64, 128), some(2, 64, 128)), "fp32"),
    (tasks.varied, ((2, 16, 128, 160), (2, 16, 128, 160), some(32, 2, 3)), "fp32"),
)  # fmt: skip
SCENES = (
    (scenes.edges, ((16, 64, 1024), (64, 64)), "tf32"),
    (scenes.grouped, (some(16, 2048, 3), (16, 2048, 64), some(16, 512, 3)), "fp32"),
    (scenes.farthest, (some(32, 8192, 3),), "fp32"),
    (scenes.pillars, ((12000, 100, 9), (64, 9), ids(262144, 12000)), "fp32"),
    (scenes.voxels, ((200000, 32), ids(65536, 200000)), "fp32"),
    (scenes.vectors, ((20000, 64), (20000, 64), (20000, 64), some(20000, 3), ids(20000, 20000, 16)), "fp32"),
    (scenes.chamfer, ((8, 2048, 3), some(8, 2048, 3)), "fp32"),
    (scenes.lifted, ((12, 64, 16, 44), (12, 41, 16, 44), ids(40000, 346368)), "fp16"),
    (scenes.encoded, (some(131072, 3), (128, 63), (128, 128)), "tf32"),
    (scenes.rendered, ((4096, 192), (4096, 192, 3), some(4096, 192)), "fp32"),
    (scenes.searched, (some(8192, 64), some(8192, 63)), "fp32"),
    (scenes.hashed, (some(262144, 3), (524288, 2)), "fp32"),
    (scenes.planes, (some(262144, 3), (32, 256, 256), (32, 256, 256), (32, 256, 256)), "fp32"),
    (scenes.splats, (some(500000, 4), (500000, 3)), "fp32"),
    (scenes.harmonics, ((500000, 4, 3), some(500000, 3)), "fp32"),
    (scenes.melodies, (some(32, 160000), some(257, 128)), "fp32"),
    (scenes.spectra, ((16, 65536), some(16, 65536)), "fp32"),
    (scenes.jittered, (some(64, 3, 224, 224),), "fp32"),
    (scenes.resized, (some(128, 3, 224, 224),), "fp16 last"),
    (scenes.posterized, (some(256, 3, 224, 224),), "bytes"),
    (scenes.equalized, (some(64, 3, 224, 224),), "bytes"),
    (scenes.different, ((64, 3, 128, 128),), "fp16"),
    (scenes.cut, (some(128, 3, 224, 224), ids(1000, 128)), "bf16 last"),
    (scenes.covaried, ((1024, 4096), (1024, 4096)), "tf32"),
    (scenes.queued, ((256, 128), some(256, 128), some(65536, 128)), "amp fp16"),
    (scenes.arced, ((256, 512), (20000, 512), ids(20000, 256)), "tf32"),
    (scenes.taught, ((256, 65536), some(256, 65536), some(1, 65536)), "fp32"),
    (scenes.merged, ((64, 196, 768), some(64, 196, 64)), "fp16"),
    (scenes.noised, (some(64, 4, 64, 64), (64, 4, 64, 64), ids(1000, 64), some(1000)), "fp32"),
    (scenes.guided, (some(16, 4, 128, 128),) * 3, "fp16"),
    (scenes.filtered, ((8, 64, 128, 128),), "fp16"),
    (scenes.deviated, ((32, 512, 4, 4), (512, 512, 3, 3)), "fp32"),
)  # fmt: skip


class Cast(nn.Module):
    """A module or a function under autocast; its other numbers stay as they are."""

    def __init__(self, inner: Callable[..., torch.Tensor], kind: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.kind, self.dtype = inner, kind, dtype

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.kind, self.dtype):
            return self.inner(*inputs)


class Mode(NamedTuple):
    dtype: torch.dtype
    auto: bool
    last: bool
    tf32: bool
    alone: bool
    """Without gradients, as a teacher, an evaluation or a sampler has it."""


def said(mode: str) -> Mode:
    auto, name = "amp" in mode, mode.removeprefix("amp ").split()[0]
    return Mode(DTYPES[name], auto, "last" in mode, name == "tf32", "alone" in mode)


def made(one: Input, mode: Mode, half: bool, p: Pool) -> torch.Tensor:
    """An input; under autocast only images of an earlier layer are `half` already."""
    given = isinstance(one, Given)
    size = one.size if given else one
    if given and one.high:
        return p.index(one.high, *size)
    layout = LAST.get(len(size), torch.contiguous_format) if mode.last else torch.contiguous_format
    wide = mode.auto and not (half and len(size) > 3 and not given)
    take = p.randn if given else p.leaf
    return take(*size, dtype=FP32 if wide else mode.dtype, layout=layout)


def layer(
    build: Callable[..., nn.Module], inputs: tuple[Input, ...], mode: Mode, p: Pool
) -> Run:  # fmt: skip
    """A module forward and, mostly, backward."""
    with p.device:
        module = build(p.n)
    if not mode.auto:
        module.to(mode.dtype)
    taken = [made(one, mode, True, p) for one in inputs]
    if mode.last:
        module.to(memory_format=LAST[taken[0].dim()])
    called = Cast(module, p.device.type, mode.dtype) if mode.auto else module
    if mode.alone:
        module.eval()
        return with_tf32(mode.tf32, torch.no_grad()(lambda: called(*taken)))
    return with_tf32(mode.tf32, of_module(p, called, *taken))


def task(
    f: Callable[..., torch.Tensor], inputs: tuple[Input, ...], mode: Mode, p: Pool
) -> Run:  # fmt: skip
    """A function forward and, where an input wants it, backward."""
    taken = [made(one, mode, False, p) for one in inputs]
    call = Cast(f, p.device.type, mode.dtype) if mode.auto else f
    if not any(x.requires_grad for x in taken):
        return with_tf32(mode.tf32, lambda: call(*taken))
    return with_tf32(mode.tf32, both(p, call, *taken))


def cases() -> Iterator[Case]:
    for name, build, inputs, mode in (*CLASSIFIERS, *TRANSFORMERS, *GENERATORS, *PIXELS):
        yield Case(f"{name} {inputs} {mode}", partial(layer, build, inputs, said(mode)))
    for f, inputs, mode in (*LOSSES, *SCENES):
        yield Case(f"{f.__name__} {inputs} {mode}", partial(task, f, inputs, said(mode)))
    yield from clips.updates()


build = building("vision_layers", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
