"""A running trainer, opened as the options say, and shown: screen, report, JSON lines or gates.

Of a job all ranks, running or just started, with an agent in each, are one screen or one report."""

import copy
import ctypes
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from brrrtop.advisories.steady import TriedProgram, tried_of
from brrrtop.cli import fail_if as gate
from brrrtop.cli import files, output, show
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, NoTrainer, UsageError
from brrrtop.model.snapshot import Freshness, Snapshot, pause_s
from brrrtop.scheduling.burst import Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.session.controller import Controller
from brrrtop.session.driver import Member
from brrrtop.session.live import Live, alone
from brrrtop.session.restart import RestartedProcesses, Succession
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.recording import RecordingWriter
from collectors.attach.attach import Attached, attach
from collectors.attach.client import Client
from collectors.attach.files import AgentFiles
from collectors.attach.launch import Launched
from collectors.errors import CollectorError
from collectors.gpu.feed import SamplerFeed
from collectors.printable import printable
from collectors.process import process as processes
from collectors.process.candidates import Candidate, ranks_of
from collectors.protocol import requests
from collectors.stacks.feed import StackFeed
from collectors.vocabulary import Metric

FIRST_VERDICT_S = 20.0
"""How long `--once` waits for a window that can be judged."""
SHAPES_S = 30.0
"""How much longer `--once` waits for the shapes of a step: they come after the first burst."""
COUNTERS_S = 2.0
"""How long `--once` waits where only counters are to be had: they judge nothing."""

OWN = {
    Metric.STEP_COST_SHARE, Metric.STEP_COST_ERROR_SHARE, Metric.MONITOR_CPU_SHARE,
    Metric.MONITOR_RSS_BYTES,
}  # fmt: skip
"""Gauges of the monitor itself, which are no reading of a GPU."""


def open_live(agent: Client | None, pid: int | None, options: Options, cmdline: str) -> Controller:
    """What watches a trainer with (or, `agent` None, without) an agent in it."""
    if agent is not None and options.trace_graphs is not False:
        leave = requests.Wanted.GRAPHS if options.trace_graphs else requests.Wanted.HOLDS
        agent.send(requests.kinds(requests.Wanted.DEFAULT | leave))
    sink = _sink(options)
    with suppress(OSError, AttributeError):  # M_ARENA_MAX: each thread's own would keep a megabyte
        ctypes.CDLL(None).mallopt(-8, 1)
    feeds = _feeds(pid, options)
    if agent is not None and pid is not None:
        stacks = StackFeed(pid)
        stacks.start()
        feeds.append(stacks)
    source = LiveSource(agent, pid, feeds, sink=sink, cmdline=printable(cmdline) or None)
    return Controller(source, Governor(Limits(max_overhead=options.max_overhead)), options.shapes)


def _sink(options: Options) -> RecordingWriter | None:
    """The file of `--record`; None without one, and where the disk takes no byte: watching goes on."""
    if options.record is None:
        return None
    try:
        return RecordingWriter(options.record, most_bytes=options.record_most)
    except UsageError:
        raise
    except BrrrtopError as fault:
        output.say(f"brrrtop: {fault.message}; {fault.action}")
        return None


def refuse_taken_file(options: Options) -> None:
    """Before anything is done to a trainer: what cannot be written, drawn or read is an error now.

    Raises:
        BrrrtopError: The recording exists, or its folder does not take files; the screen has no
            terminal; or the baseline cannot be used.
    """
    if options.verb != "run" and not (options.once or options.json or options.fail_if):
        show.on_a_terminal()
    files.baseline(options)
    if options.record is None:
        return
    if os.path.lexists(options.record):
        raise UsageError(
            f"{options.record} exists already and brrrtop never overwrites", "choose another name"
        )
    folder = Path(options.record).absolute().parent
    if not os.access(folder, os.W_OK):
        reason = "may not be written to" if folder.is_dir() else "does not exist"
        raise BrrrtopError(f"{options.record} cannot be made: its folder {reason}")


def _feeds(pid: int | None, options: Options) -> list[SamplerFeed]:
    from collectors.gpu.sampler_thread import GaugeThread

    gauges = GaugeThread(pid)
    gauges.start()
    feeds: list[SamplerFeed] = [gauges]
    if options.counters:
        from collectors.gpu.counters.process import CounterProcess

        counters = CounterProcess()
        counters.start()
        feeds.append(counters)
    return feeds


