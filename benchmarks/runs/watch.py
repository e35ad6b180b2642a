"""Watches the programs one after the other with brrrtop's default options, and keeps what both clocks say.

    python benchmarks/runs/watch.py --out DIR [--tar FILE] [--part 1 --of 2] [--only NAME,…] [--seconds 20] [--site DIR]

Each program loads while the one before it is watched, waits, then trains alone for three seconds and is attached to. Of
each are kept: NAME.brrr, the recording; NAME.json, with the program's clock (`clock`), when it was attached to and let
go (`watch`, ns of day), the whole JSON lines of the first verdict, of 3 s, of 10 s and of the end, and of every other
line a summary. All of it is put into one tar. `judge.py` makes the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOAD_S, READY_S, STOP_S = 60.0, 60.0, 15.0
AHEAD_S = 12.0
"""The next program begins to load so long before its turn: its imports and its data."""


class Program:
    """One of `programs.py`, in a process of its own."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name, self.clock = name, args.out / f"{name}.clock.json"
        self.received: list[str] = []
        words = [sys.executable, "-u", str(HERE / "programs.py"), name, "--wait", "--seconds", "600",
                 "--clock", str(self.clock), "--data", str(args.data), "--device", args.device]  # fmt: skip
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        theirs = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if args.trainer_path:
            theirs["PYTHONPATH"] = args.trainer_path
        self.process = subprocess.Popen(
            [*words, *(["--tiny"] if args.tiny else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ours | theirs,
            start_new_session=True,
            cwd=args.data,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.received = [*self.received[-200:], line.rstrip()]

    def hears(self, word: str, limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        while word not in self.received and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.02)
        return word in self.received

    def begin(self) -> bool:
        """It trains, and is warm."""
        if not self.hears("loaded", LOAD_S):
            return False
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.hears("ready", READY_S)

    def end(self) -> dict[str, Any] | None:
        """Its own figures; nothing of it is left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR2)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return json.loads(self.clock.read_text()) if self.clock.exists() else None


class Monitor:
    """`brrrtop attach PID --json --record`, and the times at which its lines came."""

    def __init__(self, pid: int, record: Path, args: argparse.Namespace) -> None:
        ahead = [str(ROOT), *([args.site] if args.site else []), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in ahead if p)}
        self.began_ns, self.lines, self.messages = (
            time.time_ns(),
            list[tuple[int, str]](),
            list[str](),
        )
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "brrrtop",
                "attach",
                str(pid),
                "--yes",
                "--json",
                "--record",
                str(record),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._out, self._err)]
        for thread in self._threads:
            thread.start()

    def _out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.time_ns(), line))

    def _err(self) -> None:
        assert self.process.stderr is not None
        self.messages.extend(line.rstrip() for line in self.process.stderr)

    def end(self) -> dict[str, Any]:
        """What the watch was: times of day in ns, exit code, share of a core."""
        ended_ns = time.time_ns()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        killer = threading.Timer(STOP_S, self.process.kill)
        killer.start()
        _, status, used = os.wait4(self.process.pid, 0)
        killer.cancel()
        self.process.returncode = os.waitstatus_to_exitcode(status)
        for thread in self._threads:
            thread.join(5)
        return {
            "began_ns": self.began_ns, "first_line_ns": self.lines[0][0] if self.lines else None, "ended_ns": ended_ns,
            "exit": self.process.returncode, "ours_": self.messages[-6:], "core_share": round((used.ru_utime + used.ru_stime) * 1e9 / (ended_ns - self.began_ns), 4),
            "peak_mb": used.ru_maxrss // 1024,
        }  # fmt: skip


def judged(row: dict[str, Any]) -> bool:
    return row.get("regime") not in (None, "unknown")


def brief(at_s: float, row: dict[str, Any]) -> dict[str, Any]:
    """A summary of a line."""
    run, advice = row.get("run") or {}, row.get("advisories") or []
    return {
        "s": round(at_s, 2), "regime": row.get("regime"), "cause": row.get("cause"), "confidence": row.get("confidence"),
        "advice": [[one["id"], one.get("saves")] for one in advice[:2]], "step_ms": (row.get("window") or {}).get("step_ms"),
        "now": row.get("now"), "witness": run.get("witness"),
        "phases": [[one.get("kind"), one.get("where"), one.get("share"), one.get("waits_for_data")] for one in run.get("phases") or []],
        "cost": (row.get("overhead") or {}).get("step_cost_share"),
    }  # fmt: skip


def kept(monitor: Monitor) -> dict[str, Any]:
    """The lines that are kept whole, and all of them in short."""
    rows = [((at - monitor.began_ns) / 1e9, json.loads(line)) for at, line in monitor.lines]
    whole = {
        "first": next((row for _, row in rows if judged(row)), None),
        "at_3_s": next((row for at, row in rows if at >= 3), None),
        "at_10_s": next((row for at, row in rows if at >= 10), None),
        "last": rows[-1][1] if rows else None,
    }
    return {"whole": whole, "lines": [brief(at, row) for at, row in rows]}


def watch(
    name: str, ahead: dict[str, Program], following: str | None, args: argparse.Namespace
) -> dict[str, Any]:
    """One program, and the start of the next."""
    program = ahead.pop(name, None) or Program(name, args)
    result: dict[str, Any] = {"program": name}
    try:
        if not program.begin():
            return result | {"fault": "it did not train", "tail": program.received[-8:]}
        monitor = Monitor(program.process.pid, args.out / f"{name}.brrr", args)
        end = time.monotonic() + args.seconds
        while (left := end - time.monotonic()) > 0 and monitor.process.poll() is None:
            if following is not None and following not in ahead and left < AHEAD_S:
                ahead[following] = Program(following, args)
            time.sleep(min(left, 0.1))
        result["watch"] = monitor.end()
        result |= kept(monitor)
        result["alive"] = program.process.poll() is None
        return result
    finally:
        result["clock"] = program.end()
        program.clock.unlink(missing_ok=True)
        path = args.out / f"{name}.json"
        path.write_text(json.dumps(result, separators=(",", ":")))


def say(result: dict[str, Any], args: argparse.Namespace) -> None:
    """One line about it."""
    last = result["lines"][-1] if result.get("lines") else {}
    sizes = [p.stat().st_size // 1024 for p in sorted(args.out.glob(f"{result['program']}.*"))]
    steps = (result.get("clock") or {}).get("steps")
    print(
        f"{time.monotonic() - args.began_s:5.0f} s {result['program']:16s} steps {steps} verdict {last.get('regime')}/{last.get('cause')} "
        f"{last.get('advice')} KB {sizes} alive {result.get('alive')} {result.get('fault', '')} {result.get('tail', '')} "
        f"{(result.get('watch') or {}).get('ours_', '')}",
        flush=True,
    )


def pack(args: argparse.Namespace) -> None:
    """Everything in one file, since few may come back from a borrowed machine."""
    target = args.tar or args.out.with_suffix(".tar")
    with tarfile.open(target, "w:xz", preset=3) as whole:
        for path in sorted(args.out.iterdir()):
            whole.add(path, arcname=path.name)
    print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder; made")
    parser.add_argument("--tar", type=Path, help="where all of it is packed (default: OUT.tar)")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--seconds", type=float, default=20.0, help="of watching")
    parser.add_argument(
        "--limit",
        type=float,
        default=540.0,
        help="seconds in all: none is begun that would end later",
    )
    parser.add_argument(
        "--site", help="a folder with what the monitor needs and the programs have not"
    )
    parser.add_argument("--trainer-path", help="the programs' PYTHONPATH")
    parser.add_argument("--data", type=Path, default=Path("/tmp/brrrtop-runs"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    args.data.mkdir(parents=True, exist_ok=True)
    args.out, args.data = args.out.resolve(), args.data.resolve()
    args.began_s = time.monotonic()
    listed = subprocess.run(
        [sys.executable, str(HERE / "programs.py"), "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = listed.stdout.split()
    per = -(-len(names) // args.of)
    names = args.only.split(",") if args.only else names[(args.part - 1) * per : args.part * per]
    ahead: dict[str, Program] = {}
    try:
        for name, following in zip(names, [*names[1:], None], strict=True):
            if time.monotonic() - args.began_s + args.seconds + 8 > args.limit:
                print(f"no time is left for {name} and what follows", flush=True)
                break
            say(watch(name, ahead, following, args), args)
    finally:
        for program in ahead.values():
            program.end()
        pack(args)


if __name__ == "__main__":
    main()
