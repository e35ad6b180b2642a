"""Puts what a program prints into its place on a page of prose."""

from __future__ import annotations

from pathlib import Path


def put(page: Path, maker: str, text: str) -> None:
    """Replaces what stands between `<!-- MAKER -->` and `<!-- end of MAKER -->`.

    Raises:
        SystemExit: The page has no such place.
    """
    begin, end = f"<!-- {maker} -->\n", f"<!-- end of {maker} -->"
    before, opened, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise SystemExit(
            f"{page} has no place for this: put the lines {begin.strip()} and {end} in"
        )
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}")
