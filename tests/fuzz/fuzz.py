"""Throws broken bytes at everything that reads: the wire, recordings, traces, each up to the report.

    python -m tests.fuzz.fuzz                      half a minute on every core, as CI runs it
    python -m tests.fuzz.fuzz --seconds 3600 --only recording --seed 7

The inputs are mutations of what the program itself writes, with a fixed seed, and every file of
`corpus/`, which holds what once crashed or hung. A fault is any exception but a sentence for
people (`BrrrtopError`, `WireError`), or an input that takes longer than `--limit` seconds. Each is
kept in `--keep`; the exit code is 1 where there was one.
"""

import argparse
import contextlib
import faulthandler
import hashlib
import io
import json
import os
import random
import re
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from brrrtop.errors import BrrrtopError
from brrrtop.session.analyze import analyze
from brrrtop.session.session import Session
from brrrtop.sources.importers.kineto.scanned import Scanned
from brrrtop.sources.importers.kineto.scanner_library import scanner_library
from brrrtop.sources.importers.kineto.source import take
from brrrtop.sources.importers.trace.columns import Collected, Torn
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from brrrtop.views import text as report_text
from brrrtop.views.json_report import document
from collectors import vocabulary
from collectors.protocol import frames as wire
from collectors.protocol.frames import DTYPES, HEADER, Decoder, Frame, Kind, WireError, encode
from collectors.vocabulary import MarkClass
from tests.importers import nsight, profiles
from tests.session.handmade import annotation, copy, kernel, launch, op, text_of

CORPUS = Path(__file__).parent / "corpus"
NOW = 1_790_857_026_000_000_000
NUMBERS = [0, 1, 2, 7, 0x7F, 0xFF, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 43, 1 << 62,
           (1 << 63) - 1, -1, -(1 << 63), NOW, NOW + 10**13, NOW - 10**12]  # fmt: skip
JUNK: list[Any] = [None, True, -1, 0, 1.5, 1e308, 1 << 40, 1 << 63, "", "x", "9", [], [[]], {}, [1, 2, 3],
                   ["a"], {"a": 1}, [[[[1]]]], "\x1b]52;c;x\x07", "é" * 50]  # fmt: skip
WORDS = [
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"NaN", b"-1", b"1e999", b"-0.0",
    b"99999999999999999999", b"\\ud800", b"\\u0000", b"\xff", b"\x00", b'"traceEvents":[', b'"ts":',
    b'"dur":-5', b'"args":{', b'},{"ph":"X","cat":"kernel"', b'"correlation":0', b"\n", b"  ",
]  # fmt: skip
REAL = 12
"""Real recordings that are broken, too."""
FINE = (BrrrtopError, WireError)


# --- seeds ------------------------------------------------------------------


