"""Plays a finished source into snapshots: pause, step, seek, speed.

A trace of a few steps lasts milliseconds, so unless a speed is asked for, short sources are
slowed down until somebody can watch them; the speed shown is the true one. A source no longer than
a window is judged as a whole, whatever the playhead has passed: all that it can say is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot
from brrrtop.model.tables import Span
from brrrtop.session.baseline import BaselineTracker
from brrrtop.session.session import Session
from brrrtop.session.whole_file import WholeFile
from brrrtop.timeline.windows import WINDOW_NS

WATCHABLE_S = 30.0
"""A source shorter than this is stretched to it where no speed is asked for."""
STEPS_A_SECOND = 2
CAN = frozenset({"pause", "step", "seek", "speed", "device", "baseline", "silence"})


class Replay:
    """A session with a playhead. Implements what the screens ask of a driver."""

    def __init__(
        self, session: Session, *, speed: float | None = None, loop: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._session = session
        self._loop = loop
        self._clock = clock
        span = session.source.span
        if span is None:
            raise BrrrtopError(
                "this source is still growing and cannot be replayed", "wait for it to end"
            )
        self._span = span
        seconds = span.duration_ns / 1e9
        watchable = min(1.0, seconds / WATCHABLE_S) if seconds else 1.0
        self._speed = watchable if speed is None else speed
        # The first picture shows something: a twentieth of the source, at most a window.
        self._head_ns = float(span.t0_ns + min(span.duration_ns // 20, 10**10))
        self._restart_ns = float(span.t0_ns + 1)
        self._device_id: int | None = session.device_id
        self._whole: WholeFile | None = None
        if isinstance(session, Session) and span.duration_ns <= WINDOW_NS:
            self._whole = WholeFile(session.source)
            session.source.seek(span.t0_ns)
        self._last_s = clock()
        self._paused = False

    @property
    def can(self) -> frozenset[str]:
        return CAN

    @property
    def span(self) -> Span:
        return self._span

    def advance(self) -> Snapshot:
        """The state where the playhead is now; it stands still at the end, or starts over."""
        now_s = self._clock()
        if not self._paused:
            self._head_ns += (now_s - self._last_s) * 1e9 * self._speed
        self._last_s = now_s
        if self._head_ns > self._span.t1_ns:
            over = self._head_ns - self._span.t1_ns
            rest_ns = 2e9 * self._speed
            restart = self._loop and over > rest_ns
            self._head_ns = (
                self._restart_ns
                if restart
                else float(self._span.t1_ns + (over if self._loop else 0))
            )
        # Compared as floats: nanoseconds since 1970 are too fine for them, and rounding down
        # would leave the playhead just before the end for ever.
        done = self._head_ns >= float(self._span.t1_ns)
        head = self._span.t1_ns if done else int(self._head_ns)
        snapshot = self._session.advance(head)
        if self._whole is not None:
            snapshot = self._judged_whole(self._whole, snapshot)
        return replace(snapshot, paused=self._paused, speed=self._speed)

    def _judged_whole(self, whole: WholeFile, at: Snapshot) -> Snapshot:
        snapshot = whole.verdict(at, self._device_id, self._session.silenced)
        base = self._session.baseline
        if base is None or base.here or snapshot.estimate is None:
            return snapshot
        tracker = BaselineTracker(base)
        tracker.look_at_whole(snapshot.estimate)
        return replace(snapshot, comparison=tracker.comparison)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._last_s = self._clock()
        self._paused = False

    def step(self, count: int) -> None:
        self._paused = True
        self._move(self._head_ns + count * 1e9 * self._speed / STEPS_A_SECOND)

    def seek(self, share: float) -> None:
        self._move(self._span.t0_ns + share * self._span.duration_ns)

    def _move(self, head_ns: float) -> None:
        self._head_ns = float(min(max(head_ns, self._span.t0_ns + 1), self._span.t1_ns))
        self._last_s = self._clock()

    def restart_here(self) -> None:
        """Where a loop starts over from now on: a screen without a verdict is no place for that."""
        self._restart_ns = self._head_ns

    def faster(self) -> None:
        self._speed *= 2

    def slower(self) -> None:
        self._speed /= 2

    def select_device(self, device_id: int) -> None:
        self._device_id = device_id
        self._session.select_device(device_id)

    def select_rank(self, key: str) -> None:
        raise BrrrtopError("this is one rank by itself", "name the files of all ranks")

    def mark_baseline(self) -> str:
        return self._session.mark()

    def silence(self, kind: str) -> str:
        return self._session.silence(kind)

    def continuous(self, on: bool) -> str:
        raise BrrrtopError("a replay cannot trace anything", "attach to a running trainer")

    def burst(self) -> str:
        raise BrrrtopError("a replay cannot trace anything", "attach to a running trainer")

    def shapes(self) -> str:
        raise BrrrtopError("a replay cannot record shapes", "attach to a running trainer")

    def follow(self) -> str:
        raise BrrrtopError("a file has no successor", "attach to a running trainer")

    def save(self, path: str) -> str:
        raise BrrrtopError("this is already a file", "copy it")

    def close(self) -> None:
        self._session.source.close()
