"""A crashed process is restarted, with growing delays."""

from __future__ import annotations

from codesdk.cli.stack.supervisor import HEALTHY_S, HUNG_S, Supervisor


class Process:
    name = "worker"

    def __init__(self) -> None:
        self.ended: int | None = None
        self.starts = 0
        self.signs: object = None
        self.kills = 0

    def last_heartbeat(self) -> object:
        return self.signs

    def kill(self) -> None:
        self.kills += 1
        self.ended = -9

    def output_tail(self) -> str:
        return "it fell."

    def start(self) -> None:
        self.starts += 1
        self.ended = None


def crash(watch: Supervisor, process: Process, now: float) -> float:
    """Let it crash at `now`; the pause until it is started again."""
    process.ended = 1
    watch.check(now)
    before, moment = process.starts, now
    while process.starts == before:
        moment += 0.25
        watch.check(moment)
    return moment - now


def test_a_process_that_keeps_crashing_is_restarted_with_growing_pauses():
    process, said = Process(), []
    watch = Supervisor([process], said.append)
    watch.check(0)

    pauses, now = [], 0.0
    for _ in range(9):
        pauses.append(crash(watch, process, now))
        now += pauses[-1]

    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert said[0] == "The worker ended (exit code 1): it fell. Restarting in 0.5 s."


def test_a_process_that_ran_well_for_long_is_restarted_soon():
    process = Process()
    watch = Supervisor([process], lambda _line: None)
    watch.check(0)
    crash(watch, process, 0)
    crash(watch, process, 1)

    assert crash(watch, process, 3 + HEALTHY_S) == 0.5


def test_a_signal_is_named_as_one():
    process, said = Process(), []
    watch = Supervisor([process], said.append)
    watch.check(0)
    process.ended = -9
    watch.check(1)

    assert "(signal 9)" in said[0]


def test_a_running_process_is_left_alone():
    process = Process()
    watch = Supervisor([process], lambda _line: None)
    for now in range(100):
        watch.check(now)

    assert process.starts == 0


def look_on(watch: Supervisor, begin: float, seconds: float) -> float:
    """Look four times a second; the moment of the last look."""
    for quarter in range(int(seconds * 4) + 1):
        watch.check(begin + quarter / 4)
    return begin + seconds


def test_a_process_without_a_sign_of_life_is_ended_and_started_again():
    process, said = Process(), []
    watch = Supervisor([process], said.append)
    process.signs = 1
    now = look_on(watch, 0, HUNG_S - 1)
    assert process.kills == 0
    now = look_on(watch, now, 3)
    assert (process.kills, process.starts) == (1, 1)
    assert "no heartbeat" in said[0]


def test_a_process_that_changes_its_sign_or_gives_none_is_left_alone():
    process = Process()
    watch = Supervisor([process], lambda _line: None)
    now = look_on(watch, 0, 3 * HUNG_S)  # it is not ready yet, or leaves
    for beat in range(10):
        process.signs = beat
        now = look_on(watch, now, HUNG_S / 2)
    assert process.kills == 0


def test_a_watch_that_was_stopped_itself_has_seen_nobody_hang():
    process = Process()
    watch = Supervisor([process], lambda _line: None)
    process.signs = 1
    for look in range(int(HUNG_S) - 1):
        watch.check(look * 1000.0)
    assert process.kills == 0
