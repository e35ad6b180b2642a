"""Where a sample found the training thread, and what the program does there, by the user's own names."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property, lru_cache

from msgspec import Struct

from brrrtop.model.run import PhaseKind

COMPILER = "torch.compile"
"""Stands for the user's line where the compiler is at work."""

Frame = tuple[str, str]
"""File and function."""
BatchLines = Mapping[Frame, Collection[tuple[int, int]]]
"""By function that calls the optimizer, in which of its lines batches are made."""
Key = tuple[PhaseKind, Frame | str]
"""What a phase does, and the user's function, or the line, that it is in."""


class Place(Struct, frozen=True, eq=False, dict=True):
    """One stack sample: `main.py:238 fetch < main.py:303 train > torch/a.py:12 f | source`."""

    frames: tuple[tuple[str, str], ...]
    """The user's own frames, `(file:line, function)`, innermost first."""
    source: str
    """The innermost one's line; empty where nobody could read it."""
    library: str = ""
    """The innermost frame of all where it is a library's: `modules/linear.py:134 Linear.forward`."""

    @cached_property
    def compiles(self) -> bool:
        return _COMPILER.search(self.library) is not None

    @cached_property
    def computes(self) -> bool:
        """In a library that is neither Python's own, NumPy nor torch's loader: on its way to a launch."""
        return _COMPUTES.search(self.library) is not None

    @cached_property
    def learns(self) -> bool:
        """In a backward pass, or in an optimizer, where the agent's hook may be; not for a gradient alone."""
        return _LEARNS.search(self.library) is not None and not _GRADIENT.search(self.source)

    @cached_property
    def runs_model(self) -> bool:
        return _RUNS_MODEL.search(self.library) is not None

    @cached_property
    def waits_for_batch(self) -> bool:
        """For what another thread puts into a queue, `requests.get()` of one is no download; or a server for
        its next request."""
        return self._is_in(_QUEUE, _TAKES) or self._is_in(_IDLES, _SERVES)

    @cached_property
    def begins_loader(self) -> bool:
        """Starts its workers anew."""
        return self._is_in(_LOADS, _BEGINS)

    def _is_in(self, library: re.Pattern[str], line: re.Pattern[str]) -> bool:
        return bool(library.search(self.library)) and bool(line.search(self.source))

    def acts_below(self, depth: int) -> Frame | str | None:
        """What acts in a simulator at the line of that frame, counted from the innermost: a function called
        there, by its name; or the line, by its words or the host's mathematics in a `step()` below it."""
        called = self.functions[::-1][:depth]
        names = [name.rpartition(".")[2] for _, name in called]
        if "forward" in names:
            return None
        acts = [f for f in called if kind_of(f[1]) is PhaseKind.ROLLOUT]
        words = _HOST_MATHS if "step" in names else _ACTS if not depth else None
        line = self.frames[depth][0] if words and words.search(self.source) else None
        return acts[-1] if acts else line

    @cached_property
    def functions(self) -> tuple[tuple[str, str], ...]:
        return tuple((where.rpartition(":")[0], function) for where, function in self.frames[::-1])


