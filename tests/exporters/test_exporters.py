"""What a report is written as: every format from a real trace and a real recording."""

import csv
import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from brrrtop.cli.main import main
from brrrtop.errors import BrrrtopError, UsageError
from brrrtop.exporters import html, tables
from brrrtop.exporters.tables import FORMATS, default_path, export
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases
from brrrtop.views.brief import MOST_LINES, to_brief
from tests.recorded import analyzed

RECORDED = Path(__file__).parents[1] / "recordings"
TRACE = RECORDED / "traces" / "stacks.json.gz"
SOURCES = [TRACE, RECORDED / "traces" / "serving.json.zst", RECORDED / "h200" / "item_sync.brrr"]


@cache
def snapshot(path: Path) -> Snapshot:
    return analyzed(path, worst=True)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_tables_have_every_row_of_the_report(path, tmp_path):
    shown = snapshot(path)
    export(shown, "csv", tmp_path / "tables")
    kernels = read_csv(tmp_path / "tables" / "kernels.csv")
    assert len(kernels) == len(shown.estimate.kernels)
    assert sum(int(row["total_ns"]) for row in kernels) == sum(
        row.total_ns for row in shown.estimate.kernels
    )
    account = read_csv(tmp_path / "tables" / "account.csv")
    assert sum(int(row["time_ns"]) for row in account) == shown.estimate.account.duration_ns
    copies = tmp_path / "tables" / "copies.csv"
    assert copies.exists() == bool(shown.tables.copies)


def test_a_name_is_no_formula(tmp_path):
    shown = snapshot(TRACE)
    evil = replace(shown.tables.ops[0], name="=HYPERLINK(1)")
    tables = replace(shown.tables, ops=(evil,))
    export(replace(shown, tables=tables), "csv", tmp_path / "tables")
    assert read_csv(tmp_path / "tables" / "ops.csv")[0]["name"] == "'=HYPERLINK(1)"


def test_parquet_has_the_same_rows_or_says_what_is_missing(tmp_path):
    folder = tmp_path / "tables"
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found]
    except ImportError:
        with pytest.raises(BrrrtopError, match="pyarrow"):
            export(snapshot(TRACE), "parquet", folder)
        assert not folder.exists()
        return
    export(snapshot(TRACE), "parquet", folder)
    export(snapshot(TRACE), "csv", tmp_path / "csv")
    written = sorted(path.stem for path in folder.iterdir())
    assert written == sorted(path.stem for path in (tmp_path / "csv").iterdir())
    for name in written:
        rows = parquet.read_table(folder / f"{name}.parquet").to_pylist()
        plain = read_csv(tmp_path / "csv" / f"{name}.csv")
        assert len(rows) == len(plain)
        for row, texts in zip(rows, plain, strict=True):
            assert list(row) == list(texts)
            for key, value in row.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    assert type(value)(texts[key]) == value, (name, key)


@pytest.mark.parametrize(
    ("marker", "pip", "command"),
    [("pipx_metadata.json", True, "pipx inject {name} pyarrow"),
     ("uv-receipt.toml", False, "uv pip install --python {python} pyarrow"),
     ("pyvenv.cfg", True, "{python} -m pip install pyarrow")],
)  # fmt: skip
def test_what_is_missing_is_added_as_this_copy_was_installed(
    marker, pip, command, tmp_path, monkeypatch
):
    """And never by a name that somebody else may register."""
    (tmp_path / marker).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(tables, "find_spec", lambda name: object() if pip else None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BrrrtopError) as fault:
        export(snapshot(TRACE), "parquet", tmp_path / "tables")
    expected = command.format(name=tmp_path.name, python=sys.executable)
    assert fault.value.action == f"`{expected}`, or --export csv"


class Page(HTMLParser):
    """Checks that what is opened is closed, and collects what would be loaded or run."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.loads += [f"{key}={value}" for key, value in attrs if key in ("src", "href")]
        self.loads += [key for key, _ in attrs if key.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_page_is_whole_and_loads_nothing(path, tmp_path):
    export(snapshot(path), "html", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == [] and page.loads == []
    assert not page.seen & {"script", "link", "img", "iframe"}
    assert "url(" not in text and "@import" not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) >= 3
    for picture in pictures:
        ElementTree.fromstring(picture)
    estimate = snapshot(path).estimate
    assert estimate is not None and f"<h1>{phrases.badge(snapshot(path))}</h1>" in text
    assert len(text) < 2_000_000


def test_a_page_shows_names_and_never_runs_them():
    shown = snapshot(TRACE)
    evil = "<script>alert(1)</script>\x1b]0;x\x07"
    kernel = replace(shown.estimate.kernels[0], name=evil)
    ops = tuple(replace(row, name=evil) for row in shown.tables.ops[:2])
    module = replace(shown.tables.modules[0], name=evil)
    hostile = replace(
        shown,
        estimate=replace(shown.estimate, kernels=(kernel,)),
        tables=replace(shown.tables, ops=ops, modules=(module,)),
        source=replace(shown.source, label=evil),
    )
    text = html.page(hostile)
    assert "<script" not in text and "\x1b" not in text and "&lt;script&gt;" in text


def test_the_worst_step_is_the_longest():
    shown = snapshot(RECORDED / "h200" / "item_sync.brrr")
    spans = shown.estimate.steps.spans
    assert shown.picture.span.duration_ns == max(span.duration_ns for span in spans)
    assert spans[(shown.picture.step or 0) - 1] == shown.picture.span


@pytest.mark.parametrize("format_id", sorted(FORMATS))
def test_nothing_is_overwritten(format_id, tmp_path):
    target = tmp_path / "taken"
    target.write_text("mine")
    with pytest.raises(UsageError, match="never overwrites"):
        export(snapshot(TRACE), format_id, target)
    assert target.read_text() == "mine"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_brief_has_verdict_advice_and_place_in_thirty_lines(path):
    shown = snapshot(path)
    text = to_brief(shown)
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES and lines[1].startswith("verdict: ")
    assert all(f"{one.kind} (" in text for one in shown.advisories[:3])
    if path == TRACE:
        assert "rec.py(18): fetch in <built-in function sleep>" in text


def test_the_command_takes_the_file_before_or_after(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trace = str(TRACE)
    assert main(["analyze", trace, "--export", "html", "a.html", "--brief"]) == 0
    assert "wrote a.html" in capsys.readouterr().err
    assert main(["analyze", "--brief", "--export", "html", "b.html", trace]) == 0
    assert Path("a.html").read_text() == Path("b.html").read_text()
    assert main(["analyze", "--export", "csv", trace]) == 0
    assert Path(default_path("csv", trace)).exists()
    for wrong in (["--export", "pdf", trace], [], ["--export", "html"]):
        assert main(["analyze", *wrong]) == 2
        assert "Traceback" not in capsys.readouterr().err
