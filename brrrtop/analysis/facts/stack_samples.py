"""Where samples found the training thread, and what their lines say.

Few of them fall into a span of one burst: where it holds too few, those of the run's last minute speak
for it. What they give the idle time is an estimate, in proportion: it is told by how many they are.

A sample says where the thread was, not why: only what the line itself names is taken for a cause,
most specific first, so a file that a loader, a save or a log opens is theirs and not `io`. `io` is
reading to the last byte, decoding included: no sample tells the disk from the decoder behind it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from brrrtop.model import intervals
from brrrtop.model.run import Line, Run, StackSamples
from brrrtop.model.tables import I8, Marks
from collectors.vocabulary import NAMED, MarkClass

LEAST_SAMPLES = 20
"""Fewer samples put too wide an error on a line's share."""
LEAST_PART = 0.25
"""Of the samples: a cause or a line that fewer of them name is not told from chance."""
FEW_SAMPLES, MOST_OF_FEW = 5, 0.5
"""So few name a line, for a sentence that says how many they were, where most are at it."""
_Z = 1.96
"""Of the normal distribution, for 95 %."""


def read_samples(names: Sequence[str], marks: Marks, within: bool) -> StackSamples | None:
    """Samples outside marks that name a cause; None without any."""
    rows = np.flatnonzero(marks.classes == MarkClass.STACK)
    rows = rows[intervals.holders(*marks.union(*NAMED), marks.starts_ns[rows]) < 0]
    if not len(rows):
        return None
    shares = _by_cause(names, marks.name_ids[rows])
    at = marks.starts_ns[rows]
    return StackSamples(
        count=len(rows),
        span_ns=int(at.max() - at.min()),
        within=within,
        lines=_lines(names, marks.name_ids[rows]),
        shares=shares,
        io_bounds=bounds(shares.get("io", 0.0), len(rows)),
    )


def samples_of(run: Run, own: StackSamples | None) -> StackSamples | None:
    """What speaks for a part of a run: its own samples, where they are enough."""
    enough = own is not None and own.count >= LEAST_SAMPLES
    return own if enough else run.samples or own


def io_part(samples: StackSamples | None) -> float:
    """Part of the host's unexplained idle time that is `io`: that of the samples whose line reads
    as file or network work. 0 where too few samples or too small a part would make it a guess.

    Such a part of the wall is idle as often as the rest of the host's time, which lies between the
    least and the most that the two shares allow.
    """
    if samples is None or samples.count < LEAST_SAMPLES:
        return 0.0
    part = samples.shares.get("io", 0.0)
    return part if part >= LEAST_PART else 0.0


def bounds(part: float, count: int) -> tuple[float, float]:
    """Between which shares the true one is, 95 times of 100 (Wilson's score interval).

    Args:
        part: Of `count` samples, taken to be independent.
    """
    square = _Z * _Z / count
    middle = (part + square / 2) / (1 + square)
    reach = _Z * np.sqrt(part * (1 - part) / count + square / (4 * count)) / (1 + square)
    return max(0.0, float(middle - reach)), min(1.0, float(middle + reach))


def _lines(names: Sequence[str], name_ids: I8) -> tuple[Line, ...]:
    """Lines of the user's own code that enough samples are at, whatever was called from there."""
    total = len(name_ids)
    at, inside = by_line(names, name_ids)
    least = LEAST_PART if total >= LEAST_SAMPLES else MOST_OF_FEW
    if total < FEW_SAMPLES:
        return ()
    return tuple(
        Line(*place, count, *reading(inside[place]))
        for place, count in at.most_common()
        if count >= least * total
    )


def by_line(
    names: Sequence[str], name_ids: I8
) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], str]]:
    """Counts samples by line of the user's own code, whatever was called from there.

    Returns:
        Samples by `(place, source)`, and the name that most samples of each have.
    """
    at: Counter[tuple[str, str]] = Counter()
    inside: dict[tuple[str, str], Counter[str]] = {}
    ids, counts = np.unique(name_ids, return_counts=True)
    for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        place = split_line(names[name_id])
        at[place] += count
        inside.setdefault(place, Counter())[names[name_id]] += count
    return at, {place: most.most_common(1)[0][0] for place, most in inside.items()}


def reading(name: str) -> tuple[str | None, bool]:
    """The cause that a sample's line names, and whether it reads a file."""
    cause = reads_as(name)
    return cause, cause == "io" and is_reading(name)


