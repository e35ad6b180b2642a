"""One step as a picture: what each lane shows, and what the keys do."""

import re

import pytest
from msgspec.structs import replace

from brrrtop.model.tables import Span
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.swim_lanes import drawn, lanes
from brrrtop.tui.screens.step import StepPane
from brrrtop.tui.widgets.time_spent import step_title
from tests.tui import snapshots
from tests.tui.shown import SIZES, Shown, shown

MS = 1_000_000
PICTURE = snapshots.picture()


def pane(screen: Shown) -> StepPane:
    return screen.app.screen.query_one(StepPane)


@pytest.mark.parametrize("width", [49, 98, 245])
def test_every_cell_of_the_gpu_is_accounted_for(width: int) -> None:
    (gpu,) = (row for row in lanes(PICTURE, PICTURE.span, width) if row.name == "GPU")
    total: dict[str, float] = {}
    for cell in gpu.cells:
        assert sum(cell.values()) == pytest.approx(1)
        for kind, share in cell.items():
            total[kind] = total.get(kind, 0.0) + share * 24.5 / width
    assert total == pytest.approx(
        {"compute": 8.0, "memory": 3.6, "comm": 2.0, "copy": 0.2, "idle_input": 10.2 - 0.2 + 0.0, "idle_launch": 0.5},
        abs=0.2,
    )  # fmt: skip


def test_a_view_shows_its_part_alone() -> None:
    view = Span(PICTURE.span.t0_ns + 11 * MS, PICTURE.span.t0_ns + 12 * MS)
    rows = {row.name: row for row in lanes(PICTURE, view, 10)}
    assert all(cell == {"compute": pytest.approx(1)} for cell in rows["GPU"].cells)
    assert not any(rows["Python"].cells)


def test_gaps_are_named_where_there_is_room() -> None:
    text = "\n".join(line.plain for line in drawn(PICTURE, PICTURE.span, Palette(), 100, 7))
    assert re.search(r"waits for data 10\.[012] ms", text)
    assert [line[:8].strip() for line in text.splitlines() if line[:8].strip()] == [
        "Python", "calls", "GPU", "copies", "comm",
    ]  # fmt: skip


@pytest.mark.parametrize("height", [1, 2, 3, 20])
def test_lanes_take_the_lines_they_are_given_and_the_gpu_stays(height: int) -> None:
    lines = drawn(PICTURE, PICTURE.span, Palette(), 60, height)
    assert len(lines) == max(1, height)
    assert any(line.plain.startswith("GPU") for line in lines)


@pytest.mark.parametrize("size", SIZES)
async def test_the_picture_is_a_key_away_at_every_size(size: tuple[int, int]) -> None:
    async with shown(snapshots.snapshot(), size=size) as screen:
        text = await screen.press("p")
        assert "── one step" in text
        assert "waits for data" in text and "24.5 ms" in text
        assert "kernels" in await screen.press("escape")


def test_a_step_that_is_not_like_the_others_says_so() -> None:
    one = snapshots.snapshot()
    assert one.run is not None and "mean" not in step_title(PICTURE, one)
    slow = replace(one, run=replace(one.run, step_ns=100 * snapshots.MS))
    assert step_title(PICTURE, slow) == "one step, shorter than the mean: 24.5 ms"


async def test_keys_move_the_cursor_and_say_what_is_under_it() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("p", "g")
        assert "at 5.10 ms of the step" in text and "waiting for the next batch" in text
        assert "DataLoader(num_workers=0)" in text
        text = await screen.press("g")
        assert "waits for launches" in text and "500 µs" in text
        assert "at 5.10 ms" in await screen.press("G")
        before = pane(screen)._at_ns
        await screen.press("right")
        assert pane(screen)._at_ns > before
        await screen.press("left", "left")
        assert pane(screen)._at_ns < before
        await screen.pilot.click(StepPane, offset=(60, 3))
        assert "launched" in await screen.text()


async def test_keys_zoom_and_pan_within_the_step_and_go_back() -> None:
    async with shown(snapshots.snapshot()) as screen:
        await screen.press("p", "plus", "plus")
        whole = PICTURE.span
        view = pane(screen).view
        assert view.duration_ns == pytest.approx(whole.duration_ns / 4, rel=0.01)
        await screen.press("shift+right")
        assert pane(screen).view.t0_ns == pytest.approx(view.t0_ns + view.duration_ns / 2, abs=10)
        for _ in range(20):
            await screen.press("shift+right")
        assert pane(screen).view.t1_ns == whole.t1_ns
        await screen.press("shift+left")
        assert pane(screen).view.t1_ns < whole.t1_ns
        await screen.press("minus")
        assert pane(screen).view.duration_ns > view.duration_ns
        await screen.press("0")
        assert pane(screen).view == whole
        for _ in range(30):
            await screen.press("plus")
        assert pane(screen).view.duration_ns >= 200


async def test_the_picture_stands_still_while_it_is_read_and_follows_again() -> None:
    async with shown(
        snapshots.snapshot(), snapshots.snapshot(picture=snapshots.picture())
    ) as screen:
        await screen.press("p", "g")
        read = pane(screen).picture
        screen.advance()
        await screen.until("stands still")
        assert pane(screen).picture is read
        text = await screen.press("f")
        assert "stands still" not in text
        assert pane(screen).picture is screen.app.snapshot.picture


async def test_without_activity_there_is_no_picture_and_keys_do_nothing() -> None:
    async with shown(snapshots.waiting()) as screen:
        text = await screen.press("p", "g", "right", "plus", "shift+left", "0", "f")
        assert "no step to draw" in text
