"""Docs that speak of this repository name what is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"]
)
FOLDERS = ("brrrtop", "collectors", "tests", "benchmarks", "docs", "screenshots")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_path_a_page_names_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("speaks of the past")
    text = page.read_text("utf-8")
    quoted = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", text)
    links = [one for one in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in one]
    missing = [one for one in quoted if not (ROOT / one).exists()]
    missing += [one for one in links if not (page.parent / one).exists()]
    assert missing == []


def test_the_architecture_names_every_folder_of_the_pipe() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    for package in ("brrrtop", "collectors"):
        for folder in (ROOT / package).iterdir():
            if (folder / "__init__.py").exists():
                assert f"`{package}/{folder.name}`" in text, folder


def test_the_recipes_name_modules_that_exist() -> None:
    """Paths in the text are below `brrrtop/`, `collectors/` or the agent."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    roots = [ROOT, ROOT / "brrrtop", ROOT / "collectors", ROOT / "collectors" / "agent"]
    roots += [ROOT / "brrrtop" / "analysis", ROOT / "brrrtop" / "analysis" / "account"]
    named_files = re.findall(r"`([\w./-]+\.(?:py|c|csv))`", text)
    assert len(named_files) > 20
    assert [one for one in named_files if not any((root / one).exists() for root in roots)] == []
