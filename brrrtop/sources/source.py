"""Where frames come from: what a source is (a live socket, a recording, a trace, memory), and how a file that
somebody named is opened, with a sentence for whatever is wrong with it.

It says how much of this machine it may take before somebody says `--force`: a file of 2 MB can hold 2 GB of
text, and a sound one more than the machine has memory for. Real traces and recordings hold 3 to 30 times
their own size. Memory that was freed is given back to the system.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from msgspec.structs import replace

from brrrtop.errors import BadInput
from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from collectors.protocol.frames import Frame, Kind

FREE_BYTES = 64 << 20
"""So much text harms nobody, whatever it came out of."""
MOST_TIMES = 100
"""So many times what was read of it a file may have held."""
MOST_TEXT_BYTES = 4 << 30
MOST_OF_MEMORY = 0.5
"""Of what is free: columns are copied once more when all of a file is there."""
_LOOK_BYTES = 32 << 20
_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def open_input(path: Path) -> tuple[BinaryIO, int]:
    """The file, and its size in bytes.

    Raises:
        BadInput: Missing, a directory, empty, not readable.
    """
    try:
        if path.is_dir():
            raise BadInput(f"{path} is a directory", "name one trace or recording in it")
        size_bytes = path.stat().st_size
        if not path.is_file():
            raise BadInput(
                f"{path} is not a regular file",
                "pipe it in, `brrrtop analyze -`, or write it to a file",
            )
        if size_bytes == 0:
            raise BadInput(f"{path} is empty", "was the export interrupted? Record it again")
        return path.open("rb"), size_bytes
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", "check the path") from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise BadInput(f"{path} cannot be read: {reason}", "check its permissions") from fault


class Budget:
    """Counts the text of one file.

    Args:
        label: The file's name.
        file: What the text comes out of.
        force: No limit holds.
    """

    def __init__(self, label: str, file: BinaryIO, force: bool = False) -> None:
        self._label = label
        self._file = file
        self._force = force
        self.text_bytes = 0
        self._looked_bytes = 0
        self._most_resident: float | None = None

    def counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The same blocks."""
        for block in blocks:
            self.text_bytes += len(block)
            if not self._force:
                self._check()
            yield block

    def _check(self) -> None:
        most_bytes = min(max(FREE_BYTES, MOST_TIMES * self._file.tell()), MOST_TEXT_BYTES)
        if self.text_bytes > most_bytes:
            raise self._too_much(f"holds more than {most_bytes >> 20:,} MB of text")
        if self.text_bytes - self._looked_bytes < _LOOK_BYTES:
            return
        self._looked_bytes = self.text_bytes
        self.check_memory()

    def check_memory(self) -> None:
        """For what is made of the text, which may be far more.

        Raises:
            BadInput: Since the first call half of what was free then has gone.
        """
        if self._force:
            return
        resident, free = _memory()
        if self._most_resident is None:
            self._most_resident = resident + MOST_OF_MEMORY * free
        if resident > self._most_resident:
            raise self._too_much("takes more than half of the free memory")

    def _too_much(self, why: str) -> BadInput:
        return BadInput(f"{self._label} {why}", "--force reads it all the same; or record less")


def _memory() -> tuple[int, int]:
    """Bytes that this process has, and that are free for it; without limit where /proc does not say."""
    try:
        pages = int(_PROC.joinpath("self/statm").read_text().split()[1])
        lines = _PROC.joinpath("meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
    except (OSError, IndexError, StopIteration):
        return 0, MOST_TEXT_BYTES
    free = int(available.split()[1]) << 10
    with contextlib.suppress(OSError, ValueError):  # ValueError: `max`, no limit
        most = int((_CGROUP / "memory.max").read_text())
        free = min(free, most - int((_CGROUP / "memory.current").read_text()))
    return pages * os.sysconf("SC_PAGE_SIZE"), max(free, 0)


def malloc_trim() -> None:
    """Lets go of the pages that nothing uses any more, where the C library can.

    glibc keeps what lies below the last block in use: between the stages of a large file that is
    more than the next stage needs.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


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
