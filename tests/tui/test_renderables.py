"""What is drawn, as characters, at the widths terminals have."""

import bisect
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.text import Text

from brrrtop.model.estimate import Roofs, Steps
from brrrtop.model.tables import Span
from brrrtop.text import phrases, units
from brrrtop.tui.palette import MARKS, THEMES, Palette, luminance, to_ascii
from brrrtop.tui.parts import booked, intensity, whole_step
from brrrtop.tui.renderables.history import columns, layers, sparkline, stacked_area
from brrrtop.tui.renderables.line import (
    bar,
    cells,
    clipped,
    fitted,
    joined,
    meter,
    rows,
    rule,
    sided,
    wrapped,
)
from brrrtop.tui.renderables.roofline_plot import roofline
from brrrtop.tui.renderables.table import header_line
from brrrtop.tui.screens.details import launch_facts
from brrrtop.tui.screens.kernel import legend
from brrrtop.tui.widgets.advice import evidence_pairs, flow
from brrrtop.tui.widgets.frame import pace, subject, window
from brrrtop.tui.widgets.pane import runs
from brrrtop.tui.widgets.time_spent import column_edges, phase_line
from brrrtop.tui.widgets.verdict import headline, nothing_yet, run_bar
from brrrtop.views import tables
from brrrtop.views.table import text_lines
from brrrtop.views.text import in_ascii
from tests.tui import snapshots

WIDTHS = (20, 40, 80, 200)
LOOKS = (Palette(), Palette("light"), Palette(colour=False), Palette(colour=False, ascii=True))


@given(st.lists(st.floats(0, 1), max_size=12), st.integers(0, 60))
def test_cells_of_a_bar_add_up_to_its_width(shares: list[float], width: int) -> None:
    counts = cells(shares, width)
    assert len(counts) == len(shares)
    assert sum(counts) == (width if sum(shares) > 0 else 0)
    assert all(count >= 0 for count in counts)
    assert all(not count for share, count in zip(shares, counts, strict=True) if not share)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=9))
def test_nothing_that_is_there_vanishes_from_a_bar_with_room_for_all(shares: list[float]) -> None:
    assert all(cells(shares, 9))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("palette", LOOKS)
def test_bars_fill_their_width_and_name_every_part(width: int, palette: Palette) -> None:
    text = run_bar("run", snapshots.run().account, palette, width)
    assert text.cell_len == width
    for label in ("waits for data 42%", "compute 30%") if width >= 80 else ():
        assert label in text.plain


def test_the_badge_alone_has_its_hue_behind_it() -> None:
    """The whole line had: light words on pink could not be read."""
    first = headline(snapshots.snapshot(), Palette(), 120, 4)[0]
    assert not first.style
    filled = [
        first.plain[one.start : one.end]
        for one in first.spans
        if getattr(one.style, "bgcolor", None)
    ]
    assert filled == [" WAITS FOR DATA "]


def test_neighbours_of_one_hue_have_an_edge_between_them() -> None:
    parts = (("idle_input", 0.5), ("idle_launch", 0.5))
    text = bar(parts, Palette(colour=False, ascii=True), 40, (("data",), ("launches",))).plain
    assert to_ascii(text) == " data .............| launches ::::::::::"


def test_a_bar_of_nothing_is_dotted() -> None:
    assert bar((), Palette(colour=False, ascii=True), 6, ()).plain == ". . . "


def test_a_meter_shows_unmeasured_as_dashes_and_never_as_empty() -> None:
    palette = Palette(colour=False, ascii=True)
    assert meter(None, palette, 5).plain == "-----"
    assert meter(0.0, palette, 5).plain == "....."
    assert meter(0.01, palette, 5).plain == "#...."
    assert meter(1.0, palette, 5).plain == "#####"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("palette", LOOKS)
def test_history_is_as_wide_and_high_as_asked(width: int, palette: Palette) -> None:
    for count in (1, 7, 300):
        history = snapshots.history(count)
        edges = [history[-1].t_ns - 10**9 * (width - x) for x in range(width + 1)]
        shown = columns(history, edges, history[-1].t_ns)
        lines = stacked_area([point and layers(point) for point in shown], palette, 5)
        assert [line.cell_len for line in lines] == [width] * 5


def test_history_keeps_the_newest_points_when_there_are_too_many() -> None:
    history = snapshots.history(100)
    edges = [point.t_ns for point in history[-11:]]
    assert columns(history, edges, edges[-1]) == list(history[-10:])


