"""How long the first verdict takes on public programs, of many kinds, from before the attach.

    python benchmarks/any/verdicts.py --out DIR [--site DIR] [--only NAME,…] [--limit 540] [--ahead 4]

Each program is a process of its own: loads, warms up for some steps and waits; then it alone goes on, is attached to
2 s later and watched until the first verdict, and ends. The next ones load meanwhile. Programs are those of
`benchmarks.gains` (timm, torchvision, transformers, peft, Lightning, PyG, torchaudio, pytorch/examples, nanoGPT),
loops without an optimizer, generation and embedding, JAX, Flax and CuPy. One that cannot load here is listed with its
reason and does not count. Passes where at least 25 had a verdict, all of them, and the 95th percentile is at
most 3 s. Writes DIR/verdicts.json and verdicts.md (the page beside this script), and a line a program to stdout.
With `--stand-in CUDA,CUPTI,LAUNCHERS` (libraries of tests/fakes) a program on the CPU shows that the script works.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import gpu_options  # noqa: E402
from first_verdict import verdict  # noqa: E402
from overhead import machine  # noqa: E402

LEAST, WANTED_S, WARM_STEPS, SETTLE_S, LOAD_S = 25, 3.0, 5, 2.0, 150.0
TRAINED = (
    "tv_resnet50", "timm_vit_tiny_loader", "hf_llama_lora", "pyg_gcn", "lightning_demo", "example_wlm_lstm",
    "nanogpt_124m", "table_dlrm", "audio_conformer", "diffusion_unet_bf16", "rl_ppo", "tv_resnet18_loader",
    "example_wlm_transformer", "example_dcgan", "hf_distilbert_loader", "pyg_gin_molecules", "tv_deeplabv3",
    "example_mnist", "nanogpt_char_fp32", "audio_conv_tasnet", "tv_fasterrcnn", "ode_rk4", "table_mlp",
    "tv_r3d_18", "nanogpt_laptop", "tv_fcn_pageable",
)  # fmt: skip
"""Of `benchmarks.gains`; every further one there of timm, transformers and PyG comes after them."""
OTHERS = ("by_hand", "jax", "jax_graphs", "cupy", "generate", "embed", "flax")
"""Of `programs.py`, which print a line when they are warm, and are stopped there until it is their turn."""


def names() -> list[str]:
    """All programs, the kinds interleaved, so that a limit cuts off a fair part."""
    from benchmarks.gains import MODELS

    more = [n for n in MODELS if n.startswith(("timm_", "hf_", "pyg_")) and n not in TRAINED]
    trained = [n for n in (*TRAINED, *more) if n in MODELS]
    for at, name in enumerate(OTHERS):
        trained.insert(3 * at, name)
    return trained


def stand_in(libraries: str) -> Callable[[], Any]:
    """Threads that launch on a GPU that is none."""
    import ctypes

    _, cupti, launchers = (ctypes.CDLL(p, mode=ctypes.RTLD_GLOBAL) for p in libraries.split(","))
    launchers.launchers_begin(cupti.fake_api, 2, 20, 200, 20)
    return lambda: time.sleep(0.01)


def child(name: str, args: argparse.Namespace) -> None:
    """Loads the program, says so, waits for its turn, and goes on for ever."""
    if name == "stand_in":
        step = stand_in(args.stand_in)
    else:
        import torch

        from benchmarks.gains.loops import make

        step, _ = make(name, "", torch.device(args.device), args.device == "cpu")
    for _ in range(WARM_STEPS):
        step()
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        step()


class Program:
    """A process that loads one of them."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name, self.lines = name, list[str]()
        words = [sys.executable, str(HERE / "verdicts.py"), "--child", name, "--out", str(args.out),
                 "--device", args.device, "--stand-in", args.stand_in]  # fmt: skip
        if name in OTHERS:
            words = [sys.executable, str(HERE / "programs.py"), name]
        graphs = "" if name == "jax_graphs" else "--xla_gpu_enable_command_buffer="
        env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "HF_HUB_OFFLINE": "1",
               "XLA_FLAGS": f"{graphs} --xla_gpu_autotune_level=0"}  # fmt: skip
        self.errors = args.out / f"{name}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=env,
            )
        threading.Thread(target=self._read, daemon=True).start()
        self.until_s = time.monotonic() + LOAD_S

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not self.lines and self.name in OTHERS:
                self.process.send_signal(signal.SIGSTOP)
            self.lines.append(line.strip())

    @property
    def loads(self) -> bool:
        in_time = time.monotonic() < self.until_s
        return not self.lines and self.process.poll() is None and in_time

    def watched(self) -> dict[str, Any]:
        """Its row: the verdict and its time, or why there is none."""
        if not self.lines:
            text = self.errors.read_text("utf-8", "replace").strip().splitlines()
            return {"name": self.name, "absent": (text or ["it did not load in time"])[-1][-160:]}
        if self.name in OTHERS:
            self.process.send_signal(signal.SIGCONT)
        else:
            assert self.process.stdin is not None
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        time.sleep(SETTLE_S)
        try:
            return {"name": self.name, **verdict(self.process.pid)}
        except Exception as fault:
            return {"name": self.name, "fault": f"{type(fault).__name__}: {fault}"}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def rows(chosen: list[str], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row a program, in the order in which they are ready; the next ones load while one is watched."""
    end_s, waiting, loading = time.monotonic() + args.limit, list(chosen), list[Program]()
    try:
        while (waiting or loading) and time.monotonic() < end_s:
            while waiting and len(loading) < args.ahead:
                loading.append(Program(waiting.pop(0), args))
            program = next((one for one in loading if not one.loads), None)
            if program is None:
                time.sleep(0.05)
                continue
            loading.remove(program)
            try:
                yield program.watched()
            finally:
                program.end()
    finally:
        for program in loading:
            program.end()


def summed(result: list[dict[str, Any]]) -> dict[str, Any]:
    """How many had a verdict, and when."""
    there = [row for row in result if "absent" not in row]
    times = sorted(row["verdict_s"] for row in there if row.get("regime", "unknown") != "unknown")
    p95 = times[max(0, -(-95 * len(times) // 100) - 1)] if times else None
    return {
        "programs": len(there), "with_verdict": len(times), "p95_s": p95,
        "median_s": times[len(times) // 2] if times else None,
        "good": len(times) == len(there) >= LEAST and p95 is not None and p95 <= WANTED_S,
    }  # fmt: skip


def markdown(facts: dict[str, Any], summary: dict[str, Any], result: list[dict[str, Any]]) -> str:
    """What is kept beside this script."""
    lines = [
        "# Seconds to the first verdict",
        "",
        "Made by `python benchmarks/any/verdicts.py`; what it does stands at its head. "
        f"{facts['gpu'] or 'No GPU'}, driver {facts['driver'] or '–'}, torch {facts.get('torch', '–')}, "
        f"Python {facts['python']}, {facts['date']}. Seconds count from before the attach.",
        "",
        "Models of packages: `timm`, `tv` (torchvision), `hf` (transformers), `pyg` (PyTorch Geometric), `audio` "
        "(torchaudio), `lightning`, in the loops of `benchmarks.gains`. After public repositories: `example` "
        "(pytorch/examples), `nanogpt`. Written there: `table`, `rl`, `diffusion`, `ode`. The others: `programs.py`.",
        "",
        f"{summary['with_verdict']} of {summary['programs']} programs had a verdict: "
        f"{summary['median_s']} s in the median, {summary['p95_s']} s at the 95th percentile.",
        "",
        "| program | seconds | verdict | steps by | kernels in it |",
        "|---|--:|---|---|--:|",
    ]
    absent = [f"{row['name']}: {row['absent']}" for row in result if "absent" in row]
    lines += [
        f"| {row['name']} | {row.get('verdict_s', '–')} | {row.get('regime') or row.get('fault', 'none')} "
        f"| {row.get('steps') or '–'} | {row.get('kernels', '–')} |"
        for row in result
        if "absent" not in row
    ]
    lines += ["", *(f"Not there: {one}" for one in absent)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds in all")
    parser.add_argument("--ahead", type=int, default=4, help="programs that load meanwhile")
    parser.add_argument("--stand-in", default="")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args)
        return 0
    gpu_options.prepare(args)
    chosen = args.only.split(",") if args.only else names()
    facts, result, summary = machine(), list[dict[str, Any]](), dict[str, Any]()
    for row in rows(chosen, args):
        result.append(row)
        print(json.dumps(row), flush=True)
        summary = summed(result)
        data = {"machine": facts, "summary": summary, "rows": result}
        (args.out / "verdicts.json").write_text(json.dumps(data, indent=1) + "\n")
        (args.out / "verdicts.md").write_text(markdown(facts, summary, result))
    print(json.dumps(summary))
    return 0 if summary.get("good") else 1


if __name__ == "__main__":
    sys.exit(main())
