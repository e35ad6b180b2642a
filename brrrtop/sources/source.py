"""The one seam behind which frames come from: a live socket, a recording, a trace, memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from collectors.protocol.frames import Frame, Kind

FELL_NS = 10_000_000_000
"""A clock that falls by less is waited for."""
_FACTS = {
    "pid": int,
    "rank": int,
    "world": int,
    "cmdline": str,
    "torch": str,
    "tier": str,
    "job": str,
}


class Source(Protocol):
    """Frames in order of `sent_ns`, from one trainer.

    A source never interprets what it carries. `info` may grow richer once the hello is read.
    """

    @property
    def info(self) -> SourceInfo: ...

    @property
    def span(self) -> Span | None:
        """First and last `sent_ns` of a finished source; None while it is still growing."""
        ...

    @property
    def ended(self) -> bool: ...

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """The next frames with `sent_ns <= until_ns`; None: all there are right now.

        A live source returns what has arrived and never waits.
        """
        ...

    def seek(self, t_ns: int) -> None:
        """Start again so that the next frames are those a fresh reader would get; live sources refuse.

        The session drops its timeline and reads up to `t_ns` again.
        """
        ...

    def close(self) -> None: ...


def merge_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Marks, gauges and names of one reading as one frame of each: a third less in a recording.

    Marks and gauges come in the last of their kind, names in the first: before what uses them.
    """
    of_kind: dict[int, list[Frame]] = {Kind.MARKS: [], Kind.GAUGES: [], Kind.NAMES: []}
    for frame in frames:
        of_kind.get(frame.kind, []).append(frame)
    merged = []
    for frame in frames:
        same = of_kind.get(frame.kind, [frame])
        if frame.kind == Kind.NAMES:
            if frame is same[0] and len(same) > 1:
                bodies = {key: name for one in same for key, name in one.body.items()}
                frame = replace(frame, body=bodies)
            elif frame is not same[0]:
                continue
        elif frame is not same[-1]:
            continue
        elif len(same) > 1:
            frame = replace(frame, body=np.concatenate([one.body for one in same]))
        merged.append(frame)
    return merged


def with_hello(info: SourceInfo, hello: Mapping[str, Any]) -> SourceInfo:
    """`info` with what a hello says; values of unexpected types are left out."""
    words, notes = hello.get("cmdline"), hello.get("notes")
    facts = {**hello, "cmdline": " ".join(map(str, words)) if isinstance(words, list) else words}
    known = {key: facts[key] for key, kind in _FACTS.items() if type(facts.get(key)) is kind}
    texts = map(str, notes) if isinstance(notes, list) else ()
    return replace(info, **known, notes=tuple(dict.fromkeys((*texts, *info.notes))))
