"""Registers, calls and signal frames of x86-64 Linux, for `collectors.attach.ptrace.injection`.

A call that we make in a stopped thread returns, without us, to where the thread was: its return
address leads to the C library's `__restore_rt`, and above it lies a signal frame with the thread's
own registers. So a monitor that is killed in the middle leaves a thread that finishes the call and
goes on by itself, with every register as it was.

Source: Linux `arch/x86/include/uapi/asm/sigcontext.h` and `ucontext.h`, `arch/x86/kernel/signal.c`,
`arch/x86/kernel/fpu/signal.c`; System V AMD64 ABI, 3.2 (calls, red zone).
"""

import struct
from dataclasses import dataclass
from operator import itemgetter

from collectors.attach.ptrace import calls

GADGETS = {
    "syscall": (b"\x0f\x05\xc3",),  # syscall; ret
    "restore": (b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05",),  # mov rax, 15; syscall = rt_sigreturn
    "keep": (
        b"\x48\x89\x03\x5b\xc3",  # mov [rbx], rax; pop rbx; ret
        b"\x48\x89\x03\x48\x8b\x5d\xf8\xc9\xc3",  # mov [rbx], rax; mov rbx, [rbp-8]; leave; ret
        b"\x48\x89\x43\x18\x5b\xc3",  # mov [rbx+24], rax; pop rbx; ret
    ),
}
"""Code that C libraries contain anyway, in any of these forms; nothing executable has to be written
for a call. The second way to keep a result is that of code with frame pointers, the third glibc 2.43's."""
KEPT_ABOVE = {GADGETS["keep"][2]: 24}
MMAP_CALL, SIGRETURN = 9, 15
PARKED_CALLS = (202, 35, 230, 7, 271, 23, 270, 232, 281, 441)
"""futex, nanosleep, clock_nanosleep, poll, ppoll, select, pselect6, then epoll_wait and kin."""
READ_CALLS = (0, 45)
"""read, recvfrom."""
_NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
).split()
_REGISTERS = struct.Struct("<27Q")
_in_order = itemgetter(*_NAMES)
_CONTEXT = struct.Struct("<QQQiiQ 18Q 4H 5Q 8Q Q")
_RED_ZONE = 128
_SYSCALL_SP, _RESTORE_SP = 16, 24
"""In a frame, above what a C function returns to: where to return from a call, and from a signal."""
_FX_MAGIC, _END_MAGIC = 0x46505853, 0x46505845
_SOFTWARE_AT, _HEADER_AT, _LEGACY_BYTES = 464, 512, 576
_TILE_DATA = 1 << 18
_TILE_BYTES = 8192
CLOSING = (3, 436)
"""close and close_range, which cannot be made again: the descriptor is gone, and may be somebody else's by
now. Some file systems (FUSE) end it with EINTR, what was written unsaved."""
CUT_SHORT = (1, 20, 18, 296, 328, 44, 46, 307, 40, 275)
"""write, send and kin, sendfile, splice: may return with the part that was written by then."""
_EINTR = -4 & (1 << 64) - 1
_RESTARTS = tuple(-n & (1 << 64) - 1 for n in (512, 513, 514))
_RESTART_BLOCK = -516 & (1 << 64) - 1
_RESTART_NO_HANDLER = -514 & (1 << 64) - 1
_NO_CALL = (1 << 64) - 1
_RESTART_SYSCALL = 219
_LEAVE_ALTSTACK = 0x7
"""No valid mode: the kernel then keeps the thread's alternate stack as it is."""
_SYSCALL_BYTES = 2
_BAD_FLAGS = 0x100 | 0x400
"""Trap and direction: a C function may be entered with neither."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the way back lies on the thread's stack."""

    address: int
    slot: int
    """16 bytes that a call may write to."""
    keeps: int
    """What rbx is to be for a result to come into the slot."""
    restore: int
    """The code that takes the way back."""
    content: bytes


@dataclass(frozen=True, slots=True)
class State:
    """A thread's registers, exactly."""

    general: dict[str, int]
    extended: bytes
    mask: bytes


def save(tid: int) -> State:
    """The state of a thread in an event stop.

    A call that our interrupt ended with EINTR, which says that it did nothing, is made to restart as
    the kernel restarts others: the trainer never sees the EINTR, unless it comes with a signal
    of its own. A time limit that counts from the call's beginning begins again.
    """
    general = _peek(tid)
    number = general["orig_rax"]
    if general["rax"] == _EINTR and number != _NO_CALL and number not in CLOSING:
        general["rax"] = _RESTART_NO_HANDLER
    extended = calls.registers(tid, calls.NT_X86_XSTATE)
    return State(general, extended, calls.signal_mask(tid))


def load_general(tid: int, general: dict[str, int]) -> None:
    calls.set_registers(tid, calls.NT_PRSTATUS, _REGISTERS.pack(*_in_order(general)))


def put_back(tid: int, state: State) -> None:
    """Every register as it was; general ones last: until then the frame is the way back."""
    calls.set_registers(tid, calls.NT_X86_XSTATE, state.extended)
    calls.set_signal_mask(tid, state.mask)
    load_general(tid, state.general)


