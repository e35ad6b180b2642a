"""What may be typed: verbs, options, help. Parses and explains; does nothing else."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from brrrtop.cli import options
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError

TYPE_CHECKING = False  # typing itself would take a tenth of the start-up time
if TYPE_CHECKING:
    from typing import Any, NoReturn

VERBS = {
    "attach": "watch a training process that is already running",
    "run": "start a training program and watch it",
    "try": "measure edits on a training program, without a change of its code",
    "replay": "watch a recording or a profiler trace again",
    "analyze": "one report of a recording or a profiler trace",
    "compare": "two recordings or traces side by side: what changed",
    "receipt": "what the GPU time of a run went into, and what could be won",
    "demo": "watch a recording of a real run; needs no GPU",
    "doctor": "what can be watched here, and the command that fixes what cannot",
    "export": "figures of the trainers here for Prometheus",
}

STARTING = ("run", "try")
"""Verbs that start a program, whose options are its own."""

_TOP = """\
Tells people watching a GPU training job, live, what holds it back: compute,
memory bandwidth, or overhead; why; what to try; and what there is to win.

Without a verb it looks for training processes on this host and opens the one
it finds."""

EXIT_CODES = """\
0 fine, 1 failure, 2 usage, 3 no such trainer or it exited,
4 not permitted, 5 a --fail-if tripped, 130 interrupted"""

_TOP_EXAMPLES = f"""\
examples:
  brrrtop demo                         see it work, no GPU needed
  brrrtop                              find a trainer on this host and watch it
  brrrtop attach 4711                  watch that process
  brrrtop run -- python train.py       start a program and watch it
  brrrtop try -- python train.py       measure what each edit gains
  brrrtop analyze trace.json.gz        a report of a trace (- for a pipe)
  brrrtop analyze trace.json --json    the same for machines

exit codes: {EXIT_CODES}"""

_EXAMPLES = {
    "attach": """\
examples:
  brrrtop attach 4711
  brrrtop attach 4711 --once --json
  brrrtop attach 4711 --record run.brrr
  brrrtop attach 4711 --fail-if 'idle > 30%' --for 60s""",
    "run": """\
The program keeps the terminal and gets its signals; its exit code is passed on
and a report follows it. Open the screen beside it with
`brrrtop attach PID`. Every rank of a torchrun gets an agent.

examples:
  brrrtop run -- python train.py --epochs 3
  brrrtop run --record run.brrr -- torchrun --nproc-per-node 2 train.py""",
    "try": """\
Runs the program as it is and with one edit at a time, made from outside, and
prints predicted beside measured; then the two best together. Each run begins as
the program does, and is interrupted as by Ctrl-C once its pace is known.

examples:
  brrrtop try -- python train.py
  brrrtop try --edits bf16,compile --seconds 20 -- python -m train --batch 64
  brrrtop try --yes --json --budget 30m -- torchrun --nproc-per-node 2 train.py""",
    "replay": """\
examples:
  brrrtop replay run.brrr
  brrrtop replay rank0.brrr rank1.brrr
  brrrtop replay trace.json.gz --once
  brrrtop replay after.brrr --baseline before.brrr""",
    "analyze": """\
Reads .brrr recordings and Kineto/Chrome traces (.json, .json.gz) and judges all
of the file, from the first device activity's start to the last one's end.

examples:
  brrrtop analyze trace.json.gz
  brrrtop analyze traces/              every rank of a job, one report
  brrrtop analyze run.brrr --steps 2-4 --gpu 1
  brrrtop analyze run.brrr --json | jq .regime
  brrrtop analyze trace.json.gz --export html report.html
  brrrtop analyze run.brrr --fail-if 'idle.input > 20%'""",
    "compare": """\
examples:
  brrrtop compare before.json.gz after.json.gz""",
    "receipt": """\
examples:
  brrrtop receipt run.brrr
  brrrtop receipt run.brrr --svg > receipt.svg
  brrrtop receipt traces/      all ranks of a job""",
    "demo": """\
