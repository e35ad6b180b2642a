"""The files of a job's ranks, each of them opened and read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from brrrtop.cli import output
from brrrtop.cli.files import FromFirstActivity
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze, read
from brrrtop.session.job import RankView, job_of, odd_one, rank_of, require_one_job, with_job
from brrrtop.session.job_session import JobReplay, JobSession, Member
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source

_Rank = TypeVar("_Rank", RankView, Member)


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
        timeline = read(source)
        snapshot = analyze(
            source, options.steps, options.gpu, silenced=options.silenced, timeline=timeline
        )
    assert snapshot.estimate is not None, "a finished file is judged or refused"
    judged = snapshot.estimate
    window = timeline.window(judged.span, judged.device.device_id)
    return RankView(
        file, label, rank_of(snapshot, label), snapshot, window,
        world=snapshot.source.world, job=snapshot.source.job,
    )  # fmt: skip


def _open(file: str, label: str, options: Options) -> Member:
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
) -> JobReplay:  # fmt: skip
    """All ranks under one playhead.

    Raises:
        BadInput: None of them can be opened, or they are of several jobs.
    """
    members, first = _all(files, options, _open, partial(Member, session=None))
    if first is not None and all(one.session is None for one in members):
        raise first
    require_one_job([_view(one) for one in members])
    job = JobSession(members, options.silenced)
    return JobReplay(job, speed=options.speed, loop=loop, clock=clock)
