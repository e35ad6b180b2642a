"""docs/json.md names every key of real reports, and no key that none of them has."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from brrrtop.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "recordings" / "traces"
STACKS, RANKS = str(TRACES / "stacks.json.gz"), str(ROOT / "tests" / "ranks" / "traces" / "dlrm")
RARE = {"baseline", "comparison", "devices[].*", "counter_samples.*", "events[].*", "notes[]"}
"""What the reports here are without: a second GPU, counters, a log."""


def documented() -> dict[str, list[str]]:
    """The patterns of each schema's tables."""
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    _, *parts = re.split(r"^## `(.+)`$", text, flags=re.MULTILINE)
    cells = {
        name: "".join(re.findall(r"^\|(.+?)\|", part, re.MULTILINE))
        for name, part in zip(parts[::2], parts[1::2], strict=True)
    }
    return {name: re.findall(r"`([^`]+)`", cell) for name, cell in cells.items()}


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Where the report has plain values, `[]` for any place in a list."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from paths(inner, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from paths(inner, f"{at}[]")
    else:
        yield at


def is_named(path: str, pattern: str) -> bool:
    """What is null or empty as a whole is named by any key inside it."""
    return fnmatchcase(path, pattern.replace("[", "[[]")) or pattern.startswith(
        (f"{path}.", f"{path}[")
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("brrrtop.report/2", (["analyze", STACKS], ["analyze", RANKS])),
        ("brrrtop.compare/1", (["compare", STACKS, str(TRACES / "serving.json.zst")],)),
    ],
)
def test_the_page_names_the_keys_of_reports(schema, words, capsys):
    has: set[str] = set()
    for one in words:
        assert main([*one, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["schema"] == schema
        has |= set(paths(report))
    patterns = documented()[schema]
    assert [path for path in has if not any(is_named(path, p) for p in patterns)] == []
    assert [
        p for p in patterns if p not in RARE and not any(is_named(path, p) for path in has)
    ] == []
