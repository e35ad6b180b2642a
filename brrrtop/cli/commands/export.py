"""`brrrtop export prometheus [PID…]`: the figures of this host's trainers as metrics."""

import platform
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from brrrtop.cli import live, output
from brrrtop.cli.commands.find import compute_pids
from brrrtop.cli.in_browser import address_of
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError
from brrrtop.exporters.prometheus import PrometheusServer, Sample, samples
from brrrtop.model.ranks import RankRow
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.session.driver import Member
from brrrtop.session.live import Live
from collectors.attach.agent_library import agent_files
from collectors.attach.attach import Attached, attach
from collectors.errors import CollectorError
from collectors.process import process as processes
from collectors.process.candidates import Candidate, candidates, job_key
from collectors.process.process import Process

EXPORTERS = ("prometheus",)
PORT = 9877
SEARCH_EVERY_S = 15.0
REMEMBERED_S = 900.0
"""How long `brrrtop_up` is 0 for a process that ended: alerts wait some minutes."""
_RANK = re.compile("[0-9]{1,9}")


@dataclass
class Watched:
    process: Process
    labels: dict[str, str]
    job: tuple[str, ...] = ()
    """The key of its job: that of several ranks, or its own."""
    attached: Attached | None = None
    """None: it is not watched any more."""
    snapshot: Snapshot | None = None
    row: RankRow | None = None
    """Beside the other ranks of its job."""
    left_s: float = 0.0
    """When it was left, on the monotonic clock."""

    def is_forgotten(self) -> bool:
        """It ended a while ago; one that lives and could not be entered is not tried again."""
        return time.monotonic() - self.left_s > REMEMBERED_S and not self.process.still_the_same()


@dataclass
class Host:
    """The trainers of this host. Scrapes read `newest` from other threads: it is replaced whole."""

    options: Options
    hostname: str = field(default_factory=platform.node)
    now_ns: Callable[[], int] = time.time_ns
    newest: tuple[Sample, ...] = ()
    watched: dict[int, Watched] = field(default_factory=dict)
    jobs: dict[tuple[str, ...], Live] = field(default_factory=dict)
    _fresh: dict[tuple[str, ...], list[Member]] = field(default_factory=dict)
    """Ranks that are to join their job."""

    def search(self) -> None:
        there = {candidate.pid: candidate for candidate in candidates(compute_pids())}
        pids = self.options.pids or [pid for pid, one in there.items() if not one.not_because]
        for pid in pids:
            if pid not in self.watched:
                with suppress(CollectorError):
                    self._add(processes.read(pid), there.get(pid))

    def _add(self, process: Process, candidate: Candidate | None) -> None:
        pid = process.pid
        one = self.watched[pid] = Watched(process, labels_of(process))
        try:
            one.attached = attach(pid, agent_files())
            rank = live.open_rank(
                one.attached.client, pid, candidate.rank if candidate is not None else None,
                self.options, " ".join(process.cmdline), self.options.gpu,
            )  # fmt: skip
            if rank.controller is None:
                raise BrrrtopError(rank.why or "")
            key = job_key(candidate) if candidate is not None else None
            self.join(one, rank, key)
            output.say(f"brrrtop: watching process {pid}")
        except Exception as fault:  # noqa: BLE001 - of one trainer, and there are others
            self._leave(one)
            output.say(f"brrrtop: process {pid} is not watched: {_reason(fault)}")

    def join(self, watched: Watched, rank: Member, key: tuple[str, ...] | None) -> None:
        """Watches a rank beside the others of its job on this host; None: it is of none."""
        if key is None:
            watched.job = (rank.key,)
            self.jobs[watched.job] = Live([rank], now_ns=self.now_ns)
            return
        watched.job = key
        if key in self.jobs:
            self._fresh[key].append(rank)
            return
        fresh = self._fresh[key] = []
        self.jobs[key] = Live(
            [rank], lambda: [fresh.pop(0) for _ in fresh[:]], look_s=0.0, all_in_view=True,
            now_ns=self.now_ns,
        )  # fmt: skip

    def advance(self) -> None:
        for key, job in list(self.jobs.items()):
            self._advance_job(key, job)
        rows: list[Sample] = []
        for pid, one in list(self.watched.items()):
            if one.attached is None and one.is_forgotten():
                del self.watched[pid]
            else:
                rows += samples(one.snapshot, one.labels, self.hostname, one.row)
        self.newest = tuple(rows)

    def _advance_job(self, key: tuple[str, ...], job: Live) -> None:
        """The ranks of a job, each beside the others; one that ends is left, and the others go on."""
        rows: dict[str, RankRow] = {}
        message = "it does not answer"
        try:
            whole = job.advance()
            rows = {row.key: row for row in (whole.job.ranks if whole.job else ())}
        except Exception as fault:  # noqa: BLE001 - what one does to us is no reason to leave others
            job.snapshots, message = {}, _reason(fault)
        ranks = [one for one in self.watched.values() if one.job == key and one.attached]
        for rank in ranks:
            name = str(rank.process.pid)
            rank.snapshot, rank.row = job.snapshots.get(name), rows.get(name)
            if rank.snapshot is None or rank.snapshot.freshness is Freshness.ENDED:
                why = (rank.row.why if rank.row else None) or message
                end = "ended" if rank.snapshot else f"is no longer watched: {why}"
                output.say(f"brrrtop: process {name} {end}")
                self._leave(rank)
        if all(rank.attached is None for rank in ranks):
            self.jobs.pop(key)
            self._fresh.pop(key, None)

    def _leave(self, watched: Watched) -> None:
        attached, watched.attached = watched.attached, None
        watched.left_s = time.monotonic()
        if (job := self.jobs.get(watched.job)) is not None:
            job.lose(str(watched.process.pid), "it ended")
        if attached is not None:
            attached.leave()

    def close(self) -> None:
        for one in self.watched.values():
            self._leave(one)


