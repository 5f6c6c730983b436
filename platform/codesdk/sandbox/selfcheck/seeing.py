"""What an exec gave, and the words with which probes say what they must see of it."""

from __future__ import annotations

from dataclasses import dataclass

from codesdk.sandbox.port import ExecResult, ExitKind


class Unmet(Exception):
    """What must be seen was not; the message says what was seen instead."""


@dataclass(frozen=True)
class Ran:
    """A finished exec with its whole output."""

    result: ExecResult
    stdout: bytes
    stderr: bytes
    took_s: float


def demand(met: object, otherwise: str) -> None:
    """Raise `Unmet` unless the condition holds."""
    if not met:
        raise Unmet(otherwise)


def same(what: str, seen: object, wanted: object) -> None:
    """Raise `Unmet` unless the two are equal."""
    if seen != wanted:
        raise Unmet(f"{what}: {_short(seen)}, where {_short(wanted)} must be seen")


def exited(ran: Ran, code: int = 0) -> Ran:
    """The exec ended by itself with that code."""
    result = ran.result
    if (result.kind, result.exit_code) != (ExitKind.EXITED, code):
        how = f"{result.kind} with code {result.exit_code}, signal {result.signal} {result.error}"
        raise Unmet(f"it {how.strip()}, where exit code {code} must be seen: {_short(ran.stderr[-300:])}")
    return ran


def ended(ran: Ran, *kinds: ExitKind) -> Ran:
    """The exec ended in one of these ways."""
    if ran.result.kind not in kinds:
        raise Unmet(
            f"it {ran.result.kind} (code {ran.result.exit_code}, signal {ran.result.signal}), not {' or '.join(kinds)}"
        )
    return ran


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]}… ({len(text)} characters)"  # noqa: PLR2004 - a line
