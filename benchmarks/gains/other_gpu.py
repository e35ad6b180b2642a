"""The part of the page about an H100: models of the H200's rounds, and those of its own rounds."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gains import report

HERE = Path(__file__).parent
HARM = -0.02
"""A step that takes 2 % longer is slower."""
KNOWN = """## On an H100

Nothing was fitted on this GPU, which has two thirds of the H200's memory bandwidth (NVIDIA H100 80GB HBM3, driver 580.159.04,
torch 2.11.0+cu130, 2026-11-23; recorded live). Ten of the models above were measured there, 59 edits: median 2.0 points, 90th percentile 7.8,
92 % inside the range, the best edit, or one near it, among the first two for ten of ten. The five that are kept here,
in `benchmarks/gains/h100/`:

"""
FOURTH = """## Round 4, on an H100

The sixteen models of the fourth round (code: commit d6876711) were chosen before any of them was measured, and no constant was set
with them in view (NVIDIA H100 80GB HBM3, driver 580.159.04, torch 2.11.0+cu130, 2026-11-27; recorded live with default options for
15 s on a host that others load; `benchmarks/gains/h100-4/`). What the screen told when the 15 s were over, by commit cd76fdd9,
is fixed before; an edit counts where that loop ran within 5 % of the measured pace:

{told}

{told_first}

Such a host does not measure the same twice: of three models that were measured again an hour later, SE-ResNet won 19 % with bf16
(-4 before), HuBERT 18 % with tf32 (6 before), DQN 33 % with CUDA graphs (7 before), all between base loops that agreed within 3 %.
Mended since: HuBERT drops layers at random, and three steps that had as many let CUDA graphs lead (nine times as long); what is
compiled of CoAtNet fails by its attention's learned bias, which is a risk now; and a step a per cent shorter than the GPU's time in a
burst left the host of SE-ResNet and PVT no time at all. Today's predictions, of the recordings:

{now}

{now_first}

"""
SIXTH = """## Round 6, on an H100

The ten models of `benchmarks/gains/sixth.py`, of families that no round had, and the rules were fixed in a commit before any was
measured (the same GPUs, driver and torch, 2026-11-28; `benchmarks/gains/h100-6/`): the first three edits advised and one called a waste,
else the first of those that need no compiler; an edit counts wherever the base loop was the same before and after it:

{told}

{told_first}

The bars are missed. The host's pace strayed (a loop of 57 ms took 47 ten seconds later): nearly all that is compiled had no
time, a VAE with a critic was not begun, and of a Longformer nothing was told, as its GPU was shared. Where the steps of an edit were
uneven, their mean stands beside the base's median: by the median of both (a rule made afterwards) 4.9 points, 7.6, 76 %. What was wrong:

- `collect()`, in the code that PyG writes for a model's layers, passed for a rollout of 41 % of a SchNet's run; CUDA graphs, which
  won 63 % there between base loops 3.3 % apart, were told 40 % of the run, and are told 64 % since.
- Twice the batch was told as at most 51.5 %, and a GPT won 55: the host is never as fast twice. Its range has that now.
- Not mended: XCiT won 39 % by twice the batch (26 told); "other" and "generation" led live for an SSD and an actor-critic, and stand
  in no report of their recordings.

Five of them, the VAE too, on an H200 40 minutes later, with the first of that mended (`benchmarks/gains/h200-6/`; the same rules):

{h200}

{h200_first}

A VAE with a critic overwrites its graphs' outputs, as any GAN does: two optimizers a step are a risk, which only traces showed and live
marks show since. CUDA graphs failed for the GPT that accumulates gradients as well, where "few steps" kept them from being sure; that
is not mended.

Today's predictions, of the H100's recordings:

{now}

{now_first}

"""
FIFTH = """## Round 5, on an H100

The ten models of `benchmarks/gains/fifth.py`, of families that no round had, were chosen in a commit before any was measured (the same GPUs,
driver and torch, 2026-11-28; `benchmarks/gains/h100-5/`): one detects boxes and falls into many graphs, one translates batches of
all lengths, one is compiled already, one trains adapters, one has an autograd function of its own. Each was watched live with default options
for 15 s, and its advice written down; then, in the same process, its first three edits were made, what was called a waste, and all
that needs no compiler:

{told}

{told_first}

The host was busy: the loops that it paces ran 6 to 20 % slower or faster a minute later, and by the rule fixed before seven models do not
count (above). Wherever the base loop was the same before and after an edit, at whatever pace:

{any_pace}

