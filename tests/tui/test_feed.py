"""The feed's thread: no backlog, requests at once, a clean end."""

import threading
import time

from msgspec.structs import replace
from textual.message import Message

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import CALM_NS, is_calm
from brrrtop.model.tables import Span
from brrrtop.tui import feed as feed_module
from brrrtop.tui.feed import Feed, FeedFailed, RequestAnswered, SnapshotReady
from tests.tui import snapshots
from tests.tui.drivers import ListDriver


class Inbox:
    """Collects what the feed posts."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.came = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self.came:
            self.messages.append(message)
            self.came.notify_all()

    def wait_for(self, kind: type[Message], count: int = 1) -> list[Message]:
        def enough() -> bool:
            return sum(isinstance(m, kind) for m in self.messages) >= count

        with self.came:
            assert self.came.wait_for(enough, timeout=60), f"no {kind.__name__} came"
            return [m for m in self.messages if isinstance(m, kind)]


def test_a_screen_that_has_not_drawn_gets_no_second_snapshot():
    inbox, driver = Inbox(), ListDriver([snapshots.snapshot()])
    feed = Feed(driver, inbox, interval_s=0.001)
    feed.start()
    inbox.wait_for(SnapshotReady)
    time.sleep(0.1)
    assert len(inbox.messages) == 1
    feed.seen()
    inbox.wait_for(SnapshotReady, 2)
    feed.stop()
    assert not feed.is_alive()
    assert driver.closed.is_set()


def test_a_live_trainer_is_drawn_half_as_often_once_it_is_known():
    live = snapshots.snapshot()
    begun, replayed = live.run.span.t0_ns, replace(live.source, kind="recording")
    long = replace(live.run, span=Span(begun, begun + CALM_NS))
    assert is_calm(replace(live, run=long))
    assert not is_calm(replace(live, run=replace(long, span=Span(begun, begun + CALM_NS - 1))))
    assert not is_calm(replace(live, run=long, estimate=None))
    assert not is_calm(replace(live, run=long, source=replayed))


def test_a_newer_snapshot_takes_the_place_of_an_older_one():
    older, newer = SnapshotReady(snapshots.snapshot()), SnapshotReady(snapshots.healthy())
    assert older.can_replace(newer)
    assert not older.can_replace(RequestAnswered("no"))


def test_requests_are_answered_long_before_the_interval():
    inbox, driver = Inbox(), ListDriver([snapshots.snapshot()])
    feed = Feed(driver, inbox, interval_s=60)
    feed.start()
    inbox.wait_for(SnapshotReady)
    feed.ask(lambda d: d.mark_baseline())
    inbox.wait_for(RequestAnswered)
    inbox.wait_for(SnapshotReady, 2)
    feed.stop()


def test_a_failed_request_is_a_sentence_and_the_feed_goes_on():
    inbox, driver = Inbox(), ListDriver([snapshots.snapshot()])
    feed = Feed(driver, inbox, interval_s=60)
    feed.start()
    inbox.wait_for(SnapshotReady)

    def refuse(_: object) -> str:
        raise BrrrtopError("taken.brrr is there already", "choose another name")

    feed.ask(refuse)
    (answer,) = inbox.wait_for(RequestAnswered)
    assert isinstance(answer, RequestAnswered)
    assert answer.failed
    assert answer.message == "taken.brrr is there already – choose another name"
    inbox.wait_for(SnapshotReady, 2)
    feed.stop()


def test_a_driver_that_fails_ends_the_feed_with_its_fault():
    fault = BrrrtopError("gone", "")
    inbox, driver = Inbox(), ListDriver([snapshots.snapshot()], fails=fault)
    feed = Feed(driver, inbox, interval_s=0.001)
    feed.start()
    feed.seen()
    feed.ask(lambda d: None)
    (failed,) = inbox.wait_for(FeedFailed)
    assert isinstance(failed, FeedFailed)
    assert failed.fault is fault
    feed.join(60)
    assert driver.closed.is_set()


def test_a_screen_that_forgot_to_say_so_is_served_all_the_same():
    inbox, driver = Inbox(), ListDriver([snapshots.snapshot()])
    patience, feed_module.UNSEEN_S = feed_module.UNSEEN_S, 0.01
    try:
        feed = Feed(driver, inbox, interval_s=0.001)
        feed.start()
        inbox.wait_for(SnapshotReady, 3)
        feed.stop()
    finally:
        feed_module.UNSEEN_S = patience


def test_stopping_before_starting_is_harmless():
    Feed(ListDriver([snapshots.snapshot()]), Inbox(), 1.0).stop()
