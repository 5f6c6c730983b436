"""The base of every exception that this product raises on purpose."""

from __future__ import annotations

from typing import ClassVar

from codesdk.errors.exit_codes import ExitCode


class Fault(Exception):
    """Something that could not be done. Subclasses live beside the code that raises them.

    Attributes:
        code: stable, upper snake case; clients may branch on it.
        retryable: whether the same request may succeed later with nothing changed by the caller.
        status: the HTTP status that the API answers with.
        exit_code: the exit code of a CLI command that ends with it.
        retry_after_s: seconds after which it may succeed, where that can be said.
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
        """What the reader should do next; empty where there is nothing that they could do."""
        return self.advice_text

    def __str__(self) -> str:
        """One line: the message, then the advice."""
        advice = self.advice()
        return f"{self.message} {advice}" if advice else self.message


class InternalFault(Fault):
    """A broken invariant: our defect, not the caller's."""
