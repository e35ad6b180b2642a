"""`*.trace.json.gz` of jax.profiler and TensorBoard → a profile.

It is made from the same file as `xplane.pb`, for browsers: times in microseconds, and at most a million
events.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from brrrtop.sources.importers.jax.columns import DETAILS, Event, Line, Profile
from brrrtop.sources.importers.trace import events as kineto_events
from brrrtop.sources.importers.trace import reader
from brrrtop.sources.importers.trace.events import Torn

MOST_EVENTS = 1_000_000
"""More the writer leaves out, and does not say so (xprof's trace viewer)."""


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
        self._planes: dict[int | str, str] = {}
        self._names: dict[tuple[int | str, int | str], str] = {}
        self._lines: dict[tuple[int | str, int | str], Line] = {}
        self._count = 0

    def take(self, run: bytes) -> None:
        """Adds the events of a run. Raises: Torn: It is no list of whole values."""
        events, odd = kineto_events.decode_run(run)
        if odd:
            losses = self._profile.losses
            losses["not understood"] = losses.get("not understood", 0) + odd
        for event in events:
            if event.ph == "X":
                self._add(event)
            elif event.ph == "M" and event.name == "process_name":
                self._planes[event.pid] = str(event.args.get("name", ""))
            elif event.ph == "M" and event.name == "thread_name":
                self._names[event.pid, event.tid] = str(event.args.get("name", ""))

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

    def _add(self, event: kineto_events.Event) -> None:
        self._count += 1
        if kineto_events.BAD_NS in (event.start_ns, event.span_ns):
            return
        key = event.pid, event.tid
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line("", "", event.tid)
        args = event.args
        details = next((str(args[key]) for key in DETAILS if args.get(key)), "")
        times = event.start_ns, max(event.span_ns, 0)
        numbers = _whole(args.get("correlation_id"), 0), _whole(args.get("step_num"), -1)
        line.events.append(Event(event.name, *times, numbers[0], details, numbers[1]))

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


def _whole(value: Any, default: int) -> int:
    """A number, which some versions write as text."""
    good = isinstance(value, (int, str)) and len(str(value)) < 19
    return int(value) if good and str(value).isdecimal() else default
