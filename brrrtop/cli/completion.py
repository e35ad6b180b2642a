"""`--print-completion SHELL`: the script that makes a shell complete verbs and options."""

from __future__ import annotations

from brrrtop.cli.values import THEMES
from brrrtop.errors import BrrrtopError, UsageError

SHELLS = ("bash", "zsh", "tcsh", "fish")


def print_completion(shell: str) -> int:
    """Writes the script to stdout.

    Raises:
        UsageError: No script for that shell.
        BrrrtopError: shtab, which writes them, is not installed.
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for {shell!r}", f"one of {', '.join(SHELLS)}")
    try:
        import shtab
    except ImportError:
        raise BrrrtopError(
            "completion scripts are written by shtab", "`pip install shtab`"
        ) from None
    from brrrtop.cli.arguments import build

    parser, verbs = build("all")
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
