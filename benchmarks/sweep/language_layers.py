"""Layers of language, speech, protein and multimodal models, and what stands around them in a step."""

from __future__ import annotations

from collections.abc import Iterator

import language_attention
import language_domains
import language_mixers
import language_parts
from cases import Case, building
from harness import main
from language_seated import as_case

TRUTH = {"regime": "unknown", "advice": [], "not_advice": []}


def cases() -> Iterator[Case]:
    for part in (language_attention, language_mixers, language_domains):
        yield from map(as_case, part.BLOCKS)
    yield from language_parts.cases()


build = building("language_layers", cases)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
