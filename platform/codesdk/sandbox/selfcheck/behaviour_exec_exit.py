"""Probes of how execs end: exit codes, signals, timeout, cancel, out of memory, and leftover processes."""

from __future__ import annotations

import signal

from codesdk.sandbox.port import ExitKind
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import CompletedExec, expect, expect_end, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Check, Probe

SOON_S = 6.0
"""Allowance for a loaded machine; a timed-out exec with a grace of 0.3 s normally ends within 1 s."""


def _codes(context: ProbeContext) -> None:
    for code in (0, 1, 42, 255):
        expect_exit(context.sh(f"exit {code}"), code)


def _codes_of_others(context: ProbeContext) -> None:
    # The codes that `timeout`, shells and engines use for programs that they ended or couldn't start.
    for code in (124, 125, 126, 127, 137, 143):
        expect_exit(context.sh(f"exit {code}"), code)


def _own_signal(context: ProbeContext) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT):
        ran = expect_end(context.sh(f"kill -{number} $$"), ExitKind.SIGNALED)
        expect_equal("signal", (ran.result.signal, ran.result.exit_code), (number, None))
        expect(ran.took_s < SOON_S, f"its end was noticed after {ran.took_s:.1f} s")


def _timed_out(context: ProbeContext, line: str, marker: str, *, timeout_s: float = 0.7) -> CompletedExec:
    """Run a line that starts a process with the marker; check that it runs, and is gone after the timeout."""
    running = context.start_exec(context.sandbox, context.request("sh", "-c", line, timeout_s=timeout_s + 1.0))
    expect(context.is_running(marker), "the process to be ended never started")
    ran = expect_end(running.end(), ExitKind.TIMED_OUT)
    expect(
        ran.took_s < timeout_s + 1.0 + SOON_S,
        f"the timeout of {timeout_s + 1.0:g} s took effect after {ran.took_s:.1f} s",
    )
    expect(not context.is_running(marker), "a process of the tree outlived its exec")
    return ran


def _timeout(context: ProbeContext) -> None:
    marker = context.marker()
    ran = _timed_out(context, f"echo begun; exec sleep {marker}", marker)
    expect_equal("output before the end", ran.stdout, b"begun\n")


def _timeout_ends(line: str) -> Check:
    """Return a check that a timeout ends the process that this line starts with the marker in its arguments."""

    def check(context: ProbeContext) -> None:
        marker = context.marker()
        _timed_out(context, line.replace("MARKER", marker), marker)

    return check


def _timeout_spares_others(context: ProbeContext) -> None:
    marker = context.marker()
    neighbour = context.start_exec(context.sandbox, context.request("sh", "-c", f"echo up; sleep {marker}"))
    expect_end(context.sh("sleep 60 & wait", timeout_s=0.3), ExitKind.TIMED_OUT)
    expect(context.is_running(marker), "the timeout of one exec ended another")
    expect(neighbour.cancel(), "the neighbour could not be cancelled")
    expect_end(neighbour.end(), ExitKind.CANCELLED)


def _timeout_grace(context: ProbeContext) -> None:
    ran = expect_end(
        context.sh("trap 'echo caught; exit 9' TERM; echo begun; while :; do sleep 0.05; done", timeout_s=0.7),
        ExitKind.TIMED_OUT,
    )
    expect_equal("output, with that of the TERM handler", ran.stdout, b"begun\ncaught\n")


def _cancel(context: ProbeContext) -> None:
    marker = context.marker()
    running = context.start_exec(context.sandbox, context.request("sh", "-c", f"echo begun; sleep {marker} & wait"))
    expect(context.is_running(marker), "the process to be cancelled never started")
    expect(running.cancel(), "the cancel was not confirmed")
    expect(not context.is_running(marker), "a cancelled process lives on")
    expect_end(running.end(), ExitKind.CANCELLED)
    expect(not context.sandbox.cancel("call_unknown", 1), "a cancel of what never ran was confirmed")


def _background(context: ProbeContext) -> None:
    marker = context.marker()
    ran = expect_exit(context.sh(f"sleep {marker} & echo begun"))
    expect_equal("stdout", ran.stdout, b"begun\n")
    expect(ran.took_s < SOON_S, f"a child that held stdout kept the exec from returning for {ran.took_s:.1f} s")
    expect(not context.is_running(marker), "a background child outlived its exec")


