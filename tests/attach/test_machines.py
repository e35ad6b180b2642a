"""What goes onto a borrowed stack and into a page of code, on x86-64."""

import os
import shutil
import struct
import subprocess

import pytest

from collectors.attach import by_ptrace
from collectors.attach.ptrace import machine_code, worker, x86_64
from collectors.doctor import Status, doctor
from collectors.errors import RUN_INSTEAD, Unsupported
from collectors.process import process as processes

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


def context_of(frame: x86_64.Frame) -> tuple[int, ...]:
    context: tuple[int, ...] = x86_64._CONTEXT.unpack_from(frame.content, 24)
    return context


def test_x86_frame_is_aligned_and_leaves_the_red_zone_alone():
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
def test_x86_frame_restarts_an_interrupted_call(code):
    state = x86_state(rax=(1 << 64) - code, orig_rax=202, rip=0x401002)
    again = x86_64._resumed(state.general)
    assert (again["rax"], again["rip"]) == (202, 0x401000)


def test_x86_frame_keeps_a_result_that_only_looks_like_a_restart():
    state = x86_state(rax=(1 << 64) - 512)
    assert x86_64._resumed(state.general) == state.general


@pytest.mark.parametrize(("used", "size"), [(0x2E7, 2816), (0x602E7, 11008)])
def test_x86_frame_has_amx_tiles_only_where_they_are_in_use(used, size):
    extended = bytearray(11008)
    struct.pack_into("<Q", extended, 464, XCR0)
    struct.pack_into("<Q", extended, 512, used)
    made = x86_64._extended_frame(bytes(extended))
    magic, whole, features, without = struct.unpack_from("<IIQI", made, 464)
    assert (magic, whole, without) == (0x46505853, size + 4, size)
    assert bool(features & 1 << 18) == (size == 11008)
    assert struct.unpack_from("<I", made, size) == (0x46505845,)
    assert len(made) == size + 4


@pytest.mark.parametrize("handed", [False, True])
def test_machine_code_is_what_a_disassembler_reads(handed):
    tool = shutil.which("llvm-mc")
    if tool is None:
        pytest.skip("no llvm-mc here")
    address = 0xFEDCBA0987654321
    code = machine_code.starter_code(FUNCTIONS, 2**22, address, address, address, handed)
    assert len(code) <= worker._STARTER_BYTES
    code += machine_code.thread_code(FUNCTIONS, address, address, address, handed)
    assert len(code) <= worker._CODE_BYTES
    code += b"".join(form for forms in x86_64.GADGETS.values() for form in forms)
    done = subprocess.run(
        [tool, "--disassemble", "--triple=x86_64"],
        input=" ".join(f"0x{byte:02x}" for byte in code),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "warning" not in done.stderr
    for word in ("pushq\t%rbx", "callq\t*%rax", "retq", "syscall"):
        assert word in done.stdout


def test_on_another_machine_nothing_is_stopped_and_the_doctor_says_what_to_do(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(Unsupported, match="on aarch64") as caught:
        by_ptrace.make_plan(processes.read(os.getpid()))
    assert caught.value.action == RUN_INSTEAD
    check = next(check for check in doctor(None).checks if check.name == "machine")
    assert check.status is Status.NOTE
    assert check.fix == RUN_INSTEAD
