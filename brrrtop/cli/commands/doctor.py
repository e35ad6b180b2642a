"""`brrrtop doctor [PID]`: can this be watched, how far, and the command that fixes what cannot; and
`brrrtop calibrate`: measures what an idle GPU here reaches, and keeps it for later verdicts."""

from __future__ import annotations

import dataclasses
import datetime
import json

from msgspec.structs import asdict

from brrrtop.analysis import ceilings
from brrrtop.analysis.ceilings import Calibration, ceilings_for
from brrrtop.cli import output
from brrrtop.cli.options import Options
from brrrtop.model.tables import Device
from brrrtop.text import units
from collectors.attach.agent_library import agent_files
from collectors.attach.files import AgentFiles
from collectors.doctor import Check, Report, Status, doctor
from collectors.errors import CollectorError
from collectors.gpu.calibrate import calibrate as measure
from collectors.gpu.calibrate import check_idle

WIDTH = 80
TIERS = {
    "kernels": "kernels, steps and causes",
    "steps": "steps, no kernel records",
    "counters": "the GPU's own counters only",
    "nothing": "nothing",
}


def run(options: Options) -> int:
    report = doctor(options.pid, _files())
    if options.json:
        output.write(json.dumps(_document(report)))
    else:
        output.write("\n".join(_lines(report)))
    return report.exit_code


def _files() -> AgentFiles | None:
    try:
        return agent_files()
    except CollectorError as fault:
        output.say(f"{fault.message}: {fault.action}")
        return None


def _document(report: Report) -> dict[str, object]:
    return {
        "schema": "brrrtop.doctor/1",
        "pid": report.pid,
        "tier": report.tier,
        "command": report.command,
        "checks": [
            {"name": one.name, "status": one.status.value, "says": one.message, "fix": one.fix}
            for one in report.checks
        ],
    }


def _lines(report: Report) -> list[str]:
    lines = [line for check in report.checks for line in _check(check)]
    who = "this host" if report.pid is None else f"process {report.pid}"
    seen = TIERS[report.tier]
    if report.can_attach:
        seen += ", and the GPU's counters" if report.can_count else "; no counters of the GPU"
    lines += ["", f"What can be seen of {who}: {seen}."]
    return [*lines, f"Next: {report.command}"]


def _check(check: Check) -> list[str]:
    lead = f"{check.status.value:<5}{check.name:<14}"
    lines = output.wrapped(check.message, WIDTH, lead, " " * 19)
    if check.fix and check.status is not Status.FINE:
        lines += output.wrapped(check.fix, WIDTH, " " * 19 + "> ", " " * 21)
    return lines


def calibrate(options: Options) -> int:
    uuid = check_idle(options.gpu or 0)
    output.say("measuring for some seconds at full load …")
    measured = measure(uuid, options.python)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    made = Calibration(**dataclasses.asdict(measured), date=today.isoformat())
    where = ceilings.keep(made)
    ceilings_for.cache_clear()
    if options.json:
        document = {"schema": ceilings.SCHEMA, "kept_in": str(where), **asdict(made)}
        output.write(json.dumps(document))
    else:
        output.write("\n".join([*_attained(made), f"kept in {where}"]))
    return 0


def _attained(made: Calibration) -> list[str]:
    """What was reached, with the share of the datasheet where there is one."""
    sheet = ceilings_for(Device(0, made.name))
    lines = [made.name]
    best = sheet.bytes_per_s if sheet else None
    lines.append(f"  copy    {units.rate(made.bytes_per_s, 'B/s')}{_share(made.bytes_per_s, best)}")
    for precision, rate in made.flop_per_s.items():
        best = sheet.flop_per_s.get(precision) if sheet else None
        lines.append(f"  {precision:<6}  {units.rate(rate, 'FLOP/s')}{_share(rate, best)}")
    return lines


def _share(value: float, best: float | None) -> str:
    return f"  {units.share(value / best)} of the datasheet" if best else ""
