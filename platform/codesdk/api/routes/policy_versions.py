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
from codesdk.policy.bundles.bundle_files import BundleTexts
from codesdk.policy.evaluation.comparison import compare_calls
from codesdk.policy.rollout.version_models import SHARED, ShadowDifference, Version, VersionChange, VersionUnknown
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.principal import Principal, Reach
from codesdk.toolcalls.records import policy_inputs

router = guarded_router()

MAX_FILES = 400
MAX_CALLS = 20_000
"""Maximum recorded calls per comparison; takes a few seconds."""


class LayerName(StrEnum):
    """A policy layer."""

    TENANT = "tenant"
    """The caller's own tenant."""
    SHARED = "shared"
    """All tenants. Changes need an operator or policy author of the installation."""


Layer = Annotated[LayerName, Query(description="`tenant`: the caller's own; `shared`: all tenants'.")]
FileName = Annotated[str, Field(pattern=r"^(tests/)?[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.ya?ml$")]


class Wanted(FrozenModel):
    """A bundle, by its files or by a version's hash."""

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
        """Return the files or the hash."""
        return self.files if self.files is not None else self.hash or ""


class Promotion(Wanted):
    """The bundle to promote."""

    comment: str = Field(default="", max_length=1000)


class Promoted(FrozenModel):
    """The version in force after a promotion."""

    version: Version
    findings: list[str] = []
    """Lint warnings."""


class Rollback(FrozenModel):
    """Roll back to the previous version, or to the files."""

    layer: LayerName = LayerName.TENANT
    to_files: bool = False
    force: bool = False
    """Also if the previous version fails its own tests."""
    comment: str = Field(default="", max_length=1000)


class RolledBack(FrozenModel):
    """The version in force after a rollback. None if the layer has neither files nor a pinned version."""

    hash: str | None


class VersionList(FrozenModel):
    """The versions of a layer, newest first."""

    versions: list[Version]
    changes: list[VersionChange]
    pinned: str | None
    """The pinned version, which replaces the files."""
    problem: str | None
    """Why the layer's current files, or its pinned version, are not in force; the last valid ones are."""


class Comparison(Wanted):
    """A candidate to compare on recorded calls."""

    days: float = Field(default=7.0, ge=0, le=3650)


class ChangedCall(FrozenModel):
    """A recorded call that the candidate decides differently."""

    tool: str
    input: dict[str, object]
    before: Effect
    after: Effect
    rules: list[str]
    reason: str


class Compared(FrozenModel):
    """Recorded calls of the caller's tenant under the policy in force and under the candidate."""

    calls: int
    matrix: dict[str, int]
    """Number of calls by change, such as `allow→deny`."""
    new_allows: int
    left_out: int
    """Older calls that were left out: one comparison covers the newest 20,000."""
    changes: list[ChangedCall]
    """At most 200, one of each kind."""


class ShadowStatus(FrozenModel):
    """The shadow bundle and its decisions."""

    version: Version | None
    differences: list[ShadowDifference]
    """Calls by the decision in force and the shadow's; `after` is null if the shadow failed."""
    skipped: int
    """Calls of this process that came too fast to evaluate: the caller's tenant's, or everyone's for the shared layer.
    """


@router.get("/v1/policy/versions")
def list_versions(caller: Caller, services: ServicesDep, layer: Layer = LayerName.TENANT) -> VersionList:
    """List a layer's versions, its history of changes, and the pinned version."""
    name = _layer(caller, layer)
    problem = services.bundles.problems().get(name)
    return VersionList(
        versions=services.versions.listing(name),
        changes=services.versions.history(name),
        pinned=services.bundles.pinned(name),
        problem=str(problem) if problem is not None else None,
    )


@router.post("/v1/policy/promote")
def promote(wanted: Promotion, caller: Caller, services: ServicesDep) -> Promoted:
    """Pin a bundle that passes its own tests. It stays in force until another is pinned or the pin is removed."""
    layer = _writable_layer(caller, wanted.layer)
    tools = {tool.name: tool for tool in services.registry.of(caller.tenant_id).tools()}
    version, findings = services.versions.promote(layer, wanted.what(), tools, caller.id, wanted.comment)
    services.bundles.refresh()
    return Promoted(version=version, findings=[f"{one.file}:{one.line}: {one.message}" for one in findings])


@router.post("/v1/policy/rollback")
def roll_back(wanted: Rollback, caller: Caller, services: ServicesDep) -> RolledBack:
    """Restore the previous version or, with `to_files`, the files of the policy directory."""
    layer = _writable_layer(caller, wanted.layer)
    if wanted.to_files:
        files = services.bundles.files_hash(layer)
        services.versions.unpin(layer, files, caller.id, wanted.comment)
        back = files
    else:
        tools = {tool.name: tool for tool in services.registry.of(caller.tenant_id).tools()}
        back = services.versions.roll_back(layer, tools, caller.id, wanted.comment, force=wanted.force).hash
    services.bundles.refresh()
    return RolledBack(hash=back)


@router.post("/v1/policy/diff")
def compare(wanted: Comparison, caller: Caller, services: ServicesDep) -> Compared:
    """Compare a candidate with the policy in force, on recent calls of the caller's tenant."""
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
    """Return the shadow bundle and its decisions on live calls so far."""
    name = _layer(caller, layer)
    version = next((one for one in services.versions.listing(name, 10_000) if one.shadow), None)
    found = services.versions.differences(name, version.hash) if version else []
    if caller.reach is not Reach.INSTANCE and name == SHARED:
        found = []  # these counts include other tenants' calls
    whose = None if caller.reach is Reach.INSTANCE and name == SHARED else caller.tenant_id
    return ShadowStatus(version=version, differences=found, skipped=services.shadow.skipped(whose))


@router.post("/v1/policy/shadow")
def try_beside(wanted: Wanted, caller: Caller, services: ServicesDep) -> Version:
    """Evaluate a bundle on live calls without enforcing it. Replaces the current shadow."""
    version = services.versions.shadow(_writable_layer(caller, wanted.layer), wanted.what(), caller.id)
    services.bundles.refresh()
    return version


@router.delete("/v1/policy/shadow")
def end_shadow(caller: Caller, services: ServicesDep, layer: Layer = LayerName.TENANT) -> ShadowStatus:
    """Stop evaluating the shadow. Its counts stay with the version."""
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
