"""Finds and makes principals, keys and tokens."""

from __future__ import annotations

from codesdk.domain.clock import Clock
from codesdk.domain.ids import Ids, Kind, PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.tenancy import store
from codesdk.tenancy.principal import Principal, Role, Unauthenticated
from codesdk.tenancy.secrets import KEY_PREFIX, TOKEN_PREFIX, hash_of, mint

DEFAULT_TENANT = "default"


class Directory:
    """Who is who."""

    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids

    def principal(self, api_key: str) -> Principal:
        """Who holds the key.

        Raises:
            Unauthenticated: unknown or revoked.
        """
        with self._database.read() as connection:
            found = store.principal_of_key(connection, hash_of(api_key))
        if found is None:
            raise Unauthenticated("This API key is not valid.", advice="Send `Authorization: Bearer <API key>`.")
        return found

    def subject(self, token: str) -> Subject:
        """The session that the token opens.

        Raises:
            Unauthenticated: unknown, expired, revoked, or the session is closed.
        """
        with self._database.read() as connection:
            found = store.subject_of_token(connection, hash_of(token))
        if found is None:
            raise Unauthenticated(
                "This session token is not valid.", advice="Open a session (POST /v1/sessions) and use its token."
            )
        return found

    def mint_token(self, unit: Unit, session: SessionId, ttl_s: float) -> str:
        """A new token for the session; the caller shows it once."""
        token = mint(TOKEN_PREFIX)
        store.insert_token(unit.connection, hash_of(token), session, ttl_s)
        return token

    def revoke_tokens(self, unit: Unit, session: SessionId) -> None:
        """End every token of the session."""
        store.revoke_tokens(unit.connection, session, self._clock.now().timestamp())

    def enroll(self, unit: Unit, tenant_name: str, name: str, roles: tuple[Role, ...]) -> tuple[Principal, str]:
        """A new principal with a new API key, in a tenant that is made where it is missing."""
        now = self._clock.now().timestamp()
        tenant = store.tenant_named(unit.connection, tenant_name)
        if tenant is None:
            tenant = TenantId(self._ids.new(Kind.TENANT))
            store.insert_tenant(unit.connection, tenant, tenant_name, now)
        principal = Principal(id=PrincipalId(self._ids.new(Kind.PRINCIPAL)), tenant_id=tenant, name=name, roles=roles)
        store.insert_principal(unit.connection, principal, now)
        key = mint(KEY_PREFIX)
        store.insert_key(unit.connection, self._ids.new(Kind.KEY), principal.id, hash_of(key), now)
        return principal, key
