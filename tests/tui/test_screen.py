"""The main screen over prepared snapshots: what it says, and what the keys do."""

import asyncio
import re
from functools import partial

import pytest
from msgspec.structs import replace
from textual.css.stylesheet import Stylesheet
from textual.events import Key

from brrrtop.errors import BrrrtopError
from brrrtop.model.host_tables import NO_TABLES
from brrrtop.model.snapshot import Freshness
from brrrtop.model.tables import Device
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.palette import THEMES, Palette
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.pane import Pane
from tests.tui import snapshots
from tests.tui.drivers import ListDriver
from tests.tui.shown import SIZES, shown


async def test_what_nobody_measured_is_a_dash_with_a_reason_and_never_a_zero() -> None:
    async with shown(snapshots.unmeasured()) as screen:
        text = await screen.text()
        details = await screen.press("i")
    assert "– no steps seen" in details and "– no launch records" in details
    assert "no counter has been read yet" in details and "ms/step" not in text
    assert "UNKNOWN" in text and "no history yet" in text
    assert "1,204 records lost" in text
    assert "cost –" in text
    assert "No advice" in text
    for line in text.splitlines():
        if "nvjet" in line:
            assert "–" in line


async def test_without_a_gpu_there_is_what_the_ledger_knows_and_no_false_answer() -> None:
    run = snapshots.run(snapshots.account(input=0.6))
    bare = replace(snapshots.waiting(), run=run, history=snapshots.history())
    async with shown(bare, size=(120, 40)) as screen:
        text = await screen.text()
        assert "waits for data 60%" in text and "24.5 ms/step" in text and "├train" in text
        for key in ("c", "n", "o"):
            assert "there is nothing to trace: no GPU activity" in await screen.press(key)
        assert "no GPU has activity here" in await screen.press("d")
        assert screen.driver.asked == []


async def test_every_reason_for_an_empty_screen_is_said_in_full() -> None:
    long = "libnvidia-ml.so.1 is not here: start the container with `--gpus all`, or else: " * 2
    bare = snapshots.waiting()
    notes = ("waiting for the trainer to touch its GPU", long.strip())
    source = replace(bare.source, notes=notes, waits=frozenset(notes[:1]))
    async with shown(replace(bare, source=source), size=(80, 24)) as screen:
        flat = " ".join((await screen.text()).split())
    assert "WAITING for the trainer to touch its GPU" in flat
    assert long.strip() in flat
    assert "A trainer on the CPU has steps" in flat
    gone = replace(source, notes=("the trainer (pid 7) exited: killed by SIGTERM", *notes))
    ended = replace(bare, source=gone, freshness=Freshness.ENDED)
    async with shown(ended, size=(80, 24)) as screen:
        text = await screen.text()
    assert "ENDED the trainer (pid 7) exited: killed by SIGTERM" in text
    assert "waiting for" not in text.lower()


def _first_kernel(text: str) -> str:
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if "── kernels" in line) + 2]


async def test_what_was_not_measured_comes_last_in_either_order() -> None:
    async with shown(snapshots.snapshot()) as screen:
        table = screen.app.screen.query_one(KernelTable)
        for reverse in (False, True):
            table.sort_by("roof", reverse)
            text = await screen.text()
            assert "–" not in _first_kernel(text).split()[:6]
            assert table.kernels[-1].roof_share is None


async def test_a_click_on_a_title_sorts_and_a_second_one_reverses() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.text()
        row = next(i for i, line in enumerate(text.splitlines()) if "per step▼" in line)
        column = text.splitlines()[row].index("calls")
        await screen.pilot.click(offset=(column, row))
        assert "calls▼" in await screen.text()
        await screen.pilot.click(offset=(column, row))
        assert "calls▲" in await screen.text()


async def test_the_filter_narrows_as_it_is_typed_and_escape_clears_it() -> None:
    async with shown(snapshots.snapshot(tables=NO_TABLES)) as screen:
        text = await screen.press("slash", *"gemm")
        assert '"gemm" 2 of 8' in text
        assert "ncclDev" not in text
        text = await screen.press("enter", "down")
        assert "splitKreduce" in text
        text = await screen.press("escape")
        assert "ncclDev" in text


async def test_words_that_arrive_together_with_the_slash_are_not_lost() -> None:
    async with shown(snapshots.snapshot()) as screen:
        for key, character in (("slash", "/"), ("n", "n"), ("c", "c"), ("slash", "/")):
            screen.app.post_message(Key(key, character))
        await screen.until('No kernel matches "nc/"')


