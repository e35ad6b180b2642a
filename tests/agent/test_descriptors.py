"""The trainer closes descriptors, opens its own under the same numbers, or has none left."""

from collections.abc import Callable

import pytest

from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
ENDED = 256
OURS = """
def ours():
    found = {}
    for number in map(int, os.listdir('/proc/self/fd')):
        try: found[number] = os.readlink(f'/proc/self/fd/{number}')
        except OSError: pass
    return {n for n, what in found.items() if what.startswith(('socket:', 'anon_inode:[eventfd]'))}
"""
PUT = {
    "files": "held = [os.open('{path}', os.O_RDWR | os.O_CREAT) for _ in numbers]",
    "eventfds": "held = [os.eventfd(1, os.EFD_NONBLOCK) for _ in numbers]",
    "sockets": """
import socket
pairs = [socket.socketpair() for _ in numbers]
for one, other in pairs: other.send(b'hello'); other.setblocking(False)
held = [one.fileno() for one, _ in pairs]
""",
}
PROBES = {
    "files": "answer = [os.fstat(n).st_size for n in numbers]",
    "eventfds": "answer = [os.eventfd_read(n) - 1 for n in numbers]",
    "sockets": """
def heard(other):
    try: return len(other.recv(99))
    except BlockingIOError: return 0
answer = [len(os.read(n, 99)) - 5 + heard(other) for n, (_, other) in zip(numbers, pairs)]
""",
}


@pytest.mark.parametrize("put", PUT)
def test_numbers_that_became_the_trainers_are_neither_closed_nor_used(trainer, connect, put):
    trainer.do(OURS + "before = ours()")
    connect(trainer.load().start()).ready()
    path = trainer.folder / "precious"
    trainer.do(
        "numbers = sorted(ours() - before)\n"
        + PUT[put].format(path=path)
        + "\nfor mine, number in zip(held, numbers): os.dup2(mine, number)\n"
        "lib.brrr_step(time.time_ns(), 1); lib.brrr_json(13, b'{}'); lib.brrr_graphs(1)"
    )
    assert trainer.do("answer = len(numbers)") >= 3
    trainer.bits_until(ENDED)
    assert set(trainer.do(PROBES[put])) == {0}, "nothing was written, read or closed"
    trainer.start()
    connect(trainer).in_state("ready")


def test_numbers_are_high_unless_the_limit_is_low(trainer, connect):
    trainer.do(OURS + "before = ours()")
    trainer.load().start()
    connect(trainer).in_state("ready")
    assert min(trainer.do("answer = sorted(ours() - before)")) >= 700
    assert trainer.do("answer = lib.brrr_stop()") == 0


def test_under_a_low_limit_the_agent_still_runs(trainer, connect):
    trainer.do("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    trainer.load().start()
    connect(trainer).in_state("ready")


def test_a_child_of_a_trainer_that_took_the_numbers_keeps_its_files(trainer, connect):
    trainer.do(OURS + "before = ours()")
    trainer.load().start()
    connect(trainer).in_state("ready")
    code = trainer.do(
        "numbers = sorted(ours() - before)\n"
        "held = os.open('/dev/null', os.O_RDWR)\n"
        "for number in numbers: os.dup2(held, number)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try: [os.fstat(number) for number in numbers]\n"
        "    except OSError: os._exit(1)\n"
        "    os._exit(0)\n"
        "answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert code == 0


def test_a_trainer_without_descriptors_pays_nothing_for_whoever_knocks(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    trainer.do(
        "import resource; before = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "used = max(map(int, os.listdir('/proc/self/fd'))) + 1\n"
        "full = []\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(used, before[0]), before[1]))\n"
        "try:\n"
        "    while True: full.append(os.dup(0))\n"
        "except OSError: pass\n"
    )
    second = connect(trainer)
    cpu_ns = trainer.stats()["cpu_ns"]
    trainer.do("time.sleep(1.5)")
    monitor.read()
    trainer.do("time.sleep(0.3)")  # a beat, by which the count is published
    assert trainer.stats()["cpu_ns"] - cpu_ns < 0.5e9
    trainer.do("[os.close(n) for n in full]")
    second.in_state("ready")
