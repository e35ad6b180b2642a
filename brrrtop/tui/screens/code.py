"""Where the training thread is while the GPU idles, line by line, and what the waits are called."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import letter
from brrrtop.tui.parts import booked, why_unjudged
from brrrtop.tui.renderables.code_lines import code_lines, no_samples
from brrrtop.tui.renderables.line import clipped, wrapped
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Scrolled

NAMED = " Waits that have a name of their own are below."


class Code(Scrolled):
    topic = "code while the GPU idles"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        palette = self.palette
        if snapshot.estimate is None:
            muted = palette.style("muted")
            return [Text.styled(one, muted) for one in wrapped(why_unjudged(snapshot), width)]
        lines = code_lines(snapshot, palette, width)
        if not lines:
            says = no_samples(snapshot, "No line stands out") + NAMED
            lines = [Text.styled(one, palette.style("muted")) for one in wrapped(says, width)]
        lines += [
            Text(),
            Text.styled("What the GPU waits for", palette.style("compute", bold=True)),
        ]
        for part in booked(snapshot.estimate.account):
            if part.bucket.startswith("idle_"):
                text = Text.styled(letter(part.bucket), palette.filled(part.bucket))
                text.append(f" {units.share(part.share):>4}  ", palette.style("text", bold=True))
                text.append(
                    f"{phrases.bucket(part.bucket)}  ", palette.style(part.bucket, bold=True)
                )
                text.append(phrases.meaning(part.bucket), palette.style("text"))
                lines.append(clipped(text, width))
                if part.bucket == "idle_input" and (place := loader_line(snapshot)):
                    lines.append(
                        clipped(Text.styled(f"       {place}", palette.style("text")), width)
                    )
        for place in sync_lines(snapshot):
            line = Text.styled(f"       {place}", palette.style("text"))
            lines.append(clipped(line, width))
        return lines


def loader_line(snapshot: Snapshot) -> str:
    """`72% of it at data.py:45, L: more`: where the loop makes its batches, or waits for them."""
    rows = [row for row in snapshot.tables.loaders if row.lines]
    if not rows:
        return ""
    first = rows[0].lines[0]
    return f"{units.share(first.count / rows[0].samples)} of it at {first.place}, L: more"


def sync_lines(snapshot: Snapshot) -> list[str]:
    """Lines that advice names as waiting for the GPU."""
    return [
        str(line)
        for advisory in (*snapshot.advisories, *snapshot.silenced)
        for line in advisory.evidence.get("lines") or ()
    ]


class CodeView(SubView):
    def body(self) -> Code:
        return Code()
