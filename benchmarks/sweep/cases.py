"""Turns a list of small cases into one training script: every case once a step, in a fixed order.

A case makes its inputs once and gives a function that launches its kernels. Inputs are slices of one
buffer a dtype: hundreds of cases then fit in a few GiB, and Nsight Compute, which saves the memory
of the process before it replays a kernel, has little to save.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))
from harness import Setting, Step

TINY = 8
"""The largest extent of a tensor on a CPU that only tries the script."""
POOL_BYTES = 1 << 30
"""Of a dtype's buffer: more than any case needs, so that a case's inputs do not overlap."""
TINY_POOL_BYTES = 1 << 23
ORDER = 20261121
"""Seed of the order of the cases: a counting cut short holds a fair sample."""
MOST_BYTES = 12 << 30
"""What one case may take beyond what was there before it."""

Run = Callable[[], object]


class Pool:
    """Where the inputs of cases come from. Shapes are given as in a real job and cut when tiny."""

    def __init__(self, s: Setting) -> None:
        self.device, self.tiny = s.device, s.tiny
        self._flat: dict[torch.dtype, torch.Tensor] = {}
        self._at: dict[torch.dtype, int] = {}

    def n(self, extent: int) -> int:
        """An extent, a number of heads, groups or classes."""
        return min(extent, TINY) if self.tiny else extent

    def shape(self, *extents: int) -> tuple[int, ...]:
        return tuple(map(self.n, extents))

    def randn(
        self,
        *extents: int,
        dtype: torch.dtype = torch.float32,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> torch.Tensor:
        """Normal numbers nobody may write to: other cases read them too."""
        form = torch.empty(self.shape(*extents), dtype=dtype, device="meta", memory_format=layout)
        return self.like(form)

    def leaf(
        self,
        *extents: int,
        dtype: torch.dtype = torch.float32,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> torch.Tensor:
        """The same, wanting a gradient."""
        return self.randn(*extents, dtype=dtype, layout=layout).requires_grad_()

    def like(self, form: torch.Tensor) -> torch.Tensor:
        """Numbers in the shape, dtype and, where it has no holes, the strides of a tensor."""
        form = torch.empty_like(form, device="meta")
        flat, size = self._buffer(form.dtype), form.numel()
        if size > len(flat):
            raise ValueError(f"{size} elements of {form.dtype} are more than the pool has")
        start = self._at.get(form.dtype, 0)
        if start + size > len(flat):
            start = 0
        # 512 bytes, as torch's allocator aligns.
        self._at[form.dtype] = start + -(-size // 512) * 512
        return flat.as_strided(form.shape, form.stride(), start).detach()

    def own(self, *extents: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers of the case's own, to be written to."""
        return torch.randn(self.shape(*extents), device=self.device).to(dtype)

    def index(self, high: int, *extents: int, hot: bool = False) -> torch.Tensor:
        """Indices below `high`: uniform, or most of them among a few as words and users are."""
        shape, high = self.shape(*extents), self.n(high)
        if hot:
            drawn = torch.rand(shape, device=self.device).pow(8).mul(high).long()
            return drawn.clamp_(0, high - 1)
        return torch.randint(high, shape, device=self.device)

    def mask(self, *extents: int) -> torch.Tensor:
        """Half of it true."""
        return torch.rand(self.shape(*extents), device=self.device) < 0.5

    def _buffer(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._flat:
            many = (TINY_POOL_BYTES if self.tiny else POOL_BYTES) // dtype.itemsize
            if dtype.is_complex or dtype in (torch.float32, torch.float64, torch.float16):
                self._flat[dtype] = torch.randn(many, dtype=dtype, device=self.device)
            elif dtype.is_floating_point:
                flat = torch.empty(many, dtype=dtype, device=self.device)
                for part in flat.split(1 << 27):
                    part.copy_(torch.randn(len(part), device=self.device))
                self._flat[dtype] = flat
            else:
                flat = torch.randint(0, 100, (many,), dtype=dtype, device=self.device)
                self._flat[dtype] = flat
        return self._flat[dtype]


@dataclass(frozen=True)
class Case:
    """One op or a few that belong together."""

    name: str
    make: Callable[[Pool], Run]


def both(p: Pool, f: Callable[..., torch.Tensor], *inputs: torch.Tensor | None) -> Run:
    """`f` and the gradients of those inputs that want one; nothing is added up between steps."""
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    with torch.no_grad():
        grad = p.like(f(*inputs))

    def run() -> object:
        out = f(*inputs)
        return torch.autograd.grad(out, wanted, grad.view_as(out), allow_unused=True)

    return run


def of_module(p: Pool, module: torch.nn.Module, *inputs: torch.Tensor) -> Run:
    """A module in training and the gradients of its parameters and inputs."""
    module.train()
    weights = [w for w in module.parameters() if w.requires_grad]
    wanted = [*weights, *(x for x in inputs if x.requires_grad)]

    def call() -> torch.Tensor:
        out = module(*inputs)
        return out[0] if isinstance(out, tuple) else out

    with torch.no_grad():
        grad = p.like(call())
    return lambda: torch.autograd.grad(call(), wanted, grad, allow_unused=True)


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """TF32 for products and convolutions, as many scripts set it."""
    backends = torch.backends
    before = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = on
    try:
        yield
    finally:
        backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = before


def with_tf32(on: bool, run: Run) -> Run:
    def switched() -> object:
        with tf32(on):
            return run()

    return switched


def building(name: str, cases: Callable[[], Iterable[Case]]) -> Callable[[Setting], Step]:
    """The `build` of a script: each case tried once, those that cannot run here left out."""

    def build(s: Setting) -> Step:
        listed = list(cases())
        random.Random(ORDER).shuffle(listed)
        pool = Pool(s)
        loss = torch.zeros((), device=s.device)
        runs = [run for case in listed if (run := tried(case, pool)) is not None]
        gc.collect()
        if s.device.type == "cuda":
            torch.cuda.empty_cache()
        print(f"{name}: {len(runs)} of {len(listed)} cases run here", file=sys.stderr)

        def step(i: int) -> torch.Tensor:
            for run in runs:
                run()
            return loss

        return step

    return build


def tried(case: Case, pool: Pool) -> Run | None:
    """What the case launches, or None, with its reason told, where it does not run."""
    try:
        held = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
        run = case.make(pool)
        if pool.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for _ in range(2):
            run()
        if pool.device.type == "cuda":
            torch.cuda.synchronize()
            took = torch.cuda.max_memory_allocated() - held
            if took > MOST_BYTES:
                raise MemoryError(f"takes {took >> 20} MiB")
        return run
    except Exception as error:
        said = " ".join(str(error).split())[:160]
        print(f"left out: {case.name}: {type(error).__name__}: {said}", file=sys.stderr)
        return None
