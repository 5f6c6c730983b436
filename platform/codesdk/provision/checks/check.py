"""One thing that doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How it stands, mildest first; `info` is neither good nor bad."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """A finding, and how to mend it."""

    name: str
    status: Status
    detail: str
    mend: str = ""
    """The next step, where there is something to mend."""
