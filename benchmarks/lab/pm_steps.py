"""PM sampling call by call, each variant in a process of its own: which call dies, under which circumstances.

    python benchmarks/lab/pm_steps.py --out DIR [--devices 4] [--only product …] [--seconds 6] [--zoo DIR]

Every call into CUPTI is noted before it is made. Variants are shared out among the devices, one at a time on each;
those named `…+load` run beside a trainer-like process, or a script of `--zoo`. DIR/NAME.log has the calls, what died and native frames where
there is a C compiler. Prints one JSON line a variant; `last` of one that died is the call it was in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from pm_calls import Variant, child  # noqa: E402

LOAD = """
import sys, torch
device = torch.device("cuda", int(sys.argv[1]))
a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    for _ in range(20):
        b = a @ a
        c = torch.nn.functional.gelu(b)
    torch.cuda.synchronize(device)
"""
START_S, LOAD_S = 12.0, 40.0

LATEST_BESIDE = Variant(through="plain", latest=True, load=True)
VARIANTS = {
    "product": Variant(),
    "plain-again": Variant(through="plain", configured="again"),
    "plain-rewritten": Variant(through="plain", configured="rewritten"),
    "plain-old": Variant(through="plain", library="oldest"),
    "product+load": Variant(load=True),
    "plain-again+load": Variant(through="plain", configured="again", load=True),
    "product-gpm+load": Variant(gpm=True, load=True),
    "product-old+load": Variant(library="oldest", load=True),
    "product-512+load": Variant(buffer_mib=512, load=True),
    "plain+load": Variant(through="plain", load=True),
    "plain-latest+load": Variant(through="plain", latest=True, load=True),
    "latest-256+load": replace(LATEST_BESIDE, buffer_mib=256),
    "latest-512+load": replace(LATEST_BESIDE, buffer_mib=512),
    "latest-often+load": replace(LATEST_BESIDE, every_s=0.1, most=1024),
    "latest-1ms+load": replace(LATEST_BESIDE, interval_us=1000),
    "latest-most+load": replace(LATEST_BESIDE, most=16384),
    "latest-zoo+load": replace(LATEST_BESIDE, script="gpt_bf16"),
    "plain-1ms+load": Variant(through="plain", interval_us=1000, load=True),
    "plain-same": Variant(through="plain", images="same"),
    "plain-kept": Variant(through="plain", images="kept"),
    "plain-context": Variant(through="plain", context=True),
    "product-main-thread": Variant(thread=False),
    "product-two": Variant(two=True),
}


def libraries() -> dict[str, str]:
    """The libcupti files of this Python: the one that the product takes, and the oldest."""
    from collectors.counter_library import candidates

    asked = "import ctypes, sys; v = ctypes.c_uint32(); "
    asked += "ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(v)); print(v.value)"
    ages: dict[str, int] = {}
    for file in map(str, candidates()):
        done = subprocess.run(
            [sys.executable, "-c", asked, file], capture_output=True, text=True, timeout=20, check=False
        )  # fmt: skip
        if done.stdout.strip().isdigit():
            ages[file] = int(done.stdout)
    print(json.dumps({"libraries": ages}), flush=True)
    if not ages:
        return {"newest": "", "oldest": ""}
    # CUPTI 13.4 says 0 where it finds no driver, 13.0 its version.
    return {"newest": next(iter(ages)), "oldest": min(ages, key=lambda file: ages[file] or 1 << 30)}


def crash_frames(out: Path) -> dict[str, str]:
    """What has a crash tell its native frames; nothing where there is no compiler."""
    built = out / "crash.so"
    command = [
        "cc",
        "-O1",
        "-g",
        "-shared",
        "-fPIC",
        "-o",
        str(built),
        str(HERE / "crash.c"),
        "-ldl",
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        return {"LD_PRELOAD": str(built)}
    return {}


def tried(
    name: str, variant: Variant, device: int, seconds: float, library: str, out: Path, frames: dict[str, str]
) -> dict[str, Any]:  # fmt: skip
    for old in out.glob(f"{name}.*"):
        old.unlink()
    task = {"variant": asdict(variant), "device": device, "seconds": seconds, "library": library}
    command = [sys.executable, str(Path(__file__).resolve()), "--out", str(out)]
    began = time.monotonic()
    with (out / f"{name}.err").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--child", name, json.dumps(task)], stdout=subprocess.PIPE, stderr=said,
            env=os.environ | frames,
        )  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=seconds + START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
    now = out / f"{name}.now"
    told: dict[str, Any] = {
        "variant": name, "device": device, "took_s": round(time.monotonic() - began, 1),
        "ended": ended(process.returncode),
        "last": now.read_text().strip() if now.exists() else "before any call",
    }  # fmt: skip
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(printed.decode().splitlines()[-1])
        times = found.pop("decode_ms")
        found["slowest_ms"] = {k: v for k, v in found["slowest_ms"].items() if v >= 5.0}
        middle = statistics.median(times) if times else None
        told |= found | {"decode_ms": middle, "decode_most_ms": max(times, default=None)}
    if process.returncode:
        told["said"] = (out / f"{name}.err").read_text("utf-8", "replace")[-1500:]
    return told


def ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def loaded(device: int, out: Path, script: Path | None) -> subprocess.Popen[bytes] | None:
    """A process that keeps the device busy; None: it did not come up.

    Args:
        script: Of the zoo, which prints its rate once it trains; None: the artificial load.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command, ready = [sys.executable, "-c", LOAD, str(device)], b"ready"
    if script is not None:
        env["CUDA_VISIBLE_DEVICES"] = str(device)
        command, ready = [sys.executable, "-u", script.name, "--seconds", "600"], b"it/s="
    said_at = out / f"load-{device}.txt"
    with said_at.open("wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env=env,
            cwd=None if script is None else script.parent,
        )  # fmt: skip
    end = time.monotonic() + LOAD_S
    while time.monotonic() < end and process.poll() is None:
        if ready in said_at.read_bytes():
            return process
        time.sleep(0.1)
    process.kill()
    process.wait()
    return None