_WORDS = {
    PhaseKind.SAVING: r"save|checkpoint|ckpt|snapshot|dump|imwrite|write_(bytes|text|\w*image|png|video)"
    r"|\bcpu\b.*\bstate(_dict\(\))?\.(items|values)\(",
    PhaseKind.EVALUATION: r"eval|valid|(?<![a-z])test|estimate_loss|metric|predict|accuracy|bleu|rouge"
    r"|frechet|(?<![a-z])fid(?![a-z])",
    PhaseKind.GENERATION: r"generat(?!or)|denois|sampling|^sample(_text|_images?)?$|decod|infer",
    PhaseKind.ROLLOUT: r"rollout|(?<!gc\.)collect|simulat|episode|experience|trajector|(?<![a-z])play|explor"
    r"|(?<![a-z])(envs?|plan|imagine)(?![a-z])",
    PhaseKind.DATA: r"load|fetch|dataset|tokeniz|preprocess|augment|prepare|shuffle|(?<![a-z])read"
    r"|(?<!before_)(?<!after_)(?<!train_)(?<!on_)batch(?!_(start|end))",
}
_COMPILER = re.compile(
    r"^(?!.*/(eval_frame|runtime_wrappers|output_code|apis|vmap|eager_transforms|predispatch|pyfunctorch"
    r"|functional_call)\.py)"
    r"(_?(dynamo|inductor|functorch)|_aot_autograd|symbolic|fx|triton|codegen)/"
)
"""Folders of torch's compiler, but for what runs its work, and for torch.func; a sample holds the last two
parts of a path."""
_COMPUTES = re.compile(
    r"^(?!python3|threading|multiprocessing|data/|_utils/|(_?core|lib|random)/)\S+\.py:"
)
"""Not NumPy, whose arrays are the host's."""
_LEARNS = re.compile(
    r"^((autograd/(graph|__init__)|optim/\w+)\.py:|torch/_tensor\.py:\d+ \S*backward"
    r"|probes/steps\.py:\d+ Steps\._stepped)"
)
_GRADIENT = re.compile(r"\bgrad\(")
_RUNS_MODEL = re.compile(
    r"^modules/((?!module\.py)\w+\.py:|module\.py:\d+ \S*_call_impl)|^nn/functional\.py:"
    r"|^(?!transforms/|v2/)\S+ \S*[._]forward$"
)
"""Transforms of pictures have a `forward`, too."""
_SAVES = re.compile(r"torch\.save\(|save_(state|checkpoint|model|pretrained)")
MOST_SILENT = 3
"""So many samples that no word speaks for go with one of a save."""
_DRAWS = re.compile(r"\bmultinomial\(|\.sample\(")
"""What a model that only runs forward does with what it says, where it writes."""
_ACTS = re.compile(r"\b\w*env\w*\.step\(|\.step\(\w*action")
_HOST_MATHS = re.compile(r"\b(np|numpy|math|random)\.")
_QUEUE = re.compile(r"^python3\.\d+t?/(threading|queue)\.py:")
_IDLES = re.compile(r"^python3\.\d+t?/(selectors|socketserver|socket)\.py:")
_SERVES = re.compile(
    r"\b(handle_request|serve_forever|run_forever|run_until_complete)\(|\basyncio\.run\("
)
_FROM_HOST = re.compile(
    r"(?!.*from_numpy\([\w, ]*\)\.(to|cuda)\()([\w, ]+ = |return )?"
    r"(torch\.(tensor|as_tensor|from_numpy|stack\(\[torch\.from_numpy)|(np|numpy)\.(array|asarray|stack)|(zip\(\*)?random\.sample)\("
)
"""A line that does nothing but make a tensor, or an array, of what the host has."""
_MAKES_TENSORS = re.compile(
    r"from_numpy(?!\([\w, ]*\)\.(to|cuda)\()|torch\.\w*[tT]ensor\(|torch\.stack\(\[|pad_sequence\("
)
_MOVES = re.compile(r"[\w)]\.(to|cuda)\(")
_MAKES_MANY = re.compile(r"[\[(].*\bfor\b|stack\(|pad_sequence\(|as_tensor\(\w+\[")
"""A line that does more than to copy what it moves to the GPU."""
_MAKES_ARRAYS = re.compile(
    r"\b(np|numpy)\.(stack|array|asarray|concatenate|memmap|random\.\w+)\(|\.astype\("
)
_PART = re.compile(r"(<genexpr>|comp>)$|\btorch_geometric\.\w")
"""A frame that is part of the next: what PyG writes for each layer has a `collect()`, too."""
_SILENT = (PhaseKind.OTHER, PhaseKind.DATA)
_TAKES = re.compile(r"\.(get\w*|result|acquire|wait)\(|\bnext\(|^(async )?for\b|\byield\b")
"""A line that asks for the next of several things."""
_LOADS = re.compile(r"^(multiprocessing|data|_utils|python3\.\d+t?)/")
_BEGINS = re.compile(r"\biter\(|\.__iter__\(")
_PATTERNS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in _WORDS.items())


