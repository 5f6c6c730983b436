"""Creates the installation's first operator, and displays its key once. Requires access to the data directory."""

from __future__ import annotations

from codesdk.domain.clock import Clock
from codesdk.domain.ids import IdKind, Ids, PrincipalId, TenantId
from codesdk.errors import Conflict
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail
from codesdk.storage.writer import Unit
from codesdk.tenancy import store
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.keys import NewKey
from codesdk.tenancy.principal import Principal, PrincipalRecord, PrincipalTaken, Reach, Role
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.tenancy.tenant import DEFAULT_TENANT

OPERATOR = "operator"
"""Name of the operator's principal."""
SETUP_ACTOR = "data-directory"
"""The audit trail's actor: anyone who can write to the data directory."""


class AlreadyInitialised(Conflict):
    """The installation already has an operator."""

    code = "ALREADY_INITIALISED"


class OperatorSetup:
    """Creates the default tenant and its operator."""

    def __init__(self, directory: IdentityDirectory, quotas: TenantQuotas, clock: Clock, ids: Ids) -> None:
        self._directory = directory
        self._quotas = quotas
        self._clock = clock
        self._ids = ids
        self._trail = AuditTrail(clock)

    def found(self, unit: Unit, *, rotate: bool = False) -> NewKey:
        """Create the operator with its first key. With `rotate`, create a new key and revoke all others.

        Raises:
            AlreadyInitialised: there is an operator, and `rotate` is false; nothing was changed.
            PrincipalTaken: another principal of the tenant has the operator's name.
        """
        tenant = self._tenant(unit)
        self._quotas.lock_tenant(unit, tenant)  # so that a second, concurrent call finds the operator
        operator = store.principal_named(unit.connection, tenant, OPERATOR)
        if operator is None:
            holder = self._enroll(unit, tenant)
            self._trail.record(
                unit, INSTALLATION, AuditAction.INSTALLATION_FOUNDED, actor=SETUP_ACTOR, target=tenant, by=holder
            )
            return self._key(unit, tenant, holder)
        _require_operator(operator)
        if not rotate:
            raise AlreadyInitialised(
                "This installation has an operator, and its key cannot be shown again.",
                advice="Use that key. If it is lost, `codesdk init --rotate` makes another and revokes the old.",
            )
        now = self._clock.now().timestamp()
        for key in store.keys_of(unit.connection, tenant):
            if key.principal_id == operator.id:
                store.revoke_key(unit.connection, key.id, now)
                if key.revoked_at is None:
                    known = {"principal": operator.id}
                    self._trail.record(unit, tenant, AuditAction.KEY_REVOKED, actor=SETUP_ACTOR, target=key.id, **known)
        return self._key(unit, tenant, operator.id)

    def _key(self, unit: Unit, tenant: TenantId, holder: PrincipalId) -> NewKey:
        made = self._directory.mint_key(unit, tenant, holder, OPERATOR)
        known = {"principal": holder, "name": OPERATOR, "prefix": made.key.prefix}
        self._trail.record(unit, tenant, AuditAction.KEY_CREATED, actor=SETUP_ACTOR, target=made.key.id, **known)
        return made

    def _tenant(self, unit: Unit) -> TenantId:
        found = store.tenant_named(unit.connection, DEFAULT_TENANT)
        if found is not None:
            return found
        return self._directory.add_tenant(unit, TenantId(self._ids.new(IdKind.TENANT)), DEFAULT_TENANT).id

    def _enroll(self, unit: Unit, tenant: TenantId) -> PrincipalId:
        id_ = PrincipalId(self._ids.new(IdKind.PRINCIPAL))
        made = Principal(id=id_, tenant_id=tenant, name=OPERATOR, roles=(Role.OPERATOR,), reach=Reach.INSTANCE)
        store.insert_principal(unit.connection, made, self._clock.now().timestamp())
        return made.id


def _require_operator(found: PrincipalRecord) -> None:
    if found.reach is not Reach.INSTANCE or Role.OPERATOR not in found.roles:
        raise PrincipalTaken(
            f"The tenant {DEFAULT_TENANT} has a principal {OPERATOR} who is not the installation's operator.",
            advice=f"Disable it first (POST /v1/principals/{found.id}/disable).",
        )