What was wrong, by its cause, and mended since:

- bf16 was called a waste for DANN and a DeBERTa, and won 12 and 7 % (that one between base loops that drifted by 3.8 %). In the very
  seconds that were recorded their paces strayed by 20 and 12 % (10th to 90th percentile, halved): where a run strays as far as an edit might
  win, it is called no waste.
- The first advice for the translator was its loader, and it has none: a line of the loop had both `next(...)` and the model's call,
  and samples in the forward pass counted as waits.
- "Evaluation" and "other" came first for DaViT, and "warming up" stayed beside three models' advice: what a burst says only at first
  was shown until the third burst after it.
- Not mended: twice the batch was offered to Faster R-CNN with 16 % and cost 11 %, as its host works by the picture; `compile` of the
  adapters won 61 % (42 told), why is not known.

"""


def firsts(pairs: report.Pairs) -> str:
    """What came of the first edit that each model is advised to make and that surely wins."""
    fine, bad, open_ = [], [], []
    for name, (model, text) in pairs.items():
        sure = [one for one in text.advised if text.edits.get(one, (0, 0, 0))[1] > 0]
        edit = next((one for one in sure if one not in report.OFFERS), None)
        if edit is None:
            continue
        if edit in model.saves:
            gain = f"{name}: {edit}, measured {100 * model.saves[edit]:.0f} %"
            (fine if model.saves[edit] >= HARM else bad).append(gain)
        elif model.failed.get(edit, report.LATE) != report.LATE:
            bad.append(f"{name}: {edit}, which failed")
        else:
            open_.append(f"{name}: {edit}")
    told = [f"The first edit advised was no slower than {100 * HARM:.0f} % for {len(fine)} of "
            f"{len(fine) + len(bad)} models"]  # fmt: skip
    told.append(f"Harm: {'; '.join(bad)}" if bad else "None did harm")
    if open_:
        told.append(f"Not measured, or not steadily: {'; '.join(open_)}")
    return ". ".join(told) + "."


def section(folder: str, any_pace: bool = False) -> report.Pairs:
    ours = HERE / folder
    measured = report.measured([ours / "results.jsonl.xz"])
    pairs = report.pair(measured, ours, report.predict)
    for _, text in pairs.values():
        text.step_ms = None if any_pace else text.step_ms
    return {name: both for name, both in pairs.items() if both[0].saves or both[0].failed}


def told(folder: str, any_pace: bool = False) -> report.Pairs:
    """What the live screens said last, before anything was measured.

    Args:
        any_pace: An edit counts by the base loop around it, though another pace was recorded.
    """
    file = HERE / folder / "results.jsonl.xz"
    pairs, measured = {}, report.measured([file])
    for row in report.rows_of(file):
        model = measured.get(row["model"])
        if row["part"] == "live" and "report" in row and model is not None and model.step_ms:
            advice = row["report"]["advisories"]  # id, gain, and since round 5 what is a waste
            given = [{"id": kind, "waste": "".join(rest[1:])} for kind, *rest in advice]
            text = report.prediction({**row["report"], "advisories": given})
            text.step_ms = None if any_pace else text.step_ms
            pairs[row["model"]] = model, text
    return pairs


def on_h100() -> str:
    """What is kept of the H100: measured and predicted."""
    known, fourth, live = section("h100"), section("h100-4"), told("h100-4")
    fifth, live_5 = section("h100-5"), told("h100-5")
    sixth, live_6 = section("h100-6", any_pace=True), told("h100-6", any_pace=True)
    later = told("h200-6", any_pace=True)
    newest = SIXTH.format(
        h200=report.bars_text(later, ()), h200_first=firsts(later),
        told=report.bars_text(live_6, ()), told_first=firsts(live_6),
        now=report.bars_text(sixth, ()), now_first=firsts(sixth),
    )  # fmt: skip
    last = FIFTH.format(
        told=report.bars_text(live_5, ()), told_first=firsts(live_5),
        any_pace=report.bars_text(told("h100-5", any_pace=True), ()),
    )  # fmt: skip
    head = FOURTH.format(
        told=report.bars_text(live, ()), told_first=firsts(live),
        now=report.bars_text(fourth, ()), now_first=firsts(fourth),
    )  # fmt: skip
    text = [
        newest,
        report.table(sixth),
        last,
        report.table(fifth),
        head,
        report.table(fourth),
        report.misses(fourth),
        KNOWN + report.bars_text(known, ()),
    ]
    return "\n\n".join([*text, report.table(known)])
