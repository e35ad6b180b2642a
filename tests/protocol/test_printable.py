"""The cleaning itself, and every place where text enters."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.attach import bootstrap
from collectors.attach.attach import why_refused
from collectors.attach.files import SOCKET_NAME, Place
from collectors.printable import is_printable_json, printable, printable_data, printable_lines
from collectors.process import process as processes
from collectors.process.process import Process
from collectors.protocol.frames import Decoder, Frame, Kind, WireError, encode
from tests.hostile import harm, lines, strings_in, texts

JSON = st.recursive(texts, lambda one: st.lists(one) | st.dictionaries(texts, one), max_leaves=8)


@given(texts)
def test_nothing_obeyed_or_hidden_is_left(text):
    clean = printable(text)
    assert not harm(clean, allowed="")
    assert printable(clean) == clean
    assert len(clean) <= len(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_stays_as_it_is(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    "text", ["Größe", "日本語 トレーナー", "e\u0301te\u0301", "мир", "█▓░ · –"]
)
def test_every_language_stays_as_it_is(text):
    assert printable(text) == text


def test_accents_reach_no_other_line():
    assert printable("\u0301a" + "\u0301" * 40) == "?a\u0301\u0301?"


@given(texts)
def test_line_feeds_stay_in_text_of_many_lines(text):
    clean = printable_lines(f"one\n{text}\ntwo")
    assert not harm(clean)
    assert clean.startswith("one\n")
    assert clean.endswith("\ntwo")


@given(JSON)
def test_data_is_cleaned_however_deep(value):
    assert not harm("".join(strings_in(printable_data(value))), allowed="")


@given(st.dictionaries(lines, lines))
def test_what_is_told_from_the_bytes_alone_is_true(value):
    payload = encode(Frame(Kind.STATUS, value))[16:]
    if is_printable_json(payload):
        assert printable_data(value) == value


@given(
    lines, st.sampled_from([Kind.HELLO, Kind.STATUS, Kind.DEVICE, Kind.END, Kind.OPS, Kind.LOSS])
)
def test_the_wire_lets_no_text_in_as_it_came(text, kind):
    body: object = {"wire": 1, text: text, "more": [text, {"reason": text}]}
    if kind is Kind.OPS:
        body = [[1, text, [[2, 3]], [text], [text]]]
    elif kind is Kind.LOSS:
        body = {text: 1}
    (frame,) = Decoder().feed(encode(Frame(kind, body)))
    assert not harm("".join(strings_in(frame.body)), allowed="")


@given(lines)
def test_names_on_the_wire_are_cleaned(name):
    (frame,) = Decoder().feed(encode(Frame(Kind.NAMES, {1: name, 2: "gemm"})))
    assert not harm(frame.body[1], allowed="")
    assert frame.body[2] == "gemm"


def test_text_nested_too_deep_is_a_fault_of_the_frame():
    payload = b'["\x7f' + b'",[" ' * 800 + b'"' + b"]" * 801
    frame = payload.join((len(payload).to_bytes(4, "little") + b"\x0c\0\0\0" + b"\0" * 8, b""))
    with pytest.raises(WireError):
        list(Decoder().feed(frame))


@settings(max_examples=15, deadline=None)
@given(lines.filter(lambda text: "\0" not in text))
def test_the_command_line_of_another_process_is_cleaned(text):
    command = [sys.executable, "-c", "input()", text, "end"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
        try:
            process = _once_started(other.pid)
        finally:
            other.kill()
    assert not harm(" ".join(process.cmdline), allowed="")
    assert process.cmdline[2] == "input()"


def _once_started(pid: int) -> Process:
    """As soon as it is the program and not our own copy."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        process = processes.read(pid)
        if process.cmdline[-1:] == ("end",):
            return process
    raise AssertionError("it never started")


def test_the_name_of_another_process_is_cleaned():
    rename = "open('/proc/self/comm', 'w').write('a\\x1b[2J\\x9bb'); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", rename], **pipes) as other:  # type: ignore[call-overload]
        try:
            other.stdout.readline()
            name = processes.read(other.pid).name
        finally:
            other.kill()
    assert name.startswith("a?[2J")
    assert not harm(name, allowed="")


@given(text=lines)
def test_a_refusal_that_the_trainer_wrote_is_cleaned(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("place")
    message = b"why: " + text.encode("utf-8", "replace").replace(b"\0", b"")
    (folder / (SOCKET_NAME + bootstrap.REFUSED_SUFFIX)).symlink_to(os.fsdecode(message))
    handle = os.open(folder, os.O_RDONLY)
    try:
        refusal = why_refused(Place("", handle, str(folder), "", "", os.getuid(), os.getgid()))
    finally:
        os.close(handle)
    assert refusal.startswith("why: ")
    assert not harm(refusal, allowed="")
