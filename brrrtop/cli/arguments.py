"""What may be typed: verbs, options, help. Parses and explains; does nothing else."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from brrrtop.cli import values
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError

TYPE_CHECKING = False  # typing itself would take a tenth of the start-up time
if TYPE_CHECKING:
    from typing import NoReturn

VERBS = {
    "attach": "watch a training process that is already running",
    "run": "start a training program and watch it",
    "replay": "watch a recording or a profiler trace again",
    "analyze": "one report of a recording or a profiler trace",
    "compare": "two recordings or traces side by side: what changed",
    "demo": "watch a recording of a real run; needs no GPU",
    "doctor": "what can be watched here, and the command that fixes what cannot",
    "export": "figures of the trainers here for Prometheus or OpenTelemetry",
    "calibrate": "measure what an idle GPU here reaches, for later verdicts",
}

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
  brrrtop analyze trace.json.gz        a report of a torch.profiler trace
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
and a report follows it. Open the screen beside it with `brrrtop attach PID`, or
use --screen. Every rank of a torchrun gets an agent.

examples:
  brrrtop run -- python train.py --epochs 3
  brrrtop run --record run.brrr -- torchrun --nproc-per-node 2 train.py""",
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
serves or sends their figures until it is ended. docs/prometheus has a Grafana
board and alert rules.

examples:
  brrrtop export prometheus
  brrrtop export prometheus --listen 0.0.0.0:9877
  brrrtop export otlp --endpoint http://collector:4318""",
    "calibrate": """\
Copies memory and multiplies matrices for some seconds, in a Python that has
torch, and keeps the rates. Refuses a GPU that is in use.

examples:
  brrrtop calibrate
  brrrtop calibrate --gpu 1 --python ~/venv/bin/python""",
}


class Help(argparse.RawDescriptionHelpFormatter):
    """argparse's help, 80 columns at most, without importing shutil to learn the width."""

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
    """What somebody meant who typed `word` where a verb belongs."""
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


def _view_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is shown")
    group.add_argument("--once", action="store_true", help="one plain report, then exit")
    group.add_argument(
        "--interval", type=values.interval, metavar="SECONDS", help="between looks (default 0.5)"
    )
    group.add_argument(
        "--serve", action="store_true", help="the screen in a browser, on this machine only"
    )
    group.add_argument(
        "--listen", metavar="HOST:PORT", help="where it is served (default 127.0.0.1:8765)"
    )


def _common_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("common")
    group.add_argument("--json", action="store_true", help="JSON on stdout, one object a line")
    group.add_argument("--gpu", type=values.gpu, metavar="N", help="this GPU, not the busiest")
    group.add_argument("--no-color", action="store_true", help="no colour (also: NO_COLOR)")
    group.add_argument("--ascii", action="store_true", help="nothing but ASCII characters")
    group.add_argument(
        "--theme",
        type=values.theme,
        metavar="NAME",
        help=f"{', '.join(values.THEMES)}, or one of your own (also: BRRRTOP_THEME)",
    )


def _silent_view_options(parser: argparse.ArgumentParser) -> None:
    """What every verb takes, on those that look only once anyway: so scripts can pass them always."""
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--interval", type=values.interval, help=argparse.SUPPRESS)


def _speed_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speed",
        type=values.speed,
        metavar="X",
        help="1 is as it happened (default: 1, what is shorter than 30 s slowed down to that)",
    )


def _record_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", metavar="FILE", help="write what arrives to FILE (.brrr)")


def _baseline_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline", metavar="FILE", help="compare with this recording or trace, judged whole"
    )


def _advice_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--silence",
        type=values.advisories,
        action="append",
        metavar="ID[,ID]",
        help="give no advice of these ids (x on the screen does too)",
    )


def _live_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("watching live")
    group.add_argument("--yes", action="store_true", help="attach without asking")
    group.add_argument(
        "--max-overhead",
        type=values.share,
        metavar="SHARE",
        help="step time that watching may cost (default 1%%)",
    )
    group.add_argument(
        "--counters", action="store_true", help="hardware counters too, where permitted"
    )
    shapes = group.add_mutually_exclusive_group()
    shapes.add_argument(
        "--no-shapes",
        action="store_false",
        dest="shapes",
        default=argparse.SUPPRESS,  # such a group inherits none
        help="do not record the op shapes of one step once the run is steady, nor in a new regime",
    )
    shapes.add_argument(
        "--shapes",
        action="store_true",
        default=argparse.SUPPRESS,
        help="the default but for --once, which does not wait for shapes without it; records them "
        "sooner, in a burst of their own",
    )
    graphs = group.add_mutually_exclusive_group()
    graphs.add_argument(
        "--no-trace-graphs",
        action="store_false",
        dest="trace_graphs",
        default=argparse.SUPPRESS,
        help="do not trace the kernels of a program without torch (JAX, CuPy, C++): all its threads would "
        "be held, outside CUDA, for some 0.5 ms at each switch",
    )
    graphs.add_argument(
        "--trace-graphs",
        action="store_true",
        default=argparse.SUPPRESS,
        help="trace a torch program that cannot be met between two steps in that way too; at your risk",
    )
    _record_option(group)  # type: ignore[arg-type]
    _baseline_option(group)  # type: ignore[arg-type]
    _advice_options(group)  # type: ignore[arg-type]