def _extended_frame(extended: bytes) -> bytes:
    """The extended registers as a signal frame holds them.

    A thread that never used AMX has no room for tile data in the kernel, so they are left out
    unless they are in use.
    """
    if len(extended) <= _LEGACY_BYTES:
        return extended
    (features,) = struct.unpack_from("<Q", extended, _SOFTWARE_AT)
    (used,) = struct.unpack_from("<Q", extended, _HEADER_AT)
    size = len(extended)
    if features & _TILE_DATA and not used & _TILE_DATA:
        size -= _TILE_BYTES
        features &= ~_TILE_DATA
    body = bytearray(extended[:size])
    struct.pack_into("<IIQI", body, _SOFTWARE_AT, _FX_MAGIC, size + 4, features, size)
    return bytes(body) + struct.pack("<I", _END_MAGIC)


def _resumed(general: dict[str, int]) -> dict[str, int]:
    """Registers with which an interrupted system call starts again without the kernel's help.

    Except that a timed wait of a thread that we left in the middle ends in EINTR, as a signal
    would have made it.
    """
    again = dict(general)
    if general["orig_rax"] != _NO_CALL:
        if general["rax"] in _RESTARTS:
            again["rax"] = general["orig_rax"]
            again["rip"] -= 2
        elif general["rax"] == _RESTART_BLOCK:
            again["rax"] = _RESTART_SYSCALL
            again["rip"] -= 2
    return again


def frame(state: State, gadgets: dict[str, int]) -> Frame:
    """The way back: return addresses, a signal frame, and a slot for a call's result."""
    extended = _extended_frame(state.extended)
    size = 24 + _CONTEXT.size
    top = state.general["rsp"] - _RED_ZONE - 64
    slot = (top - 16) & ~15
    fp_at = (slot - len(extended)) & ~63
    base = ((fp_at - size - 8) & ~15) + 8
    regs = _resumed(state.general)
    flags = 0x1 | 0x2 | 0x4  # extended state present; SS is saved; SS is to be restored strictly
    names = "r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags".split()
    context = _CONTEXT.pack(
        *(flags, 0, 0, _LEAVE_ALTSTACK, 0, 0),
        *(regs[name] for name in names),
        *(regs[name] & 0xFFFF for name in ("cs", "gs", "fs", "ss")),
        *(0, 0, 0, 0, fp_at),
        *(0,) * 8,
        int.from_bytes(state.mask, "little"),
    )
    chain = struct.pack("<QQQ", gadgets["keep"], 0, gadgets["restore"])
    head = chain + context
    content = head + bytes(fp_at - base - len(head)) + extended
    content += bytes(slot + 16 - base - len(content))
    return Frame(base, slot, slot - gadgets.get("kept above", 0), gadgets["restore"], content)


def aim_call(
    state: State, frame: Frame, address: int, arguments: tuple[int, ...]
) -> dict[str, int]:
    """Registers that call the C function at `address` and keep its result in the slot.

    Above the return address lies a word that is popped, by `leave` from where rbp points.
    """
    regs = dict(state.general, rip=address, rsp=frame.address, rbx=frame.keeps, rax=0)
    regs.update(rbp=frame.address + 8)
    regs.update(zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9"), arguments, strict=False))
    return dict(regs, orig_rax=_NO_CALL, eflags=regs["eflags"] & ~_BAD_FLAGS)


def aim_syscall(
    state: State,
    frame: Frame,
    gadget: int,
    number: int,
    arguments: tuple[int, ...],
    at_door: bool = False,
) -> dict[str, int]:
    """Registers that make one system call; `at_door`: the thread is just entering another one."""
    regs = dict(
        state.general, rip=gadget, rsp=frame.address + _SYSCALL_SP, rax=number, orig_rax=_NO_CALL
    )
    regs.update(zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments, strict=False))
    if at_door:
        regs.update(rip=gadget + _SYSCALL_BYTES, orig_rax=number)
    return dict(regs, eflags=regs["eflags"] & ~_BAD_FLAGS)


def aim_return(state: State, frame: Frame) -> dict[str, int]:
    """Registers with which the thread, left alone, takes the way back."""
    return dict(
        state.general, rip=frame.restore, rsp=frame.address + _RESTORE_SP, orig_rax=_NO_CALL
    )


def syscall_number(tid: int) -> int:
    """The system call at whose door the thread stands."""
    return _register(tid, "orig_rax")


def syscall_result(tid: int) -> int:
    """What a system call returned, negative for an error number."""
    value = _register(tid, "rax")
    return value - (1 << 64) if value >> 63 else value


def call_result(pid: int, tid: int, frame: Frame) -> int:
    """What the C function returned, as a signed 32-bit int."""
    return int(struct.unpack("<i", calls.read_memory(pid, frame.slot, 4))[0])


def returns_alone(state: State) -> bool:
    """Whether the way back alone leaves the thread exactly as it was.

    Not when it was in a system call: one with a time limit would end in EINTR.
    """
    return state.general["orig_rax"] == _NO_CALL


def _register(tid: int, name: str) -> int:
    packed = calls.registers(tid, calls.NT_PRSTATUS)
    return int(struct.unpack_from("<Q", packed, 8 * _NAMES.index(name))[0])


def _peek(tid: int) -> dict[str, int]:
    packed = calls.registers(tid, calls.NT_PRSTATUS)
    return dict(zip(_NAMES, _REGISTERS.unpack(packed), strict=True))
