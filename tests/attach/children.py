"""Child processes that do what trainers do, and the texts that are run in them."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BUSY = "while True: s = sum(k * 0.5 for k in range(2000)); assert s == 999500.0, s"
ALLOCATING = "while True: x = [bytearray(1000 + i) for i in range(200)]"
SLEEPING = "import time; time.sleep(600)"
STORM = """
import ctypes, glob, sysconfig
names = glob.glob(sysconfig.get_path("platstdlib") + "/lib-dynload/*.so")
close = ctypes.CDLL(None).dlclose
close.argtypes = [ctypes.c_void_p]
while True:
    for name in names:
        try: close(ctypes.CDLL(name)._handle)
        except OSError: pass
"""
HOLDING = """
import ctypes
sleep = ctypes.PyDLL(None).usleep
while True: sleep(20000)
"""
"""Holds the GIL through C calls of 20 ms."""
BLOCKED = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
threading.Event().wait(600)
"""
EXITING = """
import ctypes
libc = ctypes.CDLL(None)
sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
libc.__cxa_atexit(sleep, ctypes.c_void_p(600), None)
print("leaving", flush=True)
"""
"""Python is over, the process is not: the C library still runs what was left for its end."""
REFUSING_EXEC = (
    """
import sys
def refuse(event, _):
    if event in ("exec", "compile"): raise PermissionError(event)
sys.addaudithook(refuse)
"""
    + BUSY
)
"""As hardened clusters do: no code but what was loaded at the start."""
EXITING_AT_EXEC = REFUSING_EXEC.replace("raise PermissionError(event)", "raise SystemExit(9)")
FULL_STACK = """
import sys
sys.setrecursionlimit(100)
def down():
    try: down()
    except RecursionError: pass
    n = 0
    while True: n += 1
down()
"""
"""Its main thread cannot call one Python function more."""
RAISING = """
import signal
class Alarm(Exception): pass
heard, armed = 0, False
def ring(*_):
    global armed
    if armed:
        armed = False
        raise Alarm
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
while True:
    try:
        armed = True
        while True: sum(range(50))
    except Alarm: heard += 1
    if heard % 100 == 0: print("<%d>" % heard, flush=True)
"""
"""A signal handler raises all the time; when one exception gets lost, no further one comes."""
FORKING = """
import os, sys, threading, time
def fork():
    while not os.path.exists(PATH): time.sleep(0.005)
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 0.2
        while time.monotonic() < end: sum(range(100))
        os._exit(0)
    os.waitpid(child, 0)
    print("forked", flush=True)
threading.Thread(target=fork, daemon=True).start()
time.sleep(600)
"""
"""Once there is a file at PATH, a thread forks: in the child it is the main one, and the call that
waits for the sleeping one is its own."""
READING = "input()"


class Child:
    """A running child and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.output = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def state(self) -> str:
        text = Path(f"/proc/{self.pid}/stat").read_text()
        return text[text.rindex(")") + 2]

    @property
    def ticks(self) -> int:
        """Processor time used so far, in clock ticks."""
        text = Path(f"/proc/{self.pid}/stat").read_text()
        words = text[text.rindex(")") + 2 :].split()
        return int(words[11]) + int(words[12])

    def status(self, name: str) -> str:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name + ":"))

    def hears(self, word: bytes, limit_s: float = 30.0) -> bool:
        """The child has printed `word`, or does within the limit."""
        deadline = time.monotonic() + limit_s
        assert self.process.stdout is not None
        handle = self.process.stdout.fileno()
        while word not in self.output:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0 or not select.select([handle], [], [], wait_s)[0]:
                return False
            piece = os.read(handle, 1 << 16)
            if not piece:
                return word in self.output
            self.output += piece
        return True


@contextmanager
def child(
    argv: Sequence[str], env: dict[str, str] | None = None, cwd: str | None = None
) -> Iterator[Child]:
    """A process that ends with the block, however that ends."""
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
    )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.wait(10)
        if process.stdin is not None:
            process.stdin.close()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def python(code: str, interpreter: str = sys.executable, **more: object) -> Iterator[Child]:
    """A Python that has said `up` and now runs `code`."""
    text = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush()\n" + code
    with child([interpreter, "-c", text], **more) as one:  # type: ignore[arg-type]
        assert one.hears(b"up\n"), one.output
        time.sleep(0.05)
        yield one


_NEWER = ("3.13t", "3.14", "3.14t", "3.15")
"""Free-threaded builds and those that pyenv may not have; taken where they are on the path."""


def interpreters() -> list[str]:
    """Every CPython from 3.9 on that this machine has, one a version and build."""
    result = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    named = (shutil.which(f"python{version}") for version in _NEWER)
    result += [Path(path) for path in named if path is not None]
    result += [Path("/usr/bin/python3"), Path(sys.executable)]
    chosen: dict[str, str] = {}
    for path in result:
        if not path.exists():
            continue
        real = str(path.resolve())
        ask = "import sys; print(sys.version_info >= (3, 9))"
        try:
            answer = subprocess.run([real, "-c", ask], capture_output=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.stdout.strip() == b"True":
            chosen[real] = str(path)
    return list(chosen.values())


def writes(path: Path) -> str:
    """A text to run in a child: it leaves a file, and swallows what goes wrong."""
    return f"exec({_WRITES % str(path)!r}, {{}})"


def writes_pid(path: Path) -> str:
    """A text to run in a child: it leaves a line with the number of the process that ran it."""
    return f"import os\nwith open({str(path)!r}, 'a') as f: f.write('%d\\n' % os.getpid())"


_WRITES = """
def leave():
    try:
        with open(%r, "a") as f: f.write("x")
    except Exception: pass
import _thread
_thread.start_new_thread(leave, ())
"""


def appears(path: Path, count: int = 1, limit_s: float = 30.0) -> bool:
    """The file has `count` bytes, or gets them within the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if path.exists() and path.stat().st_size >= count:
            return True
        time.sleep(0.005)
    return False


def resume(one: Child) -> None:
    os.kill(one.pid, signal.SIGCONT)
