"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Severity, mildest first. `info` is neutral."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """A finding and how to fix it."""

    name: str
    status: Status
    detail: str
    fix: str = ""
    """The next step, if something needs fixing; `mend` in the JSON of `codesdk doctor`."""
