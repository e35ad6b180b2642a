"""Recordings and traces that a person named: which they are, opened, judged, copied into a recording."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from brrrtop.advisories.advise import parted
from brrrtop.cli import output
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput, UsageError
from brrrtop.model.comparison import Baseline
from brrrtop.model.snapshot import Snapshot, SourceInfo
from brrrtop.model.tables import Span
from brrrtop.session.analyze import analyze
from brrrtop.sources import convert as converting
from brrrtop.sources.registry import open_source
from brrrtop.sources.source import Source
from collectors.protocol.frames import Kind

ENDINGS = (".brrr", ".json", ".json.gz", ".sqlite", ".pb")


def files_of(options: Options) -> tuple[str, ...]:
    """The files that were named, and those in folders that were.

    Raises:
        BadInput: A folder has none.
        UsageError: Several are named, and one recording is to be made of them.
    """
    files: list[str] = []
    for name in options.files:
        folder = Path(name)
        files += _in_folder(folder) if folder.is_dir() else [name]
    if len(files) > 1 and options.record:
        raise UsageError(
            "--record writes one recording, and several files were named", "convert one at a time"
        )
    return tuple(dict.fromkeys(files))


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

    Raises:
        BadInput: The file cannot be used; says why.
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
    """What `--baseline` names, judged whole; None when nothing was. A file is read once.

    Raises:
        BrrrtopError: The file cannot be used; says why.
    """
    if options.baseline is None:
        return None
    whole = _baseline(options.baseline, options.force)
    return replace(whole, advisories=parted(whole.advisories, options.silenced)[0])


@cache
def _baseline(path: str, force: bool) -> Baseline:
    from brrrtop.session.baseline import baseline_of

    with closing(open_source(path, force)) as source:
        return baseline_of(analyze(source, trimmed=True), Path(path).name)


def compare(snapshot: Snapshot, before: Baseline | None) -> Snapshot:
    """A whole source's snapshot, beside the baseline."""
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
