"""Whole layers in bf16 and fp16, forward and backward, drawn over sizes: transformers and convnets."""

from __future__ import annotations

from collections.abc import Iterator

import layers_images
import layers_tokens
from cases import Case, building
from harness import main

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


def cases() -> Iterator[Case]:
    yield from layers_tokens.cases()
    yield from layers_images.cases()


build = building("layers_half", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
