"""The headline in plain words."""

from msgspec.structs import replace

from brrrtop.model.settings import Settings
from brrrtop.text import phrases
from brrrtop.text.headline import cost, headline_text, recoverable
from tests.tui import snapshots


def test_it_is_said_in_plain_words() -> None:
    says = headline_text(snapshots.snapshot())
    assert (
        says
        == "GPU idle 47%: it waits for your DataLoader (0 workers) – at most 1.7× faster if the data loader keeps up"
    )
    spent = "at most 1:15:36 of 3:00:00 recoverable"
    assert cost(snapshots.snapshot(), Settings()).startswith(f"{spent}: waits for data")
    priced = Settings(gpu_hour=2.5, currency="€")
    assert recoverable(snapshots.snapshot(), priced) == f"{spent}, 3.15 €"
    assert recoverable(snapshots.healthy(), priced) == ""
    assert headline_text(snapshots.waiting()) == "" == cost(snapshots.waiting(), Settings())
    assert headline_text(snapshots.unmeasured()) == ""
    assert headline_text(snapshots.healthy()) == "GPU computes 72% of the time: nothing is wrong"


def test_launches_that_come_late_since_values_are_read_back_are_told_as_syncs() -> None:
    one = snapshots.snapshot()
    late = replace(one, estimate=replace(one.estimate, cause="launch"))  # type: ignore[type-var]
    assert phrases.badge(late) == "LAUNCHES TOO SLOW" and ".item()" not in headline_text(late)
    read_back = replace(one.advisories[0], kind="sync-point")
    late = replace(late, advisories=(read_back,))
    assert phrases.badge(late) == "WAITS FOR SYNCS"
    assert "after each `.item()` it waits for Python's next launches" in headline_text(late)


def test_the_sentence_names_what_the_badge_says_though_another_part_is_larger() -> None:
    one = snapshots.snapshot()
    assert one.estimate is not None and one.estimate.cause == "input"
    account = one.estimate.account
    idle_ns = {**account.idle_ns, "launch": 2 * account.idle_ns["input"]}
    estimate = replace(one.estimate, account=replace(account, idle_ns=idle_ns))
    assert "it waits for your DataLoader" in headline_text(replace(one, estimate=estimate))
    beside = headline_text(replace(one, estimate=replace(estimate, cause="launch")))
    assert "it waits for launches, 42% of the time for data – " in beside
