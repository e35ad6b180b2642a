"""The what-if screen: every edit that was simulated, and what one of them changes in a step."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from brrrtop.tui.palette import Palette
from brrrtop.tui.screens.whatif import edit_lines, range_bar
from tests.tui import snapshots
from tests.tui.shown import SIZES, shown


def chosen(text: str) -> str:
    """The edit under the cursor."""
    line = next(line for line in text.splitlines() if line.lstrip().startswith("▸"))
    return line.split()[1]


@pytest.mark.parametrize("size", SIZES)
async def test_every_edit_is_a_row_best_first_also_what_wins_nothing(size: tuple[int, int]) -> None:
    async with shown(snapshots.snapshot(), size=size) as screen:
        text = await screen.press("w")
    lines = text.splitlines()
    rows = [next(line for line in lines if f" {row.edit} " in line) for row in snapshots.WHATIF]
    assert [lines.index(row) for row in rows] == sorted(lines.index(row) for row in rows)
    for row, figures in zip(
        rows,
        (
            "36.6 ms → 21.3 ms   1.7×  1.5–1.9×",
            "36.6 ms → 33.9 ms  1.08×  0.98–1.15×",
            "36.6 ms → 36.6 ms  1.00×  0.98–1.02×",
            "36.6 ms → 38.4 ms  0.95×  0.92–0.99×",
        ),
        strict=True,
    ):
        assert figures in row
        assert "●" in row, "the range is drawn"
    assert snapshots.WHATIF[0].line in text
    assert (
        "after loader-ready: compile 2.0× with both, tf32 nothing more, bf16 1.6× with both"
        in " ".join(text.split())
    )


async def test_the_line_of_code_is_the_chosen_row_s() -> None:
    async with shown(snapshots.snapshot(), size=(80, 24)) as screen:
        assert chosen(await screen.press("6")) == "loader-ready"
        text = await screen.press("j")
        assert chosen(text) == "compile"
        assert "line  model = torch.compile(model)" in text
        assert "after loader-ready" not in text
        assert chosen(await screen.press("end")) == "bf16"
        assert chosen(await screen.press("down")) == "bf16"
        assert chosen(await screen.press("home")) == "loader-ready"


async def test_the_cursor_stays_with_its_edit_when_the_order_changes() -> None:
    turned = snapshots.snapshot(whatif=snapshots.WHATIF[::-1], advisories=(), whatif_after=())
    async with shown(snapshots.snapshot(), turned) as screen:
        assert chosen(await screen.press("w", "down")) == "compile"
        screen.advance()
        text = await screen.until("bf16")
        for _ in range(50):
            if text.index("bf16") < text.index("compile"):
                break
            text = await screen.text()
            await screen.pilot.pause(0.02)
        assert text.index("bf16") < text.index("compile")
        assert chosen(text) == "compile"


async def test_enter_shows_the_step_before_and_after_and_escape_leads_back_in_turn() -> None:
    async with shown(snapshots.snapshot(), size=(80, 30)) as screen:
        text = await screen.press("w", "enter")
        flat = " ".join(text.split())
        assert "step 36.6 ms 21.3 ms 15.3 ms" in flat
        assert "GPU busy 12.1 ms 12.1 ms 0 ns" in flat
        assert "host, without GPU waits 19.8 ms 4.40 ms 15.4 ms" in flat
        assert "kernels and copies 454 454 0" in flat
        assert "gain 1.7× as fast, range 1.5–1.9×" in flat
        assert "dataloader-stall; a shows it" in flat
        assert "compile: 2.0× with both, 18.5 ms a step with both (1.7–2.3×)" in flat
        assert chosen(await screen.press("escape")) == "loader-ready"
        assert "WAITS FOR DATA" in await screen.press("escape")
        assert len(screen.app.screen_stack) == 1


async def test_what_is_not_worth_trying_says_so_and_what_follows_is_the_best_one_s() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("w", "end", "enter")
    assert "none: it is not worth trying now" in text
    assert "with both" not in text


async def test_an_edit_that_left_the_window_is_shown_as_last_seen() -> None:
    gone = snapshots.snapshot(whatif=snapshots.WHATIF[1:], whatif_after=())
    async with shown(snapshots.snapshot(), gone) as screen:
        await screen.press("w", "enter")
        screen.advance()
        assert "36.6 ms" in await screen.until("as last seen")


async def test_a_step_whose_work_nobody_told_has_its_time_alone() -> None:
    bare = tuple(replace(row, now=None, then=None) for row in snapshots.WHATIF)
    async with shown(snapshots.snapshot(whatif=bare)) as screen:
        text = await screen.press("w", "enter")
    assert "21.3 ms" in text and "GPU busy" not in text


async def test_without_a_simulated_step_the_screen_says_why() -> None:
    async with shown(snapshots.unmeasured()) as screen:
        assert "No edit was simulated" in await screen.press("w")
        assert "No edit was simulated" in await screen.press("down", "enter")


@pytest.mark.parametrize("keys", [("w",), ("w", "enter")])
async def test_nothing_is_cut_that_matters_on_a_narrow_ascii_screen(keys: tuple[str, ...]) -> None:
    palette = Palette(colour=False, ascii=True)
    async with shown(snapshots.snapshot(), size=(80, 24), palette=palette) as screen:
        text = await screen.press(*keys)
        assert text.isascii()
        assert "1.5-1.9x" in text
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
    cells = len(bar) if len(bar) > 1 else 1
    drawn = range_bar(low, middle, high, scale, "good", Palette(), cells)
    assert drawn.plain == bar


async def test_only_what_matters_in_a_row_is_bold() -> None:
    async with shown(snapshots.snapshot()) as screen:
        await screen.press("w")
        (row,) = (one for one in screen.strips() if "compile  " in "".join(s.text for s in one))
        bold = {s.text.strip() for s in row if s.style and s.style.bold and s.text.strip()}
    assert bold == {"1.08×", "●"}


def test_names_and_figures_of_a_step_stay_together_on_a_wide_screen() -> None:
    row = snapshots.WHATIF[0]
    lines = [line.plain for line in edit_lines(row, (), False, Palette(), 198)]
    step = next(line for line in lines if line.startswith("step "))
    assert re.search(r"^step {1,30}\d", step), step
