"""What annoyed somebody who kept the screen open over ssh: stale pictures, toasts in the way, cut words."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.notifications import Notification
from textual.widgets import Input

from brrrtop.cli.show import wrap
from brrrtop.exporters.html import page
from brrrtop.model.snapshot import Event
from brrrtop.tui.palette import Palette, to_ascii
from brrrtop.tui.renderables.roofline_plot import roofline
from brrrtop.tui.widgets.advice import shortened
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.pane import Pane
from brrrtop.tui.widgets.side import Loader, event_lines
from brrrtop.tui.widgets.time_spent import StepStrip
from brrrtop.tui.widgets.verdict import Figures, Headline
from tests.tui import snapshots
from tests.tui.shown import Shown, shown


async def test_the_main_screen_is_not_the_old_one_after_another_was_open():
    newer = replace(snapshots.replayed(), progress=0.73)
    async with shown(replace(snapshots.replayed(), progress=0.4), newer) as screen:
        await screen.press("a")
        screen.advance()
        await screen.until("replay 73%")
        assert "replay 73%" in (await screen.press("escape")).splitlines()[0]


@pytest.mark.parametrize("goes_on", [("escape",), ("l",), ("slash",), ("colon",)])
async def test_a_toast_goes_when_somebody_goes_on(goes_on):
    async with shown(snapshots.snapshot(), size=(80, 24), notifications=True) as screen:
        await screen.press("a")
        screen.app.say("words " * 30)
        await screen.settle()
        assert _toasts(screen.app) == 1
        await screen.press(*goes_on)
        assert _toasts(screen.app) == 0


def _toasts(app: object) -> int:
    notifications: list[Notification] = list(app._notifications)  # type: ignore[attr-defined]
    return len(notifications)


def test_an_event_of_this_very_moment_is_now():
    says = [
        event_lines(Event(t_ns, "agent", "ready"), 5_000_000_000, Palette(), 80)[0].plain
        for t_ns in (5_000_000_000, 3_000_000_000)
    ]
    assert "0 ns" not in says[0]
    assert says[0].split() == ["now", "agent", "ready"]
    assert says[0].index("agent") == says[1].index("agent")


def test_a_headline_is_cut_at_a_clause_and_not_within_a_number():
    says = "92% of the time the GPU waits for the next batch"
    assert shortened(says, 52) == "92% of the time the GPU waits for the next batch"
    assert shortened(says, 80) == says
    assert shortened(says, 30) == says, "no clause fits: cut as ever"


def test_parting_lines_break_between_words_and_commands_not_at_all():
    line = "  try: " + "DataLoader(..., num_workers=4, persistent_workers=True); " * 4
    parts = wrap(line, 60)
    assert len(parts) > 1 and max(map(len, parts)) <= 60
    assert " ".join(" ".join(parts).split()) == " ".join(line.split())
    assert all(part.startswith(" ") for part in parts)
    again = "  again: brrrtop replay " + "x" * 100
    assert wrap(again, 60) == [again]


async def test_the_screen_is_saved_as_a_picture_without_the_dialog(tmp_path):
    path = tmp_path / "screen.svg"
    async with shown(snapshots.snapshot(), capabilities=frozenset(), size=(200, 60)) as screen:
        assert "a picture of this screen" in await screen.press("S")
        await _named(screen, path)
        await screen.until("saved ")
        await _named(screen, path, "S")
        await screen.until("is there already")
    words = "".join(ET.fromstring(path.read_text("utf-8")).itertext()).replace("\xa0", " ")
    assert "WAITS FOR DATA" in words and "Enter saves" not in words
    assert "url(" not in path.read_text("utf-8").replace("url(#", ""), "nothing from the network"


async def test_the_report_is_saved_as_a_page(tmp_path):
    path = tmp_path / "report.html"
    async with shown(snapshots.snapshot(), capabilities=frozenset(), size=(120, 40)) as screen:
        assert ".html" not in await screen.press("S"), "nobody makes a page here"
        await screen.press("escape")
        screen.app.page = page
        assert ".html" in await screen.press("S")
        await _named(screen, path)
        await screen.until("saved ")
        snapshot = screen.app.snapshot
    assert path.read_text("utf-8") == page(snapshot)


async def _named(screen: Shown, path: Path, *first: str) -> None:
    await screen.press(*first)
    screen.app.screen.query_one("#path", Input).value = str(path)
    await screen.press("enter")


async def test_the_roofline_has_a_cursor_that_names_the_kernel_under_it():
    async with shown(snapshots.snapshot()) as screen:
        first = await screen.press("r")
        second = await screen.press("down")
        assert _chosen(first) != _chosen(second)
        assert "FLOP/B" in _chosen(second) and "FLOP/s" in _chosen(second)
        assert _chosen(await screen.press("up", "up")) == _chosen(first)
        name = _chosen(second).split()[-1]
        assert name in await screen.press("down", "enter"), "Enter opens that kernel"
        await screen.press("r", "G")
        assert "▸" in await screen.resize(80, 24), "the chosen one is named where no list fits"


def _chosen(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("▸")]
    return line.rstrip()


def test_marks_are_as_large_as_shares_and_the_cursor_needs_no_colour():
    big, small = (
        replace(snapshots.KERNELS[0], name=name, share=share)
        for name, share in (("big", 0.5), ("small", 0.001))
    )
    plain = Palette(colour=False, ascii=True)
    for kernel, signs in ((big, "(C)"), (small, " C")):
        text = "\n".join(
            line.plain for line in roofline([kernel], snapshots.ROOFS, [], plain, 80, 20)
        )
        assert signs in text and ("(C)" in text) == (kernel is big)
    lines = roofline([small, big], snapshots.ROOFS, [], plain, 80, 20, small)
    assert "[C]" in "\n".join(line.plain for line in lines)
    assert to_ascii("".join(line.plain for line in lines)).count("?") == 0
    dots = "".join(line.plain for line in roofline([big], snapshots.ROOFS, [], Palette(), 80, 20))
    assert any("\u2800" < sign <= "\u28ff" for sign in dots)


async def test_a_pane_is_drawn_again_only_for_what_it_shows(monkeypatch):
    """And again when somebody changes the theme, though the snapshot is the same."""
    drawn: list[str] = []
    for kind in (KernelTable, StepStrip, Loader, Headline, Figures):
        original = kind.draw

        def draw(pane: Pane, *given: Any, _original: Any = original) -> Any:
            drawn.append(type(pane).__name__)
            return _original(pane, *given)

        monkeypatch.setattr(kind, "draw", draw)
    first = snapshots.snapshot()
    later = replace(first, now_ns=first.now_ns + 500_000_000, lost_records=3)
    moved = replace(later, estimate=snapshots.estimate(), lost_records=4)
    fewer = replace(moved.estimate, kernels=moved.estimate.kernels[1:])
    judged = replace(moved, estimate=fewer, lost_records=5)
    async with shown(first, later, moved, judged) as screen:
        drawn.clear()
        screen.advance()
        await screen.until("3 records lost")
        assert drawn == []
        screen.advance()
        await screen.until("4 records lost")
        assert "Headline" in drawn and not {"KernelTable", "StepStrip"} & set(drawn)
        screen.advance()
        await screen.until("5 records lost")
        assert "KernelTable" in drawn and "StepStrip" not in drawn
        drawn.clear()
        await screen.press("t")
        assert {"KernelTable", "StepStrip", "Loader", "Headline", "Figures"} == set(drawn)
