"""Profiles of JAX by hand, as both of the files that jax.profiler writes.

Field numbers are those of xplane.proto; the Chrome trace has the keys that xprof's converter writes.
"""

import json
from typing import Any

START_NS = 1_779_266_702_889_805_563
Event = tuple[str, int, int, dict[str, Any]]
"""Name, start and duration in nanoseconds, stats."""
Lines = dict[tuple[int, str], list[Event]]
GPU = "/device:GPU:0"
H100 = {
    "device_vendor": "Nvidia", "core_count": 132, "clock_rate": 1_980_000, "compute_cap_major": 9,
    "compute_cap_minor": 0, "memory_size": 85_045_018_624,
}  # fmt: skip


def training(steps: int = 4) -> dict[str, Lines]:
    """Steps of 10 ms: an upload, a product, a fusion."""
    device: list[Event] = []
    python: list[Event] = []
    calls: list[Event] = []
    for step in range(steps):
        at, number = 1_000_000 + 10_000_000 * step, 10 * step + 1
        python += [
            ("train", at, 10_000_000, {"step_num": step}),
            ("$loop.py:12 step", at, 9_000_000, {}),
            ("load batch", at, 1_000_000, {}),
        ]
        calls += [
            ("cuMemcpyHtoDAsync_v2", at + 1_000_000, 10_000, {"correlation_id": number}),
            ("cuLaunchKernel", at + 1_020_000, 5_000, {"correlation_id": number + 1}),
            ("cuLaunchKernel", at + 1_030_000, 5_000, {"correlation_id": number + 2}),
        ]
        size = f"kind_src:pageable kind_dst:device size:{1 << 20} dest:0 async:1"
        device += [
            (
                "MemcpyH2D",
                at + 1_100_000,
                500_000,
                {"correlation_id": number, "memcpy_details": size},
            ),
            _kernel(
                "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_TNT", at + 1_700_000, 4_000_000, number + 1
            ),
            _kernel("loop_multiply_fusion.kd", at + 5_800_000, 1_000_000, number + 2),
        ]
    return {
        GPU: {(7, "Stream #7(MemcpyH2D,Compute)"): device, (9_999, "XLA Ops"): device},
        "/host:CPU": {(41, "python3"): python, (1 << 63, "Host Threads/7"): calls},
    }


def _kernel(name: str, at: int, span: int, number: int) -> Event:
    details = "regs:32 static_shared:1024 dynamic_shared:512 grid:264,2,1 block:128,1,1 occ_pct:50"
    return name, at, span, {"correlation_id": number, "kernel_details": details, "hlo_op": "dot.1"}


def chrome(planes: dict[str, Lines]) -> bytes:
    """The trace for browsers."""
    events: list[dict[str, Any]] = []
    for pid, (plane, lines) in enumerate(planes.items(), 1):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": plane}})
        events.append(
            {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
        )
        for tid, name in lines:
            place = {"pid": pid, "tid": tid}
            events.append({"ph": "M", **place, "name": "thread_name", "args": {"name": name}})
    for pid, lines in enumerate(planes.values(), 1):
        for (tid, _), result in lines.items():
            for name, start, span, stats in result:
                args = {key: str(value) for key, value in stats.items()}
                times = {"ts": start / 1000, "dur": span / 1000}
                events.append(
                    {"ph": "X", "pid": pid, "tid": tid, **times, "name": name, **({"args": args} if args else {})}
                )  # fmt: skip
    head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    return json.dumps({**head, "traceEvents": [*events, {}]}).encode()


def xspace(planes: dict[str, Lines], facts: dict[str, Any] | None = None) -> bytes:
    """The protobuf; `facts` of the GPU."""
    text = b"".join(
        _bytes(1, _plane(name, lines, (facts or H100) if name == GPU else {}))
        for name, lines in planes.items()
    )
    environment = _plane("Task Environment", {}, {"profile_start_time": START_NS})
    return text + _bytes(1, environment) + _bytes(4, b"host")


def _plane(name: str, lines: Lines, facts: dict[str, Any]) -> bytes:
    events: dict[str, int] = {}
    stats: dict[str, int] = {}
    body = b""
    for (key, title), result in lines.items():
        line = [_number(1, key), _bytes(2, title.encode()), _number(3, 500_000)]
        for event, start, span, message in result:
            told_bytes = b"".join(_bytes(4, _stat(stats, k, v)) for k, v in message.items())
            number = events.setdefault(event, len(events) + 1)
            times = _number(2, 1000 * (start - 500_000)) + _number(3, 1000 * span)
            line.append(_bytes(4, _number(1, number) + times + told_bytes))
        body += _bytes(3, b"".join(line))
    for key, value in facts.items():
        body += _bytes(6, _stat(stats, key, value))
    for field, names in ((4, events), (5, stats)):
        for word, number in names.items():
            metadata = _number(1, number) + _bytes(2, word.encode())
            body += _bytes(field, _number(1, number) + _bytes(2, metadata))
    return _number(1, 3) + _bytes(2, name.encode()) + body


def _stat(names: dict[str, int], key: str, value: Any) -> bytes:
    """A whole number as it is; a text as the name of another stat, as XLA's collectors write it."""
    head = _number(1, names.setdefault(key, len(names) + 1))
    if isinstance(value, int):
        return head + _number(4, value)
    return head + _number(7, names.setdefault(value, len(names) + 1))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
