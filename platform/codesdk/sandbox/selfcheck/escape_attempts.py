"""Escape attempts as data: a Python body that makes them, and the kernel errors that count as prevented.

A body calls `attempt(word, action)`, which prints the word and the error's name, or DONE. A word that starts with `+`
is a control: it must print DONE, or the probe didn't work as intended.
"""

from __future__ import annotations

from dataclasses import dataclass

from codesdk.sandbox.port import ExitKind
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import CompletedExec, ProbeFailed, expect, expect_end
from codesdk.sandbox.selfcheck.probe import Check

PRELUDE = """
import ctypes, errno, glob, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def called(result):
    if result == -1: raise OSError(ctypes.get_errno(), "refused")
    return result
def attempt(word, action):
    try: action()
    except OSError as error:
        name = "NO_NAME" if isinstance(error, socket.gaierror) else errno.errorcode.get(error.errno, str(error.errno))
        if isinstance(error, TimeoutError): name = "ETIMEDOUT"
        print(word, name)
    else: print(word, "DONE")
def open_to_write(path): os.close(os.open(path, os.O_WRONLY))
"""
GVISOR_ERRNOS = frozenset(
    [
        "EPERM",
        "EACCES",
        "EROFS",
        "ENOENT",
        "ENOSYS",
        "EINVAL",
        "ENODEV",
        "EAFNOSUPPORT",
        "EPROTONOSUPPORT",
        "ENETUNREACH",
        "EHOSTUNREACH",
    ]
)
"""Further errors that count as prevented under gVisor, whose kernel uses other errors than Linux."""


@dataclass(frozen=True)
class EscapeAttempts:
    """Escape attempts and the errors that prevent them. Other errors fail: they may only mean a wrong argument."""

    body: str
    closed: frozenset[str]

    def __call__(self, context: ProbeContext) -> None:
        """Check that every attempt is refused and every control succeeds."""
        closed = self.closed | GVISOR_ERRNOS if context.plan.runtime == "runsc" else self.closed
        ran = context.python(PRELUDE + self.body)
        tried = [
            line.rpartition(" ")
            for line in expect_end(ran, ExitKind.EXITED).stdout.decode("utf-8", "replace").splitlines()
        ]
        _expect_completion(ran)
        expect(any(not word.startswith("+") for word, _, _ in tried), "nothing was tried")
        for word, _, answer in tried:
            if word.startswith("+"):
                expect(answer == "DONE", f"the control {word[1:]} answered {answer}")
            elif answer not in closed:
                raise ProbeFailed(f"{word} answered {answer}, where {' or '.join(sorted(closed))} must be seen")


def _expect_completion(ran: CompletedExec) -> None:
    if ran.result.exit_code != 0:
        raise ProbeFailed(f"the program did not get to its end: {ran.stderr[-300:]!r}")


def refused_with(body: str, *closed: str) -> Check:
    """Return attempts that must all fail with one of these errors."""
    return EscapeAttempts(body, frozenset(closed))
