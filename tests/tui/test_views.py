"""The views behind the keys: help, roofline, advice, log, one kernel."""

import base64
import re

import pytest
from msgspec.structs import replace

from brrrtop.model.host_tables import NO_TABLES
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.palette import Palette, to_ascii
from brrrtop.tui.screens.help import REGIME_TABLE, binders
from brrrtop.tui.themed import meanings
from brrrtop.tui.widgets.verdict import Headline
from tests.tui import snapshots
from tests.tui.shown import shown


async def test_help_explains_keys_regimes_and_terms() -> None:
    async with shown(snapshots.snapshot(), size=(120, 200)) as screen:
        text = await screen.press("question_mark")
    for _, does in meanings(*binders(BrrrtopApp)):
        assert does.split(";")[0][:40] in text
    for regime, means, *_ in REGIME_TABLE:
        assert f"{regime}   {means}" in text
    for term in (
        "underfilled",
        "rho",
        "part of all launches",
        "GPU's ridge",
        "nvidia-smi",
        "exposed",
    ):
        assert term in text


async def test_in_ascii_arrows_are_words_as_their_signs_are_other_keys() -> None:
    palette = Palette(colour=False, ascii=True)
    async with shown(snapshots.snapshot(), size=(120, 200), palette=palette) as screen:
        text = await screen.press("question_mark")
        assert re.search(r"^ s  >  F6  < +sort kernels", text, re.MULTILINE)
        assert "left/right cursor" in (await screen.press("p")).splitlines()[-1]


async def test_the_chosen_advice_is_silenced_and_heard_again() -> None:
    second = snapshots.ADVISORIES[1].kind
    async with shown(snapshots.snapshot(), size=(120, 60)) as screen:
        text = await screen.press("a")
        assert " x silence" in text.splitlines()[-1]
        assert _chosen(text) == snapshots.ADVISORIES[0].says
        assert _chosen(await screen.press("down")) == snapshots.ADVISORIES[1].says
        await screen.press("x")
        text = await screen.until("Silenced: 1")
        assert screen.driver.asked == [f"silence {second}"]
        assert f"▸           {second}: " in text, "it stays chosen"
        await screen.press("escape")
        screen.advance()
        await screen.until("1 silenced")
        await screen.press("a", *["down"] * 9, "x")
        await screen.settle()
        assert "Silenced" not in await screen.text()
    assert screen.driver.asked == [f"silence {second}"] * 2


