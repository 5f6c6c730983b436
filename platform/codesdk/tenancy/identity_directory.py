"""The identity directory: resolves API keys and session tokens, and mints both."""

from __future__ import annotations

import logging

from codesdk.domain.clock import Clock
from codesdk.domain.ids import IdKind, Ids, KeyId, PrincipalId, SessionId, TenantId
from codesdk.domain.quotas import Quotas, Resource, UnlimitedQuotas
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy import store
from codesdk.tenancy.credentials import KEY_PREFIX, TOKEN_PREFIX, display_prefix, hash_secret, mint_secret
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Principal, Reach, Role, Unauthenticated
from codesdk.tenancy.tenant import Tenant, YoloNotAllowed

_log = logging.getLogger(__name__)

LAST_USED_GRANULARITY_S = 3600.0
"""Granularity of a key's last use, seconds: enough to find unused keys, too coarse to track their holders."""


class IdentityDirectory:
    """Resolves credentials to principals and subjects."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: Ids,
        *,
        quotas: Quotas[Unit] | None = None,
        writer: Writer | None = None,
        yolo: bool = False,
    ) -> None:
        """Create the directory.

        `quotas`: limits keys; None: no limits. `writer`: records the use of keys; None: doesn't. `yolo`: whether new
        tenants may use that permission mode.
        """
        self._database = database
        self._clock = clock
        self._ids = ids
        self._quotas = quotas or UnlimitedQuotas()
        self._writer = writer
        self._yolo = yolo

    def principal(self, api_key: str) -> Principal:
        """Return the principal that holds the key.

        Raises:
            Unauthenticated: the key is unknown, expired or revoked, the principal is disabled, or the tenant is
                suspended.
        """
        with self._database.read() as connection:
            found = store.principal_of_key(connection, hash_secret(api_key))
        if found is None:
            raise Unauthenticated("This API key is not valid.", advice="Send `Authorization: Bearer <API key>`.")
        principal, last_used_at = found
        self._record_use(principal, last_used_at)
        return principal

    def active_principal(self, principal: PrincipalId) -> Principal:
        """Return an active principal by id, for credentials other than keys, such as one-time links.

        Raises:
            Unauthenticated: the principal is disabled, or its tenant suspended.
        """
        with self._database.read() as connection:
            found = store.active_principal(connection, principal)
        if found is None:
            raise Unauthenticated("The principal of this credential is disabled.")
        return found

    def subject(self, token: str) -> Subject:
        """Return the subject of the session that the token belongs to.

        Raises:
            Unauthenticated: the token is unknown, expired or revoked, the session is closed, the principal is disabled,
                or the
                tenant is suspended.
        """
        with self._database.read() as connection:
            found = store.subject_of_token(connection, hash_secret(token))
        if found is None:
            raise Unauthenticated(
                "This session token is not valid.", advice="Open a session (POST /v1/sessions) and use its token."
            )
        return found

    def subject_in(self, principal: Principal, session: str) -> Subject | None:
        """Return the principal's subject in one of its sessions. None if it has no such usable session."""
        with self._database.read() as connection:
            return store.subject_in(connection, session, principal.id)

    def is_active(self, principal: Principal) -> bool:
        """Return whether an authenticated principal is still valid. Streams recheck it while they run.

        One indexed read. False: its key was revoked or has expired, it was disabled, or its tenant suspended.
        """
        with self._database.read() as connection:
            return store.is_active(connection, principal)

    def add_tenant(self, unit: Unit, id_: TenantId, name: str) -> Tenant:
        """Add an empty tenant. The name must be free."""
        made = Tenant(id=id_, name=name, created_at=self._clock.now().timestamp(), yolo=self._yolo)
        store.insert_tenant(unit.connection, made)
        return made

    def check_yolo(self, unit: Unit, tenant: TenantId) -> None:
        """Check that the tenant's sessions may use the permission mode `yolo`.

        Raises:
            YoloNotAllowed: no operator has allowed it.
        """
        if not store.allows_yolo(unit.connection, tenant):
            raise YoloNotAllowed(
                "This tenant's sessions may not have the permission mode yolo.",
                advice=f"Choose auto; or an operator of the installation runs `codesdk tenants allow-yolo {tenant}`.",
            )

    def mint_token(self, unit: Unit, session: SessionId, ttl_s: float) -> str:
        """Mint a token for the session. The caller displays it once."""
        token = mint_secret(TOKEN_PREFIX)
        store.insert_token(unit.connection, hash_secret(token), session, ttl_s)
        return token

    def revoke_tokens(self, unit: Unit, session: SessionId) -> None:
        """Revoke every token of the session."""
        store.revoke_tokens(unit.connection, session, self._clock.now().timestamp())

    def mint_key(
        self, unit: Unit, tenant: TenantId, principal: PrincipalId, name: str, ttl_s: float | None = None
    ) -> NewKey:
        """Mint a key. The caller displays it once. `ttl_s`: lifetime in seconds; None: unlimited.

        Raises:
            QuotaExceeded: the tenant's limit of keys is reached.
        """
        self._quotas.reserve(unit, tenant, Resource.API_KEYS)
        secret = mint_secret(KEY_PREFIX)
        key = ApiKey(
            id=KeyId(self._ids.new(IdKind.KEY)),
            tenant_id=tenant,
            principal_id=principal,
            name=name,
            prefix=display_prefix(secret),
            created_at=self._clock.now().timestamp(),
        )
        store.insert_key(unit.connection, key, hash_secret(secret), ttl_s)
        made = store.key(unit.connection, key.id)
        assert made is not None  # noqa: S101 (inserted above)
        return NewKey(key=made, secret=secret)

    def enroll(
        self, unit: Unit, tenant_name: str, name: str, roles: tuple[Role, ...], *, reach: Reach = Reach.TENANT
    ) -> tuple[Principal, str]:
        """Add a principal with an API key. Creates the tenant if it's missing. Checks no permissions.

        Raises:
            QuotaExceeded: the tenant's limit of keys is reached.
        """
        now = self._clock.now().timestamp()
        tenant = store.tenant_named(unit.connection, tenant_name)
        if tenant is None:
            tenant = self.add_tenant(unit, TenantId(self._ids.new(IdKind.TENANT)), tenant_name).id
        id_ = PrincipalId(self._ids.new(IdKind.PRINCIPAL))
        principal = Principal(id=id_, tenant_id=tenant, name=name, roles=roles, reach=reach)
        store.insert_principal(unit.connection, principal, now)
        made = self.mint_key(unit, tenant, principal.id, name)
        return principal.model_copy(update={"key_id": made.key.id}), made.secret

    def _record_use(self, principal: Principal, last_used_at: float | None) -> None:
        now = self._clock.now().timestamp()
        hour = now - now % LAST_USED_GRANULARITY_S
        key = principal.key_id
        if self._writer is None or key is None or (last_used_at is not None and last_used_at >= hour):
            return
        try:
            self._writer.run(lambda unit: store.record_use(unit.connection, key, hour))
        except Fault as fault:
            # Requests must still work while the database takes no writes; the next one tries again.
            _log.warning("could not record the use of key %s: %s", key, fault)
