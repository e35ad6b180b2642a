"""The user's own file with the time of each line; a file that cannot be read has the sampled lines alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.cli.files import FromFirstActivity
from brrrtop.model.run import CodeLine
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from tests.tui import snapshots
from tests.tui.shown import shown

RUN = Path(__file__).resolve().parents[1] / "recordings" / "runs" / "imagenet_jpeg.brrr"
CODE = "import torch\n\n\ndef train(loader):\n    for x, y in loader:\n        step(x, y)\n"


def sampled(*lines: CodeLine) -> Snapshot:
    one = snapshots.snapshot()
    return replace(one, run=replace(snapshots.run(), lines=lines))


async def test_lines_stand_in_their_file_with_their_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    hot = CodeLine("job/train.py:5", "for x, y in loader:", 0.72, 0.7)
    other = CodeLine("job/train.py:6", "step(x, y)", 0.2, 0.0)
    snapshot = replace(sampled(hot, other), source=snapshots.replayed().source)
    async with shown(snapshot, size=(120, 40)) as screen:
        text = await screen.press("C")
        assert "72%     5 │     for x, y in loader:" in text and "20%     6 │         step" in text
        assert " 4 │ def train(loader):" in text and "job/train.py  92% of the time" in text
        (tmp_path / "job" / "train.py").write_text(CODE.replace("in loader", "in others"))
        text = await screen.press("escape", "C")
        assert "72%     5 │ for x, y in loader:" in text and "def train" not in text


def test_the_ledger_says_which_lines_take_the_time() -> None:
    run = analyze(FromFirstActivity(open_source(str(RUN)))).run
    assert run is not None and run.lines
    assert run.lines[0].share == max(one.share for one in run.lines)
    assert sum(one.share for one in run.lines) == pytest.approx(1, abs=0.2)
    loop = next(one for one in run.lines if one.waits > 0.3)
    assert ".py:" in loop.place
