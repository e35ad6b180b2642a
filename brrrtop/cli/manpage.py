"""What is made from the parser besides `--help`: the manual page, and completion scripts of shells."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from brrrtop.cli import arguments
from brrrtop.cli.values import THEMES
from brrrtop.errors import UsageError

SHELLS = ("bash", "zsh", "tcsh", "fish")
_HEAD = '.TH BRRRTOP 1 "" "brrrtop" "User Commands"'
_FILES = (
    ("NO_COLOR", "No colour, whatever its value."),
    ("BRRRTOP_THEME", "Theme of the screen, where --theme names none."),
    ("COLUMNS", "Width of the help."),
    ("BRRRTOP_TRACEBACK", "Any value: failures show where in the program they came from."),
)


def manpage() -> str:
    """The page as roff, ending in a newline."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    parser, verbs = arguments.build("all")
    summary, _, rest = (parser.description or "").partition("\n\n")
    yield from (_HEAD, ".SH NAME", "brrrtop \\- what holds a GPU training job back, live")
    yield from (".SH SYNOPSIS", ".B brrrtop", ".RI [ options ]", ".RI [ verb ... ]")
    yield from (".SH DESCRIPTION", _escape(" ".join(summary.split())))
    yield from (".PP", _escape(" ".join(rest.split())))
    yield ".SH OPTIONS"
    yield from _options(parser)
    yield ".SH VERBS"
    for name, one in verbs.items():
        usage = " ".join(one.format_usage().removeprefix("usage: ").split())
        yield from (f".SS {name}", ".nf", f".B {_escape(usage.split(' [')[0])}", ".fi", ".PP")
        yield _escape(one.description or "")
        yield from _options(one)
        yield from _epilog(one.epilog or "")
    yield from _exit_codes()
    yield ".SH ENVIRONMENT"
    for name, meaning in _FILES:
        yield from (".TP", f".B {name}", meaning)
    yield from (".SH SEE ALSO", ".BR nvidia-smi (1),", ".BR py-spy (1)")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        if not action.option_strings:
            continue
        value = _value(action)
        names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in action.option_strings)
        yield from (".TP", names + (f" \\fI{_escape(value)}\\fR" if value else ""))
        yield _escape((action.help or "").replace("%%", "%"))


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    metavar = action.metavar or action.dest.upper()
    if isinstance(metavar, tuple):
        first, *others = metavar
        return " ".join([first, *(f"[{other}]" for other in others)])
    return metavar


def _epilog(text: str) -> Iterator[str]:
    """Sentences as a paragraph, indented lines as they are typed."""
    for block in filter(None, text.split("\n\n")):
        sentences = [line for line in block.splitlines() if not line.startswith("  ")]
        typed = [line for line in block.splitlines() if line.startswith("  ")]
        yield from (".PP", _escape(" ".join(sentences)))
        if typed:
            yield from (".nf", ".RS", *map(_escape, typed), ".RE", ".fi")


def _exit_codes() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, meaning in re.findall(r"(\d+) ([^,]+)", " ".join(arguments.EXIT_CODES.split())):
        yield from (".TP", f".B {code}", _escape(meaning))


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("–", "\\(en")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def print_completion(shell: str) -> int:
    """Writes the script that makes a shell complete verbs and options to stdout.

    Raises:
        UsageError: No script for that shell.
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for {shell!r}", f"one of {', '.join(SHELLS)}")
    import shtab

    parser, verbs = arguments.build("all")
    for verb in verbs.values():
        for action in verb._actions:
            if action.dest == "theme":
                action.choices = THEMES
    for name, option in (("replay", "file"), ("analyze", "file"), ("compare", "before")):
        for action in verbs[name]._actions:
            if action.dest in (option, "after", "record"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=shell))
    return 0
