"""Models of bundle versions, the change record and shadow differences."""

from __future__ import annotations

from enum import StrEnum

from codesdk.domain.decisions import Effect
from codesdk.domain.model import FrozenModel
from codesdk.errors import Conflict, ExitCode, Fault, NotFound

SHARED = "shared"
"""The shared layer. Other layers are named by their tenant's id."""


class VersionAction(StrEnum):
    """How a version came into force."""

    FILES = "files"
    """Files in the policy directory changed."""
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    UNPIN = "unpin"
    """The pin was removed; the files are in force again."""
    SHADOW = "shadow"
    """Shadow evaluation started; the version is not in force."""
    SHADOW_END = "shadow-end"


class Version(FrozenModel):
    """A version of a layer's bundle, identified by the hash of its rules."""

    hash: str
    name: str
    made_at: float
    """Seconds since the epoch."""
    made_by: str | None = None
    """The principal that added it; None if it came from files."""
    active: bool = False
    """The version is in force."""
    shadow: bool = False
    """The version is the shadow candidate."""


class VersionChange(FrozenModel):
    """An entry of a layer's change record. Entries are never changed or removed."""

    action: VersionAction
    hash: str | None
    before: str | None
    """Hash of the version in force before; None if there was none."""
    by: str | None
    at: float
    """Seconds since the epoch."""
    comment: str = ""


class ShadowDifference(FrozenModel):
    """Count of live calls with one pair of live and candidate decisions."""

    before: Effect
    after: Effect | None
    """The candidate's effect; None if it failed."""
    rule: str
    """The first rule that decides under the candidate; empty for its default."""
    count: int
    last_call: str
    last_at: float
    """Seconds since the epoch."""


class VersionUnknown(NotFound):
    """The layer has no version with that hash."""

    code = "VERSION_UNKNOWN"


class NoPreviousVersion(Conflict):
    """There is no earlier version to roll back to."""

    code = "NOTHING_BEFORE"


class VersionConflict(Conflict):
    """Another version came into force at the same time."""

    code = "VERSIONS_MOVED"


class TestsFailed(Fault):
    """The bundle has no tests or fails one, so it can't be promoted."""

    __test__ = False
    code = "POLICY_TESTS_FAILED"
    status = 422
    exit_code = ExitCode.DATA


class TestsTooSlow(TestsFailed):
    """The bundle's tests take too long together, so it can't be promoted."""

    code = "POLICY_TESTS_TOO_SLOW"
