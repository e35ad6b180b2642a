"""Recordings and traces that a person named: which they are, opened, judged, copied into a recording.

The files of a job's ranks, each of them opened and read.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from brrrtop.advisories.advise import split_silenced
from brrrtop.cli import output
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput, UsageError
from brrrtop.model.advice import Baseline
from brrrtop.model.snapshot import Snapshot, SourceInfo
from brrrtop.model.tables import Span
from brrrtop.session import verdict
from brrrtop.session.analyze import analyze
from brrrtop.session.analyze import read as read_timeline
from brrrtop.session.job import RankView, job_of, odd_one, rank_of, require_one_job, with_job
from brrrtop.sources import recording as converting
from brrrtop.sources.registry import open_source
from brrrtop.sources.source import Source
from collectors.protocol.frames import Kind

if TYPE_CHECKING:  # nothing that a report needs, and long to import
    from brrrtop.session.driver import Member
    from brrrtop.session.replay import Replay

ENDINGS = (".brrr", ".json", ".json.gz", ".json.zip", ".sqlite", ".pb")


def files_of(options: Options) -> tuple[str, ...]:
    """The files that were named, and those in folders that were; of `-` a copy of what standard input has.

    Raises:
        BadInput: A folder has none.
        UsageError: Several are named, and one recording is to be made of them.
    """
    files: list[str] = []
    for name in options.files:
        folder = Path(name)
        if name == "-" and name not in files:
            files.append(_from_stdin())
        else:
            files += _in_folder(folder) if folder.is_dir() else [name]
    if len(files) > 1 and options.record:
        raise UsageError(
            "--record writes one recording, and several files were named", "convert one at a time"
        )
    return tuple(dict.fromkeys(files))


def _from_stdin() -> str:
    """A file of this process's own with all of standard input: traces are read twice.

    Raises:
        UsageError: It is a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- stands for what another program pipes into brrrtop, and nothing does")
    folder = tempfile.mkdtemp(prefix="brrrtop-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "stdin"
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    except OSError as fault:
        raise BadInput(f"standard input cannot be kept in {folder}: {fault.strerror}") from fault
    return str(path)


def _in_folder(folder: Path) -> list[str]:
    try:
        listed = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS))
    except OSError as fault:
        raise BadInput(
            f"{folder} cannot be read: {fault.strerror}", "check its permissions"
        ) from fault
    if not listed:
        raise BadInput(
            f"{folder} has no recording or trace in it", f"their names end in {', '.join(ENDINGS)}"
        )
    return [str(path) for path in listed]


def read(path: str, options: Options, *, trimmed: bool = False, worst: bool = False) -> Snapshot:
    """The whole file (or `--steps` of it) as one snapshot of the chosen or busiest GPU.

    `trimmed`: without what lies outside its whole steps, to be compared with another. `worst`: with the
    picture of the longest step.
    """
    with closing(open_source(path, options.force)) as source:
        if options.record:
            convert(source, options.record)
        return analyze(
            source, options.steps, options.gpu, trimmed=trimmed, silenced=options.silenced,
            worst=worst,
        )  # fmt: skip


def convert(source: Source, path: str) -> None:
    """Writes all of a source into a recording, and rewinds it."""
    span = source.span
    converting.convert(source, path)
    source.seek(span.t0_ns if span else 0)
    output.say(f"written to {path}")


def baseline(options: Options) -> Baseline | None:
    """What `--baseline` names, judged whole; None when nothing was. A file is read once."""
    if options.baseline is None:
        return None
    whole = _baseline(options.baseline, options.force)
    return replace(whole, advisories=split_silenced(whole.advisories, options.silenced)[0])


@cache
def _baseline(path: str, force: bool) -> Baseline:
    from brrrtop.session.baseline import baseline_of

    with closing(open_source(path, force)) as source:
        return baseline_of(analyze(source, trimmed=True), Path(path).name)


def compare(snapshot: Snapshot, before: Baseline | None) -> Snapshot:
    if before is None or snapshot.estimate is None:
        return snapshot
    from brrrtop.session.baseline import compared_whole

    comparison = compared_whole(before, snapshot.estimate)
    return replace(snapshot, baseline=before, comparison=comparison)


