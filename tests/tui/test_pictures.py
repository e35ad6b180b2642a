"""Whole screens, character by character, against what somebody has looked at.

`DRAW_PICTURES=1 pytest tests/tui/test_pictures.py` draws the kept ones anew: look at each before
it is committed. Only on the pinned Textual, whose layout they show.
"""

import difflib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import textual

from brrrtop.model.host_tables import HostTables
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.tui.palette import Palette
from tests.tui import snapshots
from tests.tui.shown import shown

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
PINNED = re.search(r"^textual==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)[1]  # type: ignore[index]
KEPT = Path(__file__).parent / "pictures"
DRAW = os.environ.get("DRAW_PICTURES") == "1"
ASCII = Palette(colour=False, ascii=True)

STATES = {
    "live": snapshots.snapshot(),
    "healthy": snapshots.healthy(),
    "replay": snapshots.replayed(),
    "waiting": snapshots.waiting(),
    "unmeasured": snapshots.unmeasured(),
    "stale": snapshots.snapshot(freshness=Freshness.STALE, age_ns=12_000_000_000),
    "ended": snapshots.snapshot(freshness=Freshness.ENDED, age_ns=12_000_000_000),
}
VIEWS = {
    "help": "f1",
    "loader": "L",
    "roofline": "r",
    "advice": "a",
    "kernel": "enter",
    "whatif": "w",
}


@pytest.fixture(autouse=True)
def greenwich(monkeypatch) -> Iterator[None]:
    """The log shows local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def against(name: str, text: str) -> None:
    """Compares with the kept picture, or draws it."""
    if textual.__version__ != PINNED:
        pytest.skip(f"pictures are of Textual {PINNED}")
    path = KEPT / f"{name}.txt"
    drawn = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if DRAW:
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn, "utf-8")
    kept = path.read_text("utf-8") if path.exists() else ""
    difference = "\n".join(
        difflib.unified_diff(kept.splitlines(), drawn.splitlines(), "kept", "drawn", lineterm="")
    )
    assert not difference, f"{path.name} changed:\n{difference}"


@pytest.mark.parametrize("name", STATES)
async def test_states_look_as_they_did(name):
    snapshot: Snapshot = STATES[name]
    async with shown(snapshot, size=(80, 24)) as screen:
        against(f"{name}-80x24", await screen.text())


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_larger_terminals_look_as_they_did(size):
    async with shown(snapshots.snapshot(), size=size) as screen:
        against(f"live-{size[0]}x{size[1]}", await screen.text())


WITH_WORKERS = snapshots.snapshot(
    tables=HostTables(loaders=(snapshots.WITH_WORKERS,)),
    gauges={**snapshots.GAUGES, **snapshots.WORKER_GAUGES},
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("key", ["1", "L"])
async def test_a_loader_with_workers_looks_as_it_did(size, key):
    async with shown(WITH_WORKERS, size=size) as screen:
        name = "workers" if key == "1" else "loader-workers"
        against(f"{name}-{size[0]}x{size[1]}", await screen.press(key))


async def test_ascii_looks_as_it_did():
    async with shown(snapshots.snapshot(), size=(80, 24), palette=ASCII) as screen:
        against("ascii-80x24", await screen.text())


@pytest.mark.parametrize("name", VIEWS)
async def test_views_look_as_they_did(name):
    async with shown(snapshots.snapshot(), size=(120, 40)) as screen:
        against(f"{name}-120x40", await screen.press(VIEWS[name]))