_READS = (
    r"(?<!def )\bopen\(|\.read(_text|_bytes|line|lines|into)?\(|\bread_(csv|parquet|json|table)\("
    r"|\bread_(feather|pickle|hdf|image|file|video)\(|\b(cv2|skimage|imageio)\.\w*read\w*\("
    r"|\b(np|numpy|torch|torchaudio|librosa|nib|json|pickle|yaml|joblib)\.load\(|\bload_file\("
    r"|\b(np|numpy)\.(memmap|fromfile|loadtxt|genfromtxt)\(|\bsafe_open\(|\bloadmat\("
    r"|\bimread\(|\bload_image\w*\(|\b(h5py|pyarrow|zarr|fsspec)\.\w[\w.]*\(|\b_hl/\w+\.py:"
)
_READERS = (
    r"lib/_?(npyio|format)\w*\.py:|_?core/memmap\.py:|torch/serialization\.py:\d+ \S*load"
    r"|safetensors/\w+\.py:\d+ \S*load|torchaudio/\w+\.py:\d+ \S*load|io/(image|video)\.py:"
    r"|PIL/(\w*ImageFile\.py:|Image\.py:\d+ \S*(open|load)|\w+ImagePlugin\.py:)"
    r"|(zarr|numcodecs|fsspec|h5py)/\w+\.py:|parsers/(readers|c_parser_wrapper)\.py:"
    r"|io/(parquet|pickle|pytables|feather_format|orc)\.py:|parquet/core\.py:"
    r"|site-packages/soundfile\.py:|audioread/\w+\.py:"
    r"|python3\.\d+t?/(gzip|zipfile|tarfile|lzma|bz2|_compression|pathlib)\.py:"
    r"|(pathlib|zipfile|zstd)/\w+\.py:|_common/_streams\.py:|(json|pickle)/?\w*\.py:\d+ load\b"
)
"""Functions of libraries that read files, as innermost frames: a sample holds the last two parts
of a path."""
_FILES = (
    r"\bpickle\.dump\(|\b(np|numpy)\.savez?\w*\(|\.write_(text|bytes)\("
    r"|\bshutil\.\w+\(|\bsubprocess\.(run|call|check_call|check_output|Popen)\("
    r"|\bos\.(listdir|scandir|walk|stat|remove|unlink|makedirs|rename|replace|fsync|system)\("
    r"|\bos\.path\.(exists|isfile|isdir|getsize|getmtime)\(|\bi?glob\(|\.(rglob|iterdir)\("
)
_NETWORK = (
    r"\brequests\.(get|post|put|head|request)\(|\burlopen\(|\burlretrieve\(|\bhttpx\.\w+\("
    r"|\bboto3\.\w+\(|\bsock\w*\.recv(_into|from)?\(|\.(download|upload)_(file|fileobj|blob)\w*\("
    r"|\b(requests|urllib|urllib3|httpx|botocore)/\w+\.py:|\bhttp/client\.py:"
)
_LIBRARY = r"\bpython3\.\d+t?/(socket|ssl|shutil|subprocess|glob)\.py:"
"""Innermost frames of the standard library that are files or network, and need not read."""
_READING = re.compile(f"{_READS}|> (?:{_READERS})")
_OWN_NAME = re.compile(r"(> (?:_hl|h5py|zarr)/\w+\.py:\d+) \S+")
"""Their `__getitem__` is nobody's loader."""
_READS_AS = tuple(
    (cause, re.compile(pattern))
    for cause, pattern in (
        (
            "checkpoint",
            r"torch\.save|save_(checkpoint|pretrained|model|state|file)|checkpoint\.save",
        ),
        (
            "logging",
            r"\bprint\(|\blog(ger|ging)\.|\blog_(metrics|step|scalars?|dict)\b|add_scalar|tqdm"
            r"|(run|wandb|self|logger)\.log\(|tensorboard|mlflow|\.write\(|\.flush\(|json\.dump",
        ),
        ("sync", r"\.item\(|\.cpu\(|\.tolist\(|synchronize|nonzero\(|\.numpy\("),
        (
            "input",
            r"utils/data/|[dD]ata_?[lL]oader(?!\()|\b(in|next|iter|enumerate)\W[\w.]*DataLoader|__next__|\bnext\("
            r"|\biter\([\w.]*[lL]oader|(?<!_Environ\.)__getitem__|collate|tokeniz|decode(?!r)"
            r"|> <built-in method acquire of _thread"
            r"|for \w+(, ?\w+)* in \w*(loader|batches|dataset|data)\b",
        ),
        ("io", f"{_READING.pattern}|{_FILES}|{_NETWORK}|{_LIBRARY}"),
        ("input", r"\bPIL/"),
    )
)


@lru_cache(maxsize=4096)
def reads_as(line: str) -> str | None:
    """The cause that a sampled line names; None when it names none."""
    line = _OWN_NAME.sub(r"\1", without_callers(line))
    return next((cause for cause, pattern in _READS_AS if pattern.search(line)), None)


def is_reading(line: str) -> bool:
    """Whether a line that reads as `io` reads a file; else it writes one, lists or fetches."""
    return _READING.search(without_callers(line)) is not None


def without_callers(line: str) -> str:
    """A sample's line but for who called the user's own innermost function."""
    frames, bar, source = line.partition(" | ")
    users, arrow, leaf = frames.partition(" > ")
    return f"{_innermost(users)}{arrow}{leaf}{bar}{source}"


def _innermost(users: str) -> str:
    return users.partition(" < ")[0]


def split_line(line: str) -> tuple[str, str]:
    """Place and source of a sample's line in the user's own code: `nb/reader.py:30`, `x = load(p)`.

    The function stands for a source that was not readable; `<module>` never does.
    """
    frames, _, source = line.partition(" | ")
    place = _innermost(frames.partition(" > ")[0])
    file, _, function = place.rpartition(" ")  # folders may have spaces in their names
    return (file if source or function == "<module>" else place), source


def place(line: str) -> str:
    """`train.py:8 main | total += loss.item()` → its place and the source in it."""
    where, source = split_line(line)
    return f"{where} (`{source}`)" if source else where


def _by_cause(names: Sequence[str], name_ids: npt.NDArray[np.int64]) -> Mapping[str, float]:
    """Part of the samples by what their line reads as; lines that name nothing count nowhere."""
    result: dict[str, float] = {}
    ids, counts = np.unique(name_ids, return_counts=True)
    for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        cause = reads_as(names[name_id])
        if cause is not None:
            result[cause] = result.get(cause, 0.0) + count / len(name_ids)
    return result
