"""Device function names as people read them: without return type, arguments and namespaces."""

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

_RETURN = re.compile(r"^void\s+")
_ENABLE_IF = "std::enable_if<"
_WORDS = re.compile(r"[A-Za-z0-9]+")
_MOST_OF_TAG = 18
"""Characters of what tells two kernels of one short name apart."""
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{lambda[^}]*\}|\(lambda[^)]*\)")
_GENERIC = re.compile(
    r"^(?:Kernel2?|kentry|\w*elementwise\w*|unrolled\w*|reduce_kernel|multi_tensor\w*)$"
)
"""Frames around the work proper, which is named in their template arguments."""
_FIRST = re.compile(r"<([\w:]+)")
"""Of template arguments."""
_TILE = re.compile(r"ck_tile::(?!kentry\b)(\w+)<")
"""What an entry of Composable Kernel runs."""
_INNER = re.compile(
    r"(?P<cutlass>cutlass_\w*\d\w*)|(?P<kernel>\w+?)(?:_kernel_cuda|_kernel_impl|_kernel|CUDAKernelImpl)\b|"
    r"(?P<functor>\w*(?:[Ff]unctor|Ops|Op|Split[A-Z])\w*)"
)
_BOILERPLATE = re.compile(
    r"^cudnn_generated_(?:fort_)?(?:native_)?|(?:_cga\dx\dx\d)?_kernel\d_\d$|"
    r"_execute(?:_\w+?)?_kernel(?:__5x)?(?:_cudnn|_cublas)?$"
)
"""At the ends of the names of cuDNN's and cuBLAS's kernels, where it hides what tells them apart."""
_WRAPPERS = re.compile(
    r"^(?:gpu|\w*TensorListMetadata|\w*elementwise|unrolled\w*|OpaqueType|[AB]?UnaryFunctor|BinaryFunctor|func_wrapper\w*|"
    r"ReduceOp|BUnaryFunctor)$"
)


_MANGLED = re.compile(r"L[a-z]+\d+E|S[0-9A-Z]*_|(\d{1,4})")
"""In a mangled name (Itanium C++ ABI, 5.1): literals, substitutions, the length of an identifier."""
_PASS = re.compile(r"Conv[23]d(?:Fprop|Dgrad|Wgrad)")


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """The name that tells kernels apart in a narrow column.

    `void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>(int, …)` →
    `CUDAFunctor_add · vectorized_elementwise_kernel`. Names without templates stay as they are.
    """
    if name.startswith(("Mem", "[")):
        return name
    if name.startswith("_ZN"):
        return _demangle(name)
    plain = _ANONYMOUS.sub("", _RETURN.sub("", _without_condition(name)))
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    last = head.rsplit("::", 1)[-1] or name
    if last == "kernel":
        last = "::".join(head.split("::")[-2:])
    if last == "kentry" and (argument := _TILE.search(plain)):
        return argument[1]
    if last == "device_kernel" and (argument := _FIRST.match(plain[len(head) :])):
        words = argument[1].split("::")
        return "::".join(words[-2:] if words[-1].endswith("Kernel") else words[-1:])
    if not _GENERIC.match(last):
        return _BOILERPLATE.sub("", last) or last
    inner = _inner(plain[len(head) :])
    if inner and inner.startswith("cutlass_"):
        return inner
    return f"{inner} · {last}" if inner else last


def _without_condition(name: str) -> str:
    """Without a return type that is a condition, `std::enable_if<(((8)>(0)))&&…, void>::type `."""
    if not name.startswith(_ENABLE_IF):
        return name
    opened: list[str] = []
    for at, char in enumerate(name):
        if char in "<(":
            opened.append(char)
        elif char == ")" or (char == ">" and opened[-1:] == ["<"]):
            opened = opened[:-1]
        elif char == " " and not opened:
            return name[at + 1 :]
    return name


def function_name(name: str) -> str:
    """The function without the template arguments that change with types and releases.

    Where its name is but a frame around the work, and nothing says what work, the whole name.
    """
    short = short_name(name)
    return name if _GENERIC.match(short) else short


def _demangle(name: str) -> str:
    """`_ZN7cutlass6KernelINS_4conv…` → `ImplicitGemmConvolution · Kernel`, or by the pass it is of;
    a name in which nothing can be read stays as it is."""
    head, rest = "", list(_identifiers(name, 3))
    place = 3
    while rest and rest[0][0] == place:
        place, head = rest[0][1], rest.pop(0)[2]
    if not head or not _GENERIC.match(head):
        return head or name
    words = [word for _, _, word in rest]
    passes = [match[0] for match in map(_PASS.match, words) if match]
    inner = (passes or [word for word in words if word[0].isupper()] or [""])[0]
    return f"{inner} · {head}" if inner else head


def _identifiers(name: str, at: int) -> Iterator[tuple[int, int, str]]:
    """The identifiers of a mangled name from `at` on, each with where its length and it ends."""
    while (match := _MANGLED.search(name, at)) is not None:
        at = match.end()
        if match[1]:
            at += int(match[1])
            if not match.end() < at <= len(name):
                return
            yield match.start(), at, name[match.end() : at]


def _inner(arguments: str) -> str | None:
    """The first name in the template arguments that says what is computed."""
    for match in _INNER.finditer(arguments):
        word = match.group("cutlass") or match.group("kernel") or match.group("functor")
        if word and not _WRAPPERS.match(word):
            return word
    return None


def fitted(name: str, width: int) -> str:
    """The short name in `width` columns: both ends, for it is the ends that differ."""
    short = "".join(char if char.isprintable() else "?" for char in short_name(name))
    if len(short) <= width:
        return short
    tail = width // 3
    return f"{short[: width - tail - 1]}…{short[-tail:]}"


def distinct_names(names: Sequence[str], width: int) -> list[str]:
    """The names as `fitted` has them; those that look alike end in the words by which they differ."""
    shown = [fitted(name, width) for name in names]
    alike: dict[str, list[int]] = {}
    for place, text in enumerate(shown):
        alike.setdefault(text, []).append(place)
    for places in alike.values():
        tags = _differences([names[place] for place in places])
        for place, tag in zip(places, tags, strict=True):
            if tag:
                shown[place] = f"{fitted(names[place], width - len(tag) - 1)} {tag}"
    return shown


def _differences(names: Sequence[str]) -> list[str]:
    """The first word of each name that the others lack or have otherwise, without how all of these begin;
    empty for names that are equal."""
    words = [_WORDS.findall(name) for name in names]
    if len({len(one) for one in words}) == 1:
        places = [i for i in range(len(words[0])) if len({one[i] for one in words}) > 1]
        tags = [one[places[0]] if places else "" for one in words]
    else:
        common = set(words[0]).intersection(*words)
        tags = [next((word for word in one if word not in common), "") for one in words]
    cut = 0
    if max(map(len, tags)) > _MOST_OF_TAG:
        alike = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*tags, strict=False))
        cut = sum(1 for _ in alike)
    return [tag[cut : cut + _MOST_OF_TAG] for tag in tags]
