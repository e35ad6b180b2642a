"""Faults by name, each with what the user sees of it and what the trainer felt.

`docs/faults.md` is `page()`; `python -m tests.agent.faults` writes it anew. `test_fault_page.py` lives
through every row, by `fault_rig.py`.
"""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
NOTHING, SLOWER_STEP = "nothing", "one step up to 0.3 s longer"
AS_ALONE, UNTOUCHED = "as alone", "not touched"
ALL = "everything"
REFUSED = "the agent does not start there: "
GONE = "the agent is gone: counters only; attaching again works"
COUNTED = f"{ALL}; a recording holds the call and its code"


@dataclass(frozen=True)
class Fault:
    """One row.

    Args:
        script: As `BRRRTOP_FAULT` has it.
        sees: What the user reads.
        must_say: The part of it that must come.
        losses: The losses that must have been told.
        felt: What the trainer felt.
        begins: When the fault takes effect: before the agent starts ("start"), with a monitor there
            ("watched"), with a second one at the door ("knock"), in the monitor that enters ("attach"), or in
            the one that asks NVML ("nvml").
        kernels: Whether kernels arrive.
        lacks: What does not arrive with them: "names", "launches".
        beyond: Kernels arrive from beyond the burst as well.
        hung_up: The monitor loses its connection.
        turned_away: The second monitor is.
    """

    script: str
    sees: str
    must_say: str = ""
    losses: tuple[str, ...] = ()
    felt: str = NOTHING
    begins: str = "watched"
    kernels: bool = True
    lacks: str = ""
    beyond: bool = False
    hung_up: bool = False
    turned_away: bool = False


def _refused(script: str, reason: str) -> Fault:
    return Fault(script, REFUSED + reason, reason, begins="start", kernels=False)


def _fault(script: str, says: str) -> Fault:
    return Fault(script, says, says, begins="start", kernels=False)


