"""`brrrtop replay FILE …`: the screen over a recording or a trace, or over all ranks of a job;
`brrrtop demo [SCENARIO]`: over one that ships with brrrtop."""

import gc
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import brrrtop.data
from brrrtop.cli import files, output, show
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError
from brrrtop.session.analyze import analyze
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.sources.source import Source

FIRST_LOOKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
"""Shares of a source at which a replay looks for its first verdict."""
DEMO_OF_RANKS_AFTER = 0.4
"""Share of a demo of ranks after which stack samples say at which line the late one is."""
DEMO_STEPS = 2
"""Whole steps a demo opens on: within one, what waits between steps is not seen yet."""


def run(options: Options) -> int:
    return play(files.files_of(options), options)


def play(paths: Sequence[str], options: Options, *, loop: bool = False) -> int:
    """The files on the screen, or off a terminal one report of the whole, or lines of JSON.

    Args:
        loop: Over and over, as a demo.
    """
    if len(paths) > 1:
        return _play_ranks(paths, options, loop)
    with closing(open_source(paths[0], options.force)) as source:
        if options.record:
            files.convert(source, options.record)
        if options.json and not options.once:
            return _lines(source, options)
        before = files.baseline(options)
        if options.once or not show.on_a_terminal():
            whole = analyze(
                source, device=options.gpu, trimmed=before is not None, silenced=options.silenced
            )
            output.report(files.compare(whole, before), options)
            return 0
        gc.disable()  # until the first frame: a tenth of the start went into looking for garbage
        session = Session(
            files.FromFirstActivity(source), keep_ns=None, device_id=options.gpu, baseline=before,
            silenced=options.silenced,
        )  # fmt: skip
        replay = Replay(session, speed=options.speed, loop=loop)
        to_first_verdict(replay, steps=DEMO_STEPS if loop else 0)
        return show.screen(replay, options, source.info.label)


def _play_ranks(paths: Sequence[str], options: Options, loop: bool) -> int:
    """All ranks of a job.

    Raises:
        BadInput: None of them can be used, or they are of several jobs.
        UsageError: Lines of JSON are wanted: those are of one rank.
    """
    from brrrtop.cli import files

    if options.once or not show.on_a_terminal():
        if options.json and not options.once:
            raise UsageError(
                "lines of JSON over time are of one rank", "name one file, or add --once for all"
            )
        output.report(files.read_all(paths, options), options)
        return 0
    driver = files.open_job(paths, options, loop=loop)
    to_first_verdict(driver, after=DEMO_OF_RANKS_AFTER if loop else 0.0)
    return show.screen(driver, options, f"{len(paths)} ranks")


def to_first_verdict(replay: Replay, steps: int = 0, after: float = 0.0) -> None:
    """Moves the playhead to where at least `steps` were judged, so that the screen opens on that.

    Args:
        after: Share of the source before which nothing is shown.
    """
    for share in (share for share in FIRST_LOOKS if share >= after):
        replay.seek(share)
        estimate = replay.advance().estimate
        if estimate is not None and (estimate.steps.count or 0) >= steps:
            replay.restart_here()
            return


def _lines(source: Source, options: Options) -> int:
    """One JSON object for each interval of the source's own time, as fast as they can be made."""
    span = source.span
    session = Session(
        source, keep_ns=None, device_id=options.gpu, baseline=files.baseline(options),
        silenced=options.silenced,
    )  # fmt: skip
    if span is None:
        output.report(session.advance(), options)
        return 0
    interval_ns = round(options.interval * 1e9)
    for now_ns in range(span.t0_ns + interval_ns, span.t1_ns, interval_ns):
        output.report(session.advance(now_ns), options)
    output.report(session.advance(span.t1_ns), options)
    return 0


FOLDER = "demos"
FIRST = "input-bound"
"""Opened when none is named: its cause is the one people know best."""
WHAT = {
    "fp32-convolutions": "a ResNet in fp32, without TF32 or autocast",
    "healthy": "a GPT in bf16: products at three quarters of their roof",
    "imagenet": "it trains, evaluates and saves: 4 workers for its JPEG files",
    "input-bound": "a loader without workers: the GPU waits for batches",
    "launch-bound": "hundreds of tiny kernels: the GPU waits for launches",
    "memory-bound": "long chains of unfused pointwise ops",
    "phases": "waits for photos, then evaluates, saves, trains without them",
    "plain-attention": "attention written out instead of fused",
    "straggler": "two ranks of FSDP: one sleeps in each step",
    "sync-bound": ".item() all over the loop",
    "unpinned-copies": "large batches copied from pageable memory",
}


def scenarios() -> dict[str, Path]:
    folder = Path(brrrtop.data.__path__[0]) / FOLDER
    paths = {*folder.glob("*.brrr"), *(path.parent for path in folder.glob("*/*.brrr"))}
    return {path.stem: path for path in sorted(paths)}


def demo(options: Options) -> int:
    known = scenarios()
    if not known:
        raise BrrrtopError("no demo recording is installed", "install brrrtop again")
    if options.list and options.json:
        output.write(json.dumps({name: WHAT.get(name, "") for name in known}))
        return 0
    if options.list:
        print("\n".join(f"{name:<18} {WHAT.get(name, '')}".rstrip() for name in known))
        return 0
    name = options.scenario or (FIRST if FIRST in known else next(iter(known)))
    if name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"one of {', '.join(known)}"
        raise UsageError(f"there is no demo {name!r}", hint)
    if options.scenario is None:
        output.tell(
            f"demo `{name}`; the others: {', '.join(other for other in known if other != name)}"
        )
    path = known[name]
    files = sorted(path.glob("*.brrr")) if path.is_dir() else [path]
    if options.record and len(files) > 1:
        raise UsageError("--record writes one recording, and this demo is of several ranks")
    return play([str(file) for file in files], options, loop=True)
