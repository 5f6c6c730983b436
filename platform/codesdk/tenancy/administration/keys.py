"""Administration of API keys."""

from __future__ import annotations

import logging

from codesdk.eventlog.audit import AuditAction
from codesdk.storage.writer import Unit
from codesdk.tenancy import store
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.administration.principals import PrincipalAdmin
from codesdk.tenancy.keys import ApiKey, KeyUnknown, NewKey
from codesdk.tenancy.principal import Principal

_log = logging.getLogger(__name__)


class KeyAdmin(PrincipalAdmin):
    """Creates, lists and revokes API keys."""

    def keys(self, caller: Principal, tenant: str) -> list[ApiKey]:
        """List the tenant's keys, oldest first, including expired and revoked ones.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        found = self._authorize_tenant(caller, Action.KEYS_READ, tenant)
        with self._database.read() as connection:
            return store.keys_of(connection, found.id)

    def create_key(self, caller: Principal, principal: str, name: str, ttl_s: float | None = None) -> NewKey:
        """Create a key for the principal. Its secret can't be read again.

        `ttl_s`: lifetime in seconds; None: unlimited.

        Raises:
            Forbidden, PrincipalUnknown, QuotaExceeded: nothing was created.
        """
        holder = self.principal(caller, principal, Action.KEYS_MANAGE)

        def mint(unit: Unit) -> NewKey:
            made = self._directory.mint_key(unit, holder.tenant_id, holder.id, name, ttl_s)
            known = {"principal": holder.id, "name": name, "prefix": made.key.prefix, "ttl_s": ttl_s}
            self._audit(unit, caller, holder.tenant_id, AuditAction.KEY_CREATED, made.key.id, **known)
            return made

        made = self._writer.run(mint)
        _log.info("%s created key %s of principal %s", caller.id, made.key.id, holder.id)
        return made

    def revoke_key(self, caller: Principal, key: str) -> ApiKey:
        """Revoke the key, effective at once. Revoking a revoked key does nothing.

        Raises:
            Forbidden, KeyUnknown: nothing was changed.
        """
        unknown = KeyUnknown(f"There is no key {key}.", advice="`codesdk keys list` shows their ids.")
        with self._database.read() as connection:
            found = store.key(connection, key)
            holder = store.principal(connection, found.principal_id) if found else None
        if found is None or holder is None:
            raise unknown
        target = Target(tenant_id=found.tenant_id, reach=holder.reach)
        require(decide_access(caller, Action.KEYS_MANAGE, target), unknown)

        def revoke(unit: Unit) -> None:
            store.revoke_key(unit.connection, found.id, self._now())
            self._audit(unit, caller, found.tenant_id, AuditAction.KEY_REVOKED, found.id, principal=holder.id)

        self._writer.run(revoke)
        _log.info("%s revoked key %s of principal %s", caller.id, found.id, holder.id)
        with self._database.read() as connection:
            return store.key(connection, key) or found
