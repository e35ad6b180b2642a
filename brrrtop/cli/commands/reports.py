"""Verbs that read files whole and say one thing of them: `analyze`, `compare` and `receipt`."""

import json
from collections.abc import Sequence
from pathlib import Path

from brrrtop.cli import fail_if as gate
from brrrtop.cli import output, show
from brrrtop.cli.files import files_of, read, read_all
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput, UsageError
from brrrtop.exporters.tables import FORMATS, default_path, export


def analyze(options: Options) -> int:
    gates = gate.parse_all(options.fail_if)
    files = files_of(options)
    exports = asked_for(options, files)
    if len(files) == 1:
        snapshot = read(files[0], options, worst=bool(exports))
    else:
        snapshot = read_all(files, options)
    for format_id, target in exports:
        export(snapshot, format_id, target)
        output.say(f"brrrtop: wrote {target}")
    output.report(snapshot, options)
    gate.check(gates, snapshot)
    return 0


def asked_for(options: Options, files: Sequence[str]) -> list[tuple[str, Path]]:
    """Each format and where to.

    Raises:
        UsageError: There is no such format, or more than one PATH.
    """
    exports = []
    for format_id, *rest in options.export:
        if format_id not in FORMATS:
            raise UsageError(f"there is no export {format_id!r}", f"one of {', '.join(FORMATS)}")
        if len(rest) > 1:
            raise UsageError(f"--export {format_id} takes one PATH, not {len(rest)}")
        target = Path(rest[0]) if rest else default_path(format_id, files[0])
        exports.append((format_id, target))
    return exports


def compare(options: Options) -> int:
    from brrrtop.advisories.compare import compare
    from brrrtop.views import comparison
    from brrrtop.views.json_report import document, plain

    labels = (options.before, options.after)
    snapshots = [read(path, options, trimmed=True) for path in labels]
    before, after = (snapshot.estimate for snapshot in snapshots)
    if before is None or after is None:
        raise BadInput(f"{labels[before is not None]}: no GPU activity to compare")
    changed = compare(before, after, snapshots[0].advisories)
    if options.json:
        whole = {"schema": "brrrtop.compare/1", "comparison": comparison.document(changed)}
        whole |= {"before": document(snapshots[0]), "after": document(snapshots[1])}
        output.write(json.dumps(plain(whole), allow_nan=False))
    else:
        output.write_fitting(comparison.lines(changed, *labels), options)
    return 0


def receipt(options: Options) -> int:
    """What the GPU time of a run went into, and what could be won of it."""
    from brrrtop.views import brief

    files = files_of(options)
    snapshot = read(files[0], options) if len(files) == 1 else read_all(files, options)
    rows = list(brief.lines(snapshot, show.load_settings()))
    if options.json:
        output.write(json.dumps({"schema": "brrrtop.receipt/1", "lines": rows}))
    elif options.svg or options.html:
        from brrrtop.exporters import html, svg

        card = svg.card(rows, brief.shares(snapshot), html.STYLE)
        title = snapshot.source.label
        output.write(html.document(f"brrrtop receipt: {title}", card) if options.html else card)
    else:
        output.write_fitting(rows, options)
    return 0
