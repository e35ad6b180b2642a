"""The command as a program that says when interrupts are its own to handle, and no more Python's."""

import sys

_PROGRAM = """
import sys
from brrrtop.cli import main

def started(argv, run=main._run):
    print("started", flush=True)
    return run(argv)

main._run = started
sys.exit(main.main())
"""
COMMAND = (sys.executable, "-c", _PROGRAM)