FAULTS = (
    _refused("socketpair:EMFILE", "no socket to wake the agent by: Too many open files"),
    _refused("socket:EMFILE", "no socket for …: Too many open files"),
    _refused("bind:EACCES", "cannot listen on …: Permission denied"),
    _refused("listen:EADDRINUSE", "cannot listen on …: Address already in use"),
    _refused("pthread_create:EAGAIN", "no thread for the agent: Resource temporarily unavailable"),
    _refused("strdup:ENOMEM", "no memory for the hello"),
    Fault("fcntl:EMFILE", ALL, begins="start"),
    Fault("fstat:ENOSYS", ALL, begins="start"),
    Fault("chmod:EPERM", ALL, begins="start"),
    _fault("fopen:EACCES", "/proc/self/maps cannot be read: counters only"),
    _fault("dlopen:ENOMEM", "waiting for the trainer to touch its GPU"),
    *(
        Fault(
            f"{call}:ENOMEM",
            "kernels without names, reported as lost",
            losses=("names",),
            begins="start",
            lacks="names",
        )
        for call in ("calloc", "realloc")
    ),
    Fault("malloc:ENOMEM:times=30", "a gap, its frames reported as lost", losses=("outbox",)),
    Fault("mmap:ENOMEM", "no kernels, reported as lost", losses=("pool", "cupti_dropped"), kernels=False),
    Fault("mmap:hang=2.5:times=1", "the burst begins later"),
    Fault("madvise:EINVAL", ALL),
    Fault("process_vm_readv:EPERM", ALL),
    Fault("process_vm_readv:EPERM,socketpair:EMFILE", "kernels without names, reported as lost",
          losses=("names",), lacks="names"),
    Fault("poll:ENOMEM", ALL),
    Fault("send:ENOBUFS:times=20", "everything, later"),
    Fault("send:EPIPE", GONE, kernels=False, hung_up=True),
    Fault("recv:ECONNRESET", GONE, kernels=False, hung_up=True),
    Fault("recv:hang=2.5:times=1", "everything, later"),
    Fault("accept4:EMFILE:times=1", "the second monitor comes in a second later", begins="knock"),
    Fault("getsockopt:EIO", "the second monitor is hung up on without a hello", begins="knock",
          turned_away=True),
    _fault("cuptiGetVersion:999", "CUPTI does not tell its version: counters only"),
    Fault("cuptiGetVersion:lie", ALL, begins="start"),
    _fault("cuptiActivityGetNextRecord:999", "CUPTI … has records of a layout not known here: counters only"),
    _fault("cuptiActivityGetNextRecord:lie", "CUPTI … has records of a layout not known here: counters only"),
    Fault("cuptiActivityRegisterCallbacks:999",
          "CUPTI failed (register_callbacks answered 999 CUPTI_ERROR_UNKNOWN); next try in 10 s",
          "CUPTI failed (register_callbacks answered 999 CUPTI_ERROR_UNKNOWN); next try in 10 s",
          kernels=False),
    Fault("cuptiActivityRegisterCallbacks:lie",
          "no kernels, reported as lost; then: no records arrive: another profiler owns the callbacks",
          "no records arrive: another profiler owns the callbacks", ("cupti_dropped",), kernels=False),
    Fault("cuptiActivityEnable:39", "another profiler holds CUPTI (enable answered 39 …); next try in 10 s",
          "another profiler holds CUPTI (enable answered 39 ", kernels=False),
    Fault("cuptiActivityEnable:35",
          "kernel tracing is not permitted or not supported here (enable answered 35 …)",
          "kernel tracing is not permitted or not supported here (enable answered 35 ", kernels=False),
    Fault("cuptiActivityEnable:lie", "no records arrive: another profiler owns the callbacks",
          "no records arrive: another profiler owns the callbacks", kernels=False),
    Fault("cuptiActivityEnable:hang=2.5:times=1", "the burst begins later", felt=SLOWER_STEP),
    Fault("cuptiActivityEnableRuntimeApi:999", "kernels without their launches", lacks="launches"),
    Fault("cuptiActivityDisable:999", COUNTED, "disable answered 999"),
    Fault("cuptiActivityDisable:lie", "kernels from beyond the burst", beyond=True),
    Fault("cuptiActivityDisable:hang=2.5:times=1", "the burst ends later", felt=SLOWER_STEP),
    Fault("cuptiActivityFlushAll:999",
          "only the kernels of full buffers; a recording holds the call and its code", "flush answered 999",
          kernels=False),
    Fault("cuptiActivityFlushAll:hang=2.5:times=1", "everything, later"),
    Fault("cuptiActivityGetNumDroppedRecords:lie", "as many kernels reported as lost",
          losses=("cupti_dropped",)),
    Fault("cuptiActivityGetAttribute:lie", ALL),
    Fault("cuptiActivitySetAttribute:999", COUNTED, "set_attribute answered 999"),
    Fault("cuptiGetTimestamp:lie", ALL),
    Fault("cuptiGetTimestamp:hang=2.5:times=1", "the burst begins later", felt=SLOWER_STEP),
    Fault("cuptiFinalize:999", COUNTED, "finalize answered 999"),
    Fault("cuptiFinalize:hang=2.5:times=1", "the next burst begins later", felt=SLOWER_STEP),
    Fault("bufferCompleted:lie:times=1", "a gap, reported as unknown records", losses=("unknown_records",)),
    Fault("ptrace:EPERM", "the kernel or a container's security profile forbids tracing process …",
          "forbids tracing process", begins="attach", kernels=False),
    Fault("ptrace:EIO:after=5", "the kernel or a container's security profile forbids tracing process …",
          "forbids tracing process", begins="attach", kernels=False),
    Fault("ptrace:ESRCH:after=3", "process … exited meanwhile", "exited meanwhile", begins="attach",
          kernels=False),
    Fault("nvmlDeviceGetTemperature:3", "no temperature", "TEMPERATURE_C absent", begins="nvml",
          kernels=False),
    Fault("nvmlDeviceGetUtilizationRates:15", "no counters: the GPU no longer answers", "no longer answers",
          begins="nvml", kernels=False),
    Fault("nvmlGpmSampleGet:4", "no GPM counters: Insufficient Permissions", "Insufficient Permissions",
          begins="nvml", kernels=False),
)  # fmt: skip

