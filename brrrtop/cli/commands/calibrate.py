"""`brrrtop calibrate`: measures what an idle GPU here reaches, and keeps it for later verdicts."""

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
from collectors.gpu.calibrate import calibrate, check_idle


def run(options: Options) -> int:
    uuid = check_idle(options.gpu or 0)
    output.say("measuring for some seconds at full load …")
    measured = calibrate(uuid, options.python)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    made = Calibration(**dataclasses.asdict(measured), date=today.isoformat())
    where = ceilings.keep(made)
    ceilings_for.cache_clear()
    if options.json:
        document = {"schema": ceilings.SCHEMA, "kept_in": str(where), **asdict(made)}
        output.write(json.dumps(document))
    else:
        output.write("\n".join([*_lines(made), f"kept in {where}"]))
    return 0


def _lines(made: Calibration) -> list[str]:
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
