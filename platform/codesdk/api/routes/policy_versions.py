"""Policy versions over HTTP: history, diffs, promotion, rollback and shadow evaluation."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Query
from pydantic import Field, model_validator

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.decisions import Effect
from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.policy.bundles.texts import BundleTexts
from codesdk.policy.evaluation.comparison import compare_calls
from codesdk.policy.rollout.version_models import SHARED, ShadowDifference, Version, VersionChange, VersionUnknown
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.principal import Principal, Reach
from codesdk.toolcalls.records import policy_inputs

router = guarded_router()

MAX_FILES = 400
MAX_CALLS = 20_000
"""Recorded calls that one comparison judges: a few seconds."""


class LayerName(StrEnum):
    """Whose rules."""

    TENANT = "tenant"
    """The caller's own tenant's."""
    SHARED = "shared"
    """Everybody's: an operator's or policy author's of the installation."""


Layer = Annotated[LayerName, Query(description="`tenant`: the caller's own; `shared`: everybody's.")]
FileName = Annotated[str, Field(pattern=r"^(tests/)?[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.ya?ml$")]


class Wanted(FrozenModel):
    """A bundle, by its files or by the hash of a version."""

    layer: LayerName = LayerName.TENANT
    files: dict[FileName, str] | None = Field(default=None, min_length=1, max_length=MAX_FILES)
    """Name (`policy.yaml`, `tests/policy.yaml`) and text of each file."""
    hash: str | None = Field(default=None, max_length=71)

    @model_validator(mode="after")
    def _one(self) -> Wanted:
        if (self.files is None) == (self.hash is None):
            raise ValueError("give either files or a hash.")
        return self

    def what(self) -> BundleTexts | str:
        """The one that was given."""
        return self.files if self.files is not None else self.hash or ""


class Promotion(Wanted):
    """What is to be in force."""

    comment: str = Field(default="", max_length=1000)


class Promoted(FrozenModel):
    """What is in force now."""

    version: Version
    findings: list[str] = []
    """What lint would warn of."""


class Rollback(FrozenModel):
    """Back to what was in force before, or to the files."""

    layer: LayerName = LayerName.TENANT
    to_files: bool = False
    comment: str = Field(default="", max_length=1000)


class RolledBack(FrozenModel):
    """What is in force now; no version where the layer has neither files nor a pinned one."""

    hash: str | None


class VersionList(FrozenModel):
    """Of a layer, newest first."""

    versions: list[Version]
    changes: list[VersionChange]
    pinned: str | None
    """The version that is in force in place of the files."""


class Comparison(Wanted):
    """A candidate to judge recorded calls by."""

    days: float = Field(default=7.0, ge=0, le=3650)


class ChangedCall(FrozenModel):
    """A recorded call that would be decided in another way."""

    tool: str
    input: dict[str, object]
    before: Effect
    after: Effect
    rules: list[str]
    reason: str


class Compared(FrozenModel):
    """The calls of the caller's tenant under what is in force and under the candidate."""

    calls: int
    matrix: dict[str, int]
    """`allow→deny` and the number of calls."""
    new_allows: int
    left_out: int
    """Older calls that were not judged: one comparison judges the newest 20,000."""
    changes: list[ChangedCall]
    """At most 200, one for each kind."""


class ShadowStatus(FrozenModel):
    """What is tried beside the bundle in force, and what it did."""

    version: Version | None
    differences: list[ShadowDifference]
    """Calls by what was decided and what the candidate says; an `after` of null: it failed."""
    skipped: int
    """Calls of this process that came too fast to be tried: of the caller's tenant, or everybody's for everybody's layer."""


@router.get("/v1/policy/versions")
def list_versions(caller: Caller, services: ServicesDep, layer: Layer = LayerName.TENANT) -> VersionList:
    """The versions of a layer, what put which into force, and what is."""
    name = _layer(caller, layer)
    return VersionList(
        versions=services.versions.listing(name),
        changes=services.versions.history(name),
        pinned=services.bundles.pinned(name),
    )


