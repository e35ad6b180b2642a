"""Whatever is typed is either understood or answered with a sentence that helps."""

import subprocess
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest

from brrrtop.cli import options
from brrrtop.cli.arguments import VERBS, parse
from brrrtop.cli.main import main
from brrrtop.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_no_verb_looks_for_trainers():
    assert parse([]).verb is None


@pytest.mark.parametrize(
    "argv", [["--json", "analyze", "x"], ["analyze", "--json", "x"], ["analyze", "x", "--json"]]
)
def test_common_options_work_before_and_after_the_verb(argv):
    options = parse(argv)
    assert (options.verb, options.json, *options.files) == ("analyze", True, "x")


@pytest.mark.parametrize("words", [["analyze", "x"], ["compare", "x", "y"], ["demo"], ["doctor"],
                                   ["replay", "x"], ["attach", "1"]])  # fmt: skip
def test_every_verb_takes_the_common_options(words):
    options = parse([*words, "--once", "--json", "--interval", "2", "--gpu", "1", "--no-color",
                     "--ascii"])  # fmt: skip
    assert (options.once, options.json, options.interval, options.gpu) == (True, True, 2.0, 1)
    assert (options.no_color, options.ascii) == (True, True)
    assert parse([*words, "--version"]).version


def test_the_version_of_the_command_of_run_is_its_own():
    assert parse(["run", "--version", "--", "python"]).version
    assert not parse(["run", "--", "python", "--version"]).version
    assert not parse(["run", "python", "--version"]).version


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["run", "--", "python", "t.py", "--json"], ("python", "t.py", "--json")),
        (["run", "python", "t.py", "--once"], ("python", "t.py", "--once")),
        (["run", "--record", "f", "--", "sh", "-c", "a -- b"], ("sh", "-c", "a -- b")),
        (["run", "--", "a", "--", "b"], ("a", "--", "b")),
    ],
)
def test_the_command_of_run_stays_as_it_is(argv, command):
    options = parse(argv)
    assert tuple(options.command) == command
    assert not options.json
    assert not options.once


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5", 0.5), ("500ms", 0.5), ("2s", 2.0), ("1m", 60.0)]
)
def test_intervals_are_read_with_and_without_units(text, seconds):
    assert parse(["--interval", text]).interval == seconds


def test_sizes_are_taken_as_people_write_them():
    sizes = [options.size(text) for text in ("4096", "1.5kB", "500MB", "2 G", "1GiB")]
    assert sizes == [4096, 1536, 500 << 20, 2 << 30, 1 << 30]
    for text in ("", "0", "-1", "1X", "MB", "nan", "1e3", "9" * 20):
        with pytest.raises(ArgumentTypeError, match="is not a size"):
            options.size(text)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.02", 0.02), ("0%", 0.0)])
def test_overhead_is_a_share(text, share):
    assert parse(["--max-overhead", text]).max_overhead == pytest.approx(share)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["analyse", "x"], "brrrtop analyze"),
        (["atach", "1"], "brrrtop attach"),
        (["4711"], "brrrtop attach 4711"),
        (["analyze", "--jsn", "x"], "--json"),
        (["--onec"], "--once"),
        (["--frobnicate"], "see `brrrtop --help`"),
        (["demo", "--speed", "fast"], "write 2 or 0.5"),
        (["demo", "--speed", "0"], "above 0"),
        (["attach", "python"], "`brrrtop` alone lists"),
        (["attach", "-1"], "--help"),
        (["attach", "0"], "--help"),
        (["analyze"], "--help"),
        (["analyze", "x", "--steps", "4-2"], "count from 1"),
        (["analyze", "x", "--steps", "0-2"], "count from 1"),
        (["analyze", "x", "--steps", "a"], "2-4"),
        (["--interval", "0.001"], "0.1 s"),
        (["--interval", "soon"], "500ms"),
        (["--interval", "nan"], "time"),
        (["--gpu", "-1"], "--help"),
        (["--gpu", "zero"], "GPU number"),
        (["--max-overhead", "200%"], "between 0% and 100%"),
        (["nonsense-entirely"], "brrrtop --help"),
    ],
)
def test_mistakes_are_answered_with_what_to_type(argv, hint):
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert hint in f"{caught.value.message} {caught.value.action}"


def test_a_file_for_a_verb_is_recognised(tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    (tmp_path / "trace.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        parse(["trace.json"])
    assert "brrrtop replay trace.json" in caught.value.action


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_has_examples_and_fits_a_terminal(verb, capsys):
    assert main([*([verb] if verb else []), "--help"]) == 0
    text = capsys.readouterr().out
    assert "examples:" in text or verb == "doctor"
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_help_of_the_program_names_every_verb_and_exit_code(capsys):
    main(["--help"])
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)
    assert all(code in text for code in ("2 usage", "3 no such", "4 not", "5 a --fail-if", "130"))


def test_version_is_one_line(command):
    done = command("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("brrrtop 0.")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        *(
            (words, option)
            for words in (["attach", "1"], ["run", "--", "true"], [])
            for option in ("shapes", "trace-graphs")
        ),
        (["export", "otlp"], "trace-graphs"),
    ],
)
def test_what_is_decided_by_default_can_be_asked_for_or_left_out(words, option):
    """Shapes, and tracing without torch."""
    for value, typed in {None: [], True: [f"--{option}"], False: [f"--no-{option}"]}.items():
        assert getattr(parse([*typed, *words]), option.replace("-", "_")) is value
    with pytest.raises(UsageError, match="not allowed with"):
        parse([f"--{option}", f"--no-{option}", *words])