def test_a_point_is_as_wide_as_the_time_it_stands_for() -> None:
    first, second, third = snapshots.history(3)
    late = replace(third, t_ns=second.t_ns + 2 * (second.t_ns - first.t_ns))
    each = (second.t_ns - first.t_ns) // 2
    edges = [second.t_ns + each * x for x in range(-6, 7)]
    shown = columns((first, second, late), edges, late.t_ns)
    assert shown == [None] * 2 + [first] * 2 + [second] * 2 + [late] * 4 + [None] * 2


def test_history_stacks_compute_below_memory_below_overhead() -> None:
    shares = {"compute": 0.6, "memory": 0.2, "idle_input": 0.1, "idle_sync": 0.1}
    lines = stacked_area([shares, None], Palette(colour=False, ascii=True), 10)
    bottom_up = "".join(line.plain[0] for line in reversed(lines))
    assert bottom_up == "######==.:", "waits for data, and other idle time"
    assert {line.plain[1] for line in lines} == {" "}


def test_lines_that_follow_each_other_are_drawn_as_one_region() -> None:
    assert runs([0, 1, 2, 5, 7, 8]) == [(0, 3), (5, 1), (7, 2)]
    assert runs([]) == []


def test_sparklines_stand_at_the_right_edge() -> None:
    assert sparkline((0.0, 0.5, 1.0), Palette(), 5).plain == "  ▁▅█"
    assert sparkline((), Palette(), 4).plain == "    "
    assert sparkline((0.0, 1.0), Palette(ascii=True), 2).plain == ".#", "0 is a value too"


@pytest.mark.parametrize("width", [0, 1, 2, 5, 20])
def test_fitted_text_takes_exactly_its_cells_even_with_wide_characters(width: int) -> None:
    from rich.cells import cell_len

    for words in ("", "abc", "kernel_日本語_name_that_is_long"):
        assert cell_len(fitted(words, width)) == width


def test_a_line_keeps_its_right_side_and_cuts_the_left() -> None:
    line = sided(Text("a long story about kernels"), Text("92%"), 20)
    assert line.plain == "a long story ab… 92%"
    assert clipped(Text("abcdef"), 3).plain == "ab…"


def test_pieces_that_do_not_fit_are_left_out_whole() -> None:
    pieces = [Text("aaaa"), Text("bbbbbb"), Text("cc")]
    assert joined(pieces, 8, " ").plain == "aaaa cc"
    assert [line.plain for line in rows(pieces, 8, 2, " ")] == ["aaaa", "bbbbbb"]


def test_words_are_wrapped_and_longer_words_broken() -> None:
    assert wrapped("one two threefour", 7) == ["one two", "threefo", "ur"]
    assert wrapped("", 7) == []


def test_a_rule_drops_its_note_before_its_title() -> None:
    assert (
        rule("kernels", "by total", Palette(ascii=True), 30).plain
        == "-- kernels ------- by total --"
    )
    assert rule("kernels", "by total", Palette(ascii=True), 16).plain.startswith("-- kernels -")


@pytest.mark.parametrize(
    ("waited", "words"), [(0.1, "runs ahead;"), (0.9, "runs ahead between waits;")]
)
def test_a_host_that_is_mostly_waited_for_does_not_run_ahead(waited: float, words: str) -> None:
    result = snapshots.snapshot().estimate
    assert result is not None
    late = replace(result, account=snapshots.account(compute=1 - waited, input=waited))
    assert dict(launch_facts(late))["the host"].startswith(words)


@pytest.mark.parametrize("palette", LOOKS)
@pytest.mark.parametrize("size", [(20, 6), (80, 20), (200, 50)])
def test_the_roofline_fits_its_size_and_shows_every_known_kernel(
    palette: Palette, size: tuple[int, int]
) -> None:
    width, height = size
    lines = roofline(snapshots.KERNELS, snapshots.ROOFS, [(10.0, 1e13)], palette, width, height)
    assert len(lines) == max(5, height)
    if width >= 80:
        text = "\n".join(line.plain for line in lines)
        assert "bf16 989 TFLOP/s" in text
        assert "memory 4.80 TB/s" in text
        assert {"C", "M", "◆"} <= set(text)
        assert all(line.cell_len <= width for line in lines)


def test_all_kernels_together_stay_visible_where_one_is_nearly_all_of_them() -> None:
    kernel = next(k for k in snapshots.KERNELS if k.flop_per_s and k.bytes_per_s)
    point = (kernel.flop_per_s / kernel.bytes_per_s, kernel.flop_per_s)
    lines = roofline([kernel], snapshots.ROOFS, [(1.0, 1e12), point], Palette(), 80, 20)
    assert "◆" in "\n".join(line.plain for line in lines)


