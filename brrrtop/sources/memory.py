"""A `Source` over frames that are already there: for tests, and for snapshots of what was held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from brrrtop.protocol.frames import Frame, Kind


class MemorySource:
    """Frames of a list, in order of `sent_ns`."""

    def __init__(self, frames: Iterable[Frame], info: SourceInfo | None = None) -> None:
        self._frames = sorted(frames, key=lambda frame: frame.sent_ns)
        self._next = 0
        self._info = informed(
            info or SourceInfo(kind="memory", label="memory"),
            next((f.body for f in self._frames if f.kind == Kind.HELLO), {}),
        )

    @property
    def info(self) -> SourceInfo:
        return self._info

    @property
    def span(self) -> Span | None:
        if not self._frames:
            return None
        return Span(self._frames[0].sent_ns, self._frames[-1].sent_ns)

    @property
    def ended(self) -> bool:
        return self._next >= len(self._frames)

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """The next frames with `sent_ns <= until_ns`."""
        while self._next < len(self._frames):
            frame = self._frames[self._next]
            if until_ns is not None and frame.sent_ns > until_ns:
                return
            self._next += 1
            yield frame

    def seek(self, t_ns: int) -> None:
        self._next = 0

    def close(self) -> None:
        self._frames = []


def live_info(
    hello: Mapping[str, Any], pid: int | None, tier: str, notes: Iterable[str]
) -> SourceInfo:
    """Of a running trainer that says `hello`; of GPUs alone without a `pid`."""
    return SourceInfo(
        kind="live",
        label=f"pid {pid}" if pid is not None else "this machine's GPUs",
        pid=pid,
        rank=hello.get("rank"),
        world=hello.get("world"),
        cmdline=command_line(hello.get("cmdline")),
        torch=hello.get("torch"),
        tier=tier,
        notes=tuple(notes),
    )


def informed(info: SourceInfo, hello: object) -> SourceInfo:
    """`info` with what a hello says; values of unexpected types are left out."""
    if not isinstance(hello, dict):
        return info

    def of(key: str, kind: type) -> object:
        value = hello.get(key)
        if kind is str:
            value = command_line(value)
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    facts = {key: of(key, int) for key in ("pid", "rank", "world")}
    facts |= {key: of(key, str) for key in ("cmdline", "torch", "tier")}
    notes = hello.get("notes")
    told = tuple(str(note) for note in notes) if isinstance(notes, list) else ()
    known = {key: value for key, value in facts.items() if value is not None}
    return replace(info, **known, notes=tuple(dict.fromkeys((*told, *info.notes))))  # type: ignore[arg-type]


def command_line(words: object) -> str | None:
    """A command line as one string, whether it came as words or as one."""
    if isinstance(words, list):
        return " ".join(map(str, words))
    return words if isinstance(words, str) else None
