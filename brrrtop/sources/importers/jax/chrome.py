"""`*.trace.json.gz` of jax.profiler and TensorBoard → a profile.

It is made from the same file as `xplane.pb`, for browsers: times in microseconds, and at most a million
events.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
from msgspec import Struct

from brrrtop.sources.importers.jax.columns import DETAILS, Event, Line, Profile
from brrrtop.sources.importers.trace import events as kineto_events
from brrrtop.sources.importers.trace import reader
from brrrtop.sources.importers.trace.events import Torn
from collectors.protocol.bodies import FAULTS

MOST_EVENTS = 1_000_000
"""More the writer leaves out, and does not say so (xprof's trace viewer)."""
_LATEST_US = 9.0e15


class _Args(Struct, frozen=True, gc=False):
    name: str = ""
    correlation_id: int = 0
    step_num: int = -1
    kernel_details: str = ""
    memcpy_details: str = ""
    Memset_details: str = ""
    memset_details: str = ""


class _Event(Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: int = 0
    tid: int = 0
    ts: float = -1.0
    dur: float = 0.0
    args: _Args = _Args()


_events = msgspec.json.Decoder(list[_Event], strict=False)
_event = msgspec.json.Decoder(_Event, strict=False)
_raws = msgspec.json.Decoder(list[msgspec.Raw])


def read(path: Path, force: bool = False) -> Profile:
    """The profile. Raises: BadInput: It is no such trace, or too large without `force`."""
    builder = _Builder()
    with reader.opened(path, force) as (runs, inflater):
        runs.start()
        for run in runs:
            with contextlib.suppress(Torn):
                builder.take(run)
                continue
            runs.refuse(run)
        builder.take_rest(runs.rest, inflater.fault)
    return builder.profile()


class _Builder:
    def __init__(self) -> None:
        self._profile = Profile()
        self._planes: dict[int, str] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._lines: dict[tuple[int, int], Line] = {}
        self._count = 0

    def take(self, run: bytes) -> None:
        """Adds the events of a run. Raises: Torn: It is no list of whole values."""
        text = b"[" + run + b"]"
        try:
            events = _events.decode(text)
        except FAULTS:
            events = self._one_by_one(text)
        for event in events:
            if event.ph == "X":
                self._add(event)
            elif event.ph == "M" and event.name == "process_name":
                self._planes[event.pid] = event.args.name
            elif event.ph == "M" and event.name == "thread_name":
                self._names[event.pid, event.tid] = event.args.name

    def take_rest(self, rest: bytes, fault: str | None) -> None:
        """The last events, and what follows them."""
        try:
            run, _ = kineto_events.decode_rest(rest)
            self.take(run)
        except Torn:
            self._profile.broken_off = True
            self._profile.notes.append(
                f"{fault or 'the text breaks off'}: what came after is missing"
            )
            for start in reader.without_torn_end(rest):
                with contextlib.suppress(Torn):
                    self.take(start)
                    break

    def _one_by_one(self, text: bytes) -> list[_Event]:
        try:
            raws = _raws.decode(kineto_events.repair(text))
        except FAULTS as fault:
            raise Torn from fault
        events = []
        for raw in raws:
            try:
                events.append(_event.decode(raw))
            except FAULTS:
                self._profile.losses["not understood"] = (
                    self._profile.losses.get("not understood", 0) + 1
                )
        return events

    def _add(self, event: _Event) -> None:
        self._count += 1
        if not (abs(event.ts) < _LATEST_US and abs(event.dur) < _LATEST_US):
            return
        key = event.pid, event.tid
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line("", "", event.tid)
        args = event.args
        details = next((text for key in DETAILS if (text := getattr(args, key))), "")
        times = round(event.ts * 1000), round(event.dur * 1000)
        line.events.append(Event(event.name, *times, args.correlation_id, details, args.step_num))

    def profile(self) -> Profile:
        """What was read, with the names that may come last."""
        for (pid, tid), line in self._lines.items():
            line.plane = self._planes.get(pid, "")
            line.name = self._names.get((pid, tid), "")
        self._profile.lines = list(self._lines.values())
        self._profile.planes = {name: {} for name in self._planes.values()}
        if self._count >= MOST_EVENTS:
            self._profile.notes.append(
                f"{self._count:,} events: such a file holds no more, and may lack some; give the xplane.pb "
                "beside it"
            )
        return self._profile
