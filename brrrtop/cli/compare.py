"""`brrrtop compare BEFORE AFTER`: what changed between two recordings or traces."""

from __future__ import annotations

import json
import sys

from brrrtop import units, words
from brrrtop.cli.analyze import read
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.model import Estimate
from brrrtop.report import document


def run(options: Options) -> int:
    labels = (options.before, options.after)
    snapshots = [read(path, options) for path in labels]
    if options.json:
        pair = {"schema": "brrrtop.compare/1"} | dict(
            zip(("before", "after"), map(document, snapshots), strict=True)
        )
        sys.stdout.write(json.dumps(pair, allow_nan=False) + "\n")
        return 0
    estimates = []
    for path, snapshot in zip(labels, snapshots, strict=True):
        if snapshot.estimate is None:
            raise BadInput(f"{path}: no GPU activity to compare")
        estimates.append(snapshot.estimate)
    sys.stdout.write("\n".join(lines(estimates[0], estimates[1], labels)) + "\n")
    return 0


def lines(before: Estimate, after: Estimate, labels: tuple[str, str]) -> list[str]:
    """The comparison, 80 columns: per step where both know their steps, else in shares."""
    text = [f"before  {labels[0]}", f"after   {labels[1]}", ""]
    text.append(f"before  {words.verdict(before)}, {units.share(before.confidence)} sure")
    text.append(f"after   {words.verdict(after)}, {units.share(after.confidence)} sure")
    steps_ns = (before.steps.step_ns, after.steps.step_ns)
    per_step = steps_ns[0] is not None and steps_ns[1] is not None
    if steps_ns[0] and steps_ns[1]:
        saved = 1 - steps_ns[1] / steps_ns[0]
        change = f"{units.share(abs(saved), 1)} {'shorter' if saved >= 0 else 'longer'}"
        times = f"{units.duration(steps_ns[0])} to {units.duration(steps_ns[1])}"
        text.append(f"step    {times}: {change}")
    text += ["", f"{'per step' if per_step else 'share of the time':<40}before     after    change"]
    old = dict(words.buckets(before.account))
    new = dict(words.buckets(after.account))
    for key in {**old, **new}:
        row = (_part(before, old.get(key, 0), per_step), _part(after, new.get(key, 0), per_step))
        if any(row):
            text.append(f"  {words.bucket(key):<34}" + _figures(row, per_step))
    return text


def _part(estimate: Estimate, time_ns: int, per_step: bool) -> float:
    """ns a step, or the share of the window."""
    share = time_ns / estimate.account.duration_ns if estimate.account.duration_ns else 0.0
    return share * (estimate.steps.step_ns or 0) if per_step else share


def _figures(row: tuple[float, float], per_step: bool) -> str:
    change = row[1] - row[0]
    sign = "+" if change > 0 else "-" if change < 0 else " "
    if per_step:
        shown = [units.duration(value) for value in (*row, abs(change))]
    else:
        shown = [units.share(value, 1) for value in (*row, abs(change))]
    return f"{shown[0]:>10}{shown[1]:>10}{sign + shown[2]:>10}"


def in_a_line(before: Estimate, after: Estimate) -> str:
    """The change in one sentence, for a status line."""
    old, new = before.steps.step_ns, after.steps.step_ns
    if old and new:
        change = f"{units.share(abs(1 - new / old), 1)} {'shorter' if new <= old else 'longer'}"
        step = f"step {units.duration(old)} to {units.duration(new)}, {change}; "
    else:
        step = ""
    overhead = f"{units.share(before.split.overhead)} to {units.share(after.split.overhead)}"
    return f"{step}overhead {overhead}; now {words.verdict(after)}"
