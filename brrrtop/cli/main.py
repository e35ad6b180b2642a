"""The `brrrtop` command: parse, hand over to a verb, turn every failure into a sentence and a code.

Imports next to nothing: what a verb needs is imported when that verb runs, so that `--help` is
instant.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from brrrtop.errors import INTERRUPTED, BrrrtopError

TYPE_CHECKING = False  # typing itself would take a tenth of the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from brrrtop.cli.options import Options

FAILURE = 1
MODULES = {
    **dict.fromkeys(("analyze", "compare", "receipt"), "reports"),
    "demo": "replay",
    "doctor": "find",
}
"""Of the verbs that share one."""
READ_ONLY = ("analyze", "compare", "receipt", "demo", "replay")
"""Verbs that touch nothing but files, which they read, unless they are to write one."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


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
    if sys.stdout is None:  # closed by who started us; what a program of `run` prints is its own
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as we live
    try:
        code = _run(argv)
        sys.stdout.flush()  # a closed pipe is met here, where it is quiet, not at the shutdown
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`): that is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as fault:  # noqa: BLE001 - the fence: a person sees a sentence, not a traceback
        return _report_failure(fault)


def _run(argv: list[str]) -> int:
    _check_package()  # before anything that imports it
    from brrrtop.cli.arguments import parse

    options = parse(argv)
    if options.version:
        from importlib.metadata import version

        print(f"brrrtop {version('brrrtop')}")
        return 0
    if options.serve:
        from brrrtop.cli import signals
        from brrrtop.cli.in_browser import serve

        signals.begin()
        return serve(argv, options)
    return _run_verb(options)


def _run_verb(options: Options) -> int:
    from brrrtop.cli import signals

    with signals.without_interrupts():
        run = _import_verb(options.verb or "find")
    ended_by = signals.end_as_by_interrupt()
    code = 0
    try:
        if options.verb not in READ_ONLY or options.record or options.export:
            signals.begin()
        code = run(options)
    except KeyboardInterrupt:
        if not ended_by:
            raise
    return 128 + ended_by[0] if ended_by else code


def _import_verb(name: str) -> Callable[[Options], int]:
    """What runs the verb, without what imports of numpy cost that nothing here uses.

    Its OpenBLAS starts a thread a core for products of matrices, of which there are none. Programs
    that we start shall not inherit that.
    """
    ours = _BLAS_THREADS not in os.environ
    if ours:
        os.environ[_BLAS_THREADS] = "1"
    gc.disable()  # what is imported stays: nobody need look for garbage in it, now or later
    try:
        module = import_module(f"brrrtop.cli.commands.{MODULES.get(name, name)}")
        run: Callable[[Options], int] = getattr(module, name if name in MODULES else "run")
        return run
    finally:
        gc.freeze()
        gc.enable()
        if ours:
            os.environ.pop(_BLAS_THREADS, None)


def _check_package() -> None:
    """Refuses to go on when `collectors` would be somebody else's package of that name."""
    where, ours = _package_folders()
    if where is None:
        raise BrrrtopError(
            "brrrtop's own package `collectors` is missing from this installation",
            "install brrrtop again",
        )
    if where != ours:
        raise BrrrtopError(
            f"{where}/collectors hides brrrtop's own package of that name",
            "start `brrrtop` by its command, from another folder, and without PYTHONPATH",
        )


def _package_folders() -> tuple[str | None, str]:
    """The folder from which `collectors` would be imported, without importing it, and our own."""
    from importlib.machinery import PathFinder

    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    spec = PathFinder.find_spec("collectors")
    if spec is None:
        return None, ours
    return os.path.dirname(os.path.dirname(os.path.realpath(spec.origin or ""))), ours


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


def _report_failure(fault: Exception) -> int:
    from contextlib import suppress

    sentence, code = _error_text(fault)
    if os.environ.get("BRRRTOP_TRACEBACK"):
        import traceback

        sentence = "".join(traceback.format_exception(fault)) + sentence
    with suppress(OSError):
        print(_printable(sentence), file=sys.stderr)
    return code


def _error_text(fault: Exception) -> tuple[str, int]:
    message = getattr(fault, "message", None) or str(fault)
    action, code = getattr(fault, "action", ""), FAILURE
    if isinstance(fault, BrrrtopError) or _is_collectors_own(fault):
        code = int(getattr(fault, "exit_code", FAILURE))
    elif isinstance(fault, OSError):
        full = fault.errno == errno.ENOSPC
        message = "no space left on the disk" if full else (fault.strerror or str(fault)).lower()
        message, action = message + (f": {fault.filename}" if fault.filename else ""), ""
    elif isinstance(fault, MemoryError):
        message, action = "not enough memory", "try a shorter recording or `--steps 1-3`"
    elif isinstance(fault, ImportError):
        message, action = f"this installation is incomplete: {fault}", "install brrrtop again"
    else:
        message = f"a fault of brrrtop's own: {type(fault).__name__}: {fault}"
        action = "set BRRRTOP_TRACEBACK=1 to see where, and report it"
    return f"brrrtop: {message}" + (f"\n  {action}" if action else ""), code


def _is_collectors_own(fault: Exception) -> bool:
    """An error that `collectors` raised for people: it carries an `action` of its own."""
    return type(fault).__module__.startswith("collectors.") and hasattr(fault, "action")


def _printable(sentence: str) -> str:
    """Without what a terminal would obey: file names and messages of others are in it."""
    where, ours = _package_folders()
    if where != ours:  # which is what is to be said, and theirs is not to be run
        return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in sentence)
    from collectors.printable import printable_lines

    return printable_lines(sentence)