def _late_output(context: ProbeContext) -> None:
    expect_equal("first", expect_exit(context.sh("(sleep 0.5; echo late) & echo first")).stdout, b"first\n")
    expect_equal("the next exec's", expect_exit(context.sh("sleep 0.8; echo second")).stdout, b"second\n")


def _many_timeouts(context: ProbeContext) -> None:
    count = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))"
    before = int(expect_exit(context.python(count)).stdout)
    for _ in range(5):
        expect_end(context.sh("sleep 600 & sleep 600", timeout_s=0.1), ExitKind.TIMED_OUT)
    after = int(expect_exit(context.python(count)).stdout)
    expect(0 < after <= before + 1, f"{before} processes became {after}")


def _memory(context: ProbeContext) -> None:
    with context.own(memory_bytes=96 << 20) as sandbox:
        ran = context.python("held = []\nwhile True: held.append(bytearray(8 << 20))", sandbox)
        expect_end(ran, ExitKind.OOM_KILLED)
        expect(ran.result.oom_kills > 0, "the kernel counted no kill")
        context.expect_usable(sandbox)


def _usage(context: ProbeContext) -> None:
    program = "import os, time\npid = os.fork()\nwhile time.process_time() < 0.3: pass\nif pid: os.waitpid(pid, 0)"
    result = expect_exit(context.python(program)).result
    expect(0.5 <= result.cpu_s <= 5, f"two processes used 0.6 s, {result.cpu_s} s were counted")  # noqa: PLR2004
    expect(result.max_rss_kb > 1000, f"the largest process had {result.max_rss_kb} KB")  # noqa: PLR2004
    expect(result.duration_s >= 0.3, f"it took {result.duration_s} s")  # noqa: PLR2004


PROBES = (
    Probe("end-exit-codes", "exit codes are kept", _codes),
    Probe(
        "end-codes-are-not-guessed",
        "the exit codes of timeouts and kills, used by a program itself, are just exit codes",
        _codes_of_others,
    ),
    Probe(
        "end-own-signal", "a signal that a program sends itself is reported as such, never as a timeout", _own_signal
    ),
    Probe("end-timeout", "a timeout ends the program, keeps its output and says so", _timeout),
    Probe(
        "end-timeout-children",
        "a timeout ends children in the background",
        _timeout_ends("sleep MARKER & sleep MARKER & echo begun; wait"),
    ),
    Probe(
        "end-timeout-setsid",
        "a timeout ends a child in a session of its own",
        _timeout_ends("setsid sleep MARKER & echo begun; wait; sleep 60"),
    ),
    Probe(
        "end-timeout-double-fork",
        "a timeout ends a daemon that forked twice",
        _timeout_ends("(setsid sh -c 'sleep MARKER & ' &) ; sleep 0.2; echo begun; sleep 60"),
    ),
    Probe(
        "end-timeout-ignored-term",
        "a timeout ends what ignores TERM",
        _timeout_ends(
            "trap '' TERM INT HUP; sh -c \"trap '' TERM; sleep MARKER; sleep MARKER\" & echo begun; wait; wait"
        ),
    ),
    Probe("end-timeout-spares-others", "a timeout leaves other execs alone", _timeout_spares_others),
    Probe(
        "end-timeout-grace",
        "a program is asked to end before it is killed, and its last output is kept",
        _timeout_grace,
    ),
    Probe("end-cancel", "a cancel is confirmed when nothing of the exec lives", _cancel),
    Probe(
        "end-background",
        "an exec returns when its program ends, though a child holds stdout, and the child ends with it",
        _background,
    ),
    Probe("end-late-output", "late output of a leftover process does not appear in the next exec", _late_output),
    Probe("end-many-timeouts", "timeouts leave no processes behind", _many_timeouts),
    Probe("end-memory", "running out of memory is reported as such, and the sandbox stays usable", _memory),
    Probe("end-usage", "CPU of the whole tree, memory and time are counted", _usage),
)
