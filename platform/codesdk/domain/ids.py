"""Identifiers: a readable prefix, then 26 characters that sort by creation time (ULID)."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import NewType, Protocol

from codesdk.domain.clock import Clock

TenantId = NewType("TenantId", str)
PrincipalId = NewType("PrincipalId", str)
KeyId = NewType("KeyId", str)
SessionId = NewType("SessionId", str)
TaskId = NewType("TaskId", str)
ToolCallId = NewType("ToolCallId", str)
ApprovalId = NewType("ApprovalId", str)
GrantId = NewType("GrantId", str)
ArtifactId = NewType("ArtifactId", str)
HostId = NewType("HostId", str)
SandboxId = NewType("SandboxId", str)
OneTimeLinkId = NewType("OneTimeLinkId", str)
EndpointId = NewType("EndpointId", str)
DeliveryId = NewType("DeliveryId", str)

# Crockford's base 32: no I, L, O, U, so that ids survive being read aloud and retyped.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class IdKind(StrEnum):
    """What an id identifies. The value is its prefix."""

    TENANT = "ten"
    PRINCIPAL = "prn"
    KEY = "key"
    SESSION = "ses"
    TASK = "tsk"
    CALL = "call"
    APPROVAL = "apr"
    GRANT = "grt"
    ARTIFACT = "art"
    HOST = "hst"
    SANDBOX = "sbx"
    REQUEST = "req"
    TICKET = "tkt"
    ENDPOINT = "whk"
    DELIVERY = "msg"


class Ids(Protocol):
    """Generates identifiers."""

    def new(self, kind: IdKind) -> str:
        """Return a new, unique id of that kind."""
        ...


class RandomIds:
    """48 bits of milliseconds and 80 random bits: unique without coordination, sorted by time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new(self, kind: IdKind) -> str:
        """Return a new id of that kind."""
        millis = int(self._clock.now().timestamp() * 1000)
        number = (millis << 80) | int.from_bytes(os.urandom(10), "big")
        return f"{kind}_{_encode(number)}"


class CountingIds:
    """Generates `ses_…01`, `ses_…02`: the fake of the `Ids` port, the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def new(self, kind: IdKind) -> str:
        """Return the next id."""
        self._count += 1
        return f"{kind}_{_encode(self._count)}"


def is_id(text: str, kind: IdKind) -> bool:
    """Return whether `text` has the format of an id of that kind. Doesn't check that the id exists."""
    prefix, _, body = text.partition("_")
    return prefix == kind and _ULID.fullmatch(body) is not None


def _encode(number: int) -> str:
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
