"""What a program does beside its steps is noticed, traced soon, and traced most where most is unknown."""

import numpy as np
import pytest

from brrrtop.scheduling.burst import Decision, Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.phases import STEPS, Known, PhaseWatch, next_target
from collectors.protocol.frames import MARK
from collectors.vocabulary import MarkClass, Metric

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
NAMES = {
    1: "main.py:303 train < main.py:88 main | optimizer.step()",
    2: "net.py:12 forward < main.py:301 train < main.py:88 main > torch/nn.py:5 f | x = self.a(x)",
    3: "main.py:352 step < main.py:340 validate < main.py:90 main | loss += f(x)",
    4: "main.py:310 train < main.py:88 main > torch/serialization.py:9 save | torch.save(m, p)",
}


def marks(mark_class: MarkClass, times_ns: list[int], name_id: int, value: int = 0) -> np.ndarray:
    rows = np.zeros(len(times_ns), MARK)
    rows["start_ns"] = rows["end_ns"] = times_ns
    rows["name_id"], rows["mark_class"], rows["value"] = name_id, mark_class, value
    return rows


class Program:
    """Steps of 50 ms, and whatever else it is told to do; samples come 10 times a second."""

    def __init__(self, governor: Governor, sampled: bool = True) -> None:
        self.governor, self.at, self._sampled = governor, START, sampled
        self.orders: list[tuple[float, Decision, str | None]] = []
        governor.watch.add_names(NAMES)
        governor.watch.add_marks(marks(MarkClass.PLACE, [START], 1, MarkClass.STEP))

    def does(self, name_id: int, seconds: float, steps: bool = False, active: float = 0.5) -> None:
        for _ in range(round(seconds * 4)):
            until = self.at + SECOND // 4
            if steps:
                ends = np.arange(self.at + 50_000_000, until + 1, 50_000_000)
                self.governor.add_steps(ends)
                self.governor.watch.add_marks(marks(MarkClass.STEP, ends.tolist(), 0))
            if self._sampled:
                at = np.arange(self.at, until, 100_000_000)
                self.governor.watch.add_marks(marks(MarkClass.STACK, at.tolist(), name_id))
            self.governor.add_gauge(0, Metric.GRAPHICS_ACTIVE, active)
            self.at = until
            decision = self.governor.decide(self.at)
            if decision is not None:
                seconds_in = (self.at - START) / SECOND
                self.orders.append((seconds_in, decision, self.governor.watch.key))
                took = decision.steps * 50_000_000 or decision.longest_ns
                self.governor.add_records(np.array([self.at]), np.array([self.at + took // 2]))
                self.governor.add_observed(self.at, self.at + took)
                self.governor.add_traced()

    def trains(self, seconds: float) -> None:
        self.does(2, seconds, steps=True)

    def bursts_of(self, key: str) -> list[float]:
        return [at for at, _, of in self.orders if of == key]


def test_a_phase_that_begins_is_traced_within_two_seconds_and_by_time():
    program = Program(Governor())
    program.trains(20)
    program.does(3, 5)
    traced = [(at, one) for at, one, key in program.orders if key == "main.py validate"]
    assert (
        traced and traced[0][0] <= 22 and traced[0][1].message == "the program does something else"
    )
    assert traced[0][1].steps == 0, "there is no step in it to wait for"
    program.trains(10)
    before = len(program.bursts_of("main.py validate"))
    program.does(3, 1.5)
    assert program.bursts_of("main.py validate")[before:] == [], "it was seen already"


def test_a_save_in_the_loop_itself_is_a_phase_by_its_line():
    program = Program(Governor())
    program.trains(20)
    program.does(4, 3)
    assert program.bursts_of("main.py:310 train") and program.bursts_of(STEPS)


def test_a_slow_step_is_no_phase_and_nor_is_silence_without_samples():
    for sampled in (True, False):
        program = Program(Governor(), sampled)
        program.trains(20)
        program.does(3, 0.5)  # less than a second without a step
        if not sampled:
            program.does(3, 5)
        program.trains(5)
        assert {key for _, _, key in program.orders} == {STEPS}


def test_what_new_phases_may_owe_is_bounded():
    governor = Governor(Limits(max_overhead=0.0005))
    program = Program(governor)
    program.trains(10)
    for number in range(100, 120):
        governor.watch.add_names({number: f"main.py:{number} f{number} < main.py:88 main"})
        program.does(number, 3)
    assert 1 <= sum(len(program.bursts_of(f"main.py f{number}")) for number in range(100, 120)) <= 6
    assert governor._credit_ns > -6 * 0.1 * SECOND


def test_the_next_burst_goes_where_time_times_ignorance_is_largest():
    train, rare = Known("steps", 0.7, 3 * SECOND), Known("save", 0.3, 0)
    assert next_target([train, rare]) == rare, "never seen"
    assert next_target([train, Known("save", 0.3, SECOND)]) == train
    doubted = Known("steps", 0.7, 60 * SECOND, active=0.16, busy=0.80)
    assert next_target([doubted, Known("save", 0.3, SECOND)]) == doubted, "two witnesses differ"
    agreed = Known("steps", 0.7, 60 * SECOND, active=0.85, busy=0.80)
    assert next_target([agreed, Known("save", 0.3, SECOND)]).key == "save"
    assert next_target([]) is None and next_target([Known("steps", 1.0, 600 * SECOND)]) is None


def test_a_burst_that_is_due_waits_for_the_phase_that_it_tells_most_of():
    program = Program(Governor())
    for _ in range(12):
        program.trains(9)
        program.does(3, 6)
    validated = program.bursts_of("main.py validate")
    assert len(validated) >= 0.25 * len(program.orders), "two fifths of the time"


def test_the_counter_is_that_of_the_best_source():
    watch_only = Governor()
    program = Program(watch_only)
    program.trains(2)
    watch_only.add_gauge(0, Metric.SMI_UTIL, 1.0)
    (known,) = watch_only.watch.phases
    assert known.active == pytest.approx(0.5) and known.key == STEPS


def test_many_names_and_no_clock_do_no_harm():
    watch = PhaseWatch()
    watch.tick(START)
    watch.add_marks(marks(MarkClass.STACK, [START] * 5, 77))
    watch.tick(START - 50 * SECOND)
    watch.tick(START + 1)
    assert watch.key == "unknown" and watch.unseen


def test_a_phase_too_short_to_be_noticed_is_known_when_it_comes_again():
    """Of a PPO: rollouts of 0.5 s between updates, half of the time."""
    program = Program(Governor())
    for _ in range(20):
        program.trains(1.5)
        program.does(3, 0.5)
    known = {one.key: one for one in program.governor.watch.phases}
    assert set(known) == {STEPS, "main.py validate"}
    assert known["main.py validate"].share == pytest.approx(0.25, abs=0.06)
    assert program.bursts_of("main.py validate")


def test_a_wait_for_the_loops_own_loader_is_no_phase():
    program = Program(Governor())
    waits = "main.py:301 train < main.py:88 main > multiprocessing/connection.py:9 recv | for x in loader:"
    program.governor.watch.add_names({9: waits})
    program.governor.watch.add_marks(marks(MarkClass.PLACE, [START], 9, MarkClass.INPUT))
    for _ in range(4):
        program.trains(5)
        program.does(9, 3)
    assert {key for _, _, key in program.orders} == {STEPS}


def test_what_is_said_meanwhile_claims_no_trainer_without_steps():
    program = Program(Governor())
    program.trains(20)
    program.does(3, 4)
    assert "while no step ends" in program.governor.describe()
    program.trains(3)
    assert "bursts of 3 steps" in program.governor.describe()


def test_a_phase_that_is_less_busy_than_another_is_no_jump():
    program = Program(Governor())
    for _ in range(6):
        for _ in range(40):
            program.governor.add_gauge(0, Metric.SM_ACTIVE, 0.9)
            program.does(2, 0.25, steps=True)
        for _ in range(16):
            program.governor.add_gauge(0, Metric.SM_ACTIVE, 0.1)
            program.does(3, 0.25)
    jumps = [at for at, one, _ in program.orders if one.message == "sm active jumped"]
    assert all(at < 16 for at in jumps), "but the first time, before anybody knows of another phase"
    for _ in range(40):
        program.governor.add_gauge(0, Metric.SM_ACTIVE, 0.2)
        program.does(2, 0.25, steps=True)
    assert "sm active jumped" in {one.message for _, one, _ in program.orders}
