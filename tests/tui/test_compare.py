"""The screen of before and after: words, figures and bars at every size and in every look."""

import pytest
from msgspec.structs import replace

from brrrtop.model.advice import Baseline, Change, Comparison, PromiseResult
from brrrtop.model.estimate import Regime
from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.palette import Palette
from brrrtop.views import comparison as compare_text
from tests.tui import snapshots
from tests.tui.shown import SIZES, shown

MS = 1e6
BASELINE = Baseline("marked 12:04:31", snapshots.T0_NS, snapshots.estimate(), snapshots.ADVISORIES)
COMPARISON = Comparison(
    per_step=True,
    before_ns=36.6 * MS,
    after_ns=20.3 * MS,
    speedup=36.6 / 20.3,
    buckets=(
        Change("compute", 11.0 * MS, 11.2 * MS),
        Change("memory", 5.5 * MS, 6.9 * MS),
        Change("idle: input", 15.4 * MS, 0.0),
        Change("idle: unknown", 0.9 * MS, 0.9 * MS),
    ),
    families=(Change("elementwise", 6.0 * MS, 7.4 * MS), Change("gemm", 9.0 * MS, 9.1 * MS)),
    kernels=tuple(Change(row.name, row.share * 30 * MS, 0.0) for row in snapshots.KERNELS),
    promises=(PromiseResult("dataloader-stall", 0.42, 0.445), PromiseResult("misleading-util", None, 0.445)),
    changes=("shapes or batch: 2.00 times the blocks in the same kernels",),
    says="1.80× faster: 45% of the step is gone",
    steps=(9.6, 118.0),
    regimes=(Regime.OVERHEAD, Regime.COMPUTE),
    causes=("input", None),
)  # fmt: skip


def compared(**changes: object) -> Snapshot:
    result = replace(COMPARISON, **changes)
    return snapshots.snapshot(baseline=BASELINE, comparison=result)


@pytest.mark.parametrize("size", SIZES)
async def test_before_and_after_stand_beside_each_other(size):
    async with shown(compared(), size=size) as screen:
        text = await screen.press("b")
        if size[1] < 30:
            text += await screen.press("pagedown") + await screen.press("end")
    assert "1.80× faster: 45% of the step is gone" in text
    assert "WAITS FOR DATA" in text and "36.6 ms a step" in text
    assert "COMPUTE-BOUND" in text and "20.3 ms a step" in text
    assert "mean of 9.6 steps" in text and "mean of 118 steps, now" in text
    assert "per step, mean " in text
    assert "promised 42% at most; won: 44%" in text
    assert "waits for data" in text and "15.4 ms" in text
    assert "kernels by family" in text and "nvjet" in text
    assert "misleading-util" not in text, "it promised nothing"


@pytest.mark.parametrize("palette", [Palette(colour=False), Palette(colour=False, ascii=True)])
async def test_without_colour_the_bars_still_tell_gone_from_new(palette):
    async with shown(compared(), palette=palette) as screen:
        text = await screen.press("b")
    gone, new = ("..." if palette.ascii else "░░░"), "+"
    (idle,) = [line for line in text.splitlines() if "waits for data" in line and "15.4 ms" in line]
    assert gone in idle
    (memory,) = [
        line for line in text.splitlines() if " reads, writes memory " in line and "ms" in line
    ]
    assert new in memory
    assert text.isascii() or not palette.ascii


async def test_without_a_baseline_it_says_how_to_get_one():
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("b")
        assert "m marks what is judged now" in text
        assert "--baseline FILE" in text
        await screen.press("m")
        await screen.until("baseline marked")
    assert screen.driver.asked == ["baseline"]


async def test_a_fresh_baseline_says_what_it_waits_for():
    async with shown(snapshots.snapshot(baseline=BASELINE)) as screen:
        assert (
            "two whole steps to compare with the baseline (marked 12:04:31)"
            in await screen.press("b")
        )


async def test_without_steps_nothing_is_called_a_step():
    result = compared(per_step=False, speedup=None, says="steps are unknown on one side")
    async with shown(result) as screen:
        text = await screen.press("b")
    assert "per second" in text and "a step" not in text


async def test_the_screen_says_what_the_command_line_says():
    lines = " ".join(" ".join(compare_text.lines(COMPARISON, "before.brrr", "after.brrr")).split())
    async with shown(compared(), size=(200, 60)) as screen:
        text = " ".join((await screen.press("b")).split())
    for sentence in (*compare_text.promises(COMPARISON), COMPARISON.says, *COMPARISON.changes):
        assert sentence in lines and sentence in text
