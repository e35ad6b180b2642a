"""Whether the GPU's own counters can be read: by reading them, for as long as a person waits."""

from __future__ import annotations

from brrrtop.protocol.frames import Kind
from collectors.doctor.check import Check, bad, fine
from collectors.gpu.nvidia.sampler_thread import GaugeThread

LIMIT_S = 5.0


def check(pid: int | None) -> Check:
    """What NVML says, asked as the monitor asks it.

    Args:
        pid: The trainer, whose GPUs are meant; None: all of them.
    """
    feed = GaugeThread(pid)
    feed.start()
    answered = feed.ready.wait(LIMIT_S)
    names = [str(one.body.get("name")) for one in feed.drain() if one.kind == Kind.DEVICE]
    feed.close()
    if not answered:
        says = f"the NVIDIA driver has not answered NVML for {LIMIT_S:g} s"
        return bad("nvml", says, "see `dmesg` for what its driver is busy with", "counters")
    if feed.unavailable is not None:
        return bad("nvml", feed.unavailable.message, feed.unavailable.action, "counters")
    if not names:
        says = next(iter(feed.says), "NVML sees no GPU that it may read")
        return bad("nvml", says, "see `nvidia-smi -L`; in a container pass the GPU in", "counters")
    gpm = "with GPM" if feed.has_gpm else "without GPM, which Hopper and newer have"
    return fine("nvml", f"{', '.join(names)}: its counters can be read (tried), {gpm}")
