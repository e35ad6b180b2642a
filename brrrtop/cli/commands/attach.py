"""`brrrtop attach PID`: the agent into a running trainer, and what it sees on the screen."""

import os
import sys
from collections.abc import Sequence

from brrrtop.cli import live, output
from brrrtop.cli.options import Options
from brrrtop.text import units
from collectors.attach import agent_library
from collectors.attach.agent_library import agent_files
from collectors.attach.attach import Attached, attach
from collectors.errors import CollectorError
from collectors.process import process as processes
from collectors.process.candidates import Candidate, check_trains, ranks_of
from collectors.process.process import Process, mapped_bytes

_CUPTI = "libcupti.so"


def run(options: Options) -> int:
    assert options.pid is not None
    options.gates  # noqa: B018 - a wrong one is refused before anything is done
    process = processes.read(options.pid)
    candidates = ranks_of(options.pid)
    if not options.yes and len(candidates) < 2:
        check_trains(process)
    if not _confirm(process, options):
        return 0
    return watch_job(process, candidates, options)


def watch_job(process: Process, candidates: Sequence[Candidate], options: Options) -> int:
    """The job with all of these ranks, or the one process where it is no job."""
    if len(candidates) < 2:
        return watch(process, options)
    from brrrtop.cli import live

    return live.watch_job(process.pid, candidates, options, agent_files())


def watch(process: Process, options: Options) -> int:
    """Attaches and shows; detaches at the end."""
    live.refuse_taken_file(options)
    from brrrtop.cli.find_restarted import RestartedProcesses

    attached = attach(process.pid, agent_files(), report=output.say)
    try:
        output.say(_how(attached))
        successors = RestartedProcesses(process, options, agent=True)
        try:
            cmdline = " ".join(process.cmdline)
            controller = live.open_live(attached.client, process.pid, options, cmdline)
            return live.watch(controller, options, successors)
        finally:
            successors.close()
    finally:
        farewell = _left(attached, attached.leave())
        if farewell:
            output.tell(farewell)


def _confirm(process: Process, options: Options) -> bool:
    """Somebody else's process is only entered after a yes; one's own was named, which is a yes."""
    if options.yes or process.uid == os.geteuid() or not sys.stdin.isatty():
        return True
    owner = processes.user_name(process.uid)
    output.say(f"process {process.pid} belongs to {owner}: {' '.join(process.cmdline)[:60]}")
    return output.confirm("load brrrtop's agent into it?")


def _left(attached: Attached, ended: bool) -> str:
    """What detaching leaves behind; empty: the process is gone, and that is told elsewhere."""
    process = attached.process
    pid = process.pid
    if not process.still_the_same():
        return ""
    try:
        process = processes.read(pid)
        remains = mapped_bytes(process, agent_library.LIBRARY_NAME)
        cupti = mapped_bytes(process, _CUPTI) > 0
    except CollectorError:
        return ""
    if not ended and attached.stays:
        return f"left process {pid}: the agent ends by itself once it can: {attached.stays}"
    if not ended:
        return f"left process {pid}: the agent stays, as another monitor watches, or it does not answer"
    sentence = f"detached from process {pid}: a {units.size(remains)} library stays loaded but idle"
    return sentence + (", and so does CUPTI's own state" if cupti else "")


def _how(attached: Attached) -> str:
    took = units.duration(attached.took_ns)
    if attached.shared:
        return f"joined the agent that is in process {attached.process.pid} already ({took})"
    held_for = units.duration(attached.stopped_ns)
    return (
        f"attached by {attached.method} in {took}; a thread of the trainer was held for {held_for}"
    )
