"""The worst step for ui.perfetto.dev: its lanes, and the account, side and cause as tracks.

Written in the JSON of Chrome's trace viewer, which Perfetto reads. Bars of a track may not overlap
partly, so that a lane with several streams takes as many tracks as it needs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Bars, Lane, Snapshot, StepPicture
from brrrtop.model.tables import I8
from brrrtop.text import phrases
from brrrtop.views.json_report import document

_HOST, _DEVICE, _JUDGED = 1, 2, 3
_PROCESSES = {_HOST: "host", _DEVICE: "GPU", _JUDGED: "brrrtop's verdict"}
_OF_HOST = ("Python", "calls")
_WORK = ("kernels", "communication", "copies")
_BUCKETS = {"comm": "exposed_comm", "copy": "exposed_copy"}
Event = dict[str, Any]


def write(snapshot: Snapshot, path: Path, format_id: str) -> None:
    """A gzipped trace at `path`.

    Raises:
        BrrrtopError: No step is known, as nothing was judged.
        OSError: The file cannot be written.
    """
    text = json.dumps(trace(snapshot), allow_nan=False, separators=(",", ":"))
    with gzip.open(path, "xt", encoding="utf-8") as file:
        file.write(text)


def trace(snapshot: Snapshot) -> dict[str, Any]:
    """The trace as plain data."""
    picture = snapshot.picture
    if picture is None:
        raise BrrrtopError("there is no step to draw: nothing was judged")
    events = [_name_event("process_name", pid, 0, name) for pid, name in _PROCESSES.items()]
    for lane in picture.lanes:
        if lane.name != "gaps":
            events += _lane(picture, lane)
    events += _judged_events(picture)
    report = document(snapshot)
    kept = ("source", "window", "split", "account", "regime", "cause", "confidence", "advisories")
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"brrrtop": {key: report[key] for key in kept}},
    }


def _lane(picture: StepPicture, lane: Lane) -> Iterator[Event]:
    """Bars on as few tracks as hold them."""
    pid = _HOST if lane.name in _OF_HOST else _DEVICE
    bars, base = lane.bars, 100 * picture.lanes.index(lane)
    tracks = _tracks(bars)
    for track in range(int(tracks.max(initial=-1)) + 1):
        label = lane.name if not track else f"{lane.name} {track + 1}"
        yield _name_event("thread_name", pid, base + track, label)
    for row in range(len(bars)):
        kind = picture.kinds[bars.kinds[row]]
        name = picture.names[bars.name_ids[row]] if bars.name_ids[row] >= 0 else kind
        track = base + int(tracks[row])
        yield _bar(
            picture, pid, track, name, (int(bars.starts_ns[row]), int(bars.ends_ns[row])), kind
        )


def _tracks(bars: Bars) -> I8:
    """A track for each bar, none of which overlap on their track."""
    tracks = np.zeros(len(bars), np.int64)
    open_until: list[tuple[int, int]] = []
    count = 0
    for row in np.argsort(bars.starts_ns, kind="stable").tolist():
        start, end = int(bars.starts_ns[row]), int(bars.ends_ns[row])
        if open_until and open_until[0][0] <= start:
            track = heappop(open_until)[1]
        else:
            track, count = count, count + 1
        tracks[row] = track
        heappush(open_until, (end, track))
    return tracks


def _judged_events(picture: StepPicture) -> Iterator[Event]:
    """What the verdict is made of: the side of what runs, the cause of what does not, and both."""
    work = [span for name in _WORK for span in _spans(picture, name)]
    sides, causes = _without_overlap(sorted(work)), _spans(picture, "gaps")
    buckets = [(start, end, _BUCKETS.get(side, side)) for start, end, side in sides]
    account = [(start, end, phrases.bucket(key)) for start, end, key in (*buckets, *causes)]
    named = [(start, end, kind.removeprefix("idle_")) for start, end, kind in causes]
    for tid, (label, rows) in enumerate((("account", account), ("side", sides), ("cause", named))):
        yield _name_event("thread_name", _JUDGED, tid, label)
        for start, end, name in rows:
            yield _bar(picture, _JUDGED, tid, name, (start, end), name)


def _spans(picture: StepPicture, name: str) -> list[tuple[int, int, str]]:
    """Start, end and kind of each bar of a lane."""
    lane = picture.lane(name)
    if lane is None:
        return []
    columns = (
        column.tolist() for column in (lane.bars.starts_ns, lane.bars.ends_ns, lane.bars.kinds)
    )
    return [(start, end, picture.kinds[kind]) for start, end, kind in zip(*columns, strict=True)]


def _without_overlap(bars: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Each instant once, for what began first; neighbours of one kind in one piece."""
    spans: list[tuple[int, int, str]] = []
    reached = 0
    for start, end, kind in bars:
        start = max(start, reached)
        if end <= start:
            continue
        reached = end
        if spans and spans[-1][1] == start and spans[-1][2] == kind:
            spans[-1] = (spans[-1][0], end, kind)
        else:
            spans.append((start, end, kind))
    return spans


def _bar(
    picture: StepPicture, pid: int, tid: int, name: str, span: tuple[int, int], kind: str
) -> Event:
    """Times count from the start of the step, in microseconds with all nanoseconds."""
    start, end = span
    return {
        "ph": "X", "pid": pid, "tid": tid, "name": name, "cat": kind,
        "ts": (start - picture.span.t0_ns) / 1000, "dur": (end - start) / 1000,
        "args": {"kind": kind, "start_ns": start},
    }  # fmt: skip


def _name_event(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
