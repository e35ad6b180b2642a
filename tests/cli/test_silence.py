"""`--silence`: advice that somebody does not want to hear, left out and counted."""

import json
import subprocess
from collections.abc import Callable

import pytest

from brrrtop.cli import files
from brrrtop.cli.arguments import build, parse
from brrrtop.cli.commands.replay import scenarios
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DEMO = str(scenarios()["unpinned-copies"])


def test_silenced_advice_is_left_out_and_counted(brrrtop):
    plain = json.loads(brrrtop("analyze", DEMO, "--json").stdout)
    kinds = [one["id"] for one in plain["advisories"]]
    assert plain["silenced"] == []
    quiet = ("--silence", f"{kinds[0]},gc-pause", "--silence", "double-precision")
    loads = json.loads(brrrtop("replay", DEMO, "--json", "--once", *quiet).stdout)
    assert loads["silenced"] == kinds[:1], "what would not have been given is not counted"
    assert [one["id"] for one in loads["advisories"]] == kinds[1:]
    text = brrrtop("analyze", DEMO, *quiet).stdout
    assert f"Advice silenced by --silence: 1 ({kinds[0]})" in text
    assert f"1 {kinds[0]}:" not in text


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("pin-memry", "did you mean pin-memory"),
        ("stall", "dataloader-stall"),
        ("qqqq", "ADVISORIES.md lists them"),
        (",", "name the advice"),
    ],
)
def test_silencing_what_does_not_exist_is_a_usage_error(typed, hint):
    with pytest.raises(UsageError, match=hint) as caught:
        parse(["analyze", DEMO, "--silence", typed])
    assert caught.value.exit_code == 2


def test_every_verb_that_advises_can_be_silenced():
    _, verbs = build("all")
    able = {name for name, one in verbs.items() if "--silence" in one.format_help()}
    assert able == {"attach", "run", "replay", "analyze", "compare", "demo", "export", "receipt"}
    assert parse(["--silence", "gc-pause"]).silenced == {"gc-pause"}
    both = parse(["attach", "7", "--silence", "gc-pause,pin-memory", "--silence", "throttled"])
    assert both.silenced == {"gc-pause", "pin-memory", "throttled"}


def test_what_is_silenced_is_no_promise_of_a_baseline_either():
    plain = files.baseline(Options(baseline=DEMO))
    quiet = files.baseline(Options(baseline=DEMO, silence=[("pin-memory",)]))
    assert "pin-memory" in {one.kind for one in plain.advisories}
    assert "pin-memory" not in {one.kind for one in quiet.advisories}
