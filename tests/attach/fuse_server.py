"""`python fuse_server.py FOLDER`: a file system of one file, `file`, that answers each call late and, as gcsfuse
and rclone do, ends a call with EINTR when the kernel says that its caller was interrupted. Linux, root only.

Source: Linux `include/uapi/linux/fuse.h`, protocol 7.31.
"""

import ctypes
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LATE_S = 0.02
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 1, 2, 3, 4, 14, 15, 16
RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 18, 20, 25, 26, 36, 38, 42
NO_REPLY = (FORGET, BATCH_FORGET)
EINTR, ENOSYS, DIRECT_IO = 4, 38, 1


@contextmanager
def late_file(folder: Path) -> Iterator[Path]:
    """Its file, mounted below `folder`; skips where nothing can be mounted."""
    mounted = folder / "mounted"
    mounted.mkdir()
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    command = [sys.executable, __file__, str(mounted)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        if line != b"up\n":
            pytest.skip(f"nothing can be mounted here: {line.decode()}")
        try:
            yield mounted / "file"
        finally:
            subprocess.run(["umount", "-l", str(mounted)], check=False)
            server.kill()


def attributes(node: int) -> bytes:
    mode, size = (0o40755, 0) if node == 1 else (0o100644, 1 << 20)
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes) -> bytes | None:
    """None: there is no such call here."""
    if opcode == INIT:
        return struct.pack("<4I2H2I2H2I", 7, 31, 0, 0, 1, 1, 1 << 16, 1, 16, 0, 0, 0) + bytes(24)
    if opcode == LOOKUP:
        return struct.pack("<4Q2I", 2, 0, 60, 60, 0, 0) + attributes(2)
    if opcode in (GETATTR, SETATTR):
        return struct.pack("<Q2I", 60, 0, 0) + attributes(node)
    if opcode == OPEN:
        return struct.pack("<Q2I", 7, DIRECT_IO, 0)
    if opcode == READ:
        return bytes(struct.unpack_from("<I", body, 16)[0])
    if opcode == WRITE:
        return struct.pack("<2I", struct.unpack_from("<I", body, 16)[0], 0)
    return b"" if opcode in (FLUSH, FSYNC, RELEASE, DESTROY) else None


def reply(device: int, unique: int, error: int, body: bytes = b"") -> None:
    os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def main(folder: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"test", folder.encode(), b"fuse", 6, options) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    waiting: dict[int, tuple[float, bytes]] = {}
    print("up", flush=True)
    while True:
        next_s = min((due for due, _ in waiting.values()), default=time.monotonic() + 1)
        if select.select([device], [], [], max(next_s - time.monotonic(), 0))[0]:
            try:
                request = os.read(device, 1 << 18)
            except OSError:  # unmounted
                return
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            body = request[40:]
            if opcode == INTERRUPT:
                (interrupted,) = struct.unpack_from("<Q", body)
                if waiting.pop(interrupted, None) is not None:
                    reply(device, interrupted, EINTR)
            elif opcode not in NO_REPLY:
                content = answer(opcode, node, body)
                if content is None:
                    reply(device, unique, ENOSYS)
                else:
                    late_s = LATE_S if opcode in (OPEN, READ, WRITE, FSYNC, FLUSH) else 0
                    waiting[unique] = (time.monotonic() + late_s, content)
        for unique, (due_s, content) in list(waiting.items()):
            if time.monotonic() >= due_s:
                del waiting[unique]
                reply(device, unique, 0, content)


if __name__ == "__main__":
    main(sys.argv[1])
