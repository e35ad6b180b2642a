"""The table of names: read where nothing can be read, and new when it is full and nobody watches."""

from collections.abc import Callable

import pytest

from collectors.protocol.frames import Kind
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
MORE_THAN_FIT = 70_000
FILL = f"for i in range({MORE_THAN_FIT}): lib.brrr_name(b'name %d' % i)"
UNLOADED = """
import mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
page = libc.mmap(None, 8192, 3, 0x22, -1, 0)
ctypes.memmove(page + 4096 - 3, b'half\\0', 5)
ctypes.memmove(page, b'whole\\0', 6)
gone = libc.mmap(None, 4096, 3, 0x22, -1, 0)
libc.munmap(gone, 4096)
"""


def test_a_name_in_an_unloaded_module_is_none_where_reading_is_forbidden_too(
    built, tmp_path, connect
):
    script = {"LD_PRELOAD": str(built["faults"]), "BRRRTOP_FAULT": "process_vm_readv:EPERM"}
    trainer = Trainer(built, tmp_path, **script)
    try:
        trainer.load().start()
        trainer.do("assert ctypes.CDLL(None).fault_arm(b'libbrrrtop_agent')" + UNLOADED)
        monitor = connect(trainer).ready()
        monitor.trace(longest_s=0.2)
        for pointer in ("page", "page + 4096 - 3", "gone"):
            trainer.do(f"cupti.fake_launch({pointer}, 1, 100, 0, 7)")
        assert monitor.traced()["kernels"] == 3
        names = monitor.names()
        message = [names.get(one, "") for one in monitor.rows(Kind.KERNELS)["name_id"].tolist()]
        assert message == ["whole", "half", ""]
        assert trainer.do("answer = ctypes.CDLL(None).fault_hits(b'process_vm_readv')") >= 3
        monitor.until(lambda m: m.losses().get("names") == 1)
    finally:
        trainer.close()


def marked(trainer: Trainer, monitor: Monitor, name: str) -> str | None:
    """What the monitor reads for a mark of that name."""
    before = monitor.count(Kind.MARKS)
    trainer.do(f"lib.brrr_mark(4, 1, 2, 3, lib.brrr_name({name.encode()!r}), 5)")
    monitor.until(lambda m: m.count(Kind.MARKS) > before)
    return monitor.names().get(int(monitor.rows(Kind.MARKS)["name_id"][-1]))


@pytest.mark.parametrize("way", ["monitor", "agent"])
def test_a_full_table_begins_anew_once_nobody_watches(trainer, connect, way):
    first = connect(trainer.load().start()).ready()
    assert marked(trainer, first, "early") == "early"
    stale = trainer.do("answer = lib.brrr_name(b'early')")
    trainer.do(FILL, 30)
    assert marked(trainer, first, "late") is None, "full while somebody watches"
    full = trainer.stats()["name_bytes"]
    first.close()
    if way == "monitor":
        trainer.do("while stats(lib)[1]: time.sleep(0.01)")
    else:
        trainer.do("lib.brrr_stop()")
        trainer.start()
    second = connect(trainer).ready()
    assert marked(trainer, second, "late") == "late"
    assert trainer.stats()["name_bytes"] < full / 10
    fresh = trainer.do("answer = lib.brrr_name(b'early')")
    assert fresh not in (0, stale), "an id kept from before never means another name"
    assert second.names().get(stale) is None
    second.trace(longest_s=0.2)
    trainer.do("cupti.fake_launch(name('gemm'), 5, 100, 0, 7)")
    assert second.traced()["kernels"] == 5
    names = second.names()
    assert {names[one] for one in second.rows(Kind.KERNELS)["name_id"].tolist()} == {"gemm"}
    assert {names[one] for one in second.rows(Kind.CALLS)["name_id"].tolist()} == {
        "cudaLaunchKernel"
    }
