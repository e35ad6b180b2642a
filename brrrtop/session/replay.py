"""Plays a finished source into snapshots: pause, step, seek, speed.

A trace of a few steps lasts milliseconds, so unless a speed is asked for, short sources are
slowed down until somebody can watch them; the speed shown is the true one. A source no longer than
a window is judged as a whole, whatever the playhead has passed: all that it can say is known.
"""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from brrrtop.analysis.estimate import Analysis, step_picture
from brrrtop.errors import BrrrtopError
from brrrtop.ledger.verdict import of_run
from brrrtop.model.run import Run
from brrrtop.model.snapshot import LeftOut, Snapshot
from brrrtop.model.tables import Span
from brrrtop.session import verdict as verdicts
from brrrtop.session.analyze import read, runs_of, steady_analyses
from brrrtop.session.baseline import compared_whole
from brrrtop.session.driver import Driver, Member
from brrrtop.session.session import Session
from brrrtop.session.verdict import WINDOW_NS, Verdict
from brrrtop.sources.source import Source

WATCHABLE_S = 30.0
"""A source shorter than this is stretched to it where no speed is asked for."""
STEPS_A_SECOND = 2


class Replay(Driver):
    """Ranks under one playhead, which goes by the first one's clock.

    Args:
        ranks: Of finished sources; those that could not be read say why.
    """

    def __init__(
        self, ranks: Session | Sequence[Member], *, silenced: frozenset[str] = frozenset(),
        speed: float | None = None, loop: bool = False, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        super().__init__(ranks, silenced)
        self._loop = loop
        self._clock = clock
        known = [(m, span) for m, s in self.watched if (span := s.source.span) is not None]
        if not known:
            raise BrrrtopError(
                "this source is still growing and cannot be replayed", "wait for it to end"
            )
        first = known[0][1]
        for member, span in known:
            if span.t1_ns < first.t0_ns or span.t0_ns > first.t1_ns:
                member.shift_ns = first.t0_ns - span.t0_ns
        begin_ns = min(span.t0_ns + m.shift_ns for m, span in known)
        self.span = span = Span(begin_ns, max(span.t1_ns + m.shift_ns for m, span in known))
        seconds = span.duration_ns / 1e9
        watchable = min(1.0, seconds / WATCHABLE_S) if seconds else 1.0
        self._speed = watchable if speed is None else speed
        # The first picture shows something: a twentieth of the source, at most a window.
        self._head_ns = float(span.t0_ns + min(span.duration_ns // 20, 10**10))
        self._restart_ns = float(span.t0_ns + 1)
        self._whole: WholeFile | None = None
        self._last_s = clock()
        self._paused = False

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({"step", "seek", "speed"} | ({"ranks"} if self.of_job else set()))

    def advance(self) -> Snapshot:
        """The state where the playhead is now; it stands still at the end, or starts over."""
        now_s = self._clock()
        if not self._paused:
            self._head_ns += (now_s - self._last_s) * 1e9 * self._speed
        self._last_s = now_s
        end_ns = float(self.span.t1_ns)
        if self._head_ns > end_ns:
            over = self._head_ns - end_ns
            restart = self._loop and over > 2e9 * self._speed
            self._head_ns = self._restart_ns if restart else end_ns + (over if self._loop else 0)
        # Compared as floats: nanoseconds since 1970 are too fine for them, and rounding down
        # would leave the playhead just before the end for ever.
        done = self._head_ns >= end_ns
        snapshot = self._at(self.span.t1_ns if done else int(self._head_ns))
        return replace(snapshot, paused=self._paused, speed=self._speed)

    def _at(self, now_ns: int) -> Snapshot:
        if self.of_job:
            whole = self.combine({m.key: s.advance(now_ns - m.shift_ns) for m, s in self.watched})
            played = (now_ns - self.span.t0_ns) / max(self.span.duration_ns, 1)
            return replace(whole, progress=min(1.0, max(0.0, played)))
        session = self.session
        if self.span.duration_ns > WINDOW_NS:
            return session.advance(now_ns)
        if self._whole is None:
            self._whole = WholeFile(session.source)
            session.source.seek(self.span.t0_ns)
            self._last_s = self._clock()  # reading is no playing
        at = session.advance(now_ns)
        snapshot = self._whole.verdict(at, session.device_id, session.silenced)
        base = session.baseline
        if base is None or base.here or snapshot.estimate is None:
            return snapshot
        return replace(snapshot, comparison=compared_whole(base, snapshot.estimate))

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._last_s = self._clock()
        self._paused = False

    def step(self, count: int) -> None:
        self._paused = True
        self._move(self._head_ns + count * 1e9 * self._speed / STEPS_A_SECOND)

    def seek(self, share: float) -> None:
        self._move(self.span.t0_ns + share * self.span.duration_ns)

    def _move(self, head_ns: float) -> None:
        self._head_ns = float(min(max(head_ns, self.span.t0_ns + 1), self.span.t1_ns))
        self._last_s = self._clock()

    def restart_here(self) -> None:
        """Where a loop starts over from now on: a screen without a verdict is no place for that."""
        self._restart_ns = self._head_ns

    def faster(self) -> None:
        self._speed *= 2

    def slower(self) -> None:
        self._speed /= 2

    def close(self) -> None:
        for _, session in self.watched:
            session.source.close()


class WholeFile:
    """A finished source judged as a whole, for a screen whose playhead is a cursor on it.

    Args:
        source: Read to its end; rewind it before it is read again.
    """

    def __init__(self, source: Source) -> None:
        self._timeline = read(source)
        self._every: tuple[Analysis, ...] | None = None
        self._runs: dict[int, Run | None] = {}
        """By GPU; of what was traced in bursts."""
        self._left_out: tuple[LeftOut, ...] = ()
        self._verdicts: dict[int, Verdict] = {}

    def verdict(self, at: Snapshot, device_id: int | None, silenced: frozenset[str]) -> Snapshot:
        """What a snapshot of the playhead shows, with the verdict and the advice of the whole.

        The picture is of the last step that the playhead has passed. Where no device did anything
        the snapshot stays as it is.
        """
        if self._every is None:
            self._every, self._left_out = steady_analyses(self._timeline, device_id)
            if self._timeline.observed is not None:
                self._runs = runs_of(self._timeline, self._every)
        if not self._every:
            return at
        shown = verdicts.of_device(self._every, device_id)
        number = shown.estimate.device.device_id
        if number not in self._verdicts:
            run = self._runs.get(number)
            self._verdicts[number] = verdicts.verdict(self._timeline, shown, run=run)
        kept = self._verdicts[number]
        estimates = tuple(
            of_run(one, self._runs.get(one.estimate.device.device_id)) for one in self._every
        )
        judged = replace(
            at,
            estimate=estimates[self._every.index(shown)],
            run=self._runs.get(number, at.run),
            devices=estimates,
            left_out=self._left_out,
            lost_records=self._timeline.losses.get("records", 0),
            zero_timestamps=self._timeline.losses.get("zero_timestamps", 0),
        )
        return replace(
            verdicts.showing(judged, kept, kept.advice.given, silenced),
            tables=at.tables,
            picture=step_picture(shown, at.now_ns),
        )