def plain(controller: Controller, options: Options, succession: Succession | None = None) -> Live:
    """A driver for a single trainer: reports end with it, and a screen goes on by its `succession`."""
    source = controller.source
    session = Session(
        source, device_id=options.gpu, baseline=files.baseline(options), silenced=options.silenced,
        tried=_tried_of(source.pid),
    )  # fmt: skip
    return Live([alone(controller, session)], succession=succession)


def _tried_of(pid: int | None) -> tuple[TriedProgram, ...]:
    """What `brrrtop try` has measured of the program of a process."""
    with suppress(CollectorError):
        process = processes.read(pid or 0)
        return tried_of(process.cwd, process.cmdline)
    return ()


def watch(
    controller: Controller, options: Options, successors: RestartedProcesses | None = None
) -> int:
    """Shows a live trainer in the way the options and the terminal ask for, then closes it.

    Args:
        successors: Who the screen may go on with when the trainer ends; reports and gates do not.
    """
    reports = options.once or options.json or bool(options.gates)
    on_screen = not reports and show.on_a_terminal()
    driver = plain(controller, options, Succession(successors) if on_screen else None)
    return show_driver(driver, options, controller.source.info.label)


def show_driver(driver: Live, options: Options, label: str) -> int:
    """A driver in the way the options and the terminal ask for; closed at the end."""
    try:
        if not options.once and (options.json or options.gates):
            return _lines(driver, options)
        if not options.once and show.on_a_terminal():
            return show.screen(driver, options, label)
        return _once(driver, options, label)
    finally:
        with suppress(KeyboardInterrupt):
            detach(driver)


def detach(driver: Live) -> None:
    driver.close()
    for outcome in driver.recordings:
        output.say(f"brrrtop: {outcome}")


def outcome_of_shapes(snapshot: Snapshot, options: Options) -> str | None:
    """What came of `--shapes`; None while that is open, nothing where nobody asked: without it a
    recording waits for a burst that is due, several seconds after the first verdict."""
    if not options.shapes:
        return ""
    outcomes = [event.says for event in snapshot.events if event.kind == "shapes"]
    return outcomes[-1] if outcomes else None


def _once(driver: Live, options: Options, label: str) -> int:
    """One report, as soon as there is a verdict, or as ranks are compared; else when patience ends.

    Raises:
        NoTrainer: It ended before.
        BrrrtopError: It holds nothing: no kernels are to be had, and no counters came.
    """
    of_job = driver.of_job
    began = time.monotonic()
    while True:
        snapshot = driver.advance()
        only_counters = snapshot.source.tier == "nvml" and not of_job
        shapes_outcome = "" if of_job else outcome_of_shapes(snapshot, options)
        patience_s = COUNTERS_S if only_counters else FIRST_VERDICT_S
        if shapes_outcome is None and not only_counters:
            patience_s += SHAPES_S
        ready = snapshot.estimate is not None and shapes_outcome is not None
        if of_job:
            ready = snapshot.job is not None and bool(snapshot.job.together_ns)
        if ready or time.monotonic() - began > patience_s:
            break
        if snapshot.freshness is Freshness.ENDED:
            who = "all ranks ended before they" if of_job else f"{label} ended before it"
            raise NoTrainer(f"{who} could be judged")
        time.sleep(min(options.interval, 0.1))
    if shapes_outcome:
        output.say(shapes_outcome)
    output.report(snapshot, options)
    gate.check(options.gates, snapshot)
    if only_counters and snapshot.estimate is None and not snapshot.gauges.keys() - OWN:
        raise BrrrtopError("nothing of a GPU can be read here", "`brrrtop doctor` says why")
    return 0


def _lines(driver: Live, options: Options) -> int:
    """A line of JSON each interval until the trainer ends; gates are judged on the way.

    Raises:
        NoTrainer: It ended, and there was no gate that it has passed by that.
    """
    printed: set[str] = set()
    began_s = next_s = time.monotonic()
    while True:
        snapshot = driver.advance()
        if options.json:
            output.report(snapshot, options)
        else:  # a gate that waits and waits shall say for what
            for note in [note for note in snapshot.source.notes if note not in printed]:
                output.say(f"brrrtop: {note}")
                printed.add(note)
        for one in options.gates:
            if one.trips(snapshot):
                raise gate.trip_error(one)
        if snapshot.freshness is Freshness.ENDED:
            break
        next_s = max(next_s + options.interval, time.monotonic())
        while (left_s := next_s - time.monotonic()) > 0:
            time.sleep(pause := pause_s(left_s, snapshot, next_s - began_s))
            if pause < left_s and (snapshot := driver.advance()).estimate is not None:
                break  # the first verdict is told at once
    gate.finish(options.gates)
    if not options.gates:
        raise NoTrainer(driver.ended or "the trainer ended")
    return 0


