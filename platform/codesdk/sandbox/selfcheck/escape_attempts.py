"""Escape attempts as data: a Python body that makes them, and the kernel errors that count as prevented.

A body calls `attempt(word, action)`, which prints the word and the error's name, or DONE. A word that starts with `+`
is a control: it must print DONE, or the probe didn't work as intended.
"""

from __future__ import annotations

from codesdk.sandbox.port import ExitKind
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeFailed, expect, expect_end
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
GVISOR_ERRNOS = frozenset((
    "EPERM", "EACCES", "EROFS", "ENOENT", "ENOSYS", "EINVAL", "ENODEV", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENETUNREACH",
    "EHOSTUNREACH",
))  # fmt: skip
"""Further errors that count as prevented under gVisor, whose kernel uses other errors than Linux."""


def refused_with(body: str, *errors: str) -> Check:
    """Return a check that every attempt fails with one of these errors and every control succeeds.

    Other errors fail it: they may only mean a wrong argument.
    """

    def check(context: ProbeContext) -> None:
        closed = GVISOR_ERRNOS.union(errors) if context.plan.runtime == "runsc" else frozenset(errors)
        ran = expect_end(context.python(PRELUDE + body), ExitKind.EXITED)
        tried = [line.rpartition(" ") for line in ran.stdout.decode("utf-8", "replace").splitlines()]
        expect(ran.result.exit_code == 0, f"the program did not complete: {ran.stderr[-300:]!r}")
        expect(any(not word.startswith("+") for word, _, _ in tried), "nothing was tried")
        for word, _, answer in tried:
            if word.startswith("+"):
                expect(answer == "DONE", f"the control {word[1:]} answered {answer}")
            elif answer not in closed:
                raise ProbeFailed(f"{word} answered {answer}, expected {' or '.join(sorted(closed))}")

    return check
