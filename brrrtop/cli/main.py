"""The `brrrtop` command: parse, hand over to a verb, turn every failure into a sentence and a code.

Imports next to nothing: what a verb needs is imported when that verb runs, so that `--help` is
instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from brrrtop.errors import INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; never raises."""
    if argv is not None:
        return _run_fenced(list(argv))
    try:
        from brrrtop.cli import signals

        signals.end_at_once()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    code = _run_fenced(sys.argv[1:])
    _end_undisturbed(code)
    return code


def _run_fenced(argv: list[str]) -> int:
    if (
        sys.stdout is None
    ):  # closed by whoever started us; what a program of `run` prints is its own
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as we live
    try:
        return _flush(_run(argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as fault:  # noqa: BLE001 - the fence: a person sees a sentence, not a traceback
        return _report_failure(fault)


def _run(argv: list[str]) -> int:
    from brrrtop.cli.arguments import parse

    options = parse(argv)
    if options.version:
        from importlib.metadata import version

        print(f"brrrtop {version('brrrtop')}")
        return 0
    if options.print_completion:
        from brrrtop.cli.completion import print_completion

        return print_completion(options.print_completion)
    _check_package()
    if options.serve:
        from brrrtop.cli import signals
        from brrrtop.cli.serve import serve

        signals.begin()
        return serve(argv, options)
    from brrrtop.cli.verbs import run_verb

    return run_verb(options)


def _check_package() -> None:
    """Refuses to go on when `collectors` would be somebody else's package of that name."""
    where, ours = _package_folders()
    if where != ours:
        from brrrtop.errors import BrrrtopError

        raise BrrrtopError(
            f"{where}/collectors hides brrrtop's own package of that name"
            if where
            else "brrrtop's own package `collectors` is missing from this installation",
            "start `brrrtop` by its command, from another folder, and without PYTHONPATH"
            if where
            else "install brrrtop again",
        )


def _package_folders() -> tuple[str | None, str]:
    """The folder from which `collectors` would be imported, without importing it, and our own."""
    from importlib.machinery import PathFinder

    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    spec = PathFinder.find_spec("collectors")
    if spec is None:
        return None, ours
    return os.path.dirname(os.path.dirname(os.path.realpath(spec.origin or ""))), ours


def _flush(code: int) -> int:
    """Meets a closed pipe here, where it is quiet, and not while the interpreter shuts down."""
    sys.stdout.flush()
    return code


def _end_undisturbed(code: int) -> None:
    """A code is decided: no late ^C may replace it while the interpreter shuts down.

    What asks us to end, or tells that nobody is there any more, ends us without a detour.
    """
    import signal

    if code:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _reader_left() -> int:
    """Whoever read our output has seen enough (`| head`): that is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _report_failure(fault: Exception) -> int:
    """Says what happened on stderr; the code is the error's own."""
    from contextlib import suppress

    from brrrtop.cli.errors import error_text

    sentence, code = error_text(fault)
    if os.environ.get("BRRRTOP_TRACEBACK"):
        import traceback

        sentence = "".join(traceback.format_exception(fault)) + sentence
    with suppress(OSError):
        print(_printable(sentence), file=sys.stderr)
    return code


def _printable(sentence: str) -> str:
    """Without what a terminal would obey: file names and messages of others are in it."""
    where, ours = _package_folders()
    if where != ours:  # which is what is to be said, and theirs is not to be run
        return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in sentence)
    from brrrtop.text.printable import printable_lines

    return printable_lines(sentence)
