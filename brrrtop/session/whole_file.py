"""The verdict on a whole file, for a playhead that is a cursor on it."""

from __future__ import annotations

from msgspec.structs import replace

from brrrtop.advisories.ranking import parted
from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.step_picture import step_picture
from brrrtop.model.snapshot import Snapshot
from brrrtop.session import verdict as verdicts
from brrrtop.session.analyze import read
from brrrtop.session.history import since_attach
from brrrtop.session.verdict import Verdict
from brrrtop.sources.source import Source
from brrrtop.timeline import windows


class WholeFile:
    """A finished source judged as a whole, for a screen whose playhead is a cursor on it.

    Args:
        source: Read to its end; rewind it before it is read again.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._timeline = read(source)
        self._every: tuple[Analysis, ...] | None = None
        self._verdicts: dict[int, Verdict] = {}

    def verdict(self, at: Snapshot, device_id: int | None, silenced: frozenset[str]) -> Snapshot:
        """What a snapshot of the playhead shows, with the verdict and the advice of the whole.

        The picture is of the last step that the playhead has passed. Where no device did anything
        the snapshot stays as it is.
        """
        if self._every is None:
            self._every = verdicts.analyses(self._timeline, windows.whole(self._timeline))
        if not self._every:
            return at
        shown = verdicts.of_device(self._every, device_id)
        number = shown.estimate.device.device_id
        if number not in self._verdicts:
            self._verdicts[number] = verdicts.verdict(self._timeline, shown)
        kept = self._verdicts[number]
        shown_advice, quiet = parted(kept.advice.given, silenced)
        judged = verdicts.judged(at, shown, (one.estimate for one in self._every))
        return replace(
            verdicts.showing(judged, kept, shown_advice, quiet),
            tables=at.tables,
            picture=step_picture(shown, at.now_ns),
            since_attach=since_attach(shown),
            lost_records=self._timeline.losses.get("records", 0),
            zero_timestamps=self._timeline.losses.get("zero_timestamps", 0),
        )