@lru_cache(maxsize=4096)
def place_of(name: str) -> Place:
    """The place that a stack sample's name says."""
    frames, _, source = name.partition(" | ")
    frames, _, library = frames.partition(" > ")
    parts = (frame.rpartition(" ") for frame in frames.split(" < "))
    *inner, outermost = [(where, function) for where, _, function in parts]
    whole = (frame for frame in inner if not _PART.search(" ".join(frame)))
    return Place((*whole, outermost), source, library)


@lru_cache(maxsize=4096)
def kind_of(function: str, source: str = "") -> PhaseKind:
    """What a function of that name does, or a line with that source; `OTHER` where no word says."""
    for text in (function.rpartition(".")[2], source):
        for kind, pattern in _PATTERNS:
            if text and pattern.search(text):
                return kind
    return PhaseKind.OTHER


def _tells_more(function: str) -> bool:
    """Whether a name says that it saves and something else: `_maybe_log_save_evaluate`."""
    name = function.rpartition(".")[2]
    return kind_of(name) is PhaseKind.SAVING and any(
        pattern.search(name) for _, pattern in _PATTERNS[1:4]
    )


def foreign_frame(
    place: Place, usual: frozenset[Frame | str], loops: frozenset[Frame] = frozenset()
) -> Frame | str | None:
    """The outermost function that no usual step is in, of those whose names say what they do, if any;
    or else the outermost with a name; or the line of a loop that no usual step is at, or the innermost
    one. None: it is usual."""
    if place.compiles:
        return COMPILER
    others = [frame for frame in place.functions if frame not in usual]
    if place.waits_for_batch and all(kind_of(frame[1]) in _SILENT for frame in others):
        return None
    if others:
        telling = [frame for frame in others if kind_of(frame[1]) is not PhaseKind.OTHER]
        if telling and _tells_more(telling[0][1]):  # deeper ones know which, or its line
            at = place.functions.index(telling[0])
            if len(telling) == 1 and at + 1 < len(place.frames):
                return place.frames[::-1][at][0]
            telling = telling[1:] or telling
        named = (frame for frame in others if not frame[1].endswith(">"))
        return next(iter(telling), next(named, others[0]) if usual else others[-1])
    inner = place.frames[0][0]
    return line_of_loop(place, usual, loops) or (inner if inner not in usual else None)


def line_of_loop(
    place: Place, usual: frozenset[Frame | str], loops: frozenset[Frame]
) -> str | None:
    """The outermost line of a loop that no usual step is at."""
    at = zip((line for line, _ in place.frames[::-1]), place.functions, strict=True)
    return next((line for line, f in at if f in loops and line not in usual), None)


def kind_within(frame: Frame | str, places: Mapping[Place, int]) -> PhaseKind:
    """What goes on in a function, or at lines of one: by its name, or else by what its samples find there.

    A backward pass is training. A model that runs without one writes text or pictures (which it saves), acts
    in a simulator or, where no word says so, is evaluated. Else words of the lines tell.

    Args:
        places: Where samples found the thread within it, and how many.
    """
    if frame == COMPILER:
        return PhaseKind.COMPILE
    if isinstance(frame, tuple) and frame[1] != "<module>":
        kind = kind_of(frame[1])
        if kind is not PhaseKind.OTHER:
            return kind
    if any(place.learns for place in places):
        return PhaseKind.TRAIN
    runs_model = any(place.runs_model for place in places)
    words: Counter[PhaseKind] = Counter()
    writes = False
    around = {function for place in places for where, function in place.frames if where == frame}
    for place, count in places.items():
        function = place.frames[0][1]
        kind = kind_of("" if function in around else function, place.source)
        if kind is PhaseKind.SAVING and runs_model and _SAVES.search(place.source) is None:
            writes = True
        else:
            silent = kind is PhaseKind.DATA and (runs_model or place.computes)
            words[PhaseKind.OTHER if silent else kind] += count
    others = words.pop(PhaseKind.OTHER, 0)
    if MOST_SILENT * words[PhaseKind.SAVING] < others:  # whoever plays has other lines as well
        del words[PhaseKind.SAVING]
    if len(+words) > 1:  # whatever it does, it makes its batches for that
        del words[PhaseKind.DATA]
    if words:
        return words.most_common(1)[0][0]
    if not runs_model:
        return PhaseKind.OTHER
    draws = isinstance(frame, tuple) and "sampl" in frame[1].lower()
    draws = draws or writes or any(_DRAWS.search(place.source) for place in places)
    return PhaseKind.GENERATION if draws else PhaseKind.EVALUATION


