"""Imports torch once and forks a child per script: importing it takes longer than most tests.

Reads one path a line; the child runs that file as `__main__`, with its output in `PATH.out` and
`PATH.err`; answers with its exit status.
"""

import os
import runpy
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it on first use
import torch.utils.data


def child(path: str) -> None:
    """Never comes back."""
    for number, suffix in ((1, ".out"), (2, ".err")):
        file = os.open(path + suffix, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
    os.chdir(Path(path).parent)
    status = 1
    try:
        runpy.run_path(path, run_name="__main__")
        status = 0
    finally:
        if status:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


assert torch.__version__
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        child(line.strip())
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
