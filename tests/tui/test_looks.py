"""Where samples found the host, on the screen: the verdict's line and the advice."""

from pathlib import Path

from tests.recorded import analyzed
from tests.tui.shown import shown

READS = Path(__file__).resolve().parents[1] / "recordings" / "host" / "reads.brrr"


async def test_the_verdict_and_the_advice_name_the_line_that_the_host_is_at():
    async with shown(analyzed(READS), size=(80, 24)) as screen:
        text = await screen.text()
        assert "WAITS FOR FILES" in text and "at nb/reader.py:30" in text
        assert text.count("nb/reader.py:30") == 2, "at 80 columns neither is cut"
        text = " ".join((await screen.resize(120, 60)).split())
    line = "the main thread is at nb/reader.py:30, rows = np.load(path);"
    assert f"in 38 of 41 samples {line}" in text
    assert "do `rows = np.load(path)` ahead" in text
