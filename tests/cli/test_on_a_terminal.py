"""The command on a real terminal: the screen opens, leaves cleanly, and survives its user."""

import os
import signal

import pytest

from tests.cli.terminal import LEAVES_THE_SCREEN, on_a_terminal


def test_the_demo_opens_on_a_verdict_bears_a_tiny_terminal_and_q_leaves_it():
    with on_a_terminal("demo", "input-bound") as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        for rows, columns in ((1, 1), (2, 10), (24, 80)):
            terminal.resize(rows, columns)
            os.kill(terminal.pid, signal.SIGWINCH)
            terminal.read_for(0.3)
        terminal.answer(b"?", b"Ctrl-C")  # it is drawn again
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert LEAVES_THE_SCREEN in terminal.seen
        assert b"Traceback" not in terminal.seen


def test_the_straggler_opens_on_the_ranks_and_enter_on_the_late_one():
    with on_a_terminal("demo", "straggler") as terminal:
        terminal.read_until(b"Rank 1 is")
        terminal.read_until(b"odd one first")
        terminal.seen = b""
        terminal.type(b"\r")
        terminal.read_until(b"rank1.brrr")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert b"again: brrrtop demo straggler" in terminal.seen
        assert b"Traceback" not in terminal.seen


def test_control_c_on_the_screen_is_130():
    with on_a_terminal("demo", "input-bound") as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        terminal.type(b"\x03")
        assert terminal.ended() == 130
        assert LEAVES_THE_SCREEN in terminal.seen
        assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(number):
    with on_a_terminal("demo", "input-bound") as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        os.kill(terminal.pid, number)
        assert terminal.ended() == 128 + number
        assert LEAVES_THE_SCREEN in terminal.seen
        assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize(
    ("options", "environment"), [(("--no-color", "--ascii"), {}), ((), {"NO_COLOR": "1"})]
)
def test_no_color_means_no_colour_and_ascii_is_ascii(options, environment):
    with on_a_terminal("demo", "input-bound", *options, **environment) as terminal:
        terminal.read_until(b"WAITS FOR DATA")
        for key, words in ((b"?", b"Ctrl-C"), (b"r", b"memory roof")):
            terminal.type(key)
            terminal.read_until(words)
        assert b"\x1b[38;" not in terminal.seen
        assert b";38;5;" not in terminal.seen
        assert terminal.seen.isascii() is ("--ascii" in options)


def test_a_dumb_terminal_gets_one_plain_report():
    with on_a_terminal("demo", "input-bound", TERM="dumb") as terminal:
        assert terminal.ended() == 0
        assert b"Where the time went" in terminal.seen
        assert b"\x1b" not in terminal.seen
