"""What /proc says of one process: who owns it, what runs in it, whether it may be entered.

Facts are read once and frozen. A process number can be given to another process, so a fact sheet
carries the start time, and `still_the_same` tells before anything is done to the process.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from collectors.errors import NoSuchProcess, NotPermitted
from collectors.printable import printable
from collectors.process import proc
from collectors.process import proc as process_maps
from collectors.process.proc import Mapping, PythonBuild

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD among the flags of /proc/PID/stat (linux/sched.h)."""
_RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID")


@dataclass(frozen=True)
class Process:
    """One process, as it was when it was read.

    Fields that need the right to look inside (`maps`, `environ`, `exe`) raise `NotPermitted` when
    they are first used, not when the sheet is made.
    """

    pid: int
    name: str
    state: str
    """One letter of /proc/PID/stat: R S D T t Z X I."""
    parent: int
    uid: int
    gid: int
    start_ticks: int
    """Start time in clock ticks since boot; with `pid` it names one process for ever."""
    threads: int
    pids_inside: tuple[int, ...]
    """Its number in each pid namespace from ours inwards; more than one: in a container."""
    shadow_stack: bool
    cmdline: tuple[str, ...]

    @property
    def folder(self) -> str:
        return f"/proc/{self.pid}"

    @property
    def root(self) -> str:
        return f"/proc/{self.pid}/root"

    @cached_property
    def maps(self) -> tuple[Mapping, ...]:
        with _looking_into(self):
            text = Path(f"{self.folder}/maps").read_bytes()
            if not text:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        return process_maps.parse(text.decode("utf-8", "surrogateescape"))

    @cached_property
    def files(self) -> tuple[str, ...]:
        return process_maps.files(self.maps)

    @cached_property
    def exe(self) -> str:
        with _looking_into(self):
            return os.readlink(f"{self.folder}/exe")

    @cached_property
    def cwd(self) -> str:
        with _looking_into(self):
            return os.readlink(f"{self.folder}/cwd")

    @cached_property
    def environ(self) -> dict[str, str]:
        with _looking_into(self):
            return proc.environ(self.pid)

    @cached_property
    def python(self) -> PythonBuild | None:
        return process_maps.python_build(self.files, self.exe)

    @property
    def has_torch(self) -> bool:
        return bool(process_maps.ends_with(self.files, r"libtorch(_cpu|_python|_cuda)?\.so"))

    @property
    def has_cpu_torch(self) -> bool:
        """A torch without CUDA or ROCm: importing a build for either maps its library too."""
        return bool(process_maps.ends_with(self.files, r"libtorch_cpu\.so")) and not (
            process_maps.ends_with(self.files, r"libtorch_(cuda|hip)")
        )

    @property
    def has_cuda_driver(self) -> bool:
        return bool(process_maps.ends_with(self.files, r"libcuda\.so"))

    @property
    def has_cuda_context(self) -> bool:
        """The driver's device files are mapped, which happens when a context is made.

        Tools that only ask NVML map some of them too, but not libcuda.
        """
        return self.has_cuda_driver and any(m.path.startswith("/dev/nvidia") for m in self.maps)

    @property
    def is_musl(self) -> bool:
        return bool(process_maps.ends_with(self.files, r"ld-musl-|libc\.musl"))

    @property
    def in_container(self) -> bool:
        if len(self.pids_inside) > 1:
            return True
        try:
            return os.readlink(f"{self.folder}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        except OSError:
            return False

    @property
    def ranks(self) -> dict[str, int]:
        """Rank and world size from the environment, as far as it has them."""
        ranks = {}
        for name in _RANK_NAMES:
            text = self.environ.get(name, "")
            if text.isdigit():
                ranks[name] = int(text)
        return ranks

    def outside(self, path: str) -> str:
        joined = f"{self.root}{path}"
        if not path.endswith(" (deleted)") and os.path.exists(joined):
            return joined
        for mapping in self.maps:
            if mapping.path == path:
                return f"{self.folder}/map_files/{mapping.start:x}-{mapping.end:x}"
        return joined

    def still_the_same(self) -> bool:
        """The process lives, and its number was not given to another one."""
        now = proc.stat(self.pid)
        return bool(now) and int(now[19]) == self.start_ticks and not proc.has_ended(now)


def user_name(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def as_root(pid: int | str) -> str:
    """The command that attaches with root's rights, whose PATH seldom has a user's own tools."""
    return f"sudo $(which brrrtop) attach {pid}"


@contextmanager
def _looking_into(process: Process) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise refusal(process, fault) from fault


def refusal(process: Process, fault: OSError) -> NoSuchProcess | NotPermitted:
    pid = process.pid
    if fault.errno in (errno.ENOENT, errno.ESRCH) or not process.still_the_same():
        return NoSuchProcess(f"process {pid} has exited", "start brrrtop again to pick another")
    if process.uid != os.geteuid():
        owner = user_name(process.uid)
        return NotPermitted(
            f"process {pid} belongs to user {owner}{_root_lacks()}",
            f"{_more_rights(pid)}, or run brrrtop as {owner}",
        )
    return NotPermitted(
        f"the kernel does not let us look into process {pid} ({fault.strerror}){_root_lacks()}",
        f"{_more_rights(pid)}, or start it with: brrrtop run -- CMD",
    )


def _root_lacks() -> str:
    return ", and root here lacks CAP_SYS_PTRACE" if _weak_root() else ""


def _more_rights(pid: int) -> str:
    if _weak_root():
        return "give the container --cap-add SYS_PTRACE"
    return as_root(pid) if os.geteuid() else "attach from the host"


def _weak_root() -> bool:
    return os.geteuid() == 0 and not has_ptrace_capability()


def read(pid: int) -> Process:
    """The facts of process `pid`.

    Raises:
        NoSuchProcess: It does not exist, or is a zombie.
    """
    try:
        stat, status, words = proc.stat(pid), proc.status(pid), proc.cmdline(pid)
        uid, gid = int(status["Uid"].split()[1]), int(status["Gid"].split()[1])
        parent, flags, start_ticks = int(stat[1]), int(stat[6]), int(stat[19])
    except (OSError, ValueError, KeyError, IndexError) as fault:
        raise NoSuchProcess(f"there is no process {pid}", "`brrrtop` lists the trainers") from fault
    if int(status.get("Tgid", pid)) != pid:
        raise NoSuchProcess(
            f"{pid} is a thread of process {status['Tgid']}", f"brrrtop attach {status['Tgid']}"
        )
    if flags & _KERNEL_THREAD:
        raise NoSuchProcess(f"{pid} is a thread of the kernel", "`brrrtop` lists the trainers")
    if proc.has_ended(stat):
        raise NoSuchProcess(f"process {pid} has exited", "`brrrtop` lists the trainers")
    return Process(
        pid=pid,
        name=printable(status.get("Name", "")),
        state=stat[0],
        parent=parent,
        uid=uid,
        gid=gid,
        start_ticks=start_ticks,
        threads=int(status.get("Threads", "1")),
        pids_inside=tuple(int(n) for n in status.get("NSpid", str(pid)).split()),
        shadow_stack="shstk" in status.get("x86_Thread_features", ""),
        cmdline=tuple(map(printable, words)),
    )


def mapped_bytes(process: Process, name: str) -> int:
    mapped = (mapping for mapping in process.maps if name in mapping.path)
    return sum(mapping.end - mapping.start for mapping in mapped)


def pids() -> Iterator[int]:
    yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())


def yama_scope() -> int | None:
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None


def has_ptrace_capability(pid: int | None = None) -> bool:
    """The process, or this one, holds CAP_SYS_PTRACE (bit 19) in its effective set."""
    try:
        return bool(int(proc.status(pid or os.getpid())["CapEff"], 16) >> 19 & 1)
    except (KeyError, ValueError):
        return False


_TABLES = {4: Path("/proc/self/net/tcp"), 6: Path("/proc/self/net/tcp6")}
_ESTABLISHED = "01"
"""The kernel forgets the user of a socket that its process has closed, and writes 0 for it."""


def is_loopback(host: str) -> bool:
    """Whether an address, as the C library writes it, never leaves this machine."""
    return _plain(host).is_loopback


def uid_of_client(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose open socket at `client` is connected to `server`; None where none is found.

    Args:
        client: Numeric address and port; also the server's, as its end of the connection has them.
    """
    (host, port), (own, own_port) = client, server
    peer, here = _plain(host), _plain(own)
    for version, table in _TABLES.items():
        if version < peer.version:
            continue
        wanted = [_as_listed(peer, port, version), _as_listed(here, own_port, version)]
        try:
            rows = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[1:4] == [*wanted, _ESTABLISHED]:
                return int(columns[7])
    return None


def _plain(host: str) -> IPv4Address | IPv6Address:
    """IPv4 as itself, also where a socket of IPv6 speaks it."""
    address = ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _as_listed(address: IPv4Address | IPv6Address, port: int, version: int) -> str:
    """As the table of that version writes an address: words of four bytes in the machine's order."""
    packed = address.packed
    if address.version < version:
        packed = bytes(10) + b"\xff\xff" + packed
    step = -1 if sys.byteorder == "little" else 1
    words = (packed[start : start + 4][::step] for start in range(0, len(packed), 4))
    return f"{b''.join(words).hex().upper()}:{port:04X}"
