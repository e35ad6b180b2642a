"""Command-line options that the measuring scripts share, and what they have in common to do."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """`--out`, `--site` and `--device`."""
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--site", help="a folder with what the monitor needs and the trainer has not"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")


def prepare(args: argparse.Namespace) -> None:
    """Makes the folder, finds the monitor's packages, and ends tidily when terminated."""
    if args.site:
        sys.path.append(args.site)
    args.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