def lane(
    device: int,
    names: list[str],
    args: argparse.Namespace,
    files: dict[str, str],
    frames: dict[str, str],
) -> None:
    """All variants of one device, those without a load first, then by load."""
    load: subprocess.Popen[bytes] | None = None
    runs = "nothing"
    try:
        for name in sorted(names, key=lambda name: (VARIANTS[name].load, VARIANTS[name].script)):
            variant = VARIANTS[name]
            if variant.load and runs != variant.script:
                ended_load(load)
                script = args.zoo / f"{variant.script}.py" if variant.script else None
                load, runs = loaded(device, args.out, script), variant.script
                if load is None:
                    said = (args.out / f"load-{device}.txt").read_text("utf-8", "replace")
                    print(json.dumps({"device": device, "no_load": said[-400:]}), flush=True)
            told = tried(
                name, variant, device, args.seconds, files[variant.library], args.out, frames
            )
            told["beside_load"] = load is not None and load.poll() is None
            print(json.dumps(told), flush=True)
            with (args.out / "pm_steps.jsonl").open("a") as out:
                out.write(json.dumps(told) + "\n")
    finally:
        ended_load(load)


def ended_load(load: subprocess.Popen[bytes] | None) -> None:
    if load is not None:
        load.kill()
        load.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--only", choices=VARIANTS, action="append")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--zoo", type=Path, help="folder of scripts that some variants run beside")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only is None and args.zoo is None:
        args.only = [name for name, variant in VARIANTS.items() if not variant.script]
    if args.zoo is None and any(VARIANTS[name].script for name in args.only or ()):
        parser.error("--zoo DIR: where the scripts are that some variants run beside")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.child:
        name, task = args.child[0], json.loads(args.child[1])
        child(
            name,
            Variant(**task["variant"]),
            task["device"],
            task["seconds"],
            task["library"],
            args.out,
        )
    files, frames = libraries(), crash_frames(args.out)
    wanted = args.only or list(VARIANTS)
    names = [name for name in wanted if not VARIANTS[name].two]
    lanes = [
        threading.Thread(target=lane, args=(number, names[number :: args.devices], args, files, frames))
        for number in range(args.devices)
    ]  # fmt: skip
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    # Two devices are free only once the lanes are done.
    if args.devices > 1:
        lane(0, [name for name in wanted if VARIANTS[name].two], args, files, frames)


if __name__ == "__main__":
    main()