def test_roofs_of_the_same_height_share_a_line_and_their_names() -> None:
    kernels = [replace(snapshots.KERNELS[0], precision=name) for name in ("fp16", "bf16")]
    roofs = Roofs({"bf16": 989e12, "fp16": 989e12}, 4.8e12, "NVIDIA H200 datasheet")
    lines = roofline(kernels, roofs, [], Palette(), 80, 20)
    text = "\n".join(line.plain for line in lines)
    assert "bf16, fp16 989 TFLOP/s" in text


def test_advice_is_whole_where_there_is_room_and_else_each_has_its_line() -> None:
    many = tuple(replace(one, says=f"{one.says} and so on" * 4) for one in snapshots.ADVISORIES)
    for height, count in ((1, 1), (3, 2), (5, 3), (60, len(many))):
        shown_count, lines = flow(many, Palette(), 80, height)
        text = [line.plain for line in lines]
        assert shown_count == count and len(text) <= height
        assert all(line.cell_len <= 80 for line in lines)
        assert sum(line.startswith(("≤1.", "to know")) for line in text) == count
        assert any(line.strip().startswith("try") for line in text) or height == 1
    assert not any("…" in line for line in text[:-1]), "nothing is cut where there is room"
    assert text[-1].strip().startswith("no gain")
    assert flow((), Palette(), 80, 10) == (0, [])


def test_the_table_tells_of_a_step_where_there_are_steps_and_of_the_window_elsewhere() -> None:
    estimate = snapshots.estimate()
    without = replace(estimate, steps=Steps())
    whole, part = ("\n".join(text_lines(tables.kernels(one))) for one in (without, estimate))
    assert "27.9 ms" in whole and " 96 " in whole and "   total " in whole
    assert "6.84 ms" in part and "291 µs" in part and " per step " in part
    table = tables.kernels(estimate)
    assert "per step▼" in header_line(table, Palette(), 80, "total").plain
    assert "total▼" in header_line(tables.kernels(without), Palette(), 80, "total").plain
    duration_ns, step_ns = estimate.account.duration_ns, estimate.steps.step_ns
    message = replace(estimate, steps=replace(estimate.steps, spans=()))
    assert message.steps_covered == pytest.approx(duration_ns / step_ns)
    slow = replace(estimate.steps, spans=(Span(0, 2 * step_ns),))
    assert replace(estimate, steps=slow).steps_covered == pytest.approx(duration_ns / step_ns / 2)
    assert replace(estimate, steps=Steps()).steps_covered is None


def test_the_whole_step_lies_between_its_kernels() -> None:
    point = whole_step(snapshots.KERNELS)
    known = [intensity(kernel) for kernel in snapshots.KERNELS]
    inside = [value for value in known if value is not None]
    assert min(inside) < point[0] < max(inside)
    assert whole_step(()) is None


def test_the_account_is_shown_whole() -> None:
    account = snapshots.estimate().account
    assert sum(part.spent_ns for part in booked(account)) == account.duration_ns


def test_every_glyph_of_ours_has_an_ascii_twin_of_its_own_width() -> None:
    for mark in MARKS.values():
        assert mark.ascii_fill.isascii()
    for character in "█▓▒░─│┤┬└╱…·–≤×°●▲■○▶◆▼↑↓→⚠±":
        twin = to_ascii(character)
        assert twin.isascii()
        assert len(twin) == 1
        assert twin != "?", f"{character} has no twin"


def test_fills_tell_bounds_from_idle_time_without_colour() -> None:
    sides = ("compute", "memory", "underfilled", "comm", "copy", "unknown")
    idle = [name for name in MARKS if name.startswith("idle_")]
    for attribute in ("fill", "ascii_fill"):
        seen = [getattr(MARKS[name], attribute) for name in sides]
        assert len(set(seen)) == len(seen), attribute
        assert not {getattr(MARKS[name], attribute) for name in idle} & set(seen), attribute


def _contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [theme.colours for theme in THEMES.values()])
def test_every_hue_can_be_read_on_its_background(palette: dict[str, str]) -> None:
    grounds = ("background", "raised", "cursor", "on_fill", "rule")
    for name, colour in palette.items():
        if name in grounds:
            continue
        assert _contrast(colour, palette["background"]) >= 4.5, name
        assert _contrast(colour, palette["cursor"]) >= 3, name
        if name not in ("text", "muted"):
            assert _contrast(colour, palette["on_fill"]) >= 4.5, name