class FromFirstActivity:
    """A finished source that begins where its GPU does, so that a replay opens on something to see.

    What came before is still read first.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.frames, self.seek, self.close = source.frames, source.seek, source.close
        self.span = _active_span(source)

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    @property
    def ended(self) -> bool:
        return self._source.ended


def _active_span(source: Source) -> Span | None:
    """From the first device activity to the source's end; reads the source and rewinds it."""
    span = source.span
    if span is None:
        return None
    first_ns = None
    for frame in source.frames():
        if frame.kind in (Kind.KERNELS, Kind.COPIES) and len(frame.body):
            first_ns = int(frame.body["start_ns"].min())
            break
    source.seek(span.t0_ns)
    return span if first_ns is None else Span(max(span.t0_ns, first_ns), span.t1_ns)


_Rank = TypeVar("_Rank", RankView, "Member")


def labels_of(files: Sequence[str]) -> list[str]:
    """What the files are called beside each other: their names, with folders where those are alike."""
    names = [Path(file).name for file in files]
    return names if len(set(names)) == len(names) else list(files)


def read_all(files: Sequence[str], options: Options) -> Snapshot:
    """All ranks as one snapshot, which speaks of the rank that the others wait for.

    Raises:
        BadInput: None of them can be used, or they are of several jobs.
    """
    views, first = _all(files, options, _read, RankView)
    require_one_job(views)
    job = job_of(views, options.silenced)
    shown = odd_one(job, views)
    if shown is None or shown.snapshot is None:
        raise first or BadInput("none of these files has a rank of a job in it")
    return shown.snapshot if len(views) == 1 else with_job(shown.snapshot, job, shown.key)


def _all(
    files: Sequence[str], options: Options, read: Callable[[str, str, Options], _Rank],
    unread: Callable[..., _Rank],
) -> tuple[list[_Rank], BadInput | None]:  # fmt: skip
    """Every rank, those that cannot be used with the reason, the first of which comes too."""
    ranks: list[_Rank] = []
    first: BadInput | None = None
    for file, label in zip(files, labels_of(files), strict=True):
        try:
            ranks.append(read(file, label, options))
        except BadInput as fault:
            first = first or fault
            number = rank_of(None, label)
            if number is None and file not in options.files:
                output.say(f"brrrtop: left out: {fault}")
            else:
                ranks.append(unread(file, label, number, why=str(fault)))
    return ranks, first


def _read(file: str, label: str, options: Options) -> RankView:
    with closing(open_source(file, options.force)) as source:
        timeline = read_timeline(source)
        snapshot = analyze(
            source, options.steps, options.gpu, silenced=options.silenced, timeline=timeline
        )
    assert snapshot.estimate is not None, "a finished file is judged or refused"
    estimate = snapshot.estimate
    # What one rank did once, the others waited for: ranks are compared with all that was recorded.
    span = estimate.span if options.steps else verdict.whole(timeline)
    window = timeline.window(span, estimate.device.device_id)
    return RankView(
        file, label, rank_of(snapshot, label), snapshot, window,
        world=snapshot.source.world, job=snapshot.source.job,
    )  # fmt: skip


def _open(file: str, label: str, options: Options) -> Member:
    from brrrtop.session.driver import Member
    from brrrtop.session.session import Session

    source = FromFirstActivity(open_source(file, options.force))
    number = source.info.rank
    if number is None:
        number = rank_of(None, label)
    return Member(file, label, number, Session(source, keep_ns=None, silenced=options.silenced))


def _view(member: Member) -> RankView:
    if member.session is None:
        return RankView(member.key, member.label, member.rank)
    info = member.session.source.info
    return RankView(member.key, member.label, member.rank, world=info.world, job=info.job)


def open_job(
    files: Sequence[str], options: Options, *, loop: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Replay:  # fmt: skip
    """All ranks under one playhead.

    Raises:
        BadInput: None of them can be opened, or they are of several jobs.
    """
    from brrrtop.session.driver import Member
    from brrrtop.session.replay import Replay

    members, first = _all(files, options, _open, partial(Member, session=None))
    if first is not None and all(member.session is None for member in members):
        raise first
    require_one_job([_view(member) for member in members])
    return Replay(members, silenced=options.silenced, speed=options.speed, loop=loop, clock=clock)