def run(options: Options) -> int:
    """Exports until `^C`.

    Raises:
        UsageError: What is asked for cannot be.
        NoSuchProcess: One that was named is not there.
    """
    if options.exporter not in EXPORTERS:
        raise UsageError(
            f"there is no export {options.exporter!r}", f"one of {', '.join(EXPORTERS)}"
        )
    if options.record is not None:
        raise UsageError("several trainers cannot be recorded into one file", "leave out --record")
    for pid in options.pids:
        processes.read(pid)
    host = Host(options)
    with ExitStack() as closing:
        closing.callback(_begin(host, options))
        closing.callback(host.close)
        searched_s = -SEARCH_EVERY_S
        while True:
            if time.monotonic() - searched_s >= SEARCH_EVERY_S:
                host.search()
                searched_s = time.monotonic()
            host.advance()
            time.sleep(options.interval)


def _reason(fault: Exception) -> str:
    return fault.message if isinstance(fault, (CollectorError, BrrrtopError)) else repr(fault)


def _begin(host: Host, options: Options) -> Callable[[], None]:
    """Begins to export what the host has newest; returns what ends that."""
    address, port = address_of(options.listen) if options.listen else ("127.0.0.1", PORT)
    server = PrometheusServer(lambda: host.newest, address.strip("[]"), port)
    output.say(f"brrrtop: metrics on http://{address}:{port}/metrics (Ctrl-C to stop)")
    return server.close


def labels_of(process: Process) -> dict[str, str]:
    """Whose process it is, as Slurm and Kubernetes tell: values of `JOB_LABELS`.

    They are its own words: its environment says what its user wants it to.
    """
    labels = {"pid": str(process.pid)}
    try:
        environ = process.environ
    except (CollectorError, OSError):
        return labels
    rank = next((environ[key] for key in ("RANK", "SLURM_PROCID") if key in environ), "")
    labels["rank"] = rank if _RANK.fullmatch(rank) else ""
    labels["hpc_job"] = environ.get("SLURM_JOB_ID", "")
    if "KUBERNETES_SERVICE_HOST" in environ:
        labels["pod"] = environ.get("POD_NAME") or environ.get("HOSTNAME", "")
        labels["namespace"] = environ.get("POD_NAMESPACE", "")
    return labels
