"""`brrrtop demo [SCENARIO]`: the screen over a recording of a real run that ships with brrrtop."""

from __future__ import annotations

from pathlib import Path

import brrrtop.data
from brrrtop.cli import output
from brrrtop.cli.commands import replay
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError

FOLDER = "demos"
FIRST = "input-bound"
"""Opened when none is named: its cause is the one people know best."""
WHAT = {
    "fp32-convolutions": "a ResNet in fp32, without TF32 or autocast",
    "healthy": "a GPT in bf16: products at three quarters of their roof",
    "input-bound": "a loader without workers: the GPU waits for batches",
    "launch-bound": "hundreds of tiny kernels: the GPU waits for launches",
    "memory-bound": "long chains of unfused pointwise ops",
    "misaligned": "bf16 products with odd row lengths",
    "plain-attention": "attention written out instead of fused",
    "slow-workers": "a loader with too few workers for its photos",
    "straggler": "two ranks of FSDP: one sleeps in each step",
    "sync-bound": ".item() all over the loop",
    "unpinned-copies": "large batches copied from pageable memory",
}


def scenarios() -> dict[str, Path]:
    """The shipped recordings by name; a folder holds those of a job's ranks."""
    folder = Path(brrrtop.data.__path__[0]) / FOLDER
    paths = [path for path in folder.iterdir() if path.suffix == ".brrr" or path.is_dir()]
    return {path.stem: path for path in sorted(paths) if path.name != "__pycache__"}


def run(options: Options) -> int:
    known = scenarios()
    if not known:
        raise BrrrtopError("no demo recording is installed", "install brrrtop again")
    if options.list:
        print("\n".join(f"{name:<18} {WHAT.get(name, '')}".rstrip() for name in known))
        return 0
    name = options.scenario or (FIRST if FIRST in known else next(iter(known)))
    if name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"one of {', '.join(known)}"
        raise UsageError(f"there is no demo {name!r}", hint)
    if options.scenario is None:
        output.tell(
            f"demo `{name}`; the others: {', '.join(other for other in known if other != name)}"
        )
    path = known[name]
    files = sorted(path.glob("*.brrr")) if path.is_dir() else [path]
    if options.record and len(files) > 1:
        raise UsageError("--record writes one recording, and this demo is of several ranks")
    return replay.play([str(file) for file in files], options, loop=True)
