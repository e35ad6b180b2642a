"""`brrrtop compare BEFORE AFTER`: what changed between two recordings or traces."""

from __future__ import annotations

import json

from brrrtop.advisories.compare import compare
from brrrtop.cli import output
from brrrtop.cli.files import read
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.model.estimate import Estimate
from brrrtop.views import comparison
from brrrtop.views.json_report import document, plain
from brrrtop.views.text import in_ascii

SCHEMA = "brrrtop.compare/1"


def run(options: Options) -> int:
    labels = (options.before, options.after)
    snapshots = [read(path, options, trimmed=True) for path in labels]
    estimates: list[Estimate] = []
    for path, snapshot in zip(labels, snapshots, strict=True):
        if snapshot.estimate is None:
            raise BadInput(f"{path}: no GPU activity to compare")
        estimates.append(snapshot.estimate)
    before, after = estimates
    comparison_result = compare(before, after, snapshots[0].advisories)
    if options.json:
        whole = {"schema": SCHEMA, "comparison": comparison.document(comparison_result)}
        whole |= {"before": document(snapshots[0]), "after": document(snapshots[1])}
        output.write(json.dumps(plain(whole), allow_nan=False))
        return 0
    text = "\n".join(comparison.lines(comparison_result, *labels))
    output.write(in_ascii(text) if output.only_ascii(options) else text)
    return 0