LOOK_S = 0.5
"""Between two looks into the folder of sockets of a command that was started."""


def rank_options(options: Options, rank: int | None, pid: int) -> Options:
    own = copy.copy(options)
    if options.record is not None:
        path = Path(options.record)
        whose = f"rank{rank}" if rank is not None else f"pid{pid}"
        own.record = str(path.with_name(f"{path.stem}-{whose}{path.suffix}"))
    return own


def open_rank(
    client: Client, pid: int, rank: int | None, options: Options, cmdline: str,
    device_id: int | None = None,
) -> Member:  # fmt: skip
    try:
        controller = open_live(client, pid, rank_options(options, rank, pid), cmdline)
    except (CollectorError, BrrrtopError) as fault:
        return _unwatched(pid, rank, fault)
    session = Session(controller.source, device_id=device_id, silenced=options.silenced)
    return Member(str(pid), f"pid {pid}", rank, session, controller=controller)


def _unwatched(pid: int, rank: int | None, fault: CollectorError | BrrrtopError) -> Member:
    return Member(str(pid), f"pid {pid}", rank, None, fault.message)


class JobProcesses:
    """The ranks of one job on this host, and the agents that were put into them."""

    def __init__(self, pid: int, options: Options, files: AgentFiles) -> None:
        self._pid = pid
        self._options = options
        self._files = files
        self._attached: list[Attached] = []
        self._known: set[int] = set()

    def open(self, candidates: Sequence[Candidate]) -> list[Member]:
        """Each of them watched, or with the reason why it is not."""
        self._known |= {candidate.pid for candidate in candidates}
        return [self._open(candidate) for candidate in candidates]

    def newcomers(self) -> list[Member]:
        fresh = [
            rank for rank in ranks_of(self._pid) if rank.pid not in self._known and rank.on_gpu
        ]
        return self.open(fresh)

    def _open(self, candidate: Candidate) -> Member:
        try:
            attached = attach(candidate.pid, self._files)
        except CollectorError as fault:
            return _unwatched(candidate.pid, candidate.rank, fault)
        self._attached.append(attached)
        return open_rank(
            attached.client, candidate.pid, candidate.rank, self._options, candidate.command
        )

    def leave(self) -> None:
        """Takes the agents out again, all at once."""
        with ThreadPoolExecutor(max(len(self._attached), 1)) as pool:
            list(pool.map(lambda one: one.leave(), self._attached))
        self._attached.clear()


class LaunchedRanks:
    def __init__(self, launched: Launched, options: Options) -> None:
        self._launched = launched
        self._options = options
        self._known: set[int] = set()

    def job(self, first: Client, pid: int) -> Live:
        """All ranks as one driver, beginning with one whose agent is connected already."""
        self._known.add(pid)
        ranks = [self._open(pid, first)]
        return Live(ranks, self.newcomers, self._options.silenced, look_s=LOOK_S)

    def newcomers(self) -> list[Member]:
        fresh = sorted(set(self._launched.sockets()) - self._known)
        self._known.update(fresh)
        return [self._open(pid) for pid in fresh]

    def _open(self, pid: int, client: Client | None = None) -> Member:
        try:
            client = client or self._launched.connect(pid)
        except CollectorError as fault:
            return _unwatched(pid, None, fault)
        rank = client.hello.get("rank")
        cmdline = " ".join(self._options.command)
        one = open_rank(
            client, pid, rank if isinstance(rank, int) else None, self._options, cmdline
        )
        if one.controller is None:
            client.close()
        return one


def watch_job(
    pid: int, candidates: Sequence[Candidate], options: Options, files: AgentFiles
) -> int:
    """Attaches to all ranks and shows them; detaches at the end.

    Raises:
        BrrrtopError: None of them can be attached to; says why.
        GateTripped: A gate held for long enough.
    """
    for candidate in candidates:
        refuse_taken_file(rank_options(options, candidate.rank, candidate.pid))
    processes = JobProcesses(pid, options, files)
    try:
        ranks = processes.open(candidates)
        seen = [one for one in ranks if one.controller is not None]
        for rank in ranks:
            if rank.why is not None:
                output.say(f"brrrtop: {rank.label}: {rank.why}")
        if not seen:
            raise BrrrtopError(f"none of the {len(ranks)} ranks can be attached to: {ranks[0].why}")
        output.say(f"watching {len(seen)} of {len(ranks)} ranks of the job on this host")
        job = Live(ranks, processes.newcomers, options.silenced)
        return show_driver(job, options, "all ranks of the job")
    finally:
        processes.leave()