def test_figures_of_advice_carry_their_units() -> None:
    evidence = {
        "waits_a_step": 90.5, "blocked_ns_a_step": 838_000.0, "bytes_a_step": 20 << 20,
        "bytes_per_s": 31_794_328_523.0, "span_ns_an_update": 1.5e6, "exposed_share": 0.05,
        "share": 0.4, "saved_s": 2.0, "lines": [], "host_ns_an_update": None,
    }  # fmt: skip
    said = ", ".join(f"{label} {value}" for label, value in evidence_pairs(evidence))
    assert said == (
        "waits a step 90.5, blocked a step 838 µs, bytes a step 20.0 MiB, rate 31.8 GB/s, "
        "span an update 1.50 ms, exposed 5%, share 40%, saved 2.00 s, host an update –"
    )
    assert "lines" not in dict(evidence_pairs(evidence)), "an empty list says nothing"


def test_a_roofline_without_a_kernel_says_what_it_lacks() -> None:
    estimate = snapshots.snapshot().estimate
    bare = tuple(
        replace(row, flop_per_s=None, bytes_per_s=None, evidence="L1") for row in estimate.kernels
    )
    lines = legend(replace(estimate, kernels=bare), Palette(), 60)
    text = " ".join(line.plain for line in lines)
    assert "record_shapes=True." in text
    assert "0 of" not in text
    assert all(line.cell_len <= 60 for line in lines)


def test_a_column_of_a_live_history_is_a_second_and_of_a_file_a_part_of_it() -> None:
    live = snapshots.snapshot()
    edges = column_edges(live, 80)
    assert {late - early for early, late in itertools.pairwise(edges)} == {10**9}
    assert edges[-1] >= live.now_ns > edges[-2]
    half = replace(live, whole_ns=60 * 10**9, progress=0.5)
    edges = column_edges(half, 80)
    assert edges[0] == half.now_ns - 30 * 10**9
    assert edges[-1] >= edges[0] + 60 * 10**9


def test_what_happened_is_marked_on_the_axis_at_its_time() -> None:
    live = snapshots.snapshot()
    edges = column_edges(live, 80)
    line = phase_line(live, edges, Palette()).plain
    assert len(line) == 80
    for event, sign in zip(snapshots.EVENTS, "t◆s", strict=True):
        at = bisect.bisect_right(edges, event.t_ns) - 1
        assert sign in line[at : at + 12], "no name is cut by it"
    assert "evaluation" in line and line.count("├train") == 2
    narrow = phase_line(
        live, column_edges(replace(live, whole_ns=120 * 10**9, progress=1.0), 24), Palette()
    )
    assert set(re.findall(r"\w{2,}", narrow.plain)) <= {"train", "evaluation"}, (
        "no word is cut short"
    )


def test_the_title_names_the_script_and_not_where_python_lies() -> None:
    source = replace(
        snapshots.snapshot().source, cmdline="/opt/venv/bin/python3 -u runs/train.py --lr 1/8"
    )
    says = subject(replace(snapshots.snapshot(), source=source), Palette()).plain
    assert says.endswith(" · python3 -u runs/train.py --lr 1/8")


@pytest.mark.parametrize(("width", "shown_words"), [(80, "risk)"), (40, "…"), (200, "risk)")])
def test_what_is_waited_for_takes_the_lines_there_are(width: int, shown_words: str) -> None:
    note = (
        "kernel tracing waits to hear whether the trainer has CUDA graphs; without torch nobody "
        "can tell (--trace-graphs takes the risk)"
    )
    waiting = snapshots.waiting()
    waiting = replace(waiting, source=replace(waiting.source, notes=(note,)))
    lines = nothing_yet(waiting, Palette(), width, 2)
    assert len(lines) == (1 if width == 200 else 2)
    assert all(line.cell_len <= width for line in lines)
    assert lines[-1].plain.endswith(shown_words)


def test_screen_and_report_count_the_same_traced_steps() -> None:
    """All of the run's; the window has the last of them."""
    run = snapshots.run()
    estimate = snapshots.estimate(run=run, traced_ns=run.traced_ns, observed_share=0.02)
    count = sum(one.traced_steps for one in run.phases)
    assert estimate.steps.count != count
    assert window(snapshots.snapshot(estimate=estimate, run=run)).startswith(f"{count} steps, ")
    assert phrases.coverage(estimate).endswith(f", {count} of them traced")


def test_a_slow_replay_and_short_steps_are_figures() -> None:
    assert pace(1 / 1040.2) == ", 1,040× slower"
    assert pace(2940.7) == " at 2,941× speed"


def test_microseconds_have_their_sign_and_ascii_its_letter() -> None:
    assert units.duration(1770) == "1.77 µs"
    assert to_ascii(units.duration(1770)) == in_ascii(units.duration(1770)) == "1.77 us"
