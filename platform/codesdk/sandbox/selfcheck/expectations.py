"""The result of an exec, and assertions about it."""

from __future__ import annotations

from dataclasses import dataclass

from codesdk.sandbox.port import ExecResult, ExitKind


class ProbeFailed(Exception):
    """The sandbox didn't behave as expected; the message says what happened instead."""


class ProbeExempt(Exception):
    """This machine can't show the behaviour; the message says why."""


@dataclass(frozen=True)
class CompletedExec:
    """A finished exec with all its output."""

    result: ExecResult
    stdout: bytes
    stderr: bytes
    took_s: float


def expect(met: object, otherwise: str) -> None:
    """Raise `ProbeFailed` unless the condition holds."""
    if not met:
        raise ProbeFailed(otherwise)


def expect_equal(what: str, seen: object, wanted: object) -> None:
    """Raise `ProbeFailed` unless the two values are equal."""
    if seen != wanted:
        raise ProbeFailed(f"{what}: {_short(seen)}, expected {_short(wanted)}")


def expect_exit(ran: CompletedExec, code: int = 0) -> CompletedExec:
    """Raise `ProbeFailed` unless the exec exited with this code."""
    result = ran.result
    if (result.kind, result.exit_code) != (ExitKind.EXITED, code):
        how = f"{result.kind} with code {result.exit_code}, signal {result.signal} {result.error}"
        raise ProbeFailed(f"it {how.strip()}, expected exit code {code}: {_short(ran.stderr[-300:])}")
    return ran


def expect_end(ran: CompletedExec, *kinds: ExitKind) -> CompletedExec:
    """Raise `ProbeFailed` unless the exec ended in one of these ways."""
    if ran.result.kind not in kinds:
        raise ProbeFailed(
            f"it {ran.result.kind} (code {ran.result.exit_code}, signal {ran.result.signal}), not {' or '.join(kinds)}"
        )
    return ran


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]}… ({len(text)} characters)"  # noqa: PLR2004 - a line
