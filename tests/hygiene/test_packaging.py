"""What is installed has all that it reads of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "brrrtop" / "data"
hatchling = pytest.importorskip("hatchling.builders.wheel", reason="no hatchling to pack with")


def packed(builder: Any) -> set[str]:
    """Paths in the repository of what is packed, before any hook adds the agent's library."""
    return {str(Path(f.path).relative_to(ROOT)) for f in builder.recurse_included_files()}


def wheel() -> set[str]:
    return packed(hatchling.WheelBuilder(str(ROOT)))


def sdist() -> set[str]:
    from hatchling.builders.sdist import SdistBuilder

    return packed(SdistBuilder(str(ROOT)))


def test_the_sources_come_with_what_their_checks_and_their_readers_need() -> None:
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert {"README.md", "SECURITY.md", "LICENSE", "dev.py", "constraints.txt"} | pages <= sdist()


@pytest.mark.parametrize("pack", [wheel, sdist])
def test_tables_demos_and_c_sources_are_packed(pack: Any) -> None:
    data = [path for path in DATA.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    sources = (ROOT / "collectors" / "agent" / "native").glob("*.[ch]")
    wanted = {str(path.relative_to(ROOT)) for path in (*data, *sources)}
    assert {"brrrtop/data/peaks.csv", "brrrtop/py.typed"} <= pack()
    assert wanted <= pack()
