"""All tables of a window that was judged, from what its records hold."""

from __future__ import annotations

from msgspec.structs import replace

from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.tables import device, ops, python_frames
from brrrtop.analysis.tables.launched import DeviceWork, device_work, unjudged_work
from brrrtop.model.host_details import HostDetails
from brrrtop.model.host_tables import HostTables
from brrrtop.model.tables import Window
from brrrtop.text.python_frames import is_users


def host_tables(
    judged: Analysis,
    details: HostDetails | None = None,
    recorded: tuple[Window, HostDetails] | None = None,
) -> HostTables:
    """Ops, modules, stalls, queue, copies, annotations, phases and memory.

    Args:
        details: Of the whole source; None: it has no ops, frames and memory events.
        recorded: The one step that was recorded with shapes, and its ops: what a live run has.
    """
    work = device_work(judged)
    annotations, phases = device.annotation_rows(work)
    tables = HostTables(
        queue=device.launch_queue(work),
        copies=tuple(device.copy_rows(work)),
        annotations=tuple(annotations),
        phases=tuple(phases),
    )
    if details is not None:
        return _with_details(tables, work, details)
    if recorded is not None:
        return _with_details(tables, unjudged_work(recorded[0]), recorded[1])
    return tables


def _with_details(tables: HostTables, work: DeviceWork, details: HostDetails) -> HostTables:
    """The tables and those of ops, modules, frames and memory."""
    times = ops.op_times(details, work)
    modules = python_frames.FrameNest(details, python_frames.is_module)
    users = python_frames.FrameNest(details, is_users)
    homes = python_frames.homes(modules, details, times, work)
    places, _ = python_frames.homes(users, details, times, work)
    module_of, place_of = modules.names_of(homes[0]), users.names_of(places)
    busy = int(work.durations_ns.sum())
    known = int(work.durations_ns[times.rows].sum())
    return replace(
        tables,
        ops=tuple(ops.by_name(details, times, module_of, place_of, details.names)),
        op_shapes=tuple(ops.by_shapes(details, times)),
        ops_of_one_step=details.recorded_step,
        modules=tuple(python_frames.module_rows(modules, details, times, work, homes)),
        frames=tuple(python_frames.frame_rows(users, details, times, work, places)),
        stalls=tuple(python_frames.stall_rows(users, details, work)),
        memory=device.memory_use(details, work.window.device.device_id),
        unattributed_ns=busy - known if len(details.ops) else None,
    )
