"""The files of a job's ranks, each of them opened and read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from brrrtop.cli import output, show
from brrrtop.cli.opening_view import FromFirstActivity
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput, UsageError
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze_rank
from brrrtop.session.job import RankView, job_of, odd_one, rank_of, require_one_job, with_job
from brrrtop.session.job_session import JobReplay, JobSession, Member
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source


def labels_of(files: Sequence[str]) -> list[str]:
    """What the files are called beside each other: their names, with folders where those are alike."""
    names = [Path(file).name for file in files]
    return names if len(set(names)) == len(names) else list(files)


def read_all(files: Sequence[str], options: Options) -> Snapshot:
    """All ranks as one snapshot, which speaks of the rank that the others wait for.

    Raises:
        BadInput: None of them can be used, or they are of several jobs.
    """
    views: list[RankView] = []
    first: BadInput | None = None
    for file, label in zip(files, labels_of(files), strict=True):
        try:
            views.append(_read(file, label, options))
        except BadInput as fault:
            first = first or fault
            number = rank_of(None, label)
            if number is None and file not in options.files:
                output.say(f"brrrtop: left out: {fault}")
                continue
            views.append(RankView(file, label, number, why=str(fault)))
    require_one_job(views)
    job = job_of(views, options.silenced)
    shown = odd_one(job, views)
    if shown is None or shown.snapshot is None:
        raise first or BadInput("none of these files has a rank of a job in it")
    return shown.snapshot if len(views) == 1 else with_job(shown.snapshot, job, shown.key)


def _read(file: str, label: str, options: Options) -> RankView:
    source = open_source(file, options.force)
    try:
        snapshot, window = analyze_rank(
            source, options.steps, options.gpu, silenced=options.silenced
        )
    finally:
        source.close()
    return RankView(
        file, label, rank_of(snapshot, label), snapshot, window,
        world=snapshot.source.world, job=snapshot.source.job,
    )  # fmt: skip


def _view(member: Member) -> RankView:
    if member.session is None:
        return RankView(member.key, member.label, member.rank)
    info = member.session.source.info
    return RankView(member.key, member.label, member.rank, world=info.world, job=info.job)


def replay(files: Sequence[str], options: Options, *, loop: bool = False) -> int:
    """All ranks on the screen, or off a terminal one report of the whole.

    Raises:
        BadInput: None of them can be used, or they are of several jobs.
        UsageError: Lines of JSON are wanted: those are of one rank.
    """
    if options.once or not show.on_a_terminal():
        if options.json and not options.once:
            raise UsageError(
                "lines of JSON over time are of one rank", "name one file, or add --once for all"
            )
        output.report(read_all(files, options), options)
        return 0
    driver = open_job(files, options, loop=loop)
    show.to_first_verdict(driver, after=show.DEMO_OF_RANKS_AFTER if loop else 0.0)
    return show.screen(driver, options, f"{len(files)} ranks")


def open_job(
    files: Sequence[str], options: Options, *, loop: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> JobReplay:  # fmt: skip
    """All ranks under one playhead.

    Raises:
        BadInput: None of them can be opened, or they are of several jobs.
    """
    members: list[Member] = []
    first: BadInput | None = None
    for file, label in zip(files, labels_of(files), strict=True):
        try:
            source = FromFirstActivity(open_source(file, options.force))
            number = source.info.rank
        except BadInput as fault:
            first = first or fault
            if rank_of(None, label) is None and file not in options.files:
                output.say(f"brrrtop: left out: {fault}")
                continue
            members.append(Member(file, label, rank_of(None, label), None, str(fault)))
            continue
        number = rank_of(None, label) if number is None else number
        session = Session(source, keep_ns=None, silenced=options.silenced)
        members.append(Member(file, label, number, session))
    if first is not None and all(one.session is None for one in members):
        raise first
    require_one_job([_view(one) for one in members])
    job = JobSession(members, options.silenced)
    return JobReplay(job, speed=options.speed, loop=loop, clock=clock)
