"""The list of all trainers and GPUs of a host: what it says, and what is chosen."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot

from brrrtop.cli import settings
from brrrtop.cli.commands import find
from brrrtop.cli.commands.find import HostReader
from brrrtop.cli.options import Options
from brrrtop.model.host import Host, HostTrainer
from brrrtop.model.settings import Settings
from brrrtop.tui.app import BACK
from brrrtop.tui.home import HomeApp, HomeList
from brrrtop.tui.keys import meanings
from collectors.vocabulary import HostGpu, Metric
from tests.tui import snapshots
from tests.tui.shown import PATIENCE_S, shown

GIB = 2**30
GPU = HostGpu(
    0, "NVIDIA H200",
    {Metric.SM_ACTIVE: 0.31, Metric.SMI_UTIL: 0.98, Metric.MEMORY_USED_BYTES: 41 * GIB,
     Metric.MEMORY_TOTAL_BYTES: 140 * GIB, Metric.POWER_WATT: 512.0},
    {4711: 30 * GIB, 4712: None},
)  # fmt: skip
HOST = Host(
    (
        HostTrainer(4711, "ada", "python train.py", True, 0),
        HostTrainer(4712, "bob", "python other.py", True),
        HostTrainer(4713, "ada", "python cpu.py", False),
    ),
    (GPU, HostGpu(1, "NVIDIA H200")),
    ("not offered: 9, process 9 belongs to user eve",),
)


async def _text(pilot: Pilot[Any]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        await pilot.pause(0.01)
        text = _screen(pilot)
        if "trainers" in text:
            return text
    raise AssertionError("nothing was drawn")


def _screen(pilot: Pilot[Any]) -> str:
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(one.text for one in strip) for strip in strips)


def run(
    keys: tuple[str, ...], read: Callable[[], Host] = lambda: HOST, **more: Any
) -> tuple[Any, str]:
    """What the app ends with after these keys, and what it showed before the last one."""
    app = HomeApp(read, **more)
    seen = ""

    async def pressed() -> None:
        nonlocal seen
        async with app.run_test(size=(120, 30)) as pilot:
            await _text(pilot)
            for key in keys[:-1]:
                await pilot.press(key)
            seen = await _text(pilot)
            await pilot.press(*keys[-1:])

    asyncio.run(pressed())
    return app.return_value, seen


def test_gpus_and_trainers_are_shown_with_the_real_use_beside_nvidia_smi() -> None:
    _, text = run(("q",))
    gpu, bare = (line for line in text.splitlines() if line.startswith("GPU "))
    assert "SMs busy" in gpu and " 31%" in gpu and "nvidia-smi says  98%" in gpu
    assert "41.0 GiB of 140 GiB" in gpu and "512 W" in gpu
    assert bare.count("–") >= 2 and " 0%" not in bare, "nobody measured it"
    ada, bob, cpu = (line for line in text.splitlines() if ".py" in line)
    assert ada.split()[:4] == ["4711", "ada", "0", "30.0"] and "rank 0 python train.py" in ada
    assert bob.split()[:4] == ["4712", "bob", "0", "–"] and "31%" in bob and "98%" in bob
    assert cpu.split()[:4] == ["4713", "ada", "none", "–"]
    assert "belongs to user eve" in text


def test_help_explains_the_keys_and_columns_and_escape_closes_it_before_it_leaves() -> None:
    async def pressed() -> None:
        app = HomeApp(lambda: HOST)
        async with app.run_test(size=(80, 24)) as pilot:
            listed = await _text(pilot)
            for key in ("question_mark", "h", "f1"):
                await pilot.press(key)
                await pilot.pause(0)
                helped = _screen(pilot)
                for shown_key, _does in meanings(HomeList, HomeApp):
                    assert shown_key in helped
                assert "load the agent" in helped and "GPU-Util" in helped
                assert "4711" not in helped
                await pilot.press("enter" if key == "h" else "escape")
                assert app.is_running and await _text(pilot) == listed
            await pilot.press("escape")
        assert app.return_value is None and not app.is_running

    asyncio.run(pressed())


def test_where_nobody_trains_enter_does_nothing_and_says_why() -> None:
    answer, text = run(("enter", "q"), lambda: Host(notes=("there is no NVIDIA driver",)))
    assert answer is None
    assert "No training process" in text and "there is no NVIDIA driver" in text


def test_the_chosen_one_stays_chosen_when_others_come_and_go() -> None:
    hosts = [HOST, Host(HOST.trainers[1:], HOST.gpus)]
    app = HomeApp(lambda: hosts[0])

    async def pressed() -> None:
        async with app.run_test(size=(120, 30)) as pilot:
            await _text(pilot)
            await pilot.press("down")
            del hosts[0]
            app.read_host()
            while len(app.query_one(HomeList).trainers) != 2:
                await pilot.pause(0.01)
            await pilot.press("enter")

    asyncio.run(pressed())
    assert app.return_value == (4712, True)


def test_a_theme_chosen_here_is_kept_for_what_is_opened_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(find, "HostReader", lambda: SimpleNamespace(read=lambda: HOST, close=int))

    def typed(app: HomeApp) -> None:
        async def pressed() -> None:
            async with app.run_test() as pilot:
                await pilot.pause()
                await pilot.press("t")
                await pilot.pause()
                await pilot.press("q")

        asyncio.run(pressed())

    monkeypatch.setattr(HomeApp, "run", typed)
    settings.save(Settings(theme="dark", sort="mean"))
    assert find.choose(Options(theme=None)) is None
    assert settings.load() == Settings(theme="light", sort="mean")


async def test_escape_on_the_main_screen_leads_back_only_where_it_came_from_the_list() -> None:
    async with shown(snapshots.snapshot()) as screen:
        await screen.press("escape")
        assert screen.app.is_running and screen.app.return_code is None
        screen.app.from_home = True
        await screen.press("slash", "x", "escape")
        assert screen.app.return_code is None, "the filter first"
        await screen.press("escape")
        assert screen.app.return_code == BACK


def test_the_host_is_read_as_it_is() -> None:
    reader = HostReader()
    try:
        host = reader.read()
    finally:
        reader.close()
    assert {one.pid for one in host.trainers} == set(reader.trainers)
    assert os.getpid() not in reader.trainers
    assert host.gpus or host.notes, "no GPU without a reason"
