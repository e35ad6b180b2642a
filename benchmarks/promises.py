"""What advice promises beside what its fix wins: ten pairs of loops, one changed thing each.

    python benchmarks/promises.py record --out DIR     # on a GPU; needs torch alone
    python benchmarks/promises.py judge DIR            # anywhere; needs brrrtop

`record` times each loop with nothing attached, before and after, in turns, and traces four steps
of the one before. `judge` asks brrrtop about the trace and prints promised against measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WARM_UP, TIMED, ROUNDS, TRACED = 12, 20, 3, 4
Step = Callable[[], Any]


def tiny_model() -> Any:
    from torch import nn

    layers = [nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128), nn.GELU()) for _ in range(8)]
    return nn.Sequential(*layers, nn.Linear(128, 1)).cuda()


def training(model: Any, inputs: Any, optimizer: Any) -> Step:
    def step() -> Any:
        loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def launch_bound_compile(fixed: bool) -> Step:
    import torch

    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ran = torch.compile(model, mode="reduce-overhead") if fixed else model
    return training(ran, torch.randn(256, 128, device="cuda"), optimizer)


def fused_optimizer(fixed: bool) -> Step:
    import torch

    model = tiny_model()
    kind = {"fused": True} if fixed else {"foreach": False, "fused": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kind)
    return training(model, torch.randn(256, 128, device="cuda"), optimizer)


def sync_point(fixed: bool) -> Step:
    import torch
    from torch import nn

    with torch.device("cuda"):
        layers = [nn.Linear(2048, 2048) for _ in range(24)]
        x = torch.randn(2048, 2048, dtype=torch.bfloat16)
    for layer in layers:
        layer.to(torch.bfloat16)

    def step() -> Any:
        y, total = x, 0.0
        for layer in layers:
            y = torch.tanh(layer(y))
            value = y.float().mean()
            total = total + (value if fixed else value.item())
        return total

    return step


def fuse_pointwise(fixed: bool) -> Step:
    import torch

    x = torch.randn(1 << 26, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def block(x: Any) -> Any:
        y = (x.view(-1, 2048) @ weight).view(-1)
        for _ in range(4):
            y = y * torch.sigmoid(y) + 0.1
            y = 0.5 * y * (1.0 + torch.tanh(0.8 * y))
        return y

    ran = torch.compile(block) if fixed else block
    return lambda: ran(x)


def pin_memory(fixed: bool) -> Step:
    import torch

    batch = torch.rand(8192, 4096)
    if fixed:
        batch = batch.pin_memory()
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    return lambda: batch.to("cuda", non_blocking=fixed).to(torch.bfloat16) @ weight


def flash_attention(fixed: bool) -> Step:
    import torch
    from torch.nn import functional as F

    q, k, v = (torch.randn(2, 16, 4096, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    mask = torch.ones(4096, 4096, dtype=torch.bool, device="cuda").triu(1)
    for tensor in (q, k, v):
        tensor.requires_grad_()

    def step() -> Any:
        if fixed:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1) * 0.125).masked_fill(mask, float("-inf"))
            out = torch.softmax(scores, dim=-1) @ v
        out.sum().backward()
        return out.detach()

    return step


def tensor_core_alignment(fixed: bool) -> Step:
    import torch
    from torch import nn

    size = 4096 if fixed else 4095
    model = nn.Sequential(*(nn.Linear(size, size) for _ in range(4))).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(8192, size, device="cuda", dtype=torch.bfloat16)
    return training(model, x, optimizer)


def enable_tf32_or_amp(fixed: bool) -> Step:
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    step = training(model, torch.randn(4096, 4096, device="cuda"), optimizer)

    def set_and_step() -> Any:
        torch.set_float32_matmul_precision("high" if fixed else "highest")
        return step()

    return set_and_step


def channels_last(fixed: bool) -> Step:
    import torch
    from torch import nn

    layers: list[Any] = []
    for _ in range(8):
        layers += [nn.Conv2d(128, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU()]
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = nn.Sequential(*layers).cuda().to(memory_format=layout)
    images = torch.randn(64, 128, 56, 56, device="cuda").to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    step = training(model, images, optimizer)

    def amp_step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return step()

    return amp_step


class Slow:
    """A data set whose decode takes 5 ms a sample."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        import torch

        until = time.perf_counter() + 0.005
        while time.perf_counter() < until:
            pass
        return torch.rand(3, 64, 64)


def dataloader_stall(fixed: bool) -> Step:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    how = {"num_workers": 8, "prefetch_factor": 4} if fixed else {"num_workers": 0}
    batches = iter(DataLoader(Slow(), batch_size=8, **how))  # type: ignore[arg-type]
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).cuda()

    def step() -> Any:
        with torch.no_grad():
            return model(next(batches).cuda()).mean()

    return step


PAIRS: dict[str, Callable[[bool], Step]] = {
    build.__name__.replace("_", "-"): build
    for build in (
        launch_bound_compile,
        fused_optimizer,
        sync_point,
        fuse_pointwise,
        pin_memory,
        flash_attention,
        tensor_core_alignment,
        enable_tf32_or_amp,
        channels_last,
        dataloader_stall,
    )
}
"""By the advice whose fix it is."""


def milliseconds(step: Step) -> float:
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / TIMED


def record(out: Path, only: set[str]) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    out.mkdir(parents=True, exist_ok=True)
    for kind, build in PAIRS.items():
        if only and kind not in only:
            continue
        torch.manual_seed(0)
        steps = build(False), build(True)
        for step in steps:
            for _ in range(WARM_UP):
                step()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for place, step in enumerate(steps):
                times[place].append(milliseconds(step))
        plan = schedule(wait=0, warmup=2, active=TRACED, repeat=1)
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        path = str(out / f"{kind}.trace.json.gz")
        with profile(
            activities=activities,
            schedule=plan,
            on_trace_ready=lambda p, path=path: p.export_chrome_trace(path),
            record_shapes=True,
        ) as prof:
            for _ in range(2 + TRACED):
                steps[0]()
                prof.step()
        before, after = (statistics.median(t) for t in times)
        found = {"kind": kind, "before_ms": before, "after_ms": after, "times_ms": times}
        found["device"] = torch.cuda.get_device_name()
        (out / f"{kind}.json").write_text(json.dumps(found, indent=1))
        print(f"{kind}: {before:.2f} ms -> {after:.2f} ms", flush=True)


def judge(folder: Path) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from brrrtop.session.opening import open_source
    from brrrtop.session.whole import analyze

    print("| advice | before | after | won | promised at most | won / promised |")
    print("|---|---|---|---|---|---|")
    held = 0
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        source = open_source(folder / f"{found['kind']}.trace.json.gz")
        given = {a.kind: a for a in analyze(source).advisories}
        source.close()
        won = 1 - found["after_ms"] / found["before_ms"]
        advice = given.get(found["kind"])
        promised = advice.saves_at_most if advice else None
        part = f"{won / promised:.2f}" if promised else "not advised"
        held += bool(promised and 0.5 <= won / promised <= 1)
        print(
            f"| `{found['kind']}` | {found['before_ms']:.2f} ms | {found['after_ms']:.2f} ms "
            f"| {won:.0%} | {f'{promised:.0%}' if promised else '–'} | {part} |"
        )
    print(f"\n{held} promises held: won at most what was promised, and at least half of it.")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--only", default="", help="advisory ids, separated by commas")
    verbs.add_parser("judge").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.verb == "judge":
        return judge(options.folder)
    record(options.out, {name for name in options.only.split(",") if name})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
