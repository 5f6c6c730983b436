"""The record of one attempt to leave the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from codesdk.domain.decisions import FrozenModel


class AttemptPhase(StrEnum):
    """Where in its life an attempt is reported."""

    OPENED = "opened"
    """Allowed and connected; reported before the first byte passes."""
    CLOSED = "closed"
    """The end of one that was opened."""
    REFUSED = "refused"
    """The end of one that was not: denied, or not possible."""


class Reason(StrEnum):
    """Why an attempt was refused or a connection ended; `done` where nothing was wrong."""

    DONE = "done"
    # Denied by what is allowed.
    NOT_ALLOWED = "not_allowed"
    ADDRESS_REFUSED = "address_refused"
    NOT_THE_EXEC = "not_the_exec"
    CREDENTIAL = "credential"
    TOO_MANY_AT_ONCE = "too_many_at_once"
    TOO_MANY = "too_many"
    BYTES_UP = "bytes_up"
    BYTES_DOWN = "bytes_down"
    BYTES_A_DAY = "bytes_a_day"
    # Denied by what was said.
    BAD_REQUEST = "bad_request"
    HOST_DIFFERS = "host_differs"
    NOT_TLS = "not_tls"
    SNI_MISSING = "sni_missing"
    SNI_DIFFERS = "sni_differs"
    ENCRYPTED_HELLO = "encrypted_hello"
    # Not possible, or over.
    SLOW = "slow"
    IDLE = "idle"
    NO_SUCH_NAME = "no_such_name"
    UNREACHABLE = "unreachable"
    UPSTREAM_TLS = "upstream_tls"
    BAD_RESPONSE = "bad_response"
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105 - a reason's name
    BROKEN = "broken"
    """One side ended the connection in the middle."""
    EXEC_ENDED = "exec_ended"
    INTERNAL = "internal"
    """A defect of ours; the log has it. Nothing is let through."""


class ConnectionAttempt(FrozenModel):
    """What is known when it is reported. No header, path or byte of content is in it."""

    owner: str
    """The sandbox."""
    call: str
    attempt: int
    number: int
    """Counts the exec's attempts from 1; `opened` and `closed` of one connection share it."""
    phase: AttemptPhase
    reason: Reason = Reason.DONE
    detail: str = ""
    """For a person; text from the sandbox in it is bounded and escaped."""
    method: str = ""
    host: str = ""
    """Canonical, as the tool named it."""
    port: int = 0
    rule: str = ""
    address: str = ""
    """What was connected to."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that were added."""
    bytes_up: int = 0
    bytes_down: int = 0
    duration_s: float = 0.0
    count: int = 1
    """How many attempts this stands for; above 1 where a flood of refusals is reported as one."""

    @property
    def connection(self) -> ConnectionKey:
        """What its records have in common."""
        return self.owner, self.call, self.attempt, self.number


ConnectionKey = tuple[str, str, int, int]
"""Sandbox, call, attempt of the call and number: names one connection of a worker's."""

OnAttempt = Callable[[ConnectionAttempt], None]
"""Called from one thread of the proxy's, in order. `opened` must be stored when it returns; if it raises, nothing passes."""
