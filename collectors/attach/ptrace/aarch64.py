"""Registers, calls and signal frames of aarch64 Linux, for `collectors.attach.ptrace.injection`.

The scheme of `collectors.attach.ptrace.x86_64`, and **untested on hardware**: the addresses and layouts
follow the kernel's headers, and nobody has run this on an ARM machine yet. The doctor says so.
Known limits: should the monitor be killed in the middle of a call, the scalable vector registers
beyond their first 128 bits and the predicates are lost. A timed wait in which the thread was
stopped starts over with its whole duration: on this architecture the kernel has prepared the
restart before a tracer sees the registers.

Source: Linux `arch/arm64/include/uapi/asm/{ptrace,sigcontext,ucontext}.h`,
`arch/arm64/kernel/signal.c`, `arch/arm64/kernel/vdso/sigreturn.S`; AAPCS64, 6.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from collectors.attach.ptrace import calls
from collectors.attach.ptrace.machine_code import Frame

GADGETS = {
    "syscall": (b"\x01\x00\x00\xd4\xc0\x03\x5f\xd6",),  # svc #0; ret
    "restore": (b"\x68\x11\x80\xd2\x01\x00\x00\xd4",),  # mov x8, #139; svc #0 = rt_sigreturn
}
"""x0 comes through the way back untouched, so nothing is needed to keep a result."""
GADGET_ALIGN = 4
MMAP_CALL, SIGRETURN = 222, 139
PARKED_CALLS = (98, 73, 72, 101, 115)
"""futex, ppoll, pselect6, nanosleep, clock_nanosleep; epoll_pwait would end in EINTR."""
READ_CALLS = (63,)
"""read; recvfrom with a time limit would end in EINTR."""
_REGISTERS = struct.Struct("<34Q")
_NUMBER, _LINK, _SP, _PC = 8, 30, 31, 32
_CONTEXT_AT, _RESERVED_BYTES = 128, 4096
_MASK_AT, _SIGCONTEXT_AT = _CONTEXT_AT + 40, _CONTEXT_AT + 40 + 128 + 8
_FP_MAGIC, _FP_BYTES = 0x46508001, 528
_LEAVE_ALTSTACK = 0x7
_SYSCALL_BYTES = 4


@dataclass(frozen=True, slots=True)
class State:
    """A thread's registers."""

    general: tuple[int, ...]
    vectors: bytes
    """NT_PRFPREG: 32 registers of 128 bits, FPSR, FPCR."""
    scalable: bytes
    """NT_ARM_SVE; empty where the processor has none."""
    mask: bytes


def save(tid: int) -> State:
    """The state of a thread in an event stop."""
    general = _REGISTERS.unpack(calls.registers(tid, calls.NT_PRSTATUS))
    try:
        scalable = calls.registers(tid, calls.NT_ARM_SVE)
    except OSError:
        scalable = b""
    vectors = calls.registers(tid, calls.NT_PRFPREG)
    return State(general, vectors, scalable, calls.signal_mask(tid))


def load_general(tid: int, general: tuple[int, ...]) -> None:
    calls.set_registers(tid, calls.NT_PRSTATUS, _REGISTERS.pack(*general))


def put_back(tid: int, state: State) -> None:
    """Every register as it was; general ones last: until then the frame is the way back."""
    if state.scalable:
        calls.set_registers(tid, calls.NT_ARM_SVE, state.scalable)
    else:
        calls.set_registers(tid, calls.NT_PRFPREG, state.vectors)
    calls.set_signal_mask(tid, state.mask)
    load_general(tid, state.general)


def frame(state: State, gadgets: dict[str, int]) -> Frame:
    """The way back as the kernel would have laid it for a signal handler."""
    sigcontext_at = (_SIGCONTEXT_AT + 15) & ~15
    size = sigcontext_at + 8 + 34 * 8
    reserved_at = (size + 15) & ~15
    total = reserved_at + _RESERVED_BYTES
    top = (state.general[_SP] - 256) & ~15
    slot = top - 16
    base = (slot - total) & ~15
    content = bytearray(slot + 16 - base)
    struct.pack_into("<QQQiiQ", content, _CONTEXT_AT, 0, 0, 0, _LEAVE_ALTSTACK, 0, 0)
    content[_MASK_AT : _MASK_AT + 8] = state.mask
    struct.pack_into("<Q", content, sigcontext_at, 0)
    _REGISTERS.pack_into(content, sigcontext_at + 8, *state.general)
    status, control = struct.unpack_from("<II", state.vectors, 512)
    struct.pack_into("<IIII", content, reserved_at, _FP_MAGIC, _FP_BYTES, status, control)
    content[reserved_at + 16 : reserved_at + 16 + 512] = state.vectors[:512]
    return Frame(base, slot, gadgets["restore"], bytes(content))


def _aim(state: State, frame: Frame, pc: int, arguments: tuple[int, ...] = ()) -> list[int]:
    regs = [*arguments, *state.general[len(arguments) :]]
    regs[_SP], regs[_PC], regs[_LINK] = frame.address, pc, frame.restore
    return regs