@router.post("/v1/policy/promote")
def promote(wanted: Promotion, caller: Caller, services: ServicesDep) -> Promoted:
    """Put a bundle into force that passes its own tests; it stays so until another is, or the files are again."""
    layer = _writable_layer(caller, wanted.layer)
    tools = {tool.name: tool for tool in services.registry.of(caller.tenant_id).tools()}
    version, findings = services.versions.promote(layer, wanted.what(), tools, caller.id, wanted.comment)
    services.bundles.refresh()
    return Promoted(version=version, findings=[f"{one.file}:{one.line}: {one.message}" for one in findings])


@router.post("/v1/policy/rollback")
def roll_back(wanted: Rollback, caller: Caller, services: ServicesDep) -> RolledBack:
    """Put into force what was before; or, with `to_files`, what the files of the policy directory say."""
    layer = _writable_layer(caller, wanted.layer)
    if wanted.to_files:
        files = services.bundles.files_hash(layer)
        services.versions.unpin(layer, files, caller.id, wanted.comment)
        back = files
    else:
        tools = {tool.name: tool for tool in services.registry.of(caller.tenant_id).tools()}
        back = services.versions.roll_back(layer, tools, caller.id, wanted.comment).hash
    services.bundles.refresh()
    return RolledBack(hash=back)


@router.post("/v1/policy/diff")
def compare(wanted: Comparison, caller: Caller, services: ServicesDep) -> Compared:
    """Judge the last days' calls of the caller's tenant by a candidate, against what is in force."""
    layer = _layer(caller, wanted.layer)
    candidate = services.versions.candidate(layer, wanted.what())
    tools = {tool.name: tool for tool in services.registry.of(caller.tenant_id).tools()}
    found = compare_calls(
        policy_inputs.newest_inputs(services.database, wanted.days, caller.tenant_id, MAX_CALLS),
        tools,
        lambda trial: services.bundles.of(caller.tenant_id, trial.session.policy_hash),
        lambda trial: services.bundles.with_layer(layer, candidate, caller.tenant_id, trial.session.policy_hash),
    )
    return Compared(
        calls=found.total,
        matrix={f"{one}→{other}": count for (one, other), count in sorted(found.matrix.items())},
        new_allows=found.new_allows,
        left_out=max(0, policy_inputs.count_inputs(services.database, wanted.days, caller.tenant_id) - found.total),
        changes=[
            ChangedCall(
                tool=change.trial.tool,
                input=change.trial.input,
                before=change.before.effect,
                after=change.after.effect,
                rules=list(change.after.rules),
                reason=change.after.reason,
            )
            for change in found.changes
        ],
    )


@router.get("/v1/policy/shadow")
def shadow_status(caller: Caller, services: ServicesDep, layer: Layer = LayerName.TENANT) -> ShadowStatus:
    """What is tried, and how it decided live calls so far."""
    name = _layer(caller, layer)
    version = next((one for one in services.versions.listing(name, 10_000) if one.shadow), None)
    found = services.versions.differences(name, version.hash) if version else []
    if caller.reach is not Reach.INSTANCE and name == SHARED:
        found = []  # they count everybody's calls
    whose = None if caller.reach is Reach.INSTANCE and name == SHARED else caller.tenant_id
    return ShadowStatus(version=version, differences=found, skipped=services.shadow.skipped(whose))


@router.post("/v1/policy/shadow")
def try_beside(wanted: Wanted, caller: Caller, services: ServicesDep) -> Version:
    """Try a bundle on live calls without ever obeying it; in place of the one that is tried now."""
    version = services.versions.shadow(_writable_layer(caller, wanted.layer), wanted.what(), caller.id)
    services.bundles.refresh()
    return version


@router.delete("/v1/policy/shadow")
def end_shadow(caller: Caller, services: ServicesDep, layer: Layer = LayerName.TENANT) -> ShadowStatus:
    """Try nothing any more. What was counted stays with the version."""
    services.versions.end_shadow(_writable_layer(caller, layer), caller.id)
    services.bundles.refresh()
    return shadow_status(caller, services, layer)


def _layer(caller: Principal, layer: LayerName) -> str:
    return SHARED if layer is LayerName.SHARED else caller.tenant_id


def _writable_layer(caller: Principal, layer: LayerName) -> str:
    shared = layer is LayerName.SHARED
    target = Target(tenant_id=TenantId(caller.tenant_id), reach=Reach.INSTANCE if shared else Reach.TENANT)
    require(decide_access(caller, Action.POLICY_PROMOTE, target), VersionUnknown("There is no such layer."))
    return _layer(caller, layer)