@pytest.mark.parametrize("early", [True, False])
async def test_an_interrupt_ends_the_app_whether_it_runs_already_or_not(early: bool) -> None:
    app = BrrrtopApp(ListDriver([snapshots.snapshot()]), interval_s=5.0)
    if early:
        app.interrupt()
    async with app.run_test() as pilot:
        if not early:
            app.interrupt()
        await pilot.pause(0.1)
    assert app.return_code == 130


async def test_after_fg_and_at_a_wish_every_pane_is_drawn_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shown(snapshots.snapshot()) as screen:
        panes = {type(pane).__name__: pane for pane in screen.app.screen.walk_children(Pane)}
        drawn: list[str] = []
        for name, pane in panes.items():
            whole = partial(lambda name, *parts, **_: parts or drawn.append(name), name)
            monkeypatch.setattr(pane, "refresh", whole)
        await screen.press("ctrl+l")
        assert set(drawn) == panes.keys()
        drawn.clear()
        screen.app.app_resume_signal.publish(screen.app)
        await screen.settle()
        assert set(drawn) == panes.keys()


async def test_letters_typed_into_the_filter_are_no_commands() -> None:
    async with shown(snapshots.snapshot()) as screen:
        text = await screen.press("slash", *"rald?")
        assert 'No kernel matches "rald?"; Esc clears the filter.' in text
        assert not screen.driver.asked


async def test_the_cursor_stays_with_its_kernel_when_the_order_changes() -> None:
    async with shown(snapshots.snapshot()) as screen:
        await screen.press("down", "down")
        table = screen.app.screen.query_one(KernelTable)
        chosen = table.kernels[table.at].name
        await screen.press("s", "s")
        assert table.kernels[table.at].name == chosen
        assert table.at != 2


async def test_a_table_longer_than_the_screen_scrolls_with_the_cursor() -> None:
    rows = tuple(replace(snapshots.KERNELS[0], name=f"kernel_{i:03}") for i in range(300))
    snapshot = snapshots.snapshot(estimate=snapshots.estimate(kernels=rows))
    async with shown(snapshot, size=(80, 24)) as screen:
        assert "kernel_299" in await screen.press("end")
        assert "kernel_000" in await screen.press("home")
        assert "kernel_000" not in await screen.press("pagedown", "pagedown")


async def test_a_source_that_cannot_do_something_says_so() -> None:
    async with shown(snapshots.snapshot(), capabilities=frozenset()) as screen:
        assert "only a replay can step" in await screen.press("right")
        await screen.press("S", *[*["backspace"] * 40, *"taken.brrr", "enter"])
        await screen.until("end the name in .svg or .html")
        assert not screen.driver.asked


async def test_keys_that_trace_say_why_not_where_nothing_is_traced() -> None:
    async with shown(snapshots.snapshot(), capabilities=frozenset()) as screen:
        for key in "cno":
            await screen.until("q quit")
            assert "only the GPU's own counters are read" in await screen.press(key)
    async with shown(snapshots.replayed(), capabilities=frozenset({"seek"})) as screen:
        assert "only a live trainer is traced" in await screen.press("o")
    assert not screen.driver.asked


async def test_a_refused_wish_for_every_step_is_asked_again_not_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shown(snapshots.snapshot()) as screen:
        carried_out = screen.driver.continuous

        def refused(on: bool) -> str:
            monkeypatch.setattr(screen.driver, "continuous", carried_out)
            raise BrrrtopError("nothing can be traced: its torch is built without CUDA")

        monkeypatch.setattr(screen.driver, "continuous", refused)
        await screen.press("c")
        await screen.until("built without CUDA")
        await screen.press("c")
        await screen.until("tracing without pauses")
        await screen.press("c")
        await screen.until("tracing in bursts")
        assert screen.driver.asked == ["continuous True", "continuous False"]


async def test_the_end_of_the_name_to_save_under_is_all_that_must_be_typed() -> None:
    async with shown(snapshots.snapshot(), capabilities=frozenset()) as screen:
        text = await screen.press("S", *["backspace"] * 3, *"html")
        assert re.search(r"brrrtop-\d{8}-\d{6}\.html", text)


async def test_the_next_gpu_and_the_one_before_are_asked_for_by_their_numbers() -> None:
    others = (snapshots.estimate(device=Device(n, "NVIDIA H200")) for n in (3, 5))
    async with shown(snapshots.snapshot(devices=(snapshots.estimate(), *others))) as screen:
        await screen.press("D", "d")
        await screen.wait(lambda: len(screen.driver.asked) == 2)
        assert screen.driver.asked == ["device 5", "device 3"], "GPU 0 is shown all the while"


