"""What the sampled lines of the training thread read as.

A sample says where the thread was, not why: only what the line itself names is taken for a cause,
most specific first, so a file that a loader, a save or a log opens is theirs and not `io`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from brrrtop.estimator import intervals
from brrrtop.tables import Marks
from collectors.wire import MarkClass

LEAST_SAMPLES = 20
"""Fewer samples put too wide an error on a line's share (regime theory study, 1.4)."""
LEAST_PART = 0.25
"""Of the samples: a cause that fewer of them name is not told from chance."""

_FILES = (
    r"(?<!def )\bopen\(|\.read(_text|_bytes|line|lines|into)?\(|\bread_(csv|parquet|json|table)\("
    r"|\b(np|numpy|torch|json|pickle|yaml|joblib)\.load\(|\bload_file\(|\bpickle\.dump\("
    r"|\b(np|numpy)\.(savez?\w*|memmap|fromfile|loadtxt|genfromtxt)\(|\.write_(text|bytes)\("
    r"|\b(h5py|pyarrow|zarr|fsspec)\.\w[\w.]*\(|\b_hl/\w+\.py:|\blib/_?npyio\w*\.py:"
    r"|\bshutil\.\w+\(|\bsubprocess\.(run|call|check_call|check_output|Popen)\("
    r"|\bos\.(listdir|scandir|walk|stat|remove|unlink|makedirs|rename|replace|fsync|system)\("
    r"|\bos\.path\.(exists|isfile|isdir|getsize|getmtime)\(|\bi?glob\(|\.(rglob|iterdir)\("
)
_NETWORK = (
    r"\brequests\.(get|post|put|head|request)\(|\burlopen\(|\burlretrieve\(|\bhttpx\.\w+\("
    r"|\bboto3\.\w+\(|\bsock\w*\.recv(_into|from)?\(|\.(download|upload)_(file|fileobj|blob)\w*\("
    r"|\b(requests|urllib|urllib3|httpx|botocore)/\w+\.py:|\bhttp/client\.py:"
)
_LIBRARY = r"\bpython3\.\d+t?/(socket|ssl|shutil|subprocess|gzip|zipfile|tarfile|glob)\.py:"
"""Innermost frames of the standard library: a sample holds the last two parts of the path."""
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
            r"utils/data/|[dD]ata_?[lL]oader|__next__|\bnext\(|__getitem__|collate|tokeniz|decode"
            r"|for \w+(, ?\w+)* in \w*(loader|batches|dataset|data)\b|imread|PIL/|load_image",
        ),
        ("io", f"{_FILES}|{_NETWORK}|{_LIBRARY}"),
    )
)


@lru_cache(maxsize=4096)
def reads_as(line: str) -> str | None:
    """The cause that a sampled line names; None when it names none."""
    return next((cause for cause, pattern in _READS_AS if pattern.search(line)), None)


def shares(names: Sequence[str], name_ids: npt.NDArray[np.int64]) -> Mapping[str, float]:
    """Part of the samples by what their line reads as; lines that name nothing count nowhere."""
    found: dict[str, float] = {}
    if not len(name_ids):
        return found
    ids, counts = np.unique(name_ids, return_counts=True)
    for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        cause = reads_as(names[name_id])
        if cause is not None:
            found[cause] = found.get(cause, 0.0) + count / len(name_ids)
    return found


def io_part(names: Sequence[str], marks: Marks, named: tuple[MarkClass, ...]) -> float:
    """Part of the samples outside `named` marks whose line reads as file or network work.

    0 where too few samples or too small a part would make it a guess.
    """
    rows = np.flatnonzero(marks.classes == MarkClass.STACK)
    if len(rows) < LEAST_SAMPLES:
        return 0.0
    spans = np.isin(marks.classes, np.array([int(c) for c in named]))
    held = intervals.Cover(*intervals.merge(marks.starts_ns[spans], marks.ends_ns[spans]))
    at = marks.starts_ns[rows]
    rows = rows[held.between(at, at + 1) == 0]
    part = shares(names, marks.name_ids[rows]).get("io", 0.0)
    return part if len(rows) >= LEAST_SAMPLES and part >= LEAST_PART else 0.0
