"""A probe: its name, the expected behaviour, and the check."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import expect_equal, expect_exit


class Group(StrEnum):
    """Kind of a probe."""

    BEHAVIOUR = "behaviour"
    """Behaviour that callers rely on."""
    HOSTILE = "hostile"
    """Programs that attack the sandbox itself; it must still work afterwards."""
    ESCAPE = "escape"
    """Attempts to break out, all of which must fail."""


class Status(StrEnum):
    """How a probe ended."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    EXEMPT = "exempt"
    """This runtime or kernel can't show it; `reason` says why."""


class Outcome(FrozenModel):
    """Result of one probe."""

    name: str
    group: Group
    status: Status
    reason: str
    """Pass: what holds. Fail: what happened instead. Exempt: why it wasn't run."""


Check = Callable[[ProbeContext], None]
"""Raises `ProbeFailed`, `ProbeExempt`, or a `Fault` if the sandbox itself failed."""


@dataclass(frozen=True)
class Probe:
    """One check of a sandbox."""

    name: str
    statement: str
    """The expected behaviour."""
    check: Check


def prints(program: str, stdout: bytes, what: str = "stdout", *, own: bool = False) -> Check:
    """Return a check that this Python program prints exactly `stdout`. `own`: in a sandbox of its own."""

    def check(context: ProbeContext) -> None:
        with context.own() if own else nullcontext(context.sandbox) as sandbox:
            expect_equal(what, expect_exit(context.python(program, sandbox)).stdout, stdout)

    return check
