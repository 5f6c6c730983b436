"""How execs end: by themselves, by signals, by time, by cancel, for memory; and what lives afterwards."""

from __future__ import annotations

import signal

from codesdk.sandbox.port import ExitKind
from codesdk.sandbox.selfcheck.bench import Bench
from codesdk.sandbox.selfcheck.probe import Probe
from codesdk.sandbox.selfcheck.seeing import Ran, demand, ended, exited, same

SOON_S = 6.0
"""A timed-out exec with a grace of 0.3 s ends in 1 s here; this leaves room for a loaded machine."""


def _codes(bench: Bench) -> None:
    for code in (0, 1, 42, 255):
        exited(bench.sh(f"exit {code}"), code)


def _codes_of_others(bench: Bench) -> None:
    # What `timeout`, shells and engines use for ends that they made.
    for code in (124, 125, 126, 127, 137, 143):
        exited(bench.sh(f"exit {code}"), code)


def _own_signal(bench: Bench) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT):
        ran = ended(bench.sh(f"kill -{number} $$"), ExitKind.SIGNALED)
        same("signal", (ran.result.signal, ran.result.exit_code), (number, None))
        demand(ran.took_s < SOON_S, f"its end was noticed after {ran.took_s:.1f} s")


def _timed_out(bench: Bench, line: str, marker: str, *, timeout_s: float = 0.7) -> Ran:
    """Run a line that starts a process with the marker in its arguments; see it live, and be gone after the end."""
    running = bench.begin(bench.sandbox, bench.request("sh", "-c", line, timeout_s=timeout_s + 1.0))
    demand(bench.lives(marker), "the process to be ended was never seen to live")
    ran = ended(running.end(), ExitKind.TIMED_OUT)
    demand(
        ran.took_s < timeout_s + 1.0 + SOON_S,
        f"the timeout of {timeout_s + 1.0:g} s took effect after {ran.took_s:.1f} s",
    )
    demand(not bench.lives(marker), "a process of the tree outlived its exec")
    return ran


def _timeout(bench: Bench) -> None:
    marker = bench.marker()
    ran = _timed_out(bench, f"echo begun; exec sleep {marker}", marker)
    same("output before the end", ran.stdout, b"begun\n")


def _timeout_children(bench: Bench) -> None:
    marker = bench.marker()
    _timed_out(bench, f"sleep {marker} & sleep {marker} & echo begun; wait", marker)


def _timeout_setsid(bench: Bench) -> None:
    marker = bench.marker()
    _timed_out(bench, f"setsid sleep {marker} & echo begun; wait; sleep 60", marker)


def _timeout_double_fork(bench: Bench) -> None:
    marker = bench.marker()
    _timed_out(bench, f"(setsid sh -c 'sleep {marker} & ' &) ; sleep 0.2; echo begun; sleep 60", marker)


def _timeout_ignores_term(bench: Bench) -> None:
    marker = bench.marker()
    _timed_out(
        bench,
        f"trap '' TERM INT HUP; sh -c \"trap '' TERM; sleep {marker}; sleep {marker}\" & echo begun; wait; wait",
        marker,
    )


def _timeout_spares_others(bench: Bench) -> None:
    marker = bench.marker()
    neighbour = bench.begin(bench.sandbox, bench.request("sh", "-c", f"echo up; sleep {marker}"))
    ended(bench.sh("sleep 60 & wait", timeout_s=0.3), ExitKind.TIMED_OUT)
    demand(bench.lives(marker), "the timeout of one exec ended another")
    demand(neighbour.cancel(), "the neighbour could not be cancelled")
    ended(neighbour.end(), ExitKind.CANCELLED)


def _timeout_grace(bench: Bench) -> None:
    ran = ended(
        bench.sh("trap 'echo caught; exit 9' TERM; echo begun; while :; do sleep 0.05; done", timeout_s=0.7),
        ExitKind.TIMED_OUT,
    )
    same("what it said when it was asked to end", ran.stdout, b"begun\ncaught\n")


