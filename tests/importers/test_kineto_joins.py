"""Vectorised joins agree with the slow obvious way."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brrrtop.sources.importers.trace.joins import Nest, unique_correlations

Spans = list[tuple[int, int, int]]
_span = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12))


def _columns(spans: Spans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(spans, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 1] + table[:, 2]


def _nested(spans: Spans) -> Spans:
    """Only spans that do not cross one already taken: what threads of a real program do."""
    kept: Spans = []
    for tid, start, size in spans:
        end = start + size
        crosses = any(
            tid == t and (start < s < end < s + n or s < start < s + n < end) for t, s, n in kept
        )
        if not crosses:
            kept.append((tid, start, size))
    return kept


@given(st.lists(_span, max_size=14), st.lists(_span, max_size=8))
@settings(max_examples=300, deadline=None)
def test_the_holder_is_an_op_around_with_no_other_in_it(ops, queries):
    ops = _nested(ops)
    tids, starts, ends = _columns(ops)
    nest = Nest(tids, starts, ends)
    q_tids, q_starts, q_ends = _columns(queries)
    rows = nest.holder(q_tids, q_starts, q_ends)
    for row, (tid, start, end) in enumerate(zip(q_tids, q_starts, q_ends, strict=True)):
        around = {
            (int(starts[i]), int(ends[i]))
            for i in range(len(ops))
            if tids[i] == tid and starts[i] <= start and ends[i] >= end
        }
        if not around:
            assert rows[row] == -1
            continue
        op = nest.order[rows[row]]
        mine = (int(starts[op]), int(ends[op]))
        assert tids[op] == tid and mine in around
        assert not any(mine[0] <= s and e <= mine[1] for s, e in around - {mine})


@given(st.lists(_span, max_size=20), st.lists(_span, max_size=6))
@settings(max_examples=100, deadline=None)
def test_crossing_ops_end_in_an_answer_that_holds(ops, queries):
    tids, starts, ends = _columns(ops)
    nest = Nest(tids, starts, ends)
    q_tids, q_starts, q_ends = _columns(queries)
    for row, at in enumerate(nest.holder(q_tids, q_starts, q_ends).tolist()):
        if at >= 0:
            op = nest.order[at]
            assert starts[op] <= q_starts[row] and ends[op] >= q_ends[row]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.booleans()), max_size=12),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_doubled_correlations_are_told_apart(calls, acts):
    table = np.array(calls, np.int64).reshape(-1, 3)
    ids, starts, launching = table[:, 0], table[:, 1], table[:, 2] == 1
    act_table = np.array(acts, np.int64).reshape(-1, 2)
    new_calls, new_acts = unique_correlations(
        ids, starts, launching, act_table[:, 0], act_table[:, 1]
    )
    real = new_calls[new_calls != 0]
    assert len(set(real.tolist())) == len(real)
    assert ((new_calls == 0) == (ids == 0)).all()
    for row, (key, time) in enumerate(acts):
        same = [i for i in range(len(calls)) if calls[i][0] == key]
        if key == 0 or len(same) < 2:
            assert new_acts[row] == key
            continue
        able = [i for i in same if calls[i][2]]
        if not able:
            assert new_acts[row] == 0
            continue
        before = [calls[i][1] for i in able if calls[i][1] <= time]
        best = max(before) if before else min(calls[i][1] for i in able)
        got = [i for i in able if new_calls[i] == new_acts[row]]
        assert len(got) == 1 and calls[got[0]][1] == best