def frames() -> list[Frame]:
    """A second of a trainer, every kind of frame, small."""
    count = 24
    starts = NOW + np.arange(count) * 40_000_000
    rows = {kind: np.zeros(count, dtype) for kind, dtype in DTYPES.items()}
    for kind in (Kind.KERNELS, Kind.COPIES, Kind.CALLS, Kind.MARKS, Kind.OBSERVED, Kind.SAMPLES):
        rows[kind]["start_ns"], rows[kind]["end_ns"] = starts, starts + 30_000_000
    rows[Kind.CALLS]["start_ns"] -= 5_000_000
    rows[Kind.CALLS]["end_ns"] = rows[Kind.CALLS]["start_ns"] + 4_000
    rows[Kind.CALLS]["call_class"] = vocabulary.CallClass.LAUNCH
    for kind in (Kind.KERNELS, Kind.CALLS, Kind.LINKS):
        rows[kind]["correlation"] = np.arange(count) + 1
    for kind in (Kind.KERNELS, Kind.CALLS, Kind.MARKS):
        rows[kind]["name_id"] = 1 + np.arange(count) % 4
    kernels = rows[Kind.KERNELS]
    kernels["grid"], kernels["block"], kernels["registers"] = (512, 2, 1), (128, 1, 1), 64
    kernels["shared_bytes"] = 4096
    rows[Kind.COPIES]["copy_kind"] = np.arange(count) % 11
    rows[Kind.COPIES]["size_bytes"] = 1 << 20
    rows[Kind.LINKS]["op_id"] = 1 + np.arange(count) % 2
    marks = rows[Kind.MARKS]
    marks["mark_class"] = np.arange(count) % (len(MarkClass) - 2)
    marks["mark_class"][::3], marks["end_ns"][::3] = MarkClass.STEP, marks["start_ns"][::3]
    gauges = rows[Kind.GAUGES]
    gauges["time_ns"], gauges["value"], gauges["metric"] = starts, 0.5, 1 + np.arange(count)
    rows[Kind.SAMPLES]["sm"] = np.arange(count) % 2
    device = {"device_id": 0, "name": "NVIDIA H200", "sm_count": 132, "capability": [9, 0],
              "memory_bytes": 150_109_880_320, "max_threads_per_sm": 2048}  # fmt: skip
    names = {1: "ampere_bf16_s16816gemm_bf16_128x128_tn", 2: "void at::native::elementwise_kernel<4>",
             3: "ncclDevKernel_AllReduce_Sum_f32", 4: "train.py:12 step"}  # fmt: skip
    ops = [[1, "aten::mm", [[64, 64], [64, 64]], ["c10::BFloat16"] * 2, ["", ""], [[64, 1], [1, 64]]],
           [2, "aten::add", [[64, 64], [64, 64], []], ["float", "float", "Scalar"], ["", "", "1"]]]  # fmt: skip
    disturbed = np.zeros(2, wire.MARK)
    disturbed["start_ns"], disturbed["end_ns"] = starts[4:6], starts[5:7]
    disturbed["mark_class"], disturbed["value"] = MarkClass.PERTURBED, 2
    listed = [
        Frame(Kind.HELLO, {"wire": 1, "pid": 4711, "torch": "2.13.0", "cmdline": ["t.py"]}, NOW),
        Frame(Kind.NAMES, names, NOW), Frame(Kind.DEVICE, device, NOW), Frame(Kind.OPS, ops, NOW),
        Frame(Kind.STATUS, {"tier": "bursts", "says": "tracing a burst", "gauges": []}, NOW),
        *(Frame(kind, table, int(starts[-1])) for kind, table in rows.items()),
        Frame(Kind.MARKS, disturbed, int(starts[-1])),
        Frame(Kind.LOSS, {"records": 1}, int(starts[-1])), Frame(Kind.END, {"reason": "done"}, int(starts[-1])),
    ]  # fmt: skip
    return listed


def trace(steps: int = 4) -> list[dict[str, Any]]:
    """Events of a small training loop."""
    events: list[dict[str, Any]] = []
    dims = {
        "Input Dims": [[64, 64], [64, 64]],
        "Input type": ["float"] * 2,
        "Concrete Inputs": ["", ""],
    }
    for step in range(steps):
        at = 1000.0 * step
        events.append(annotation(at, 900, f"ProfilerStep#{step}"))
        for n in range(6):
            here, correlation = at + 100 * n, 10 * step + n + 1
            events += [
                op(here, 40, "aten::mm" if n % 2 else "aten::add", **dims),
                launch(here + 2, 3.25, correlation),
                kernel(here + 20, 70.125, correlation, "gemm" if n % 2 else "elementwise_kernel"),
            ]
        events += [copy(at + 700, 30, 1000 + step, "Memcpy HtoD (Pageable -> Device)", 4096),
                   launch(at + 690, 30, 1000 + step, "cudaMemcpyAsync"),
                   launch(at + 800, 60, 0, "cudaStreamSynchronize")]  # fmt: skip
    return events


# --- mutations ----------------------------------------------------------------