@pytest.mark.parametrize(("keys", "at"), [("y", 0), ("ay", 0), ("ajy", 1)])
async def test_what_to_try_is_copied_through_the_terminal_and_the_notice_says_what(
    keys: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mouse is captured, and over SSH no clipboard but the terminal's is of use."""
    wanted = snapshots.ADVISORIES[at]
    async with shown(snapshots.snapshot(), size=(200, 60)) as screen:
        written: list[str] = []
        assert screen.app._driver is not None
        monkeypatch.setattr(screen.app._driver, "write", written.append)
        text = await screen.press(*keys)
        copied = base64.b64encode(wanted.suggests.encode()).decode()
        assert f"\x1b]52;c;{copied}\a" in written
        assert f"copied: {wanted.suggests[:40]}" in text.splitlines()[-2]
        assert " y copy" in text.splitlines()[-1]


async def test_a_long_notice_with_brackets_is_shown_as_it_is() -> None:
    text = "x = x.to(memory_format=torch.channels_last)[:, ::2]  # [/] [red] " + "y" * 30
    advisory = replace(snapshots.ADVISORIES[0], suggests=text)
    async with shown(snapshots.snapshot(advisories=(advisory,)), size=(80, 40)) as screen:
        await screen.press("y")
        assert "[/] [red]" in await screen.text()
        assert screen.app.clipboard == text


async def test_without_advice_there_is_nothing_to_copy() -> None:
    async with shown(snapshots.snapshot(advisories=())) as screen:
        assert "no advice to copy" in await screen.press("y")
        assert screen.app.clipboard == ""


def _chosen(text: str) -> str:
    line = next(line for line in text.splitlines() if line.lstrip().startswith("▸"))
    return line.split("×", 1)[-1].strip() if "×" in line[:20] else line.split("know", 1)[-1].strip()


async def test_choosing_scrolls_a_small_screen_so_far_that_it_is_seen() -> None:
    async with shown(snapshots.snapshot(), size=(80, 24)) as screen:
        await screen.press("a")
        for one in snapshots.ADVISORIES:
            text = await screen.text()
            assert f"{one.kind}; x silences it" in text
            assert _chosen(text)[:20] == one.says[:20]
            await screen.press("j")


async def test_the_log_is_newest_first() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("l")
    assert (
        text.index("loader workers")
        < text.index("COMPUTE-BOUND → WAITS")
        < text.index("first whole")
    )
    assert "4.00 s ago" in text


async def test_enter_opens_the_kernel_under_the_cursor() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("down", "enter")
    assert "CUDAFunctor_add<float>" in text
    assert "bandwidth-bound, " in text
    assert "L1.5: bytes from the op's name and grid" in text
    assert "number 2 of 8 by time" in text
    assert "81% of the memory bandwidth" in text
    assert "3.90 TB/s (roof 4.80 TB/s)" in text
    assert "typically 34% into the step" in text
    assert "3 of these in a row are on the memory side" in text


async def test_a_kernel_that_left_the_window_is_shown_as_last_seen() -> None:
    gone = snapshots.snapshot(estimate=snapshots.estimate(kernels=snapshots.KERNELS[3:]))
    async with shown(snapshots.snapshot(), gone) as screen:
        await screen.press("enter")
        screen.advance()
        assert "nvjet_tst" in await screen.until("not in this window")


async def test_a_kernel_without_a_share_of_a_roof_says_why() -> None:
    why = "cached: its shapes count more bytes than DRAM could move"
    row = replace(snapshots.KERNELS[1], roof_share=None, roof_share_why=why, bytes_per_s=9.9e12)
    est = snapshots.estimate(kernels=(row,))
    async with shown(snapshots.snapshot(estimate=est)) as screen:
        text = await screen.press("enter")
    assert why in text


async def test_every_view_survives_any_size() -> None:
    async with shown(snapshots.snapshot(), size=(80, 24)) as screen:
        for key in ("question_mark", "r", "a", "l", "w", "b", "p", "enter", "S"):
            await screen.press("escape", "1", key)
            for size in ((1, 1), (40, 10), (20, 50), (200, 60), (80, 24)):
                await screen.resize(*size)


async def test_a_trainer_without_a_gpu_says_so_in_every_view_that_needs_one() -> None:
    note = "its torch (2.13.0+cpu) is built without CUDA: it uses no NVIDIA GPU"
    waits = snapshots.waiting()
    source = replace(waits.source, kind="live", pid=4711, notes=(note,))
    one = replace(waits, source=source, tables=NO_TABLES, run=None)
    for key in "LCT":
        async with shown(one) as screen:
            text = " ".join((await screen.press(key)).split())
        assert text.count("Nothing to judge yet") == 1, text
        assert "Its torch (2.13.0+cpu) is built without CUDA" in text
    run = snapshots.run(snapshots.account(unknown=0.9, input=0.1))
    known = replace(one, run=run)
    fewer = snapshots.run(snapshots.account(unknown=0.95, input=0.05))
    assert Headline().inputs(known) != Headline().inputs(replace(one, run=fewer)), "drawn again"
    async with shown(known) as screen:
        text = " ".join((await screen.text()).split())
        assert "no GPU activity has been seen; it waits for data 10% of the time" in text
        assert text.count("of the time") == 1 and "works on the CPU 90%" in text


@pytest.mark.parametrize("ascii_only", [False, True])
async def test_a_term_of_the_help_never_runs_into_its_meaning(ascii_only: bool) -> None:
    palette = Palette(ascii=ascii_only)
    async with shown(snapshots.snapshot(), size=(120, 200), palette=palette) as screen:
        lines = [line.strip() for line in (await screen.press("question_mark")).splitlines()]
    gain = "1.5× faster (1.4–1.7)"
    assert {"SM, tensor, DRAM", to_ascii(gain) if ascii_only else gain} <= set(lines)


async def test_a_roofline_without_kernels_asks_for_no_shapes_that_are_there() -> None:
    bare = tuple(replace(k, flop_per_s=None) for k in snapshots.KERNELS)
    for evidence, says in (("L2", "op shapes are recorded"), ("L1", "or at the key o")):
        kernels = tuple(replace(k, evidence=evidence) for k in bare)
        async with shown(
            snapshots.snapshot(estimate=snapshots.estimate(kernels=kernels))
        ) as screen:
            assert says in " ".join((await screen.press("r")).split())
