"""Phases of an inference engine by the ranges that it marks, and what they say of the kernels within."""

from __future__ import annotations

import re

import numpy as np

from brrrtop.model.intervals import holders
from brrrtop.model.tables import I8, Window, picked
from brrrtop.timeline import correlation
from collectors.vocabulary import MarkClass

_VLLM = re.compile(
    r"execute_(?:\d+_)?context_(\d+)\((?:sq)?(\d+)[^)]*\)_generation_(\d+)\((?:sq)?(\d+)[^)]*\)"
)
"""Requests and tokens of each: `execute_context_2(4096)_generation_8(8)`, with squares of lengths
`execute_context_1(888_788544)_generation_0(0)`, with sums over queries and keys
`execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)`."""
_SGLANG = re.compile(r"\bstep\[(\w+)(?: bs=(\d+))?(?: toks=(\d+))?")
"""`step[EXTEND bs=15 toks=15360]`, `step[DECODE bs=32]`: SGLang's forward modes."""
_MODES = {"EXTEND": "prefill", "SPLIT_PREFILL": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_WORDS = re.compile(r"\b_?(prefill|decode)_?\b|(?<![a-z])(prefill|decode)(?![a-z])", re.IGNORECASE)
ONE_FORWARD = re.compile(r"^execute_(model|(\d+_)?context)|^step\[")
"""vLLM's and SGLang's ranges of one forward pass: a step even where there is but one."""


def phase_of(name: str) -> tuple[str, int | None] | None:
    """Phase of inference and tokens of a range; None: its name tells of none."""
    if engine := _VLLM.search(name):
        contexts, read, generations, generated = (int(text[:12]) for text in engine.groups())
        phase = "mixed" if contexts and generations else "prefill" if contexts else "decode"
        return phase, read + generated
    if mode := _SGLANG.search(name):
        phase = _MODES.get(mode[1], "")
        count = mode[3] or (mode[2] if phase == "decode" else None)
        return (phase, int(count[:12]) if count else None) if phase else None
    if named := _WORDS.search(name):
        return (named[1] or named[2]).lower(), None
    return None


def decode_tokens(window: Window) -> I8 | None:
    """Tokens of the decode pass that launched each activity, shape (n,), 0 outside any; None without one.

    Each sequence adds one token: a product in there has as many rows as tokens, however many weights.
    """
    marks = window.marks
    rows = np.flatnonzero(marks.classes == MarkClass.ANNOTATION)
    tokens = np.zeros(len(rows), np.int64)
    for name_id in np.unique(marks.name_ids[rows]).tolist():
        phase = phase_of(window.names[name_id])
        if phase is not None and phase[0] == "decode" and phase[1]:
            tokens[marks.name_ids[rows] == name_id] = phase[1]
    rows, tokens = rows[tokens > 0], tokens[tokens > 0]
    if not len(rows):
        return None
    order = np.argsort(marks.starts_ns[rows], kind="stable")
    starts, ends, tokens = marks.starts_ns[rows[order]], marks.ends_ns[rows[order]], tokens[order]
    outer = np.concatenate(([True], starts[1:] >= np.maximum.accumulate(ends)[:-1]))
    call_rows = correlation.call_of(window.activities, window.calls, window.observed)
    launched = picked(window.calls.starts_ns, call_rows, -1)
    at = holders(starts[outer], ends[outer], launched)
    return picked(tokens[outer], at, 0)
