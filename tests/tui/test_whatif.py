"""The what-if screen: every edit that was simulated, and what the chosen one changes in a step."""

import pytest
from msgspec.structs import replace

from brrrtop.model.advice import PromiseResult
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables import history
from brrrtop.tui.renderables.table import range_bar
from tests.tui import snapshots
from tests.tui.shown import SIZES, shown
from tests.tui.test_compare import COMPARISON


def chosen(text: str) -> str:
    """The edit under the cursor."""
    line = next(line for line in text.splitlines() if line.lstrip().startswith("▸"))
    return line.split()[1]


@pytest.mark.parametrize("size", SIZES)
async def test_every_edit_is_a_row_in_the_order_of_the_advice(size: tuple[int, int]) -> None:
    async with shown(snapshots.snapshot(), size=size) as screen:
        text = await screen.press("w")
        flat = " ".join(text.split()) + " ".join((await screen.press("end", "home")).split())
    lines = text.splitlines()
    rows = [next(line for line in lines if f" {row.edit} " in line) for row in snapshots.WHATIF]
    assert [lines.index(row) for row in rows] == sorted(lines.index(row) for row in rows)
    for row, figures in zip(
        rows,
        (
            "3:00:00 → 1:44:46    1.7× 1.5–1.9×",
            "3:00:00 → 2:46:43   1.08× 0.98–1.15×",
            "3:00:00 → 3:00:00   1.00× 0.98–1.02×",
            "3:00:00 → 3:08:51   0.95× 0.92–0.99×",
        ),
        strict=True,
    ):
        assert figures in row
        assert ("●" in row) is (size[0] >= 100), "the range is drawn"
    assert snapshots.WHATIF[0].line in text
    assert "after loader-ready: compile 2.0× with both" in flat


async def test_below_the_table_stands_what_the_chosen_edit_changes() -> None:
    async with shown(snapshots.snapshot(), size=(80, 40)) as screen:
        text = await screen.press("6")
        flat = " ".join(text.split())
        assert chosen(text) == "loader-ready" and "dataloader-stall; a shows it" in flat
        assert "simulated, 454 → 454 kernels" in flat
        assert "a training step 36.6 ms 21.3 ms 15.3 ms" in flat
        assert "GPU busy 12.1 ms 12.1 ms 0 ns" in flat
        assert "host, without GPU waits 19.8 ms 4.40 ms 15.4 ms" in flat
        text = await screen.press("j")
        assert chosen(text) == "compile"
        assert "line  model = torch.compile(model)" in text and "after loader-ready" not in text
        text = await screen.press("end")
        assert chosen(text) == "bf16" and "none: it is not worth trying now" in text
        assert chosen(await screen.press("down")) == "bf16"
        assert chosen(await screen.press("home")) == "loader-ready"


async def test_the_cursor_stays_with_its_edit_when_the_order_changes() -> None:
    turned = snapshots.snapshot(whatif=snapshots.WHATIF[::-1], advisories=(), whatif_after=())
    async with shown(snapshots.snapshot(), turned) as screen:
        assert chosen(await screen.press("w", "down")) == "compile"
        screen.advance()
        await screen.wait(lambda: screen.app.snapshot.whatif == turned.whatif)
        text = await screen.text()
        assert text.index("bf16") < text.index("compile")
        assert chosen(text) == "compile"


async def test_views_that_have_nothing_to_show_say_why() -> None:
    async with shown(replace(snapshots.unmeasured(), events=())) as screen:
        assert "No edit was simulated" in await screen.press("w", "down", "enter")
        assert "ceilings of this GPU are not known" in await screen.press("r")
        assert "Nothing has changed so far" in await screen.press("l")


async def test_a_step_whose_work_is_not_known_has_its_time_alone_on_any_screen() -> None:
    bare = tuple(replace(row, now=None, then=None) for row in snapshots.WHATIF)
    palette = Palette(colour=False, ascii=True)
    async with shown(snapshots.snapshot(whatif=bare), size=(80, 24), palette=palette) as screen:
        text = await screen.press("w")
        assert text.isascii() and "1.5-1.9x" in text
        assert "21.3 ms" in text and "GPU busy" not in text
        for size in ((1, 1), (40, 10), (20, 50), (200, 60)):
            await screen.resize(*size)
        assert "loader-ready" in await screen.resize(40, 12)


@pytest.mark.parametrize(
    ("low", "middle", "high", "bar"),
    [
        (0.2, 0.5, 0.8, "│ ━━━●━━━  "),
        (-0.1, 0.0, 0.1, "━●━"),
        (-0.05, 0.1, 0.1, " ━┼━●"),
        (0.9, 1.0, 1.0, "│        ━●"),
        (0.0, 0.0, 0.0, "●"),
    ],
)
def test_the_bar_of_a_range_has_zero_both_ends_and_the_middle(
    low: float, middle: float, high: float, bar: str
) -> None:
    scale = (-0.1, 0.1) if low < 0 else (0.0, 1.0)
    drawn = range_bar((low, middle, high, *scale), "good", Palette(), len(bar))
    assert drawn.plain == bar


async def test_the_ghost_runs_the_step_with_the_chosen_edit_and_counts_its_lead() -> None:
    one = snapshots.snapshot()
    async with shown(one, size=(200, 60)) as screen:
        text = await screen.text()
        assert "ms if the data loader keeps up" in text, (
            "on the main screen the best one that is advised"
        )
        text = await screen.press("w")
        race = history.race(one, snapshots.WHATIF[0])
        assert race is not None and race.ahead == pytest.approx(287_300, rel=1e-3)
        assert "ghost lap: loader-ready" in text and race.words in text and "── one step" in text
        assert "ghost lap: compile" in await screen.press("down")
        assert "ghost lap" not in await screen.press("end"), "an edit that loses has none"


def test_after_a_change_the_lane_races_what_was_promised() -> None:
    won = replace(COMPARISON, per_step=True, before_ns=100.0, after_ns=60.0)
    kept = PromiseResult("dataloader-stall", 0.5, 0.4, predicted=True)
    won = replace(won, steps=(10.0, 30.0), promises=(kept,))
    race = history.race(replace(snapshots.snapshot(), comparison=won))
    assert race is not None and race.with_what == "promised if the data loader keeps up"
    assert race.words == "the ghost is 6 steps ahead"
    late = replace(won, after_ns=45.0)
    race = history.race(replace(snapshots.snapshot(), comparison=late))
    assert race is not None and race.words == "you are 3 steps ahead of the ghost"
