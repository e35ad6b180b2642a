"""What a hello says of a trainer, as a screen and a report name the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from brrrtop.model.snapshot import SourceInfo

_FACTS = {
    "pid": int,
    "rank": int,
    "world": int,
    "cmdline": str,
    "torch": str,
    "tier": str,
    "job": str,
}


def with_hello(info: SourceInfo, hello: Mapping[str, Any]) -> SourceInfo:
    """`info` with what a hello says; values of unexpected types are left out."""
    words, notes = hello.get("cmdline"), hello.get("notes")
    facts = {**hello, "cmdline": " ".join(map(str, words)) if isinstance(words, list) else words}
    known = {key: facts[key] for key, kind in _FACTS.items() if type(facts.get(key)) is kind}
    texts = map(str, notes) if isinstance(notes, list) else ()
    return replace(info, **known, notes=tuple(dict.fromkeys((*texts, *info.notes))))
