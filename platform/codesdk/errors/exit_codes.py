"""Process exit codes, after BSD sysexits(3) where it has a word for the case."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a `codesdk` process ends with."""

    OK = 0
    FAILED = 1
    """The command ran and its answer is "no": a check failed, a probe failed, a run was not clean."""
    USAGE = 64
    """The command line or an input is wrong (EX_USAGE)."""
    DATA = 65
    """A file that people write (policy, manifest, profile) is wrong (EX_DATAERR)."""
    UNAVAILABLE = 69
    """Something outside is missing or does not answer: engine, Redis, image (EX_UNAVAILABLE)."""
    SOFTWARE = 70
    """A defect in CodeSDK itself (EX_SOFTWARE)."""
    CANNOT_WRITE = 73
    """A directory or a port cannot be used (EX_CANTCREAT)."""
    NO_PERMISSION = 77
    """The caller may not do this (EX_NOPERM)."""
