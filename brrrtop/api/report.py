"""A finished trace or recording as a report, for scripts and notebooks."""

from __future__ import annotations

from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any

from brrrtop.exporters import html, tables
from brrrtop.model.account import Account, Split
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.estimate import Estimate, KernelRow, Regime
from brrrtop.model.host_tables import HostTables
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze as analyze_source
from brrrtop.sources.registry import open_source
from brrrtop.views.brief import to_brief
from brrrtop.views.json_report import document, to_json
from brrrtop.views.text import to_text


def analyze(
    path: str | PathLike[str],
    *,
    steps: tuple[int, int] | None = None,
    gpu: int | None = None,
    force: bool = False,
) -> Report:
    """Judges all of a torch.profiler trace (`.json`, `.json.gz`) or a recording (`.brrr`).

    Args:
        path: The file.
        steps: First and last step to judge, counted from 1; None: all.
        gpu: The GPU to speak of; None: the busiest.
        force: Read the file however large it is.

    Raises:
        brrrtop.errors.BadInput: The file cannot be used; says why and what to do.
    """
    with closing(open_source(Path(path), force)) as source:
        return Report(analyze_source(source, steps, gpu, worst=True))


class Report:
    """The verdict on a file, and all it rests on. Times are ns, shares 0..1, None was not measured.

    In a notebook it shows itself as a page; `print(report)` shows the text of `brrrtop analyze`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        """Everything, as the screens have it."""

    @property
    def estimate(self) -> Estimate:
        assert self.snapshot.estimate is not None, "a finished file is judged or refused"
        return self.snapshot.estimate

    @property
    def regime(self) -> Regime:
        return self.estimate.regime

    @property
    def cause(self) -> str | None:
        """The largest reason for the regime."""
        return self.estimate.cause

    @property
    def confidence(self) -> float:
        return self.estimate.confidence

    @property
    def split(self) -> Split:
        """Shares of wall time: compute, memory, overhead, unknown; they add up to 1."""
        return self.estimate.split

    @property
    def account(self) -> Account:
        return self.estimate.account

    @property
    def step_ms(self) -> float | None:
        """Median step; None where no steps are known."""
        step_ns = self.estimate.steps.step_ns
        return None if step_ns is None else step_ns / 1e6

    @property
    def kernels(self) -> tuple[KernelRow, ...]:
        return self.estimate.kernels

    @property
    def advisories(self) -> tuple[Advisory, ...]:
        return self.snapshot.advisories

    @property
    def whatif(self) -> tuple[WhatIf, ...]:
        """Every edit that was simulated, best first."""
        return self.snapshot.whatif

    @property
    def tables(self) -> HostTables:
        """Ops, modules, stalls, copies, annotations and memory, where the file has them."""
        return self.snapshot.tables

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, schema `brrrtop.report/2`."""
        return document(self.snapshot)

    def to_json(self, indent: int | None = None) -> str:
        return to_json(self.snapshot, indent)

    def to_html(self) -> str:
        """One page that loads nothing."""
        return html.page(self.snapshot)

    def brief(self) -> str:
        """At most thirty lines, for a person or a language model to act on."""
        return to_brief(self.snapshot)

    def export(self, format: str, path: str | PathLike[str]) -> None:  # noqa: A002 - what users type
        """Writes `csv` or `parquet` (a folder), or `html` (a file).

        Raises:
            brrrtop.errors.UsageError: There is something at `path`, or no such format.
            brrrtop.errors.BrrrtopError: It cannot be written.
        """
        tables.export(self.snapshot, format, Path(path))

    def __str__(self) -> str:
        return to_text(self.snapshot)

    def __repr__(self) -> str:
        label = self.snapshot.source.label
        return f"<brrrtop.Report of {label}: {self.regime}, {self.confidence:.0%} sure>"

    def _repr_html_(self) -> str:
        return html.body(self.snapshot)
