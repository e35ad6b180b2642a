"""What shapes tell of convolutions that a layout depends on."""

from brrrtop.model.tables import OpSignature

_IMAGE_AND_WEIGHT = {
    "aten::conv1d": 0, "aten::conv2d": 0, "aten::conv3d": 0, "aten::convolution": 0, "aten::_convolution": 0,
    "aten::cudnn_convolution": 0, "aten::_conv_depthwise2d": 0, "aten::convolution_backward": 1,
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
    shapes = _shapes(op)
    return shapes is not None and shapes[0][1] > shapes[1][1] > 1


def is_depthwise(op: OpSignature) -> bool:
    """A convolution with each channel as a group of its own."""
    shapes = _shapes(op)
    return shapes is not None and shapes[0][1] > shapes[1][1] == 1


def is_converted_by_group(op: OpSignature) -> bool:
    """A convolution in groups of a number of channels that cuDNN does not take as they lie: of channels-last
    images it converts one group at a time."""
    shapes = _shapes(op)
    return shapes is not None and in_groups(op) and shapes[1][1] not in (4, 8, 16, 32, 64)


def last_over_first(op: OpSignature, bits: int) -> float | None:
    """Time of a convolution in groups over channels-last images over that over channels-first ones, without
    what converts between the two, in numbers of so many bits; None of any other.

    Measured on an H200, forward and backward (torch 2.11.0+cu130, 2026-11).
    """
    shapes = _shapes(op)
    if shapes is None or shapes[0][1] == shapes[1][1]:
        return None
    _, channels, *window = shapes[1]
    if channels == 1:
        widths = sum(max(window) > size for size in (3, 5))
        return DEPTHWISE_16_BIT if bits == 16 else DEPTHWISE[widths]
    narrow, wide = (2.0, 0.5) if channels == 4 else (1.0, 1.2)
    return narrow if bits == 16 else wide


DEPTHWISE = (0.27, 0.37, 1.9)
"""By window, up to 3, up to 5 and more: `last_over_first` where each channel is a group of its own."""
DEPTHWISE_16_BIT = 0.2


def is_wide(op: OpSignature) -> bool:
    """A convolution with a window of 32 places or more in one direction: tensor cores of 16 bits leave it to
    slower kernels."""
    shapes = _shapes(op, least=3)
    return shapes is not None and max(shapes[1][2:]) >= 32


def _shapes(op: OpSignature, least: int = 4) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    at = _IMAGE_AND_WEIGHT.get(op.name)
    if at is None or len(op.dims) < at + 2:
        return None
    image, weight = op.dims[at : at + 2]
    if len(image) < least or len(weight) != len(image):
        return None
    if at and op.dims[0][1] != weight[0]:
        return None  # transposed
    return tuple(image), tuple(weight)
