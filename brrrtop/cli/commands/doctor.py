"""`brrrtop doctor [PID]`: can this be watched, how far, and the command that fixes what cannot."""

import json

from brrrtop.cli import output
from brrrtop.cli.options import Options
from collectors.attach.agent_library import agent_files
from collectors.attach.files import AgentFiles
from collectors.doctor import Check, Report, Status, doctor
from collectors.errors import CollectorError

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
            {
                "name": check.name,
                "status": check.status.value,
                "says": check.message,
                "fix": check.fix,
            }
            for check in report.checks
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
