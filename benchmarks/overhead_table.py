"""The findings of `overhead.py` as lines and as the README's table."""

from __future__ import annotations

import statistics
from typing import Any

import stepped

RIVALS = {
    "torch_profiler": (stepped.PROFILER_ON, stepped.PROFILER_OFF),
    "cupti_python": (stepped.CUPTI_ON, stepped.CUPTI_OFF),
}
COLUMNS = (
    "script", "step", "default", "pairs", "longest step", "after detach", "continuous", "torch.profiler",
    "cupti-python", "held by attach", "first verdict", "host", "device",
)  # fmt: skip


def interval(cost: dict[str, Any] | None) -> str:
    if cost is None:
        return "–"
    return f"{cost['mean'] * 100:+.2f} % ({cost['low'] * 100:+.2f} … {cost['high'] * 100:+.2f})"


def megabytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:.0f} MB"


def cells(one: dict[str, Any]) -> list[str]:
    if "error" in one:
        return [one["script"], one["error"][:60], *["–"] * (len(COLUMNS) - 2)]
    verdict = one["first"].get("first_verdict_s")
    buffered = one["attach_held_ms"]
    return [
        one["script"], f"{one['step_off_ms']:.2f} ms", interval(one["default"]),
        str(one["default"]["pairs"] if one["default"] else 0), f"×{one['longest_ratio']:.2f}",
        interval(one["residue"]), interval(one.get("continuous")), interval(one.get("torch_profiler")),
        interval(one.get("cupti_python")),
        f"{statistics.median(buffered):.2f} ms (≤ {max(buffered):.2f})" if buffered else "–",
        f"{verdict:.1f} s" if verdict is not None else "–",
        megabytes(one["host_bytes"]), megabytes(one["device_bytes"]),
    ]  # fmt: skip


def markdown(facts: dict[str, Any], result: list[dict[str, Any]]) -> str:
    """A table under a line that says where it was measured."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS), *(cells(one) for one in result)]
    where = (
        f"{facts['gpu'] or 'no GPU'}, driver {facts['driver'] or '–'}, torch {facts.get('torch', '–')}, "
        f"Python {facts['python']}, {facts['date']}."
    )
    says = "Costs: share of step time, mean over the pairs with its 95 % interval."
    return "\n".join([f"{where} {says}", "", *("| " + " | ".join(row) + " |" for row in rows), ""])


def in_a_line(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{one['script']}: {one['error']}"
    message = "; ".join(
        f"{name} {cell}" for name, cell in zip(COLUMNS[1:], cells(one)[1:], strict=True)
    )
    faults = f"; FAILURES {one['failures']}" if one["failures"] else ""
    return f"{one['script']}: {message}; {one['bursts']} bursts, {one['took_s']:.0f} s{faults}"
