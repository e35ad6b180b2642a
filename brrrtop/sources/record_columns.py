"""Records as a recording keeps them: column by column, times as differences. Half the size of rows.

The payload of a frame of records becomes one of as many bytes: the first byte of every row, then the
second, and so on. Before that, what counts upwards is taken as the difference to the row before, and
an end as what its row lasted. All arithmetic is modulo the column's width, so that any bytes can be
turned both ways. Part of recording format 2: whatever changes here is a new format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.protocol.frames import DTYPES

_COUNTED_UPWARDS = frozenset(("start_ns", "time_ns", "offset_ns", "correlation"))


def by_column(kind: int, payload: bytes) -> bytes:
    """The payload of a frame of `kind` for a recording; what is no whole records stays as it is."""
    rows = _rows(kind, payload)
    if rows is None:
        return payload
    table = rows.copy()
    for name in rows.dtype.names or ():
        if name == "end_ns":
            table[name] -= rows["start_ns"]
        elif name in _COUNTED_UPWARDS:
            table[name][1:] -= rows[name][:-1]
    planes = table.view(np.uint8).reshape(len(rows), -1).T
    turned: bytes = planes.tobytes()
    return turned


def by_row(kind: int, payload: bytes) -> bytes:
    """What `by_column` was given."""
    like = _rows(kind, payload)
    if like is None:
        return payload
    planes = np.frombuffer(payload, np.uint8).reshape(-1, len(like))
    rows = planes.T.copy().view(like.dtype)[:, 0]
    for name in rows.dtype.names or ():
        if name == "end_ns":
            rows[name] += rows["start_ns"]
        elif name in _COUNTED_UPWARDS:
            rows[name] = np.cumsum(rows[name], dtype=rows[name].dtype)
    whole: bytes = rows.tobytes()
    return whole


def _rows(kind: int, payload: bytes) -> npt.NDArray[Any] | None:
    dtype = DTYPES.get(kind)
    if dtype is None or not payload or len(payload) % dtype.itemsize:
        return None
    return np.frombuffer(payload, dtype)
