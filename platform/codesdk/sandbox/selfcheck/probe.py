"""A probe: its name, the expected behaviour, and the check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.selfcheck.context import ProbeContext


class Group(StrEnum):
    """What a probe is about."""

    BEHAVIOUR = "behaviour"
    """What callers rely on."""
    HOSTILE = "hostile"
    """Programs that try to hurt the sandbox's own machinery; it must still answer afterwards."""
    ESCAPE = "escape"
    """Ways out, each of which must be closed."""


class Status(StrEnum):
    """How a probe ended."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    EXEMPT = "exempt"
    """This runtime cannot show it; the reason is stated and the probe is not run."""


class Outcome(FrozenModel):
    """One probe's end."""

    name: str
    group: Group
    status: Status
    reason: str
    """Of a pass: what was seen to hold. Of a failure: what was seen instead. Of an exemption: why."""


Check = Callable[[ProbeContext], None]
"""Looks; raises `Unmet`, or a `Fault` where the sandbox itself failed."""


@dataclass(frozen=True)
class Probe:
    """One thing to look at."""

    name: str
    sees: str
    """What must be seen, as a statement."""
    check: Check