def _cancel(bench: Bench) -> None:
    marker = bench.marker()
    running = bench.begin(bench.sandbox, bench.request("sh", "-c", f"echo begun; sleep {marker} & wait"))
    demand(bench.lives(marker), "the process to be cancelled was never seen to live")
    demand(running.cancel(), "the cancel was not confirmed")
    demand(not bench.lives(marker), "a cancelled process lives on")
    ended(running.end(), ExitKind.CANCELLED)
    demand(not bench.sandbox.cancel("call_unknown", 1), "a cancel of what never ran was confirmed")


def _background(bench: Bench) -> None:
    marker = bench.marker()
    ran = exited(bench.sh(f"sleep {marker} & echo begun"))
    same("stdout", ran.stdout, b"begun\n")
    demand(ran.took_s < SOON_S, f"a child that held stdout kept the exec from returning for {ran.took_s:.1f} s")
    demand(not bench.lives(marker), "a background child outlived its exec")


def _late_output(bench: Bench) -> None:
    same("first", exited(bench.sh("(sleep 0.5; echo late) & echo first")).stdout, b"first\n")
    same("the next exec's", exited(bench.sh("sleep 0.8; echo second")).stdout, b"second\n")


def _many_timeouts(bench: Bench) -> None:
    count = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))"
    before = int(exited(bench.python(count)).stdout)
    for _ in range(5):
        ended(bench.sh("sleep 600 & sleep 600", timeout_s=0.1), ExitKind.TIMED_OUT)
    after = int(exited(bench.python(count)).stdout)
    demand(0 < after <= before + 1, f"{before} processes became {after}")


def _memory(bench: Bench) -> None:
    with bench.own(memory_bytes=96 << 20) as sandbox:
        ran = bench.python("held = []\nwhile True: held.append(bytearray(8 << 20))", sandbox)
        ended(ran, ExitKind.OOM_KILLED)
        demand(ran.result.oom_kills > 0, "the kernel counted no kill")
        same("an exec afterwards", exited(bench.run("echo", "well", sandbox=sandbox)).stdout, b"well\n")


def _usage(bench: Bench) -> None:
    program = "import os, time\npid = os.fork()\nwhile time.process_time() < 0.3: pass\nif pid: os.waitpid(pid, 0)"
    result = exited(bench.python(program)).result
    demand(0.5 <= result.cpu_s <= 5, f"two processes used 0.6 s, {result.cpu_s} s were counted")  # noqa: PLR2004
    demand(result.max_rss_kb > 1000, f"the largest process is said to have had {result.max_rss_kb} KB")  # noqa: PLR2004
    demand(result.duration_s >= 0.3, f"it is said to have taken {result.duration_s} s")  # noqa: PLR2004


PROBES = (
    Probe("end-exit-codes", "exit codes are kept", _codes),
    Probe(
        "end-codes-are-not-guessed",
        "the exit codes of timeouts and kills, used by a program itself, are just exit codes",
        _codes_of_others,
    ),
    Probe("end-own-signal", "a signal that a program sends itself is told as such, never as a timeout", _own_signal),
    Probe("end-timeout", "a timeout ends the program, keeps its output and says so", _timeout),
    Probe("end-timeout-children", "a timeout ends children in the background", _timeout_children),
    Probe("end-timeout-setsid", "a timeout ends a child in a session of its own", _timeout_setsid),
    Probe("end-timeout-double-fork", "a timeout ends a daemon that forked twice", _timeout_double_fork),
    Probe("end-timeout-ignored-term", "a timeout ends what ignores TERM", _timeout_ignores_term),
    Probe("end-timeout-spares-others", "a timeout leaves other execs alone", _timeout_spares_others),
    Probe(
        "end-timeout-grace",
        "a program is asked to end before it is killed, and its last words are kept",
        _timeout_grace,
    ),
    Probe("end-cancel", "a cancel is confirmed when nothing of the exec lives", _cancel),
    Probe(
        "end-background",
        "an exec returns when its program ends, though a child holds stdout, and the child ends with it",
        _background,
    ),
    Probe("end-late-output", "what a leftover would have said does not come out of the next exec", _late_output),
    Probe("end-many-timeouts", "timeouts leave no processes behind", _many_timeouts),
    Probe("end-memory", "running out of memory is told as such, and the sandbox goes on", _memory),
    Probe("end-usage", "CPU of the whole tree, memory and time are counted", _usage),
)
