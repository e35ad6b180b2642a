"""Commands by name, panes that are hidden and zoomed, themes, search, and what stays after leaving."""

import re
from itertools import pairwise

from msgspec.structs import replace

from brrrtop.cli.commands.replay import scenarios
from brrrtop.cli.options import Options
from brrrtop.cli.show import parting_lines
from brrrtop.model.estimate import Steps
from brrrtop.model.run import Line, StackSamples
from brrrtop.model.snapshot import PANES, ZOOMED, Settings
from brrrtop.model.tables import Span
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.screens.main import MainView
from brrrtop.tui.widgets.advice import Advice
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.time_spent import HistoryGraph
from brrrtop.tui.widgets.verdict import Figures, Headline
from tests.tui import snapshots
from tests.tui.shown import Shown, shown

SHAPES = scenarios()["healthy"]
SAMPLES = StackSamples(
    40, 8_000_000_000, True, (Line("train.py:88", "loss.item()", 30, "sync"),), {"sync": 0.75}
)


def visible(screen: Shown, pane: type) -> bool:
    widget = screen.app.query_one(pane)
    return bool(widget.display and widget.size.height)


async def test_account_and_kernels_are_of_the_same_step_where_steps_differ_much():
    ms = 1_000_000
    edges = [0, *range(10, 100, 10), 150]
    spans = tuple(Span(low * ms, high * ms) for low, high in pairwise(edges))
    acc = snapshots.account(compute=0.5, input=0.5)
    steps = Steps(10, 10 * ms, "marks", 1.0, spans)
    rows = (replace(snapshots.KERNELS[0], total_ns=acc.compute_ns, count=10, share=1.0),)
    uneven = snapshots.estimate(acc, steps=steps, kernels=rows)
    async with shown(snapshots.snapshot(estimate=uneven, run=None), size=(120, 40)) as screen:
        text = await screen.text()
        details = await screen.press("i")
    booked = re.search(r"compute +[━─]+ +50% +[\d.]+ ms +([\d.]+ ms)", details)
    table = text[text.index("── kernels") :]
    assert booked is not None and booked[1] == "7.50 ms" and booked[1] in table
    assert "15.0 ms/step" in text and "median  10.0 ms" in details


async def test_z_zooms_pane_after_pane_and_shows_all_of_them_again():
    async with shown(snapshots.snapshot(), size=(200, 60)) as screen:
        for name in ZOOMED:
            await screen.press("z")
            assert screen.app.settings.zoomed == name
        await screen.press("z")
        assert screen.app.settings.zoomed == "" and visible(screen, Figures)
        await screen.press("z", "z")
        assert visible(screen, Advice)
        assert not visible(screen, KernelTable) and not visible(screen, HistoryGraph)
        assert visible(screen, Headline), "the sentence stays"
        await screen.press("Z")
        assert visible(screen, KernelTable)


async def test_every_command_does_something_and_nothing_fails():
    async with shown(snapshots.snapshot()) as screen:
        app = screen.app
        every = list(app.get_system_commands(app.screen))
        assert len({one.title for one in every}) > 50
        for one in every:
            if one.title.startswith(("quit", "suspend")):
                continue
            before = app.settings, app.palette.theme, await screen.text()
            done = one.callback()  # type: ignore[func-returns-value]
            if done is not None:
                await done
            await screen.settle()
            after = app.settings, app.palette.theme, await screen.text()
            assert app.fault is None and app.is_running, one.title
            if one.title.startswith(("hide", "zoom")):
                assert before[0] != after[0], f"{one.title}: nobody does it"
            if not isinstance(app.screen, MainView):
                await screen.press("escape", "1")


async def test_every_pane_can_be_hidden():
    everything = Settings(hidden=PANES)
    async with shown(snapshots.snapshot(), size=(200, 60)) as screen:
        view = screen.app.screen
        assert isinstance(view, MainView)
        view._choose(everything)
        text = await screen.text()
    assert "GPU idle 47%" in text
    for words in ("── kernels", "── what to do", "── loader", "── history", "── one step", "512 W"):
        assert words not in text


async def test_settings_are_taken_up_at_the_start():
    from tests.tui.drivers import ListDriver

    chosen: list[Settings] = []
    app = BrrrtopApp(
        ListDriver([snapshots.snapshot()]),
        settings=Settings(hidden=("figures",)),
        remember=chosen.append,
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert not app.query_one(Figures).display
        await pilot.press("s")
        await pilot.press("t")
    assert chosen == [Settings("light", ("figures",))]


async def test_a_search_scrolls_to_its_words_and_on_to_the_next():
    async with shown(snapshots.snapshot(), size=(80, 24)) as screen:
        text = await screen.press("question_mark", "slash", *"kernels")
        assert '"kernels" 1 of' in text
        first = await screen.press("enter")
        assert "kernels" in first
        text = await screen.press("N")
        assert '"kernels" 2 of' in text
        assert '"kernels" 1 of' in await screen.press("P")
        assert '"kernels" ' not in await screen.press("escape"), "the search first"
        assert "WAITS FOR DATA" in await screen.press("escape")


async def test_log_advice_and_code_can_be_searched():
    async with shown(snapshots.snapshot()) as screen:
        for key in "laC":
            assert '"xy" nowhere' in await screen.press(key, "slash", *"xy"), key
            await screen.press("escape", "escape")


async def test_code_shows_the_lines_that_samples_found():
    estimate = replace(snapshots.estimate(), stack_samples=SAMPLES)
    async with shown(snapshots.snapshot(estimate=estimate), size=(200, 60)) as screen:
        text = await screen.text()
        assert "code while the GPU idles" in text and "75%" in text
        text = await screen.press("C")
        assert (
            "train.py:88  loss.item()" in text and "40 stack samples in 8.00 s, excluding" in text
        )
    for given, why in (
        (snapshots.snapshot(), "No line stands out yet: the agent samples"),
        (snapshots.replayed(), "No line stands out: stacks are sampled by the agent only"),
    ):
        async with shown(given) as screen:
            assert why in await screen.press("C")


async def test_tables_show_the_ops_of_the_report_and_say_where_there_are_none():
    source = open_source(SHAPES)
    async with shown(analyze(source), size=(80, 24)) as screen:
        text = await screen.press("T")
        assert "Ops by GPU time" in text and "aten::" in text
        rows = [line for line in text.splitlines() if line.startswith("   aten::")]
        assert rows and not any("…" in row for row in rows), "no figure is cut at 80 columns"
        assert "nowhere" in await screen.press("slash", *"xyzzy")
    async with shown(snapshots.snapshot()) as screen:
        assert "Nothing to show" in await screen.press("T")


def test_what_stays_after_leaving_says_what_to_do(monkeypatch):
    live = snapshots.snapshot()
    lines = parting_lines(live, Options(verb="attach"))
    assert lines[0].startswith("pid 4711: WAITS FOR DATA, GPU idle 47%")
    assert "  try: Raise num_workers of the DataLoader (now 0), or keep decoded samples" in lines
    assert lines[-1] == "  again: brrrtop attach 4711; --record FILE keeps it for a replay"
    assert parting_lines(live, Options(verb="attach", record="a.brrr"))[-1].endswith(
        "replay a.brrr"
    )
    assert parting_lines(live, Options(verb="demo"))[-1] == "  again: brrrtop demo"
    assert parting_lines(snapshots.waiting(), Options()) == []
    monkeypatch.setenv("BRRRTOP_COMMAND", "python3 dev.py")
    assert parting_lines(live, Options(verb="demo"))[-1] == "  again: python3 dev.py demo"
