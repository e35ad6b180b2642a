"""`brrrtop receipt FILE …`: what the GPU time of a run went into, and what could be won of it."""

from __future__ import annotations

import json

from brrrtop.cli import output
from brrrtop.cli.files import files_of, read, read_all
from brrrtop.cli.options import Options
from brrrtop.views import receipt
from brrrtop.views.text import in_ascii


def run(options: Options) -> int:
    files = files_of(options)
    snapshot = read(files[0], options) if len(files) == 1 else read_all(files, options)
    rows = list(receipt.lines(snapshot))
    if options.json:
        output.write(json.dumps({"schema": "brrrtop.receipt/1", "lines": rows}))
        return 0
    text = "\n".join(rows)
    output.write(in_ascii(text) if output.only_ascii(options) else text)
    return 0