examples:
  brrrtop demo                 pick up a run that waits for its data
  brrrtop demo --list          name the others""",
    "doctor": """\
examples:
  brrrtop doctor
  brrrtop doctor 4711""",
    "export": """\
Finds the training processes of this host, those that begin later too, and
serves their figures until it is ended. docs/prometheus has a Grafana
board and alert rules.

examples:
  brrrtop export prometheus
  brrrtop export prometheus --listen 0.0.0.0:9877""",
}


class Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=_width())


def _width() -> int:
    try:
        columns = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size().columns
    except (ValueError, OSError):
        columns = 80
    return max(40, min(columns, 80))


class Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors that say what to type instead."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError where argparse would print its usage and exit."""
        wrong_verb = re.match(r"argument VERB: invalid choice: '(.*?)' \(", message)
        if wrong_verb:
            raise _unknown_verb(wrong_verb[1])
        raise UsageError(message.removeprefix("argument "), f"see `{self.prog} --help`")


def _unknown_verb(word: str) -> UsageError:
    message = f"there is no `brrrtop {word}`"
    if word.isdecimal():
        return UsageError(message, f"to watch process {word}: `brrrtop attach {word}`")
    if os.path.exists(word):
        return UsageError(message, f"to see that file: `brrrtop replay {word}` (or `analyze`)")
    near = _nearest(word, VERBS)
    if near:
        return UsageError(message, f"did you mean `brrrtop {near}`?")
    return UsageError(message, "see `brrrtop --help`; to start a program: `brrrtop run -- COMMAND`")


def _nearest(word: str, known: Sequence[str] | dict[str, str], likeness: float = 0.6) -> str | None:
    from difflib import get_close_matches

    nearest = get_close_matches(word, list(known), n=1, cutoff=likeness)
    return nearest[0] if nearest else None


def _flag(message: str, **more: Any) -> dict[str, Any]:
    return {"action": "store_true", "help": message, **more}


