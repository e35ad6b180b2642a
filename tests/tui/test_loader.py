"""The loader pane: there while the verdict's cause is the loader, with what is known and nothing else."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.model.host_tables import NO_TABLES, HostTables, LoaderRow
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.tui.widgets.kernel_table import HEAD_LINES, KernelTable
from tests.tui import snapshots
from tests.tui.shown import SIZES, shown

DEMO = Path(__file__).parents[2] / "brrrtop" / "data" / "demos" / "input-bound.brrr"


def with_loader(row: LoaderRow, gauges: Mapping[int, float] | None = None) -> Snapshot:
    return snapshots.snapshot(
        tables=HostTables(loaders=(row,)), gauges={**snapshots.GAUGES, **(gauges or {})}
    )


@pytest.mark.parametrize("size", SIZES)
async def test_it_stands_on_the_main_screen_while_the_gpu_waits_for_the_loader(
    size: tuple[int, int],
) -> None:
    waits = snapshots.snapshot()
    assert waits.estimate is not None
    launches = replace(waits, estimate=replace(waits.estimate, cause="launch"))
    async with shown(waits, launches, size=size) as screen:
        text = await screen.text()
        assert text.index("── what to do") < text.index("── loader") < text.index("── kernels")
        assert "median 15.3 ms" in text and "data/images.py:45" in text and "nvjet" in text
        screen.advance()
        await screen.settle()
        while "── loader" in (text := await screen.text()):
            await screen.settle()
        assert "── kernels" in text


@pytest.mark.parametrize("cause", ["input", "launch"])
async def test_what_matters_most_stays_and_kernels_are_three_or_none(cause: str) -> None:
    one = snapshots.snapshot()
    assert one.estimate is not None
    first = replace(one.estimate, cause=cause)
    second = replace(first, device=replace(first.device, device_id=1))
    several = replace(one, estimate=first, devices=(first, second))
    async with shown(several) as screen:
        for height in (10, 15, 16, 23, 24, 27, 28, 37, 38, 40, 41, 51, 52, 60):
            text = await screen.resize(120, height)
            table = screen.app.query_one(KernelTable)
            assert table.size.height >= HEAD_LINES + 3 if table.display else height < 16
            assert "? help" in text.splitlines()[-1]
            for words in (
                {"input": "WAITS FOR DATA", "launch": "LAUNCHES TOO SLOW"}[cause],
                "GPU idle 47%",
                "GPU 1",
                "≤1.7× faster",
                "try  Raise num_workers",
            ):
                assert words in text, height
            assert ("── loader" in text) is (height >= 24 and cause == "input")


async def test_why_nothing_is_judged_is_said_on_a_flat_screen_too() -> None:
    waiting = snapshots.snapshot(
        estimate=None, devices=(), advisories=(), whatif=(), tables=NO_TABLES
    )
    async with shown(waiting, size=(80, 12)) as screen:
        assert "── no kernels" in await screen.text()


async def test_L_opens_all_of_it_a_click_too_and_escape_leads_back() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("L")
        assert "the training loop makes each batch itself" in text
        assert "72%" in text and "data/images.py:52" in text, "every line"
        assert "── loader: " in await screen.press("escape")
        await screen.pilot.click("Loader")
        assert "Where the loop makes the batches" in await screen.text()


async def test_without_waits_it_says_where_they_would_come_from() -> None:
    async with shown(snapshots.snapshot(tables=NO_TABLES)) as screen:
        assert "No wait for a loader was recorded" in await screen.press("L")


async def test_what_is_not_known_of_workers_is_said() -> None:
    row = replace(
        snapshots.WITH_WORKERS,
        samples=0,
        lines=(),
        ready_p50=None,
        prefetch=None,
        needed=None,
        workers_do=None,
    )
    async with shown(with_loader(row), size=(120, 40)) as screen:
        text = await screen.press("L")
    assert "what they do is not known" in text
    assert "Which line a worker is at is not known" in text
    assert re.search(r"ready\s+not known", text)
    assert "by 0 stack samples" not in text and "No sample yet: the agent samples" in text
    assert "enough" not in text, "nobody saw what the workers do"


async def test_busy_workers_are_counted_and_so_many_would_keep_up() -> None:
    snapshot = with_loader(snapshots.WITH_WORKERS, snapshots.WORKER_GAUGES)
    async with shown(snapshot, size=(120, 40)) as screen:
        text = await screen.press("L")
    assert (
        "4 asked for, 4 alive: 3.9 cores in use (98% each), 97% busy, 1% in disk wait, 2% asleep"
        in text
    )
    assert "no next batch was ready in 97% of the draws" in text
    assert "They compute all the time" in text
    assert "train.py:88" in text


async def test_the_pane_the_advice_and_the_edit_name_the_same_number_of_workers() -> None:
    snapshot = analyze(open_source(str(DEMO)))
    async with shown(snapshot, size=(120, 40)) as screen:
        text = " ".join((await screen.text()).split())
        enough = re.search(r"at least (\d+) workers, a core each", text)
        advised = re.search(
            r"DataLoader\(\.\.\., num_workers=(\d+), persistent_workers=True\)", text
        )
        assert enough[1] == advised[1]
        edits = " ".join((await screen.press("w")).split())
    assert f"num_workers={enough[1]}," in edits


@pytest.mark.parametrize("width", [40, 60, 99])
async def test_a_file_name_of_somebody_else_stays_within_its_line(width: int) -> None:
    row = replace(snapshots.LOADER, name="DataLoader(dataset=日本語\x1b[2J)" * 5)
    async with shown(with_loader(row), size=(width, 24)) as screen:
        text = await screen.press("L")
    assert "\x1b" not in text and "made as" in text
