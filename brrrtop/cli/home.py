"""The trainers and GPUs of this host on a screen, of which one is chosen to be watched."""

from __future__ import annotations

from msgspec.structs import replace

from brrrtop.cli import settings, show
from brrrtop.cli.options import Options
from brrrtop.cli.signals import without_interrupts
from brrrtop.model.host import Host, HostTrainer
from brrrtop.text.printable import printable
from collectors.gpu.nvidia.sampler_thread import GpuOverview
from collectors.process import process as processes
from collectors.process.candidates import Candidate, candidates, short_name

FIRST_S = 1.0
"""How long the first picture waits for the GPUs."""


class HostReader:
    """Reads who trains here; what NVML says comes from a thread of its own."""

    def __init__(self) -> None:
        self._overview = GpuOverview()
        self._overview.start()
        self._overview.ready.wait(FIRST_S)
        self.trainers: dict[int, Candidate] = {}
        """By pid: those of the newest reading."""

    def read(self) -> Host:
        gpus = self._overview.gpus
        listed = {pid for gpu in gpus for pid in gpu.memory_by_pid}
        everyone = candidates(listed)
        trainers = [one for one in everyone if not one.not_because]
        self.trainers = {one.pid: one for one in trainers}
        hidden = [one for one in everyone if one.not_because and one.on_gpu]
        notes = [f"not offered: {one.pid}, {printable(one.not_because)}" for one in hidden]
        return Host(tuple(map(_host_trainer, trainers)), gpus, (*self._overview.notes, *notes))

    def close(self) -> None:
        self._overview.close()


def _host_trainer(one: Candidate) -> HostTrainer:
    return HostTrainer(
        pid=one.pid,
        user=printable(processes.user_name(one.process.uid)),
        command=printable(short_name(one.command)),
        on_gpu=one.on_gpu,
        rank=one.rank,
    )


def choose(options: Options) -> tuple[Candidate, bool] | None:
    """The trainer somebody chose, and whether the agent may enter it; None: nobody was chosen."""
    with without_interrupts():
        from brrrtop.tui.home import HomeApp

    reader = HostReader()
    try:
        palette = show.palette_of(options, settings.load())[0]
        answer = HomeApp(reader.read, palette, remember=_keep_theme).run()
    finally:
        reader.close()
    if answer is None or answer[0] not in reader.trainers:
        return None
    return reader.trainers[answer[0]], answer[1]


def _keep_theme(theme: str) -> None:
    settings.save(replace(settings.load(), theme=theme))
