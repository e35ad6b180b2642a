"""Everything a command line can ask for, as one value."""

from __future__ import annotations

from functools import cached_property

TYPE_CHECKING = False  # typing itself would take a tenth of the start-up time
if TYPE_CHECKING:
    from brrrtop.cli.fail_if import Gate


class Options:
    """What was typed; a field the verb has no option for keeps its default.

    No dataclass: importing those takes half as long as the bare interpreter's start.
    """

    verb: str | None = None
    version: bool = False
    once: bool = False
    json: bool = False
    interval: float = 0.5
    """Seconds between two looks."""
    gpu: int | None = None
    no_color: bool = False
    ascii: bool = False
    theme: str | None = None
    """Of the screen; None: the one chosen before."""
    yes: bool = False
    max_overhead: float = 0.01
    """Share of step time."""
    counters: bool = False
    trace_graphs: bool | None = None
    """Programs whose threads nobody can tell apart. None: those without torch; True: all; False: none."""
    shapes: bool | None = None
    """Of one step. None: once the run is steady; True: as soon as can be; False: not unasked."""
    record: str | None = None
    export: tuple[list[str], ...] | list[list[str]] = ()
    """A format and where to, as often as the option was given."""
    exporter: str = ""
    pids: tuple[int, ...] | list[int] = ()
    """Whom `export` watches; none: all trainers of the host."""
    brief: bool = False
    svg: bool = False
    html: bool = False
    serve: bool = False
    listen: str | None = None
    """`HOST:PORT` of what is served; None: its default, on loopback."""
    fail_if: tuple[str, ...] | list[str] = ()
    hold_s: float = 0.0
    pid: int | None = None
    command: tuple[str, ...] = ()
    edits: tuple[str, ...] | None = None
    """What `try` makes; None: all that apply."""
    seconds: float = 8.0
    """Of steady steps, for each edit."""
    budget_s: float = 600.0
    scratch: str | None = None
    files: tuple[str, ...] | list[str] = ()
    """Recordings, traces, or folders of them: one a rank."""
    baseline: str | None = None
    silence: tuple[tuple[str, ...], ...] | list[tuple[str, ...]] = ()
    """Ids of advice, as often as the option was given."""
    before: str = ""
    after: str = ""
    scenario: str | None = None
    list: bool = False
    speed: float | None = None
    force: bool = False
    """Files are read however large they are."""
    steps: tuple[int, int] | None = None

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        from brrrtop.cli.fail_if import parse_all

        return parse_all(self.fail_if, self.hold_s)

    @property
    def silenced(self) -> frozenset[str]:
        return frozenset(kind for kinds in self.silence for kind in kinds)

    def __init__(self, **given: object) -> None:
        unknown = [name for name in given if name not in type(self).__annotations__]
        assert not unknown, f"options without a default: {unknown}"
        self.__dict__.update(given)
