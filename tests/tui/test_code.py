"""The user's own file with the time of each line; a file that cannot be read has the sampled lines alone."""

import re

from msgspec.structs import replace

from brrrtop.model.advice import Advisory
from brrrtop.model.host_tables import OpRow
from brrrtop.model.run import CodeLine
from brrrtop.model.snapshot import Snapshot
from brrrtop.views.code import with_places
from tests.tui import snapshots
from tests.tui.shown import shown

CODE = "import torch\n\n\ndef train(loader):\n    for x, y in loader:\n        step(x, y)\n"


def sampled(*lines: CodeLine) -> Snapshot:
    one = snapshots.snapshot()
    return replace(one, run=replace(snapshots.run(), lines=lines))


async def test_lines_stand_in_their_file_with_their_share(tmp_path, monkeypatch):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    hot = CodeLine("job/train.py:5", "for x, y in loader:", 0.72, 0.7)
    other = CodeLine("job/train.py:6", "step(x, y)", 0.2, 0.0)
    snapshot = replace(sampled(hot, other), source=snapshots.replayed().source)
    async with shown(snapshot, size=(120, 40)) as screen:
        text = await screen.press("C")
        assert re.search(r"5 ▐█+. +72% data +│     for x, y in loader:", text)
        assert re.search(r"6 ▐█.? +20% +│         step", text)
        assert re.search(r" 4 +│ def train\(loader\):", text)
        assert "job/train.py  92% of the time" in text and "line 5 in one step" in text
        (tmp_path / "job" / "train.py").write_text(CODE.replace("in loader", "in others"))
        text = await screen.press("escape", "C")
        assert re.search(r"72% data +│ for x, y in loader:", text) and "def train" not in text


async def test_an_edit_is_a_diff_of_the_file_and_goes_to_the_clipboard_as_a_patch(
    tmp_path, monkeypatch
):
    code = CODE.replace("\n\n\n", "\nloader = DataLoader(data, num_workers=2)\n\n", 1)
    (tmp_path / "train.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    edit = replace(snapshots.WHATIF[0], edit="loader-ready", line="DataLoader(..., num_workers=7)")
    source = snapshots.replayed().source
    snapshot = replace(
        sampled(CodeLine("train.py:5", "for x, y in loader:", 0.7, 0.7)), source=source
    )
    async with shown(replace(snapshot, whatif=(edit,)), size=(120, 40)) as screen:
        text = await screen.press("C", "e")
        assert "-loader = DataLoader(data, num_workers=2)" in text and "train.py:2" in text
        assert "the patch of train.py went to the clipboard" in await screen.press("y")
        patch = screen.app.clipboard
        assert (
            patch.startswith("--- train.py\n")
            and "+loader = DataLoader(data, num_workers=7" in patch
        )
        assert "num_workers=2" not in await screen.press("e")


def test_advice_names_the_line_of_its_edit_and_the_op_of_written_attention(tmp_path, monkeypatch):
    model = "import torch\nmodel = Net()\nopt = torch.optim.SGD(model.parameters(), 0.1)\n"
    (tmp_path / "train.py").write_text(f"{model}for x in data:\n    loss = model(x)\n")
    monkeypatch.chdir(tmp_path)
    advice = tuple(
        Advisory(kind, "", 0.9, 0.3, {}, "model = torch.compile(model)", "", 0.3, 0.2)
        for kind in ("fuse-pointwise", "flash-attention", "gc-pause")
    )
    edit = replace(snapshots.WHATIF[0], edit="compile", advisory="fuse-pointwise")
    one = sampled(CodeLine("train.py:5", "loss = model(x)", 0.7, 0.0))
    op = OpRow("aten::_softmax", 1, 1, 1, 1, 1, 1, place="net.py(88): attend")
    one = replace(
        one, advisories=advice, whatif=(edit,), source=snapshots.replayed().source,
        tables=replace(one.tables, ops=(op,)),
    )  # fmt: skip
    places = [a.suggests.removesuffix("model = torch.compile(model)") for a in with_places(one)]
    assert places == ["train.py:3: ", "net.py(88): attend: ", ""]


async def test_the_line_of_a_wait_is_marked_below_the_gap_that_is_its_own():
    hot = CodeLine("job/train.py:5", "for x, y in loader:", 0.7, 0.7)
    other = CodeLine("job/train.py:6", "loss.backward()", 0.2, 0.0)
    async with shown(sampled(hot, other), size=(120, 40)) as screen:
        text = await screen.press("C")
        gpu, marks = (
            next(x for x in text.splitlines() if x.startswith(w)) for w in ("GPU", "line  ")
        )
        assert "▔" in marks and not set(marks[8:]) - {"▔", " "}, gpu
        assert "its part of the step is not known" in await screen.press("down")
