"""What a hello says of a trainer, as a screen and a report name the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from brrrtop.model.snapshot import SourceInfo


def live_info(
    hello: Mapping[str, Any],
    pid: int | None,
    tier: str,
    notes: Iterable[str],
    waits: Iterable[str] = (),
    gauges: Iterable[str] = (),
) -> SourceInfo:
    """Of a running trainer that says `hello`; of GPUs alone without a `pid`."""
    return SourceInfo(
        kind="live",
        label=f"pid {pid}" if pid is not None else "this machine's GPUs",
        pid=pid,
        rank=hello.get("rank"),
        world=hello.get("world"),
        job=hello.get("job"),
        cmdline=command_line(hello.get("cmdline")),
        torch=hello.get("torch"),
        tier=tier,
        notes=tuple(notes),
        waits=frozenset(waits),
        gauges=frozenset(gauges),
    )


def with_hello(info: SourceInfo, hello: object) -> SourceInfo:
    """`info` with what a hello says; values of unexpected types are left out."""
    if not isinstance(hello, dict):
        return info

    def of(key: str, kind: type) -> object:
        value = hello.get(key)
        if kind is str:
            value = command_line(value)
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    facts = {key: of(key, int) for key in ("pid", "rank", "world")}
    facts |= {key: of(key, str) for key in ("cmdline", "torch", "tier", "job")}
    notes = hello.get("notes")
    texts = tuple(str(note) for note in notes) if isinstance(notes, list) else ()
    known = {key: value for key, value in facts.items() if value is not None}
    return replace(info, **known, notes=tuple(dict.fromkeys((*texts, *info.notes))))


def command_line(words: object) -> str | None:
    """A command line as one string, whether it came as words or as one."""
    if isinstance(words, list):
        return " ".join(map(str, words))
    return words if isinstance(words, str) else None
