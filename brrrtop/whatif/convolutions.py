"""What shapes tell of convolutions that a layout depends on."""

from __future__ import annotations

from brrrtop.model.tables import OpSignature

_IMAGE_AND_WEIGHT = {
    "aten::conv2d": 0, "aten::conv3d": 0, "aten::convolution": 0, "aten::_convolution": 0,
    "aten::cudnn_convolution": 0, "aten::convolution_backward": 1,
}  # fmt: skip
"""Place of the image among the inputs; the weight follows."""


def keeps_layout(op: OpSignature) -> bool:
    """A convolution for whose sake Inductor leaves the images of a training step as they lie.

    One in groups, one with a window that halves the channels or more, or one over volumes
    (`GraphLowering.decide_layout_opt` and `convolution` of torch 2.4 to 2.11).
    """
    shapes = _shapes(op)
    if shapes is None:
        return False
    _, weight = shapes
    narrows = 2 * weight[0] <= weight[1] and weight[2] > 1
    return in_groups(op) or narrows or len(weight) > 4


def in_groups(op: OpSignature) -> bool:
    """A convolution in groups of more than one channel."""
    shapes = _shapes(op)
    return shapes is not None and shapes[0][1] > shapes[1][1] > 1


def _shapes(op: OpSignature) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    at = _IMAGE_AND_WEIGHT.get(op.name)
    if at is None or len(op.dims) < at + 2:
        return None
    image, weight = op.dims[at : at + 2]
    if len(image) < 4 or len(weight) != len(image):
        return None
    if at and op.dims[0][1] != weight[0]:
        return None  # transposed
    return tuple(image), tuple(weight)
