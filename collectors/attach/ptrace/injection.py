"""Holds one thread of the trainer still, makes a few calls in it, and lets it go as it was.

Order is everything here. From the first changed register to the last restored one, whatever the
thread would do if we vanished (kill -9, out of memory, power of the SSH session) is to finish the
current call and return by itself through the signal frame on its stack: registers are aimed before
signals are blocked, and put back after they are released. Signals stay blocked meanwhile, so no
handler of the trainer runs on a borrowed state; they are delivered as soon as the thread is back.

Every wait has a deadline, and so has a call that makes system calls without end. A thread that does
not come back from a call in time is put back where it was when it is the main thread, which could
be waiting for a lock of its own; any other thread is left to finish the call, since tearing it out
of a lock's queue would leave a dangling entry.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

from collectors.attach.ptrace import calls, x86_64

_ALL_SIGNALS = b"\xff" * 8
_STOP_LIMIT_S = 2.0
_CALL_LIMIT_S = 0.5
_WHOLE_CALL_S = dict.fromkeys(x86_64.CUT_SHORT, 0.1) | dict.fromkeys(x86_64.CLOSING, 0.5)
"""By call: so long its end is waited for. A thread that still writes is stopped then, one that closes not."""
_ELSEWHERE_LOOKS = 4
_STACK_NEEDED = 16384
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_R, _RX, _PRIVATE_ANONYMOUS = 1, 5, 0x22
_NO_FILE = (1 << 64) - 1


class InjectionFailed(Exception):
    """The thread could not be used; it runs on as before."""


class CodeRefused(InjectionFailed):
    """The trainer may have no code beyond what its files bring (SELinux, a hardened kernel)."""


class Injection:
    def __init__(self, pid: int, tid: int, gadgets: dict[str, int], patience_s: float) -> None:
        self._pid = pid
        self._tid = tid
        self._gadgets = gadgets
        self._patience_s = min(patience_s, _STOP_LIMIT_S)
        self._state: x86_64.State
        self._frame: x86_64.Frame
        self._aimed = False
        self._overdue = False
        self._where = "free"
        self._held_signal = 0
        self._memory = -1
        self._began = 0
        self.stopped_ns = 0
        """How long the thread was held, from when it was seen to stand to its release."""
        self.awaited_ns = 0
        """How long it went on before, from the interrupt: inside the kernel, or without a processor."""

    def __enter__(self) -> Injection:
        calls.request(calls.SEIZE, self._tid, 0, calls.O_TRACESYSGOOD)
        self._where = "running"
        with contextlib.suppress(OSError):  # told when code is to be written
            self._memory = os.open(f"/proc/{self._pid}/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._await_whole_call()
            self._began = time.perf_counter_ns()
            self._halt(time.monotonic() + self._patience_s)
            asked, self._began = self._began, time.perf_counter_ns()
            self.awaited_ns = self._began - asked
            self._state = x86_64.save(self._tid)
            self._frame = x86_64.frame(self._state, self._gadgets)
            lowest = self._frame.address - _STACK_NEEDED
            try:
                calls.read_memory(self._pid, lowest, 1)
                calls.write_memory(self._pid, self._frame.address, self._frame.content)
            except OSError as fault:
                raise InjectionFailed(f"the stack of thread {self._tid} has no room") from fault
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _next_stop(self, deadline: float) -> str:
        """Where the thread stopped: `event` (a clean stop), `group`, `syscall` or `signal`."""
        status = calls.wait(self._tid, deadline)
        number, event = os.WSTOPSIG(status), status >> 16
        if event == calls.EVENT_STOP:
            return "event" if number == signal.SIGTRAP else "group"
        if number == signal.SIGTRAP | 0x80:
            return "syscall"
        self._held_signal = number
        return "signal"

    def _await_whole_call(self) -> None:
        """Until the thread is out of a call that a stop would cut short for good, for so long.

        One that was seen in it and runs now may still be in it: several looks tell.
        """
        number = calls.system_call(self._pid, self._tid)
        if number not in _WHOLE_CALL_S:
            return
        until, elsewhere = time.monotonic() + min(_WHOLE_CALL_S[number], self._patience_s), 0
        while elsewhere < _ELSEWHERE_LOOKS and time.monotonic() < until:
            time.sleep(0.001)
            number = calls.system_call(self._pid, self._tid)
            elsewhere = 0 if number in _WHOLE_CALL_S else elsewhere + 1
        if number in x86_64.CLOSING:
            raise InjectionFailed("the thread has been closing a file for too long")

    def _halt(self, deadline: float) -> None:
        """Brings the running thread to an event stop."""
        calls.request(calls.INTERRUPT, self._tid)
        while True:
            where = self._next_stop(deadline)
            if where in ("event", "group"):
                self._where = where
                if where == "group" and not self._aimed:
                    raise InjectionFailed("the process is stopped by a signal")
                return
            self._where = where
            if time.monotonic() > deadline:
                raise calls.TimedOut("signals came instead of the stop")
            # A stop of another kind takes the interrupt back: a call that sleeps ends in one of its own.
            calls.request(calls.INTERRUPT, self._tid)
            self._resume(calls.CONT)

    def _resume(self, how: int) -> None:
        # Before registers are aimed a signal goes on to its handler; afterwards only SIGSTOP can
        # still come, and it is sent again once the thread is back.
        number = 0
        if self._where == "signal" and not self._aimed:
            number, self._held_signal = self._held_signal, 0
        calls.request(how, self._tid, 0, number)
        self._where = "running"

    def _aim(self, registers: dict[str, int]) -> None:
        x86_64.load_general(self._tid, registers)
        if not self._aimed:
            self._aimed = True
            calls.set_signal_mask(self._tid, _ALL_SIGNALS)

    def _to_syscall(self, deadline: float) -> None:
        """Runs the thread to the next door of a system call: `entry`, and from there `exit`."""
        following = "exit" if self._where == "entry" else "entry"
        if time.monotonic() > deadline:
            raise calls.TimedOut("system calls without end")
        self._resume(calls.SYSCALL)
        while True:
            self._where = self._next_stop(deadline)
            if self._where == "syscall":
                self._where = following
                return
            if self._held_signal in _FAULTS:
                fault, self._held_signal = self._held_signal, 0
                raise InjectionFailed(
                    f"a call in the trainer ended in {signal.Signals(fault).name}"
                )
            self._resume(calls.SYSCALL)

    def rehearse(self) -> None:
        """What a call does with a thread that sleeps, up to its next system call."""
        deadline = time.monotonic() + _CALL_LIMIT_S
        self._aim(self._state.general)
        self._to_syscall(deadline)
        x86_64.syscall_number(self._tid)
        x86_64.call_result(self._pid, self._tid, self._frame)
        state, frame, gadgets = self._state, self._frame, self._gadgets
        x86_64.aim_call(state, frame, gadgets["restore"], (0, 0))
        x86_64.aim_syscall(state, frame, gadgets["syscall"], 0, (0,) * 6, True)
        x86_64.aim_return(state, frame)
        x86_64.syscall_result(self._tid)

    def syscall(self, number: int, *arguments: int) -> int:
        """The result of one system call made by the thread; negative is an errno.

        After a call the thread stands at the door of the way back; that call is exchanged for
        ours, which saves two stops.
        """
        deadline = time.monotonic() + _CALL_LIMIT_S
        at_door = self._where == "entry"
        gadget = self._gadgets["syscall"]
        tid = self._tid
        self._aim(x86_64.aim_syscall(self._state, self._frame, gadget, number, arguments, at_door))
        if not at_door:
            self._to_syscall(deadline)
        self._to_syscall(deadline)
        result = x86_64.syscall_result(tid)
        self._aim(x86_64.aim_return(self._state, self._frame))
        return result

    def call(self, address: int, *arguments: int) -> int:
        """The int that the C function at `address` returned to the thread.

        Raises:
            InjectionFailed: It did not return in time.
        """
        deadline = time.monotonic() + _CALL_LIMIT_S
        tid = self._tid
        if self._where == "entry":
            self._skip_syscall()
            self._to_syscall(deadline)
        self._aim(x86_64.aim_call(self._state, self._frame, address, arguments))
        try:
            while True:
                self._to_syscall(deadline)
                if x86_64.syscall_number(tid) == x86_64.SIGRETURN:
                    break
                self._to_syscall(deadline)
        except calls.TimedOut as fault:
            self._overdue = True
            raise InjectionFailed("a call in the trainer did not return in time") from fault
        return x86_64.call_result(self._pid, tid, self._frame)

    def _skip_syscall(self) -> None:
        """At the door of the way back: do not take it now, but take it next if we vanish.

        Another call is made instead, one that fails. To make none would do, but for filters of
        system calls, which see a call without a number then, and may end the process for it.
        """
        number, gadget = x86_64.MMAP_CALL, self._gadgets["syscall"]
        nothing = (0, 0, _R, _PRIVATE_ANONYMOUS, _NO_FILE, 0)
        self._aim(
            x86_64.aim_syscall(self._state, self._frame, gadget, number, nothing, at_door=True)
        )

    def _settle(self, deadline: float) -> None:
        """Out of a system call, into an event stop, where registers count as set."""
        if self._where == "entry":
            self._skip_syscall()
        if self._where in ("entry", "exit"):
            while self._where not in ("event", "group"):
                calls.request(calls.INTERRUPT, self._tid)
                self._resume(calls.CONT)
                self._where = self._next_stop(deadline)

    def map(self, size: int, at: int = 0) -> int:
        """The address of fresh private memory in the trainer, for code and what it reads.

        It is `at` where that is free.
        """
        number = x86_64.MMAP_CALL
        result = self.syscall(number, at, size, _RX, _PRIVATE_ANONYMOUS, _NO_FILE, 0)
        if result < 0:
            raise CodeRefused(f"the trainer may not map code: {os.strerror(-result)}")
        return result

    @property
    def slot(self) -> int:
        """16 bytes on the thread's stack that a call may write to."""
        return self._frame.slot

    def write_code(self, address: int, content: bytes) -> None:
        """Bytes into a page that is mapped read-only: only a tracer can."""
        try:
            if self._memory < 0:
                self._memory = os.open(f"/proc/{self._pid}/mem", os.O_WRONLY | os.O_CLOEXEC)
            os.pwrite(self._memory, content, address)
        except OSError as fault:
            raise CodeRefused(
                f"the kernel refuses to write code here ({fault.strerror}: proc_mem.force_override)"
            ) from fault

    def _release(self) -> None:
        """Puts everything back and lets go, from whatever place the thread is in."""
        try:
            if self._where != "free":
                self._return()
        except calls.Gone:
            self._where = "free"
        except OSError as fault:
            if fault.errno != errno.ESRCH:
                raise
            self._where = "free"
        finally:
            self.stopped_ns = time.perf_counter_ns() - self._began
            if self._memory >= 0:
                os.close(self._memory)
                self._memory = -1
        if self._held_signal and self._aimed:
            os.kill(self._pid, self._held_signal)

    def _return(self) -> None:
        deadline, number = time.monotonic() + _STOP_LIMIT_S, 0
        running = self._where == "running"
        if running and not self._aimed:
            raise calls.TimedOut("the thread could not be stopped; ending lets go of it")
        if self._tid != self._pid and (running or self._overdue):
            # In the middle of a call: the frame on its stack takes it home.
            if running:
                calls.request(calls.INTERRUPT, self._tid)
                self._where = self._next_stop(deadline)
        elif self._where == "signal" and not self._aimed:
            number = self._held_signal
        elif not self._takes_the_way_back():
            (self._halt if running else self._settle)(deadline)
            if self._aimed:
                x86_64.put_back(self._tid, self._state)
        calls.request(calls.DETACH, self._tid, 0, number)
        self._where = "free"

    def _takes_the_way_back(self) -> bool:
        """At the door of the way back, where that does all that we would do: it saves a stop."""
        return (
            self._where == "entry"
            and x86_64.returns_alone(self._state)
            and x86_64.syscall_number(self._tid) == x86_64.SIGRETURN
        )