def _value(metavar: Any, message: str | None, kind: Any = str, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": message, "type": kind, **more}


_FILES = "a file, or the files or the folder of a job's ranks"
_OPTIONS = {
    "--once": _flag("one plain report, then exit"),
    "--interval": _value("SECONDS", "between looks (default 0.5)", options.interval),
    "--serve": _flag("the screen in a browser, on this machine only"),
    "--listen": _value("HOST:PORT", "where it is served (default 127.0.0.1:8765)"),
    "--json": _flag("JSON on stdout, one object a line"),
    "--svg": _flag("as a picture (SVG) on stdout"),
    "--html": _flag("as a page on stdout"),
    "--gpu": _value("N", "this GPU, not the busiest", options.gpu),
    "--no-color": _flag("no colour (also: NO_COLOR)"),
    "--ascii": _flag("nothing but ASCII characters"),
    "--theme": _value(
        "NAME",
        f"{', '.join(options.THEMES)} (also: BRRRTOP_THEME)",
        choices=options.THEMES,
    ),
    "--speed": _value(
        "X",
        "playback speed (default 1; short files are stretched to 30 s)",
        options.speed,
    ),
    "--record": _value("FILE", "write what arrives to FILE (.brrr); leaving says how much an hour"),
    "--record-most": _value("SIZE", "end the recording at SIZE, such as 500MB", options.size),
    "--baseline": _value("FILE", "compare with this recording or trace, judged whole"),
    "--silence": _value(
        "ID[,ID]",
        "give no advice of these ids (x on the screen does too)",
        options.advisories,
        action="append",
    ),
    "--yes": _flag("attach without asking"),
    "--max-overhead": _value(
        "SHARE", "step time that watching may cost (default 1%%)", options.share
    ),
    "--counters": _flag("hardware counters too, where permitted"),
    "--no-shapes": _flag(
        "do not record the op shapes of one step once the run is steady, nor in a new regime",
        action="store_false",
        dest="shapes",
    ),
    "--shapes": _flag(
        "record op shapes sooner, in a burst of their own; --once waits for shapes only with this"
    ),
    "--no-trace-graphs": _flag(
        "do not trace the kernels of a program without torch (JAX, CuPy, C++): all its threads would "
        "be held, outside CUDA, for some 0.5 ms at each switch",
        action="store_false",
        dest="trace_graphs",
    ),
    "--trace-graphs": _flag(
        "trace a torch program that cannot be met between two steps in that way too; at your risk"
    ),
    "--fail-if": _value(
        "EXPR",
        "exit 5 when this holds, e.g. 'idle > 30%%' or 'regime == overhead'",
        action="append",
    ),
    "--for": _value(
        "TIME", "… for at least this long (default: at once)", options.seconds, dest="hold_s"
    ),
    "--force": _flag("read a file however large it is"),
    "--steps": _value("A-B", "only these steps", options.steps),
    "--brief": _flag("at most thirty lines to act on"),
    "--edits": _value("ID[,ID]", "only these, in this order", options.edits),
    "--seconds": _value("S", "of steady steps for each (default 8)", options.seconds),
    "--budget": _value("TIME", "for all of it (default 10m)", options.seconds, dest="budget_s"),
    "--scratch": _value("DIR", "keep what each run prints and saves through torch here"),
    "--yes@try": _flag("start without asking"),
    "--list": _flag("name the scenarios and exit"),
    "--listen@export": _value("HOST:PORT", "for Prometheus (default 127.0.0.1:9877)"),
    "pid": _value("PID", None, options.pid),
    "pid@doctor": _value("PID", None, options.pid, nargs="?", default=None),
    "pids": _value("PID", "only these processes", options.pid, nargs="*"),
    "command": _value("COMMAND", None, nargs=argparse.REMAINDER),
    "files": _value("FILE", _FILES, nargs="+"),
    # Optional to argparse only: after `--export FORMAT` it would be taken for the PATH.
    "files@analyze": _value("FILE", _FILES, nargs="*"),
    "before": _value("BEFORE", None),
    "after": _value("AFTER", None),
    "scenario": _value("SCENARIO", "see --list", nargs="?"),
    "exporter": _value("EXPORTER", "prometheus"),
}
"""By name, and where they differ by the verb after `@`."""
for _name in ("--once", "--interval"):
    _OPTIONS[f"{_name}@unseen"] = {**_OPTIONS[_name], "help": argparse.SUPPRESS}


def _exports() -> tuple[str, dict[str, Any]]:
    """Made when it is asked for: the formats take long to import."""
    from brrrtop.exporters.tables import FORMATS

    message = "write it too. " + "; ".join(
        f"{name}: {format_.message}" for name, format_ in FORMATS.items()
    )
    return "--export", _value(("FORMAT", "PATH"), message, nargs="+", action="append")


_VIEW = ("what is shown", "--once --interval --serve --listen")
_COMMON = ("common", "--json --gpu --no-color --ascii --theme")
_LIVE = (
    "watching live",
    "--yes --max-overhead --counters --no-shapes|--shapes --no-trace-graphs|--trace-graphs "
    "--record --record-most --baseline --silence",
)
_GATES = ("gates", "--fail-if --for")
_UNSEEN = "--once@unseen --interval@unseen"
"""What every verb takes, on those that look only once anyway: so scripts can pass them always."""

_OPTIONS_OF: dict[str, tuple[Any, ...]] = {
    "attach": ("pid", _VIEW, _LIVE, _GATES),
    "run": ("command", _VIEW, _LIVE, _GATES),
    "try": ("command --edits --seconds --budget --scratch --yes@try", _UNSEEN),
    "replay": ("files", _VIEW, "--speed --record --baseline --force --silence"),
    "analyze": (
        "files@analyze --steps --brief", _exports, _UNSEEN, "--record --force --silence",
        ("gates", "--fail-if"),
    ),
    "compare": ("before after --steps --force --silence", _UNSEEN),
    "receipt": ("files --svg|--html --force --silence", _UNSEEN),
    "demo": ("scenario --list", _VIEW, "--speed --record --silence"),
    "doctor": ("pid@doctor", _UNSEEN),
    "export": ("exporter pids --once@unseen --interval --listen@export", _LIVE),
}  # fmt: skip
"""Of each verb, in the order of its help: names of options, and groups of them."""


def _add(parser: Any, part: Any) -> None:
    """One part of a verb's options; `--no-x|--x` are two that exclude each other."""
    if callable(part):
        name, option = part()
        parser.add_argument(name, **option)
    elif isinstance(part, tuple):
        title, names = part
        _add(parser.add_argument_group(title), names)
    else:
        for either in part.split():
            one, names = parser, either.split("|")
            defaults = {}
            if len(names) > 1:
                one = parser.add_mutually_exclusive_group()
                defaults["default"] = argparse.SUPPRESS  # such a group inherits none
            for name in names:
                one.add_argument(name.partition("@")[0], **_OPTIONS[name], **defaults)


def build(verb: str | None = None) -> tuple[Parser, dict[str, Parser]]:
    """The parser and its verbs' own. Only `verb` gets its options: all would cost start-up time."""
    parser = Parser(
        "brrrtop",
        usage="brrrtop [options] [VERB …]",
        description=_TOP,
        epilog=_TOP_EXAMPLES,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    for part in (_VIEW, _COMMON, _LIVE, _GATES):
        _add(parser, part)
    sub = parser.add_subparsers(
        title="verbs", dest="verb", metavar="VERB", prog="brrrtop", parser_class=Parser
    )
    parsers: dict[str, Parser] = {}
    for name, summary in VERBS.items():
        one = parsers[name] = sub.add_parser(
            name,
            usage=f"brrrtop {name} [options] -- COMMAND …" if name in STARTING else None,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_EXAMPLES[name],
            formatter_class=Help,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        if verb in (name, "all"):
            for part in (*_OPTIONS_OF[name], _COMMON):
                _add(one, part)
    return parser, parsers


def parse(argv: Sequence[str]) -> Options:
    """What was asked for.

    Raises:
        UsageError: It makes no sense; says what would.
        SystemExit: Help was asked for, and printed.
    """
    verb = next((word for word in argv if word in VERBS), None)
    head, tail = list(argv), []
    if verb in STARTING and "--" in head:
        cut = head.index("--")
        head, tail = head[:cut], head[cut + 1 :]
    ours = head[: head.index(verb)] if verb in STARTING and not tail else head
    if not {"-V", "--version"}.isdisjoint(ours):
        return Options(version=True)
    parser, parsers = build(verb)
    spoken, extra = parser.parse_known_args(head)
    if extra:
        raise _unknown_option(extra[0], parsers.get(spoken.verb, parser))
    given = {name: value for name, value in vars(spoken).items() if value is not None}
    if spoken.verb == "analyze" and not given.get("files"):
        given["files"] = (_file_behind(given.get("export", [])),)
    if spoken.verb in STARTING:
        given["command"] = (*given.get("command", ()), *tail)
    return Options(**given)


def _file_behind(exports: list[list[str]]) -> str:
    """The file to analyze where it is typed last, after `--export FORMAT [PATH]`."""
    if not exports or len(exports[-1]) < 2:
        raise UsageError("no FILE is named", "see `brrrtop analyze --help`")
    return exports[-1].pop()


def _unknown_option(word: str, parser: Parser) -> UsageError:
    option = word.partition("=")[0]
    near = _nearest(option, re.findall(r"--[a-z][a-z-]*", parser.format_help()), 0.7)
    message = f"`{parser.prog}` does not know `{option}`"
    return UsageError(message, f"did you mean `{near}`?" if near else f"see `{parser.prog} --help`")
