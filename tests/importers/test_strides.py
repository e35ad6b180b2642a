"""Strides that a trace tells reach the ops; without them, or with odd ones, nothing else changes."""

from pathlib import Path
from typing import Any

import pytest

from brrrtop.model.tables import OpSignature
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.recording import convert
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from tests.session.handmade import Received, kernel, launch, op, text_of, written

DIMS = [[64, 8, 4], [64, 8, 1], []]


def _trace(folder: Path, **args: Any) -> Path:
    text = {"Input Dims": DIMS, "Input type": ["float", "float", "Scalar"], **args}
    ops = [op(0, 100, "aten::add", **text), launch(10, 5, 1), kernel(200, 50, 1)]
    return written(folder, text_of(ops))


def _row(folder: Path, **args: Any) -> list[Any]:
    (row,) = Received(KinetoSource(_trace(folder, **args))).ops.values()
    return list(row)


@pytest.mark.parametrize(
    ("written_as", "kept"),
    [
        ([[32, 4, 1], [8, 0, 1], []], [[[], [8, 0, 0], []]]),
        ([[32, 4, 1], [8, 1, 77], []], [[[], [], []]]),  # that of a dimension of one says nothing
        ([["x", 4, 1], [8, 0, 1], [[1]]], [[[], [8, 0, 0], []]]),  # an odd entry costs only itself
        *(
            (odd, [])
            for odd in ("no list", [], [[32, 4, 1]], {"a": 1}, None, [[32, 4, 1], [8, 0, 1]])
        ),
    ],
)
def test_strides_are_told_of_what_does_not_lie_contiguous(tmp_path, written_as, kept):
    assert _row(tmp_path, **{"Input Strides": written_as})[1:] == [
        DIMS,
        ["float", "float", "Scalar"],
        [],
        *kept,
    ]
    assert len(_row(tmp_path)) == 4


def test_recordings_keep_them_and_those_without_are_read(tmp_path):
    ops: list[OpSignature] = []
    for name, args in (("told", {"Input Strides": [[4, 256, 1], [8, 1, 1], []]}), ("untold", {})):
        (folder := tmp_path / name).mkdir()
        convert(open_source(_trace(folder, **args)), folder / "kept.brrr")
        timeline = Timeline()
        for frame in open_source(folder / "kept.brrr").frames():
            timeline.add(frame)
        ops += timeline.ops.values()
    plain = OpSignature("aten::add", ((64, 8, 4), (64, 8, 1), ()), ("float", "float", "Scalar"))
    assert ops[1] == plain
    assert ops[0].strides == ((4, 256, 1), (), ()) and ops[0].dims == plain.dims