async def test_several_gpus_stand_side_by_side_and_can_be_clicked() -> None:
    busy = snapshots.healthy().estimate
    assert busy is not None
    other = replace(busy, device=Device(3, "NVIDIA H200"))
    snapshot = snapshots.snapshot(devices=(other, snapshots.estimate()))
    async with shown(snapshot, size=(80, 24)) as screen:
        lines = (await screen.text()).splitlines()
        (at,) = (y for y, line in enumerate(lines) if line.startswith("▸GPU 0"))
        assert lines[at].startswith("▸GPU 0 overhead 54%   GPU 3 compute 72%")
        await screen.pilot.click(offset=(lines[at].index("GPU 3"), at))
        await screen.wait(lambda: bool(screen.driver.asked))
        assert screen.driver.asked == ["device 3"]
        for size in ((1, 1), (60, 12)):
            await screen.resize(*size)


async def test_any_size_down_to_one_cell_and_back() -> None:
    async with shown(snapshots.snapshot()) as screen:
        for size in ((1, 1), (2, 1), (1, 30), (39, 24), (80, 9), (300, 1), (40, 10), (250, 90)):
            await screen.resize(*size)
        assert "too small" in await screen.resize(39, 24)
        assert "WAITS FOR DATA" in await screen.resize(14, 3)
        text = await screen.resize(80, 24)
        assert "too small" not in text
        assert "nvjet_tst" in text


async def test_a_failing_source_closes_the_screen_and_is_handed_on() -> None:
    fault = BrrrtopError("the trainer is gone", "attach again")
    async with shown(snapshots.snapshot(), fails=fault, interval_s=0.01) as screen:
        await screen.wait(lambda: screen.app.fault is not None)
        assert screen.app.fault is fault
    assert screen.app.return_code == 1


@pytest.mark.parametrize("name", THEMES)
async def test_a_screen_opens_in_its_theme_with_every_style_sheet_parsed_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_again: list[Stylesheet] = []
    monkeypatch.setattr(Stylesheet, "reparse", lambda sheet: parsed_again.append(sheet))
    async with shown(snapshots.snapshot(), palette=Palette(name)) as screen:
        await screen.text()
        app = screen.app
        assert app.theme == f"brrrtop-{name}"
        assert app.screen.styles.background.hex.lower() == THEMES[name].colours["background"]
        assert app.has_class("-dark-mode") is THEMES[name].dark is not app.has_class("-light-mode")
    assert not parsed_again


async def test_the_details_have_phases_witnesses_and_trends_of_counters() -> None:
    async with shown(snapshots.snapshot(), size=(120, 60)) as screen:
        flat = " ".join((await screen.press("i")).split())
    assert "evaluation evaluate() train.py:120 10% 18:00 3 9,000 120 ms 0% 81%" in flat
    assert "55% by its counter, 53% by traced kernels" in flat
    assert "▃▄▅▆▇" in flat and "▆▅▄▃▂" in flat and "a kernel starts 184 µs after its launch" in flat


async def test_an_ended_trainer_offers_its_successor_and_enter_takes_it() -> None:
    notice = "pid 4712 runs the same command: Enter to watch it; 12:04:31 the trainer exited"
    ended = snapshots.snapshot(freshness=Freshness.ENDED, notice=notice, successor=4712)
    async with shown(ended) as screen:
        text = await screen.text()
        assert notice in text
        assert " enter follow the restarted run" in text.splitlines()[-1]
        await screen.press("slash", *"gemm", "enter")
        assert "follow" not in screen.driver.asked, "Enter ends the filter"
        await screen.press("escape", "enter")
        assert "watching pid 4712" in await screen.until("watching")
        assert screen.driver.asked == ["follow"]


async def test_enter_opens_the_kernel_while_nobody_waits_for_a_yes() -> None:
    async with shown(snapshots.snapshot()) as screen:
        assert "── kernel ──" in await screen.press("enter")
        assert screen.driver.asked == []


async def test_the_shapes_of_a_step_can_be_asked_for_and_their_outcome_is_told() -> None:
    async with shown(snapshots.snapshot(), size=(180, 50)) as screen:
        assert " o shapes" in (await screen.text()).splitlines()[-1]
        await screen.press("o")
        assert "shapes of one step recorded: 812 ops" in await screen.until("812 ops")
        assert screen.driver.asked == ["shapes"]
    async with shown(snapshots.replayed(), size=(160, 50)) as screen:
        assert " o shapes" not in await screen.text()


