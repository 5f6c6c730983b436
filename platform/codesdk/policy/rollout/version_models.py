"""What is kept of policy over time: versions of bundles, what put which into force, and a candidate's differences."""

from __future__ import annotations

from enum import StrEnum

from codesdk.domain.decisions import Effect
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

SHARED = "shared"
"""The layer of everybody; any other layer goes by its tenant's id."""


class VersionAction(StrEnum):
    """How a version came into force."""

    FILES = "files"
    """The files in the policy directory said so."""
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    UNPIN = "unpin"
    """The files are in force again."""
    SHADOW = "shadow"
    """It is only tried beside what is in force."""
    SHADOW_END = "shadow-end"


class Version(FrozenModel):
    """One bundle of a layer, by what its rules say."""

    hash: str
    name: str
    made_at: float
    """Seconds since the epoch."""
    made_by: str | None = None
    """The principal that brought it; None where it came from files."""
    active: bool = False
    """It is in force."""
    shadow: bool = False
    """It is tried beside what is in force."""


class VersionChange(FrozenModel):
    """One entry of a layer's record, newest first: never changed, never removed."""

    action: VersionAction
    hash: str | None
    before: str | None
    """What was in force until then; None for nothing."""
    by: str | None
    at: float
    """Seconds since the epoch."""
    comment: str = ""


class ShadowDifference(FrozenModel):
    """Live calls that a candidate decides in another way, or in the same."""

    before: Effect
    after: Effect | None
    """None: the candidate failed."""
    rule: str
    """The first rule by which the candidate decides; empty for its default."""
    count: int
    last_call: str
    last_at: float
    """Seconds since the epoch."""


class VersionUnknown(Fault):
    """The layer has no version of that hash."""

    code = "VERSION_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class NoPreviousVersion(Fault):
    """There is no earlier version to go back to."""

    code = "NOTHING_BEFORE"
    status = 409
    exit_code = ExitCode.FAILED


class VersionConflict(Fault):
    """Somebody else changed what is in force at the same time."""

    code = "VERSIONS_MOVED"
    status = 409
    exit_code = ExitCode.FAILED


class TestsFailed(Fault):
    """A bundle that has no tests, or does not pass them, is not put into force."""

    __test__ = False
    code = "POLICY_TESTS_FAILED"
    status = 422
    exit_code = ExitCode.DATA
