"""The whole life of an agent under the compilers' own watchdogs."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from tests.agent.conftest import build_few
from tests.agent.rig import Monitor, Trainer

pytestmark = pytest.mark.timeout(240)
"""Some 5 s of CPU each; compiling under a loaded machine takes the rest."""

WATCHDOGS = {
    "address,undefined": ("libasan.so", "ASAN_OPTIONS", "detect_leaks=0:halt_on_error=1"),
    "thread": ("libtsan.so", "TSAN_OPTIONS", "halt_on_error=1:report_signal_unsafe=1"),
}
LAUNCHES = """
def launches():
    for _ in range(200):
        cupti.fake_launch(name('gemm'), 50, 1000, 0, 7)
        lib.brrr_step(time.time_ns(), threading.get_native_id())
        lib.brrr_mark(4, 1, 2, 3, lib.brrr_name(b'gc'), 5)
        time.sleep(0.002)
threads = [threading.Thread(target=launches) for _ in range(3)]
[thread.start() for thread in threads]
"""

TAKE_THE_NUMBERS = """
numbers = [n for n in map(int, os.listdir('/proc/self/fd')) if n >= 700]
precious = os.open(os.path.join(folder, 'precious'), os.O_RDWR | os.O_CREAT)
for number in numbers: os.dup2(precious, number)
"""
"""Two that wake, one that listens, one for the monitor that is left; the agent's are the high ones."""


@pytest.mark.parametrize("watchdog", WATCHDOGS)
def test_a_whole_life_raises_no_alarm(tmp_path, watchdog):
    library, variable, options = WATCHDOGS[watchdog]
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc here")
    asked = [gcc, f"-print-file-name={library}"]
    run = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
    preload = Path(run.stdout.strip())
    if not preload.is_absolute():
        pytest.skip(f"{library} is not installed")
    flags = (f"-fsanitize={watchdog}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
    built = build_few(tmp_path / "built", *flags)
    environment = {
        "LD_PRELOAD": str(preload),
        variable: options,
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    trainer = Trainer(built, tmp_path, **environment)
    monitors = []
    try:
        trainer.load(version=24).do(f"folder = {str(tmp_path)!r}")
        for life in range(2):
            trainer.start("flush_ms=20;max_buffers=4;buffer_bytes=65536", graphs=life == 0)
            monitors = [Monitor(trainer.socket_path) for _ in range(2)]
            if life == 0:  # all threads are held for the switch
                monitors[0].send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
            monitors[0].in_state("ready", 30)
            trainer.do(LAUNCHES)
            monitors[1].send(requests.continuous(True))
            _watch(monitors, 1.0)
            trainer.do("lib.brrr_yield(b'torch.profiler'); lib.brrr_resume()", 30)
            _watch(monitors, 0.5)
            monitors[1].send(requests.continuous(False))
            monitors[0].burst(steps=3, longest_s=0.5)
            _watch(monitors, 0.5)
            monitors[1].close()
            trainer.do("[thread.join() for thread in threads]", 60)
            trainer.do("pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)", 30)
            assert monitors[0].count(Kind.KERNELS) > 100
            assert monitors[0].count(Kind.MARKS) > 100
            if life == 0:
                trainer.do("for i in range(40_000): lib.brrr_name(b'name %d' % i)", 30)
                assert trainer.do("answer = lib.brrr_stop()", 30) == 0
                monitors[0].close()
        trainer.do(TAKE_THE_NUMBERS, 30)
        _watch(monitors[:1], 0.3)
        assert trainer.do("answer = [os.fstat(n).st_size for n in numbers]") == [0, 0, 0, 0]
        code = trainer.end()
        assert code == 0, trainer.complaints()
    finally:
        for monitor in monitors:
            monitor.close()
        trainer.close()


def _watch(monitors: list[Monitor], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for monitor in monitors:
            monitor.read(0.01)
