"""Where a sample found the training thread, and what the program does there, by the user's own names."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from msgspec import Struct

from brrrtop.model.run import PhaseKind

COMPILER = "torch.compile"
"""Stands for the user's line where the compiler is at work."""

Frame = tuple[str, str]
"""File and function."""
Key = tuple[PhaseKind, Frame | str]
"""What a phase does, and the user's function, or the line, that it is in."""


class Place(Struct, frozen=True):
    """One stack sample: `main.py:238 fetch < main.py:303 train > torch/a.py:12 f | source`."""

    frames: tuple[tuple[str, str], ...]
    """The user's own frames, `(file:line, function)`, innermost first."""
    source: str
    """The innermost one's line; empty where nobody could read it."""
    library: str = ""
    """The innermost frame of all where it is a library's: `modules/linear.py:134 Linear.forward`."""

    @property
    def compiles(self) -> bool:
        return _COMPILER.search(self.library) is not None

    @property
    def computes(self) -> bool:
        """In a library that is neither Python's own nor torch's loader: on its way to a launch."""
        return _COMPUTES.search(self.library) is not None

    @property
    def waits_for_batch(self) -> bool:
        """For what another thread puts into a queue; `requests.get()` of one is no download."""
        return _QUEUE.search(self.library) is not None and _TAKES.search(self.source) is not None

    @property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """`(file, function)` of each frame, outermost first."""
        return tuple((where.rpartition(":")[0], function) for where, function in self.frames[::-1])


_KINDS = (
    (PhaseKind.SAVING, r"save|checkpoint|ckpt|snapshot|dump"),
    (PhaseKind.EVALUATION, r"eval|valid|(?<![a-z])test|estimate_loss|metric"),
    (PhaseKind.GENERATION, r"generat|sampling|^sample(_text|_images?)?$|decod|infer|predict"),
    (PhaseKind.ROLLOUT, r"rollout|collect|simulat|episode|(?<![a-z])play|explor|(?<![a-z])envs?(?![a-z])"),
    (
        PhaseKind.DATA,
        r"load|batch|fetch|dataset|tokeniz|preprocess|augment|prepare|shuffle|(?<![a-z])read|download",
    ),
)  # fmt: skip
_COMPILER = re.compile(
    r"^(?!.*/(eval_frame|runtime_wrappers|output_code)\.py)"
    r"(_?(dynamo|inductor|functorch)|_aot_autograd|symbolic|fx|triton|codegen)/"
)
"""Folders of torch's compiler, but for what runs its work; a sample holds the last two parts of a path."""
_COMPUTES = re.compile(r"^(?!python3|threading|data/|_utils/)\S+\.py:")
_QUEUE = re.compile(r"^python3\.\d+t?/(threading|queue)\.py:")
_FROM_HOST = re.compile(
    r"([\w, ]+ = |return )?(torch\.(tensor|as_tensor|from_numpy|stack\(\[torch\.from_numpy)"
    r"|(np|numpy)\.(array|asarray|stack)|(zip\(\*)?random\.sample)\("
)
"""A line that does nothing but make a tensor, or an array, of what the host has."""
_TAKES = re.compile(r"\.get\w*\(|\bnext\(|^(async )?for\b|\byield\b")
"""A line that asks for the next of several things."""
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)


@lru_cache(maxsize=4096)
def place_of(name: str) -> Place:
    """The place that a stack sample's name says."""
    frames, _, source = name.partition(" | ")
    frames, _, library = frames.partition(" > ")
    each = (frame.rpartition(" ") for frame in frames.split(" < "))
    return Place(
        tuple((where, function) for where, _, function in each),
        source,
        library,
    )


@lru_cache(maxsize=4096)
def kind_of(function: str, source: str = "") -> PhaseKind:
    """What a function of that name does, or a line with that source; `OTHER` where no word says."""
    for text in (function.rpartition(".")[2], source):
        for kind, pattern in _PATTERNS:
            if text and pattern.search(text):
                return kind
    return PhaseKind.OTHER


def foreign_frame(
    place: Place, usual: frozenset[Frame | str], loops: frozenset[Frame] = frozenset()
) -> Frame | str | None:
    """The outermost function that no usual step is in, of those whose names say what they do, if any;
    or else the outermost with a name; or the line of a loop that no usual step is at, or the innermost
    one. None: it is usual."""
    if place.compiles:
        return COMPILER
    if place.waits_for_batch:
        return None
    others = [frame for frame in place.functions if frame not in usual]
    if others:
        telling = (frame for frame in others if kind_of(frame[1]) is not PhaseKind.OTHER)
        named = (frame for frame in others if not frame[1].endswith(">"))
        return next(telling, next(named, others[0]) if usual else others[-1])
    at = zip((line for line, _ in place.frames), place.functions[::-1], strict=True)
    lines = [place.frames[0][0], *(line for line, function in at if function in loops)]
    return next((line for line in lines[::-1] if line not in usual), None)


def kind_at(frame: Frame | str, place: Place) -> PhaseKind:
    """What goes on there: by the function's name, or by the line's words where it is the module's own."""
    if frame == COMPILER:
        return PhaseKind.COMPILE
    if isinstance(frame, tuple) and frame[1] != "<module>":
        kind = kind_of(frame[1])
        if kind is not PhaseKind.OTHER or place.functions[-1] != frame:
            return kind
    kind = kind_of(place.frames[0][1], place.source)
    return PhaseKind.OTHER if kind is PhaseKind.DATA and place.computes else kind


def makes_batches(place: Place, loop: Collection[tuple[str, str]]) -> bool:
    """Whether the innermost of the user's functions whose name says what it does makes data; in one that
    says nothing because it calls the optimizer, whether the line does.

    Args:
        loop: Functions that call the optimizer, and so do everything.
    """
    for at, frame in enumerate(place.functions[::-1]):
        if frame in loop:
            return not at and not place.computes and _FROM_HOST.match(place.source) is not None
        if kind_of(frame[1]) is not PhaseKind.OTHER:
            return kind_of(frame[1]) is PhaseKind.DATA
    return False