def makes_batches(place: Place, loop: BatchLines, makers: Collection[Frame]) -> bool:
    """Whether the innermost of the user's functions of which it is known what they do makes batches; in one
    that calls the optimizer, and so does everything, whether the line does.

    Args:
        loop: Of functions that do everything.
        makers: See `batch_makers`.
    """
    for at, frame in enumerate(place.functions[::-1]):
        if frame in loop:
            number = line_number(place.frames[at][0])[1]
            early = any(low < number <= high for low, high in loop[frame])
            if early and not place.runs_model and kind_of("", place.source) in _SILENT:
                return True
            copies = _MOVES.search(place.source) and not _MAKES_MANY.search(place.source)
            makes = _FROM_HOST.match(place.source) is not None and not copies
            return not at and not place.computes and makes
        if frame in makers:
            parts = (part for _, function in place.functions for part in function.split("."))
            return not any(kind_of(part) is PhaseKind.ROLLOUT for part in parts)
        if kind_of(frame[1]) is not PhaseKind.OTHER:
            break
    return False


def batch_lines(loop: Collection[Frame], places: Collection[Place]) -> BatchLines:
    """Where each function makes batches: after which line, up to which one. They begin after a model runs, or
    acts in a simulator, and end with what makes tensors of what the host has, or before these are moved, all
    before it learns.

    Args:
        places: Of all samples.
    """
    made: dict[Frame, list[tuple[int, bool]]] = {frame: [] for frame in loop}
    apart: dict[Frame, set[int]] = {frame: {0} for frame in loop}
    learned = dict.fromkeys(loop, 1 << 62)
    for place in places:
        for depth, frame in enumerate(place.functions[::-1]):
            number = line_number(place.frames[depth][0])[1]
            if frame not in made:
                continue
            if place.learns:
                learned[frame] = min(learned[frame], number)
            elif place.runs_model or place.acts_below(depth) is not None:
                apart[frame].add(number)
            elif depth:
                continue
            elif _MOVES.search(place.source) and not _MAKES_MANY.search(place.source):
                made[frame].append((number, True))
            elif _MAKES_TENSORS.search(place.source):
                made[frame].append((number, False))
    result: dict[Frame, list[tuple[int, int]]] = {}
    for frame, lines in made.items():
        until: dict[int, int] = {}
        for line, moves in sorted(lines, key=lambda one: (not one[1], one[0])):
            if line < learned[frame] and line not in apart[frame]:
                low = max(before for before in apart[frame] if before < line)
                until[low] = until.get(low, line - 1) if moves else max(until.get(low, 0), line)
        result[frame] = list(until.items())
    return result


def line_number(line: str) -> tuple[str, int]:
    """`train.py:8` → its file and 8."""
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0


def batch_makers(places: Mapping[Place, int]) -> frozenset[Frame]:
    """Functions whose names say that they make batches, or that make tensors of what the host has, or spend
    most of their time with arrays of it. None runs a model.

    Args:
        places: Of all samples, and how many found the thread there.
    """
    making: Counter[Frame] = Counter()
    models: set[Frame] = set()
    for place, count in places.items():
        named = [frame for frame in place.functions if not frame[1].endswith(">")]
        if place.runs_model or place.learns:
            models.update(named)
            continue
        making.update({f: 1 << 30 for f in named if kind_of(f[1]) is PhaseKind.DATA})
        if named and _MAKES_TENSORS.search(place.source):
            making[named[-1]] += 1 << 30  # whatever else the function does
        elif named:
            making[named[-1]] += count if _MAKES_ARRAYS.search(place.source) else -count
    return frozenset(frame for frame, more in making.items() if more > 0 and frame not in models)
