"""A trainer that does all that could make an attach harmful, and ends when something of it got lost.

Signal handlers that raise, also while garbage is collected, an audit hook that refuses code in the
main thread, a main thread at its recursion limit, forks from another thread, loader workers, sleeps.
Standard library only.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time

MAIN = threading.get_ident()
PHASE_S = 0.02
FORK_S = 30
raised, armed = 0, False
forked_s = time.monotonic()


class Alarm(Exception):
    pass


def ring(*_):
    global raised, armed
    if armed:
        armed = False
        raised += 1
        raise Alarm


def refuse(event, _):
    if event in ("exec", "compile") and threading.get_ident() == MAIN:
        raise PermissionError(event)


def fork_without_end():
    global forked_s
    while True:
        forked_s = time.monotonic()
        child = os.fork()
        if child == 0:
            end = time.monotonic() + 0.002
            while time.monotonic() < end:
                sum(range(100))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print("a child ended with", status, flush=True)
            os._exit(3)
        time.sleep(0.01)


def load(pipe):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its trainer
    number = 0
    while True:
        number += 1
        pipe.send((number, [k * 0.5 for k in range(500)]))


def listen(end):
    """Here, in a call, and at no other place an exception of the handler can come."""
    global armed
    armed = True
    while time.monotonic() < end:
        gc.collect(0)
    armed = False


def hear_alarms():
    """How many exceptions came, of a timer whose handler raises one at a time."""
    received, end = 0, time.monotonic() + PHASE_S
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    while time.monotonic() < end:
        try:
            listen(end)
        except Alarm:
            received += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    return received


def sink(rounds):
    try:
        return sink(rounds)
    except RecursionError:
        pass
    n = 0
    while n < rounds:
        n += 1
    return n


def main():
    pipes = []
    for _ in range(2):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        worker = multiprocessing.Process(target=load, args=(theirs,), daemon=True)
        worker.start()
        theirs.close()
        pipes.append(ours)
    signal.signal(signal.SIGALRM, ring)
    threading.Thread(target=fork_without_end, daemon=True).start()
    sys.setrecursionlimit(200)
    sys.addaudithook(refuse)
    step = 0
    while True:
        step += 1
        before = raised
        received = hear_alarms()
        if received != raised - before:
            sys.exit(f"{raised - before} exceptions were raised and {received} came")
        if time.monotonic() - forked_s > FORK_S:
            sys.exit("a forked child hangs")
        if sink(200_000) != 200_000:
            sys.exit("the deep loop was cut short")
        for pipe in pipes:
            number, batch = pipe.recv()
            if number != step or sum(batch) != 62375.0:
                sys.exit(f"batch {number} of step {step} is not what was sent")
        time.sleep(0.005)
        print("step", step, flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