def aim_call(
    state: State, frame: Frame, address: int, arguments: tuple[int, ...]
) -> tuple[int, ...]:
    """Registers that call the C function at `address`."""
    return tuple(_aim(state, frame, address, arguments))


def aim_syscall(
    state: State,
    frame: Frame,
    gadget: int,
    number: int,
    arguments: tuple[int, ...],
    at_door: bool = False,
) -> tuple[int, ...]:
    """Registers that make one system call; `at_door`: the thread is just entering another one."""
    regs = _aim(state, frame, gadget + (_SYSCALL_BYTES if at_door else 0), arguments)
    regs[_NUMBER] = number
    return tuple(regs)


def aim_return(state: State, frame: Frame) -> tuple[int, ...]:
    """Registers with which the thread, left alone, takes the way back."""
    return tuple(_aim(state, frame, frame.restore))


def returns_alone(state: State) -> bool:
    """Whether the way back alone leaves the thread exactly as it was: the registers do not tell
    whether it was in a system call."""
    return False


def exchange_syscall(tid: int, number: int) -> None:
    """Makes the call that the thread is just entering another one."""
    calls.set_registers(tid, calls.NT_ARM_SYSTEM_CALL, struct.pack("<i", number))


def syscall_number(tid: int) -> int:
    """The system call at whose door the thread stands."""
    packed = calls.registers(tid, calls.NT_ARM_SYSTEM_CALL)
    return int(struct.unpack("<i", packed[:4])[0])


def syscall_result(tid: int) -> int:
    """What a system call returned, negative for an error number."""
    value = int(_REGISTERS.unpack(calls.registers(tid, calls.NT_PRSTATUS))[0])
    return value - (1 << 64) if value >> 63 else value


def call_result(pid: int, tid: int, frame: Frame) -> int:
    """What the C function returned, as a signed 32-bit int."""
    value = int(_REGISTERS.unpack(calls.registers(tid, calls.NT_PRSTATUS))[0]) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _code(*instructions: int) -> bytes:
    return struct.pack(f"<{len(instructions)}I", *instructions)


PIECES = {
    "pass on": b"",  # a result comes where the first argument goes
    "null": _code(0xD2800000),  # mov x0, #0
    # stp x30, x19, [sp, #-32]!; mov x8, #172; svc #0 = getpid
    "starter begins": _code(0xA9BE4FFE, 0xD2801588, 0xD4000001),
    # mov x0, #0; ldp x30, x19, [sp], #32; ret
    "starter ends": _code(0xD2800000, 0xA8C24FFE, 0xD65F03C0),
    "make": _code(0xAA0003F3),  # mov x19, x0
    "made": _code(0xAA1303E0),  # mov x0, x19
    "made to it": _code(0xAA1303E3),  # mov x3, x19
    "nothing to it": _code(0xD2800003),  # mov x3, #0
    "new thread": _code(0x910043E0, 0xD2800001),  # add x0, sp, #16; mov x1, #0
    # stp x30, x19, [sp, #-32]!; str x20, [sp, #16]; mov x19, x0
    "thread begins": _code(0xA9BE4FFE, 0xF9000BF4, 0xAA0003F3),
    # mov x0, #0; ldr x20, [sp, #16]; ldp x30, x19, [sp], #32; ret
    "thread ends": _code(0xD2800000, 0xF9400BF4, 0xA8C24FFE, 0xD65F03C0),
    "kept": _code(0xAA1303E0),  # mov x0, x19
    "keep int": _code(0x2A0003F3),  # mov w19, w0
    "kept int": _code(0x2A1303E0),  # mov w0, w19
    "as names": _code(0xAA0003F4, 0xAA0003E2, 0xAA0003E3),  # mov x20, x0; mov x2, x0; mov x3, x0
    "names": _code(0xAA1403E0),  # mov x0, x20
    "file input": _code(0xD2802021, 0xD2800004),  # mov x1, #257 = Py_file_input; mov x4, #0
}
"""Instructions by what they are for in `machine_code`."""
_TESTS = {"int is 0": 0x34000000, "null": 0xB4000000, "not null": 0xB5000000}
"""cbz w0, cbz x0, cbnz x0"""
_OTHER = 0x54000001
"""b.ne"""


def load(register: int, value: int) -> bytes:
    """`value` into a 64-bit register, in four pieces."""
    words = [0xD2800000 | (value & 0xFFFF) << 5 | register]
    for shift in (1, 2, 3):
        piece = value >> 16 * shift & 0xFFFF
        words.append(0xF2800000 | shift << 21 | piece << 5 | register)
    return _code(*words)


def call(function: int) -> bytes:
    return load(16, function) + _code(0xD63F0200)  # blr x16


def _branch(instruction: int, skipped: bytes) -> bytes:
    return _code(instruction | (len(skipped) // 4 + 1) << 5)


def skip(test: str, skipped: bytes) -> bytes:
    """A branch over `skipped` where the last call's result passes the test."""
    return _branch(_TESTS[test], skipped)


def skip_in_others(pid: int, skipped: bytes) -> bytes:
    """cmp w0, pid; b.ne past `skipped`"""
    return load(16, pid) + _code(0x6B10001F) + _branch(_OTHER, skipped)  # cmp w0, w16