def _gate_options(parser: argparse.ArgumentParser, *, live: bool) -> None:
    group = parser.add_argument_group("gates")
    group.add_argument(
        "--fail-if",
        metavar="EXPR",
        action="append",
        help="exit 5 when this holds, e.g. 'idle > 30%%' or 'regime == overhead'",
    )
    if live:
        group.add_argument(
            "--for",
            dest="hold_s",
            type=values.seconds,
            metavar="TIME",
            help="… for at least this long (default: at once)",
        )


def _add_attach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=values.pid, metavar="PID")
    _view_options(parser)
    _live_options(parser)
    _gate_options(parser, live=True)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = "brrrtop run [options] -- COMMAND …"
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.add_argument(
        "--screen", action="store_true", help="open the screen; the program's output goes to a file"
    )
    _view_options(parser)
    _live_options(parser)
    _gate_options(parser, live=True)


def _force_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="read a file however large it is")


def _files(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    parser.add_argument(
        "files",
        nargs=nargs,
        metavar="FILE",
        help="a file, or the files or the folder of a job's ranks",
    )


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _files(parser)
    _view_options(parser)
    _speed_option(parser)
    _record_option(parser)
    _baseline_option(parser)
    _force_option(parser)
    _advice_options(parser)


def _add_analyze(parser: argparse.ArgumentParser) -> None:
    from brrrtop.exporters.registry import FORMATS

    # Optional to argparse only: after `--export FORMAT` it would be taken for the PATH.
    _files(parser, nargs="*")
    parser.add_argument("--steps", type=values.steps, metavar="A-B", help="only these steps")
    parser.add_argument("--brief", action="store_true", help="at most thirty lines to act on")
    parser.add_argument(
        "--export",
        nargs="+",
        action="append",
        metavar=("FORMAT", "PATH"),
        help="write it too. " + "; ".join(f"{name}: {one.says}" for name, one in FORMATS.items()),
    )
    _silent_view_options(parser)
    _record_option(parser)
    _force_option(parser)
    _advice_options(parser)
    _gate_options(parser, live=False)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--steps", type=values.steps, metavar="A-B", help="only these steps")
    _force_option(parser)
    _advice_options(parser)
    _silent_view_options(parser)


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="see --list")
    parser.add_argument("--list", action="store_true", help="name the scenarios and exit")
    _view_options(parser)
    _speed_option(parser)
    _record_option(parser)
    _advice_options(parser)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", nargs="?", default=None, type=values.pid, metavar="PID")
    _silent_view_options(parser)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exporter", metavar="EXPORTER", help="prometheus or otlp")
    parser.add_argument(
        "pids", nargs="*", type=values.pid, metavar="PID", help="only these processes"
    )
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--interval", type=values.interval, metavar="SECONDS", help="between looks (default 0.5)"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="for Prometheus (default 127.0.0.1:9877)"
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="for otlp (default http://localhost:4318)"
    )
    _live_options(parser)


def _add_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", metavar="PATH", help="an interpreter with torch")
    _silent_view_options(parser)


_ADDERS = {
    "attach": _add_attach,
    "run": _add_run,
    "replay": _add_replay,
    "analyze": _add_analyze,
    "compare": _add_compare,
    "demo": _add_demo,
    "doctor": _add_doctor,
    "export": _add_export,
    "calibrate": _add_calibrate,
}


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
    parser.add_argument(
        "--print-completion", metavar="SHELL", help="completion script for bash, zsh, tcsh or fish"
    )
    _view_options(parser)
    _common_options(parser)
    _live_options(parser)
    _gate_options(parser, live=True)
    sub = parser.add_subparsers(
        title="verbs", dest="verb", metavar="VERB", prog="brrrtop", parser_class=Parser
    )
    parsers: dict[str, Parser] = {}
    for name, summary in VERBS.items():
        one = parsers[name] = sub.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_EXAMPLES[name],
            formatter_class=Help,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        if verb in (name, "all"):
            _ADDERS[name](one)
            _common_options(one)
    return parser, parsers


def parse(argv: Sequence[str]) -> Options:
    """What was asked for.

    Raises:
        UsageError: It makes no sense; says what would.
        SystemExit: Help was asked for, and printed.
    """
    verb = next((word for word in argv if word in VERBS), None)
    head, tail = list(argv), []
    if verb == "run" and "--" in head:
        cut = head.index("--")
        head, tail = head[:cut], head[cut + 1 :]
    ours = head[: head.index(verb)] if verb == "run" and not tail else head
    if not {"-V", "--version"}.isdisjoint(ours):
        return Options(version=True)
    parser, parsers = build(verb)
    spoken, extra = parser.parse_known_args(head)
    if extra:
        raise _unknown_option(extra[0], parsers.get(spoken.verb, parser))
    given = {name: value for name, value in vars(spoken).items() if value is not None}
    if spoken.verb == "analyze" and not given.get("files"):
        given["files"] = (_file_behind(given.get("export", [])),)
    if spoken.verb == "run":
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
