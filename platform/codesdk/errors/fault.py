"""The base of every exception that this product raises on purpose, and the exit codes."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of `codesdk`, after BSD sysexits(3) where it has one for the case."""

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


class Fault(Exception):
    """Something that could not be done. Subclasses live in the packages that raise them.

    Attributes:
        code: stable, upper snake case; clients may branch on it.
        retryable: whether the same request may succeed later with nothing changed by the caller.
        status: the HTTP status that the API answers with.
        exit_code: the exit code of a CLI command that ends with it.
        retry_after_s: seconds after which it may succeed, if known.
    """

    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    status: ClassVar[int] = 500
    exit_code: ClassVar[ExitCode] = ExitCode.SOFTWARE
    retry_after_s: ClassVar[float | None] = None

    def __init__(self, message: str, *, advice: str = "", details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice_text = advice
        self.details = details or {}

    def advice(self) -> str:
        """What the reader should do next; empty if there is nothing that they could do."""
        return self.advice_text

    def __str__(self) -> str:
        """One line: the message, then the advice."""
        advice = self.advice()
        return f"{self.message} {advice}" if advice else self.message


class NotFound(Fault):
    """The caller has nothing of that name or id."""

    status = 404
    exit_code = ExitCode.FAILED


class Conflict(Fault):
    """The state of the object doesn't allow it."""

    status = 409
    exit_code = ExitCode.FAILED


class NotPermitted(Fault):
    """The caller may not do this."""

    status = 403
    exit_code = ExitCode.NO_PERMISSION


class Unavailable(Fault):
    """Something that is needed doesn't answer or has no room now."""

    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class InternalFault(Fault):
    """A broken invariant: our defect, not the caller's."""