_ABOUT = {
    "start": "The agent starts with it",
    "watched": "It begins while a monitor watches",
    "knock": "It begins when a second monitor connects",
    "attach": "It happens in the monitor that attaches",
    "nvml": "It happens in the monitor that asks NVML",
}
_CALLS = (
    ("nanosleep, clock_nanosleep, futex, poll, mq_timedreceive, mq_timedsend, futex_waitv", "as alone",
     "ends when it would alone"),
    ("select, pselect6, ppoll", "as alone", "the time for which the thread is held does not count"),
    ("epoll_wait, epoll_pwait, epoll_pwait2, semtimedop, sigtimedwait, io_getevents, io_pgetevents",
     "begins again, never EINTR", "attach: begins again, once; burst: counts from the first hold"),
    (
        "accept, connect, recv…, send…, read, write and kin on a socket with SO_RCVTIMEO or SO_SNDTIMEO; "
        "io_uring_enter",
        "begins again, never EINTR",
        "begins again at each hold: later by as much, without a bound",
    ),
    ("semop, msgrcv, msgsnd, flock, fcntl (F_SETLKW), open of a FIFO, read of a pipe, wait4, waitid",
     "begins again, never EINTR", "has none"),
    ("open, read, write, fsync on a FUSE that ends the calls of interrupted threads (gcsfuse, rclone)",
     "begins again, never EINTR", "has none"),
    (
        "close, close_range on such a FUSE",
        "waited for: attach up to 0.5 s, then it takes another way in; burst until it is over. EINTR only where it "
        "begins in the microseconds between the look and the stop",
        "has none",
    ),
    ("write, send of more than fits, sendfile, splice",
     "attach: waited for up to 0.1 s; then, and in a burst, may return the part that was written",
     "has none"),
    ("any other, also one that a kernel adds", "begins again where the kernel said EINTR",
     "begins again at each hold"),
)  # fmt: skip
_OWN_CALLS = """## What the trainer's own calls return

A thread is held for some 0.5 ms: one at an attach; in programs without torch, all at each of the two switches of a burst. It may
stand in a system call then. A signal with a handler of the trainer's ends a call as it does alone.
A thread that does not come back from a call of ours is given up after 0.5 s (`tests/attach/test_injection.py`).
`tests/attach/test_waits.py` and `tests/agent/test_world.py` have a thread in each of signal(7)'s calls.

| the thread stands in | what the trainer's own call returns | its time limit |
| --- | --- | --- |
"""
_HEAD = """# Faults

Each call below is made to fail, hang or lie by name while a program trains: the C library's where the agent
makes it, CUPTI's and NVML's in stand-ins for the libraries, ptrace's in the monitor. `name:ERROR` fails, `hang=2.5`
answers that many seconds later, `lie` claims a success that did nothing or an answer that cannot be;
`times=` and `after=` say how often and from when on, else it goes on for ever. In each row the trainer's result was the
same to the bit, it ended with exit code 0, what the page says was seen, and of the trainer's own calls (a thread
in each of those below that a stop can cut short, the main one in epoll_wait) none ended in EINTR or before its time.

`python -m tests.agent.faults` writes this page; `tests/agent/test_fault_page.py` lives through it.
"""


def page() -> str:
    """The page, in Markdown."""
    lines = [_HEAD]
    for begins, about in _ABOUT.items():
        heads = (
            "fault",
            "what the user sees",
            "what the trainer felt",
            "what its own calls return",
        )
        lines += [f"## {about}", "", f"| {' | '.join(heads)} |", "| --- | --- | --- | --- |"]
        calls = UNTOUCHED if begins == "nvml" else AS_ALONE
        rows = [one for one in FAULTS if one.begins == begins]
        lines += [f"| `{one.script}` | {one.sees} | {one.felt} | {calls} |" for one in rows]
        lines += [""]
    lines += [_OWN_CALLS + "\n".join(f"| {' | '.join(row)} |" for row in _CALLS), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
