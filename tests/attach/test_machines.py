"""What goes onto a borrowed stack and into a page of code, machine by machine."""

from __future__ import annotations

import shutil
import struct
import subprocess
from types import ModuleType

import pytest

from collectors.attach import by_ptrace
from collectors.attach.ptrace import aarch64, machine_code, worker, x86_64

NAMES = by_ptrace._WANTED | by_ptrace._HANDING | {"bind"}
FUNCTIONS = dict.fromkeys(NAMES, 0x1234567890ABCDEF)
STACK = 0x7FFC_1234_5678
XCR0 = 0x602E7


def x86_state(extended: bytes = bytes(2696), **registers: int) -> x86_64.State:
    general = dict.fromkeys(x86_64._NAMES, 0) | {
        "rsp": STACK,
        "rip": 0x401000,
        "orig_rax": (1 << 64) - 1,
    }
    return x86_64.State(general | registers, extended, bytes(8))


GADGETS = {"keep": 1, "restore": 2, "syscall": 3}


def context_of(frame: machine_code.Frame) -> tuple[int, ...]:
    context: tuple[int, ...] = x86_64._CONTEXT.unpack_from(frame.content, 24)
    return context


def test_x86_frame_is_aligned_and_leaves_the_red_zone_alone() -> None:
    for offset in range(0, 64, 8):
        frame = x86_64.frame(x86_state(rsp=STACK - offset), GADGETS)
        assert frame.address % 16 == 8, "as after a call instruction"
        assert frame.address + len(frame.content) <= STACK - offset - 128
        assert frame.slot >= frame.address
        assert struct.unpack_from("<QQQ", frame.content) == (1, 0, 2)
        extended_at = context_of(frame)[-11 - 4 + 5]
        assert extended_at % 64 == 0
        assert x86_64.aim_return(x86_state(), frame)["rsp"] == frame.address + 24


@pytest.mark.parametrize("code", [512, 513, 514])
def test_x86_frame_restarts_an_interrupted_call(code: int) -> None:
    state = x86_state(rax=(1 << 64) - code, orig_rax=202, rip=0x401002)
    again = x86_64._resumed(state.general)
    assert (again["rax"], again["rip"]) == (202, 0x401000)


def test_x86_frame_keeps_a_result_that_only_looks_like_a_restart() -> None:
    state = x86_state(rax=(1 << 64) - 512)
    assert x86_64._resumed(state.general) == state.general


@pytest.mark.parametrize(("used", "size"), [(0x2E7, 2816), (0x602E7, 11008)])
def test_x86_frame_has_amx_tiles_only_where_they_are_in_use(used: int, size: int) -> None:
    extended = bytearray(11008)
    struct.pack_into("<Q", extended, 464, XCR0)
    struct.pack_into("<Q", extended, 512, used)
    made = x86_64._extended_frame(bytes(extended))
    magic, whole, features, without = struct.unpack_from("<IIQI", made, 464)
    assert (magic, whole, without) == (0x46505853, size + 4, size)
    assert bool(features & 1 << 18) == (size == 11008)
    assert struct.unpack_from("<I", made, size) == (0x46505845,)
    assert len(made) == size + 4


def test_arm_frame_is_laid_as_the_kernel_lays_it() -> None:
    general = (*range(31), STACK, 0x400000, 0)
    vectors = bytes(range(256)) * 2 + struct.pack("<II", 7, 9) + bytes(8)
    state = aarch64.State(general, vectors, b"", b"\1\2\3\4\5\6\7\10")
    frame = aarch64.frame(state, {"restore": 5})
    assert frame.address % 16 == 0
    assert struct.unpack_from("<34Q", frame.content, 304 + 8) == general
    assert frame.content[168:176] == state.mask
    assert struct.unpack_from("<IIII", frame.content, 592) == (0x46508001, 528, 7, 9)
    assert frame.content[608 : 608 + 512] == vectors[:512]
    assert struct.unpack_from("<II", frame.content, 592 + 528) == (0, 0)
    aimed = aarch64.aim_call(state, frame, 0x1234, (10, 11))
    assert aimed[:3] == (10, 11, 2)
    assert aimed[30:33] == (5, frame.address, 0x1234)


@pytest.mark.parametrize("handed", [False, True])
@pytest.mark.parametrize(
    ("machine", "triple", "words"),
    [
        (x86_64, "x86_64", ["pushq\t%rbx", "callq\t*%rax", "retq", "syscall"]),
        (aarch64, "aarch64", ["stp\tx30, x19", "blr\tx16", "mov\tx8, #139", "ret"]),
    ],
)
def test_machine_code_is_what_a_disassembler_reads(
    machine: ModuleType, triple: str, words: list[str], handed: bool
) -> None:
    tool = shutil.which("llvm-mc")
    if tool is None:
        pytest.skip("no llvm-mc here")
    address = 0xFEDCBA0987654321
    code = machine_code.starter_code(machine, FUNCTIONS, 2**22, address, address, address, handed)
    assert len(code) <= worker._STARTER_BYTES
    code += machine_code.thread_code(machine, FUNCTIONS, address, address, address, handed)
    assert len(code) <= worker._CODE_BYTES
    code += b"".join(form for forms in machine.GADGETS.values() for form in forms)
    done = subprocess.run(
        [tool, "--disassemble", f"--triple={triple}"],
        input=" ".join(f"0x{byte:02x}" for byte in code),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "warning" not in done.stderr
    for word in words:
        assert word in done.stdout