def broken_bytes(data: bytes, chance: random.Random) -> bytes:
    """Bits, bytes, words and pieces changed, taken out or doubled."""
    text = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        at = chance.randrange(len(text) + 1)
        kind = chance.randrange(7)
        if kind == 0 and text:
            text[at % len(text)] = chance.randrange(256)
        elif kind == 1:
            del text[at : at + chance.choice((1, 3, 40))]
        elif kind == 2:
            text[at:at] = chance.choice(WORDS)
        elif kind == 3:
            other = chance.randrange(len(text) + 1)
            text[at:at] = text[other : other + chance.randrange(200)]
        elif kind == 4 and text:
            text[at % len(text)] ^= 1 << chance.randrange(8)
        elif kind == 5:
            size = chance.choice((2, 4, 8))
            number = chance.choice(NUMBERS) & ((1 << 8 * size) - 1)
            text[at : at + size] = number.to_bytes(size, "little")
        else:
            del text[at:]
            text += chance.choice((b"", b"]", b"]}", b"}"))
    return bytes(text)


def broken_value(value: Any, chance: random.Random) -> Any:
    """JSON data with one thing in it replaced, left out or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: broken_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        changed = [broken_value(value[at], chance)] * chance.choice((0, 1, 1, 1, 1, 2))
        return [*value[:at], *changed, *value[at + 1 :]]
    if isinstance(value, (int, float)) and chance.random() < 0.5:
        return chance.choice([*NUMBERS, value * 2, -value, value + 0.5, value * 1e9])
    return chance.choice(JUNK)


def broken_frame(frame: Frame, chance: random.Random) -> Frame:
    """A frame of the same kind with fields that nobody would send."""
    body = frame.body
    if frame.kind in DTYPES:
        body = body.copy()
        for _ in range(chance.choice((1, 1, 3, 10))):
            field, row = chance.choice(body.dtype.names), chance.randrange(max(1, len(body)))
            rows = chance.choice((slice(row, row + 1), slice(row, None), slice(None)))
            column = body[field]
            if column.dtype.kind == "f":
                odd = chance.choice((0.0, -1.0, 2.0, 1e300, float("nan"), float("inf")))
                most = float(np.finfo(column.dtype).max)
                column[rows] = min(odd, most) if odd == 1e300 else odd
            else:
                size = 8 * column.dtype.itemsize
                number = chance.choice([*NUMBERS, chance.getrandbits(size)]) & ((1 << size) - 1)
                column[rows] = np.array(number, f"u{column.dtype.itemsize}").astype(column.dtype)
    elif frame.kind == Kind.NAMES:
        body = {chance.choice((*body, 0xFFFFFFFF, 1 << 22, 0)): "x" * chance.choice((0, 1, 5000))}
    else:
        body = broken_value(body, chance)
    stamp = frame.sent_ns if chance.random() < 0.9 else chance.choice(NUMBERS) & NUMBERS[11]
    return Frame(frame.kind, body, stamp, frame.flags)


def broken_frames(listed: list[Frame], chance: random.Random) -> bytes:
    """The frames as bytes, some of them broken, doubled, left out or in another order."""
    out = list(listed)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(out))
        kind = chance.randrange(8)
        if kind < 5:
            out[at] = broken_frame(out[at], chance)
        elif kind == 5:
            out.insert(chance.randrange(len(out)), out[at])
        elif kind == 6 and len(out) > 2:
            del out[at]
        else:
            chance.shuffle(out)
    data = b"".join(map(encode, out))
    return broken_bytes(data, chance) if chance.random() < 0.2 else data


# --- targets --------------------------------------------------------------------


def read_decoder(data: bytes) -> None:
    """Bytes of an agent into frames."""
    for _ in Decoder().feed(data):
        pass


def read_wire(data: bytes) -> None:
    """Bytes of an agent in two pieces into a live timeline."""
    decoder, timeline = Decoder(), Timeline(keep_ns=120_000_000_000)
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        for frame in decoder.feed(piece):
            timeline.add(frame)


def read_file(data: bytes) -> None:
    """A file up to its report as text and JSON."""
    with tempfile.NamedTemporaryFile(dir=_folder()) as file:
        file.write(data or b" ")
        file.flush()
        source = open_source(file.name)
        try:
            snapshot = analyze(source)
        finally:
            source.close()
        json.dumps(document(snapshot), allow_nan=False)
        report_text.to_text(snapshot)


def runs_of(data: bytes) -> list[bytes]:
    """The events of a whole trace, as well as they can be told, in two runs."""
    match = re.search(rb'"traceEvents"\s*:\s*\[', data)
    body = data[match.end() if match else 0 :]
    body = body[: body.rfind(b"]")] if b"]" in body else body
    cut = body.find(b"},", len(body) // 2)
    return [body] if cut < 0 else [body[: cut + 1], body[cut + 2 :]]


def scan(data: bytes) -> None:
    """The scanner takes a run, or the other reader does, or it is torn."""
    collected = Collected()
    scanned = Scanned(library, collected) if (library := scanner_library()) is not None else None
    for run in (*runs_of(data), data):
        with contextlib.suppress(Torn):
            take(collected, run)
    if scanned is not None:
        scanned.finish()


def read_live(data: bytes) -> None:
    """A recording frame by frame through a session, as a screen sees it."""
    with tempfile.NamedTemporaryFile(dir=_folder()) as file:
        file.write(data or b" ")
        file.flush()
        source = open_source(file.name)
        try:
            session, span = Session(source, keep_ns=None), source.span
            for part in (span.t0_ns, (span.t0_ns + span.t1_ns) // 2, span.t1_ns):
                json.dumps(document(session.advance(part)), allow_nan=False)
        finally:
            source.close()


def _folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def packed(data: bytes) -> bytes:
    """Frames as a recording."""
    return struct.pack("<4sHH", b"BRRR", 1, 0) + zstandard.compress(data, 1)


def wire_inputs(chance: random.Random) -> Iterator[bytes]:
    """Frames of one kind or two, small: a decoder sees many a second."""
    small = [Frame(f.kind, f.body[:2] if f.kind in DTYPES else f.body, f.sent_ns) for f in frames()]
    sound = [encode(frame) for frame in small]
    while True:
        at = chance.randrange(len(small))
        way = chance.random()
        if way < 0.5:
            data = broken_bytes(sound[at], chance)
        elif way < 0.9:
            data = encode(broken_frame(small[at], chance))
        else:
            head = (
                chance.choice(NUMBERS) & 0xFFFFFFFF,
                chance.randrange(20),
                0,
                chance.choice(NUMBERS),
            )
            data = HEADER.pack(*head) + sound[at][HEADER.size :]
        yield data + sound[chance.randrange(len(sound))]


def decoder_inputs(chance: random.Random) -> Iterator[bytes]:
    """A frame with a few bytes changed, which takes no time to make."""
    small = [Frame(f.kind, f.body[:2] if f.kind in DTYPES else f.body, f.sent_ns) for f in frames()]
    sound = [encode(frame) for frame in small]
    pick, size = chance.random, len(sound)
    while True:
        data = bytearray(sound[int(pick() * size)])
        for _ in range(1 + int(pick() * 3)):
            way, at = pick(), int(pick() * len(data))
            if way < 0.8:
                data[at] = int(pick() * 256)
            elif way < 0.9:
                del data[at : at + 1 + int(pick() * 4)]
            else:
                data[at:at] = WORDS[int(pick() * len(WORDS))]
            if not data:
                break
        yield bytes(data)


def real_frames() -> list[list[Frame]]:
    """Short starts of the smallest real recordings in the tests, where they are."""
    result = []
    files = sorted(
        (CORPUS.parents[1] / "recordings").rglob("*.brrr"), key=lambda p: p.stat().st_size
    )
    for path in files[:REAL]:
        listed = []
        for frame in open_source(path).frames():
            body = frame.body[:100] if frame.kind in DTYPES else frame.body
            listed.append(Frame(frame.kind, body, frame.sent_ns))
            if len(listed) >= 80:
                break
        result.append(listed)
    return result


def recording_inputs(chance: random.Random) -> Iterator[bytes]:
    """Recordings with broken frames inside, and with broken bytes outside."""
    listed, real = frames(), real_frames()
    whole = io.BytesIO()
    whole.close = lambda: None  # type: ignore[method-assign]
    with RecordingWriter(whole) as writer:
        for frame in listed:
            writer.write(frame)
    while True:
        way = chance.random()
        if way < 0.8 or not real:
            yield packed(broken_frames(listed, chance))
        elif way < 0.95:
            yield packed(broken_frames(chance.choice(real), chance))
        else:
            yield broken_bytes(whole.getvalue(), chance)


def kineto_inputs(chance: random.Random) -> Iterator[bytes]:
    """Traces with broken events, and with broken text."""
    facts = {"baseTimeNanoseconds": NOW, "distributedInfo": {"rank": 0, "world_size": 2}}
    events, sound = trace(), text_of(trace(), **facts)
    whole = json.loads(sound)
    while True:
        way = chance.random()
        if way < 0.5:
            yield broken_bytes(sound, chance)
        else:
            changed = list(events) if way < 0.9 else whole
            for _ in range(chance.choice((1, 2, 5))):
                changed = broken_value(changed, chance) or events
            odd = changed if isinstance(changed, list) else events
            value = {**whole, "traceEvents": odd} if way < 0.9 else changed
            yield json.dumps(value).encode()


def nsys_inputs(chance: random.Random) -> Iterator[bytes]:
    """Exports of Nsight Systems with broken bytes, and with odd values in their rows."""
    sound, odd = nsight.training(6), [*NUMBERS[:14], *JUNK[:6], "x" * 5_000, b"\xff\x00"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.sqlite")
        whole = sound.write(path).read_bytes()
        while True:
            if chance.random() < 0.7:
                yield broken_bytes(whole, chance)
                continue
            export = nsight.training(2)
            for table in chance.choices(list(export.tables), k=4):
                row = list(chance.choice(export.tables[table]))
                row[chance.randrange(len(row))] = chance.choice(odd)
                export.add(table, *row)
            path.unlink(missing_ok=True)
            columns = sorted(
                column for text in nsight.COLUMNS.values() for column in text.split(", ")
            )
            yield export.write(path, frozenset(chance.choices(columns, k=2))).read_bytes()


def jax_inputs(chance: random.Random) -> Iterator[bytes]:
    """Profiles of JAX with broken bytes, and with odd names, times and stats; either file."""
    odd: list[Any] = [
        *(n for n in NUMBERS if n >= 0),
        "x",
        "regs:-1 grid:1,1",
        "\x1b]52;c;x\x07",
        "é" * 50,
    ]
    keys = ["correlation_id", "kernel_details", "memcpy_details", "step_num", "hlo_op"]
    while True:
        planes = profiles.training(2)
        make = chance.choice((profiles.xspace, profiles.chrome))
        if chance.random() < 0.5:
            yield broken_bytes(make(planes), chance)
            continue
        for _ in range(3):
            line = chance.choice(list(chance.choice(list(planes.values())).values()))
            name, start, span, stats = chance.choice(line)
            name = chance.choice(
                (name, "$a.py:1 f", "MemcpyOther", "Memset", "", "hipLaunchKernel")
            )
            start = chance.choice((start, start + 10**12, 1 << 44))
            span = chance.choice((span, 0, 1 << 50))
            line.append((name, start, span, {**stats, chance.choice(keys): chance.choice(odd)}))
        yield make(planes)


Inputs = Callable[[random.Random], Iterator[bytes]]
Target = tuple[Inputs, Callable[[bytes], None]]
TARGETS: dict[str, Target] = {
    "decoder": (decoder_inputs, read_decoder),
    "wire": (wire_inputs, read_wire),
    "recording": (recording_inputs, read_file),
    "session": (recording_inputs, read_live),
    "kineto": (kineto_inputs, read_file),
    "scanner": (kineto_inputs, scan),
    "nsys": (nsys_inputs, read_file),
    "jax": (jax_inputs, read_file),
}


# --- the run -----------------------------------------------------------------------


class TooLong(BaseException):
    """An input took longer than the limit; no `except Exception` swallows it."""


def tried(read: Callable[[bytes], None], data: bytes, limit_s: float) -> str | None:
    """Why reading `data` is a fault; None where it is none.

    The limit is one of the processor's time, and six times as much by the clock: on a busy host what
    waits for its turn is no fault.
    """
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_REAL, 6 * limit_s)
    try:
        read(data)
    except FINE as fault:
        if "\n" in str(fault) or not str(fault):
            return f"no sentence: {fault!r}"
    except TooLong:
        return "longer than the limit: " + _place()
    except MemoryError:
        return "memory: " + _place()
    except Exception:  # noqa: BLE001  that there is none is what is asked
        return _place()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _place() -> str:
    kind, value, at = sys.exc_info()
    ours = [f for f in traceback.extract_tb(at) if "/tests/fuzz/" not in f.filename]
    last = next((f for f in reversed(ours) if "brrrtop" in f.filename), ours[-1] if ours else None)
    where = f"{Path(last.filename).name}:{last.lineno}" if last else "?"
    return f"{kind.__name__ if kind else '?'} at {where}: {str(value)[:100]}"


def _ring(_number: int, _frame: Any) -> None:
    raise TooLong


def fuzz(
    name: str, seed: int, seconds: float, most: int, limit_s: float, keep: Path
) -> tuple[int, Counter[str]]:
    """How many inputs were tried, and how often each fault came."""
    inputs, read = TARGETS[name]
    faults: Counter[str] = Counter()
    count = 0
    until = time.monotonic() + seconds
    for path in sorted(CORPUS.glob(f"{name}-*")):
        why = tried(read, path.read_bytes(), limit_s)
        if why is not None:
            faults[f"{why} ({path.name})"] += 1
    for data in inputs(random.Random(seed)):
        if count >= most or time.monotonic() >= until:
            break
        count += 1
        why = tried(read, data, limit_s)
        if why is not None:
            if not faults[why]:
                keep.mkdir(parents=True, exist_ok=True)
                file = keep / f"{name}-{hashlib.sha1(data).hexdigest()[:10]}"
                file.write_bytes(data)
                print(f"{name}: {why}\n  {file}", flush=True)
            faults[why] += 1
    return count, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="for all targets together, on all cores"
    )
    parser.add_argument("--most", type=int, default=1 << 60, help="inputs of each target")
    parser.add_argument("--only", choices=TARGETS, action="append")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds an input may take")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "brrrtop-fuzz")
    given = parser.parse_args()
    names = given.only or list(TARGETS)
    cores = min(len(os.sched_getaffinity(0)), len(names))
    share_s = given.seconds * cores / len(names)
    bad = 0
    # In processes of their own: one that dies of a fault breaks the pool, which is an error.
    with ProcessPoolExecutor(cores) as pool:
        try:
            for lines, faults in pool.map(partial(fuzz_alone, given, share_s), names):
                print(lines, flush=True)
                bad += faults
        except KeyboardInterrupt:
            return 130
    return 1 if bad else 0


def fuzz_alone(given: argparse.Namespace, seconds: float, name: str) -> tuple[str, int]:
    """One target, in one of the processes: what to print of it, and its kinds of fault."""
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _ring)
    signal.signal(signal.SIGPROF, _ring)
    warnings.simplefilter("ignore")
    start = time.monotonic()
    count, faults = fuzz(name, given.seed, seconds, given.most, given.limit, given.keep)
    rate = count / max(time.monotonic() - start, 1e-9)
    head = f"{name}: {count:,} inputs, {rate:,.0f} a second, {len(faults)} kinds of fault"
    return "\n".join([head, *(f"  {n:6,} x {why}" for why, n in faults.most_common())]), len(faults)


if __name__ == "__main__":
    sys.exit(main())
