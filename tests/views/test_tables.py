"""One table for every view: what the report in text says, the screen and the page say too."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest

from brrrtop.exporters import html
from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.table import table_lines
from brrrtop.views import host_tables, tables
from brrrtop.views.table import WIDTH, Table, text_lines
from tests.recorded import analyzed

RECORDED = Path(__file__).parents[1] / "recordings"
SOURCES = ("traces/stacks.json.gz", "traces/serving.json.zst", "h200/item_sync.brrr")


def tables_of(snapshot: Snapshot) -> Iterator[Table]:
    account = snapshot.estimate.account
    every = (
        tables.kernels(snapshot.estimate), tables.edits(snapshot), tables.account(account, None, 1e6),
        tables.phases(snapshot.run), *host_tables.of_host(snapshot.tables, account.duration_ns),
    )  # fmt: skip
    return (table for table in every if table.rows and table.most)


@pytest.mark.parametrize("name", SOURCES)
def test_every_view_has_the_same_figures_in_its_width(name):
    snapshot = analyzed(RECORDED / name)
    page = html.page(snapshot)
    for table in tables_of(snapshot):
        text = list(text_lines(table))
        screen = [line.plain.rstrip() for line in table_lines(table, Palette(), WIDTH)]
        assert max(map(len, (*text, *screen))) <= WIDTH
        figures = [one for one in table.columns if not one.words and not one.picture]
        for place, row in enumerate(table.rows[: table.most]):
            shown = " ".join(cell.text(row, 9) for cell in figures if cell.from_width <= WIDTH - 2)
            assert all(word in screen[1 + place] for word in shown.split())
            assert all(word in " ".join(text) for word in shown.split())
        if table.name not in ("account", "phases"):
            first = [one.text(table.rows[0], 60) for one in table.columns if not one.picture]
            assert all(f"<td>{escape(cell)}</td>" in page for cell in first)


def test_calls_a_step_are_of_whole_steps_and_the_window_has_parts_of_others():
    estimate = analyzed(RECORDED / SOURCES[0]).estimate
    assert estimate.steps_covered != estimate.steps.count
    assert {row.calls % 0.5 for row in estimate.kernels} == {0.0}, "of two steps"


def test_what_has_no_room_is_cut_and_figures_never_are():
    rows = [("x" * 100, 12.0), ("y", None)]
    columns = (
        tables.Column("name", 0, lambda row: row[0], words=True),
        tables.Column("ms", 8, lambda row: row[1], "{:.1f} ms".format),
    )
    head, first, second = list(text_lines(Table("t", "Title", columns, rows)))[1:]
    assert head == "Title".ljust(71) + "ms".rjust(9) and len(first) == WIDTH
    assert first.endswith("…  12.0 ms") and second.endswith(" –")