async def test_the_same_sentence_is_not_stacked_and_no_dialog_is_covered() -> None:
    """On a trainer without a GPU three keys have the same long answer."""
    notice = "nothing is traced here: " + "only the GPU's own counters are read " * 5
    async with shown(snapshots.snapshot(), size=(80, 24), notifications=True) as screen:
        for _ in range(3):
            screen.app.say(notice, failed=True)
        assert (await screen.until("nothing is traced here")).count("nothing is traced") == 1
        screen.app.say(notice.replace("here", "now"), failed=True)
        await screen.until("nothing is traced now")
        await screen.press("S")
        text = await screen.until("Save what is seen to")
        assert "nothing is traced" not in text
        await screen.press("escape")
        screen.app.say(notice, failed=True)
        assert (await screen.until("nothing is traced here")).count("nothing is traced") == 1


async def test_an_answer_is_not_cut_short_by_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shown(snapshots.snapshot()) as screen:
        monkeypatch.setattr("brrrtop.tui.app.SAYS_S", 0.01)
        screen.app.say("the first answer")
        monkeypatch.setattr("brrrtop.tui.app.SAYS_S", 600.0)
        screen.app.say("the second answer")
        later = asyncio.Event()
        screen.app.set_timer(0.05, later.set)
        await later.wait()
        assert "the second answer" in await screen.text()


async def test_a_missing_gauge_is_not_what_a_verdict_waits_for() -> None:
    note = "this GPU has no GPM counters (Hopper and newer have them)"
    waiting = snapshots.waiting()
    source = replace(waiting.source, tier="bursts", notes=(note,), gauges=frozenset((note,)))
    async with shown(replace(waiting, source=source)) as screen:
        text = await screen.text()
    assert "WAITING for the first whole window" in text
    assert text.count(note) == 1


async def test_a_table_that_grows_is_not_tripped_over_before_it_is_drawn() -> None:
    """A loader that is waited for and several GPUs leave it a line at some heights."""
    devices = (snapshots.estimate(), snapshots.estimate(device=Device(3, "NVIDIA H200")))
    async with shown(snapshots.snapshot(devices=devices), size=(120, 60)) as screen:
        for height in (34, 40, 34, 50, 34, 36):
            text = await screen.resize(120, height)
            assert "nvjet_tst_256x128" in text or height < 40


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_waited_for_is_said_once(size: tuple[int, int]) -> None:
    note = "waiting for the trainer to use its GPU: it has imported torch"
    waiting = snapshots.waiting()
    waiting = replace(waiting, source=replace(waiting.source, notes=(note, "another note")))
    async with shown(waiting, size=size) as screen:
        text = " ".join((await screen.text()).split())
    assert text.count("for the trainer to use its GPU") == 1
    assert text.count("another note") == 1


async def test_a_note_too_long_for_the_banner_is_told_in_full_below() -> None:
    note = "waiting for " + "something that takes long to tell " * 6 + "and an end"
    waiting = snapshots.waiting()
    waiting = replace(waiting, source=replace(waiting.source, notes=(note,)))
    async with shown(waiting, size=(80, 24)) as screen:
        text = " ".join((await screen.text()).split())
    assert text.count("and an end") == 1


async def test_lines_that_advice_does_not_need_are_the_kernels() -> None:
    """No black lines over a table that is cut; and what is below does not jump back and forth."""
    short = snapshots.ADVISORIES[0]
    long = replace(short, suggests=short.suggests + ", or more" * 12)
    turns = [
        snapshots.snapshot(advisories=(one,), events=(), tables=NO_TABLES)
        for one in (short, long, short)
    ]
    tops = []
    async with shown(*turns, size=(120, 40)) as screen:
        for words in (short.suggests, "or more", short.suggests + "\n"):
            lines = (await screen.until(words.split("\n")[0])).splitlines()
            tops.append(next(i for i, line in enumerate(lines) if "── kernels" in line))
            if len(tops) == 1:
                assert lines[tops[0] - 1].strip(), "advice ends right above"
            screen.advance()
            await screen.settle()
    assert tops[0] < tops[1] == tops[2], "it keeps the lines it once had for the same advice"


async def test_a_live_picture_that_is_old_says_when_the_trainer_was_last_heard() -> None:
    async with shown(snapshots.snapshot(age_ns=12_000_000_000)) as screen:
        assert "last heard 12.0 s ago" in await screen.text()
