"""The headline in plain words."""

from msgspec.structs import replace

from brrrtop.model.advice import Advisory, Unprofiled
from brrrtop.model.run import CodeLine
from brrrtop.model.snapshot import Settings
from brrrtop.text import phrases
from brrrtop.text.headline import cost, headline_text, promised, recoverable
from brrrtop.views.code import with_places
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
    assert (
        headline_text(snapshots.healthy()) == "GPU computes 72% of the time: nothing holds it back"
    )


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
    assert "to launch the next kernel, 42% of the time for data – " in beside


def test_loops_that_differ_in_what_holds_them_back_are_named_one_by_one():
    one, (train, _) = snapshots.snapshot(), snapshots.run().phases
    tune = replace(
        train,
        where="tune() train.py:106",
        share=0.5,
        account=snapshots.account(memory=0.9, input=0.1),
    )
    loops = replace(one, run=replace(snapshots.run(), phases=(tune, replace(train, share=0.3))))
    assert headline_text(loops) == (
        "In tune() the GPU moves tensors 90% of the time (many ops each read and write whole tensors); "
        "in train() it waits for your DataLoader (0 workers) 40% – at most 1.7× faster if the data loader keeps up; "
        "at most 1.10× faster with torch.compile"
    )
    assert "GPU idle" in headline_text(
        replace(loops, run=replace(snapshots.run(), phases=(tune, tune)))
    )


def test_a_gain_at_the_end_of_its_own_range_is_said_as_the_most():
    one = Advisory("dataloader-stall", "says", 0.9, 0.5, {}, "try", "", saves=0.5, saves_low=0.2)
    assert promised(one) == "up to 2.0× faster if the data loader keeps up"
    assert promised(replace(one, saves_at_most=0.6)).startswith("about 2.0× faster")
    assert promised(replace(one, saves_low=0.5)).startswith("about 2.0× faster")


def test_a_gpu_that_is_never_idle_is_healthy_or_its_fault_is_named():
    one = snapshots.healthy()
    more = replace(one.advisories[0], kind="enable-tf32-or-amp", saves_at_most=0.6, saves=0.5)
    assert phrases.badge(one) == phrases.FINE
    faulty = replace(one, advisories=(more,))
    assert phrases.badge(faulty) == "COMPUTE-BOUND"
    assert "its tensor cores idle, as it multiplies in fp32" in headline_text(faulty)
    little = replace(more, kind="fuse-pointwise", saves_at_most=0.12, saves=0.1)
    fine = replace(one, advisories=(little,), whatif=snapshots.WHATIF)
    assert phrases.badge(fine) == phrases.FINE
    assert headline_text(fine).startswith("GPU computes 72% of the time – about 1.11× faster")
    edit = replace(snapshots.WHATIF[0], unprofiled=Unprofiled(0.02, 1e6))
    named = replace(little, evidence={"edit": edit.edit})
    quiet = replace(one, advisories=(named,), whatif=(edit,))
    assert headline_text(quiet).endswith(" with torch.compile, 1.02× without the profiler")


def test_advice_on_copies_names_the_line_that_copies():
    one = snapshots.snapshot()
    line = CodeLine("train.py:39", "x = x.to(device)", 0.4, 0.0)
    copies = replace(one.advisories[0], kind="pin-memory", suggests="pin_memory=True")
    one = replace(one, run=replace(one.run, lines=(line,)), advisories=(copies,))
    assert with_places(one)[0].suggests == "train.py:39: pin_memory=True"
