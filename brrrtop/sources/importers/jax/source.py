"""A profile of jax.profiler as a `Source`: `*.xplane.pb`, or the Chrome trace made of it."""

from typing import Any

from brrrtop.errors import BadInput
from brrrtop.sources.importers.jax.profile import (
    ABSOLUTE_NS,
    Malformed,
    Profile,
    collect,
    read_chrome,
    read_xplane,
)
from brrrtop.sources.importers.trace import names
from brrrtop.sources.importers.trace.source import TraceSource
from brrrtop.sources.source import Budget, open_input
from collectors.protocol import bodies
from collectors.protocol.frames import Frame

_HOW_TO_RECORD = "run the steps inside jax.profiler.trace(), on a machine with a GPU"
_NO_ADVICE = "What to try, and what-if, are for PyTorch: a JAX profile gets neither."
_MOST_BYTES = 1 << 30


class JaxSource(TraceSource):
    kind = "jax"

    def _read(self) -> list[Frame]:
        profile = self._profile()
        collected = collect(profile)
        if not collected.has_gpu_work:
            raise self._without_gpu(profile)
        amd = any(facts.get("device_vendor") == "AMD" for facts in profile.planes.values())
        notes = [_NO_ADVICE, *profile.notes]
        if amd or names.is_rocm({}, collected.names):
            notes.append(names.ROCM_NOTE)
        starts = [line.events[0].start_ns for line in profile.lines if line.events]
        base_ns = profile.base_ns if max(starts) < ABSOLUTE_NS else 0
        hello = {"notes": notes}
        return self._framed(collected, base_ns, hello, lambda ids: _devices(profile, ids))

    def _profile(self) -> Profile:
        file, size_bytes = open_input(self._path)
        with file:
            if file.read(1) != b"\n":
                return read_chrome(self._path, self._force)
            if size_bytes > _MOST_BYTES and not self._force:
                raise BadInput(
                    f"{self._path.name} has {size_bytes >> 20:,} MB",
                    "--force reads it all the same",
                )
            file.seek(0)
            budget = Budget(self._path.name, file, self._force)
            try:
                return read_xplane(file.read(), budget.check_memory)
            except Malformed as fault:
                raise BadInput(
                    f"{self._path.name} is no XSpace, or breaks off before its first plane",
                    "copy it again",
                ) from fault

    def _without_gpu(self, profile: Profile) -> BadInput:
        if any(plane.startswith("/device:TPU") for plane in profile.planes):
            return BadInput(
                f"{self._path.name} is from a TPU, which brrrtop does not support",
                "give a trace of an NVIDIA or AMD GPU",
            )
        return BadInput(f"{self._path.name} has no GPU activity in it", _HOW_TO_RECORD)


def _devices(profile: Profile, active: list[int]) -> list[dict[str, Any]]:
    devices = []
    for device_id in active:
        facts = profile.planes.get(f"/device:GPU:{device_id}", {})
        device: dict[str, Any] = {
            "device_id": device_id,
            "sm_count": facts.get("core_count"),
            "memory_bytes": facts.get("memory_size"),
        }
        if facts.get("device_vendor") == "AMD":
            device["name"] = names.part_name(facts.get("core_count"), facts.get("memory_size"))
        else:
            device["capability"] = [facts.get(f"compute_cap_{part}") for part in ("major", "minor")]
        devices.append(bodies.plausible_device(device))
    return devices
