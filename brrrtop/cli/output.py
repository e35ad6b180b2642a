"""Snapshots to stdout (data) and sentences to stderr (narration)."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

from brrrtop.cli.options import Options
from brrrtop.model.snapshot import Snapshot
from collectors.printable import printable, printable_lines


def report(snapshot: Snapshot, options: Options) -> None:
    """Writes one report to stdout, whole, and lets a reader at a pipe have it at once.

    It is JSON (indented for a person at a terminal) or text, as asked for.
    """
    from brrrtop.views.json_report import to_json
    from brrrtop.views.text import to_text

    if options.json:
        write(to_json(snapshot, 2 if sys.stdout.isatty() and options.once else None))
    elif options.brief:
        from brrrtop.views.brief import to_brief

        write_fitting([to_brief(snapshot)], options)
    else:
        write(to_text(snapshot, only_ascii(options)), bold_heads=_shows_bold(options))
    sys.stdout.flush()


def write_fitting(lines: Iterable[str], options: Options) -> None:
    from brrrtop.views.text import in_ascii

    text = "\n".join(lines)
    write(in_ascii(text) if only_ascii(options) else text)


def only_ascii(options: Options) -> bool:
    return options.ascii or not _carries("–█·", sys.stdout)


def _carries(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _shows_bold(options: Options) -> bool:
    plain = options.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def write(text: str, bold_heads: bool = False) -> None:
    """Data to stdout, as lines without anything in them that a terminal would obey, but for bold ones."""
    lines = printable_lines(text.rstrip("\n"))
    if bold_heads:  # what is below a heading is indented
        lines = re.sub(r"(?m)^(?=\S).+$", "\x1b[1m\\g<0>\x1b[m", lines)
    sys.stdout.write(lines + "\n")


def say(sentence: str) -> None:
    """Narration, for whoever watches; silent when nobody can."""
    if sys.stderr is not None:
        text = printable_lines(sentence)
        if not _carries(text, sys.stderr):
            from brrrtop.views.text import in_ascii

            text = in_ascii(text)
        print(text, file=sys.stderr, flush=True)


def tell(sentence: str) -> None:
    """Narration in lines of whole words: a terminal breaks within them. Not for commands to copy."""
    lines = wrapped(sentence, max(20, shutil.get_terminal_size().columns), rest="  ")
    say("\n".join(lines) if sys.stderr is not None and sys.stderr.isatty() else sentence)


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of whole words: paths and options can be copied. `first` and `rest` stand before them."""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def confirm(question: str) -> bool:
    """Asks on stderr; an empty answer is a yes, the end of the input a no."""
    answer = ask(f"{question} [Y/n] ")
    return answer is not None and answer.lower() in ("", "y", "yes")


def ask(question: str) -> str | None:
    """One line typed by a person; None when there is nobody."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None
