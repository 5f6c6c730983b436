"""Maps an issuer's token to a principal, and creates the principal on its first login."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from codesdk.domain.clock import Clock
from codesdk.domain.ids import IdKind, Ids, PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.eventlog.audit import AuditAction, AuditTrail
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy import store as tenancy_store
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.logins import store
from codesdk.tenancy.logins.issuers import Issuer, SessionTemplate, claim_at
from codesdk.tenancy.logins.jwks import JwksCache
from codesdk.tenancy.logins.tokens import LoginRefused, VerifiedToken, verify_token
from codesdk.tenancy.principal import Name, Principal, Role
from codesdk.tenancy.quotas import TenantQuotas

LOGIN_ACTOR = "login"
"""The audit trail's actor: no principal of the installation creates these."""

_log = logging.getLogger(__name__)
_NAME_ADAPTER = TypeAdapter(Name)


class LoginResult(FrozenModel):
    """A principal that has logged in."""

    principal: Principal
    session_id: SessionId | None
    """The last session that was opened for it."""
    wish: SessionTemplate
    """The options for a new one."""


class LoginService:
    """Authenticates principals by their issuers' tokens. Safe to use from any thread."""

    def __init__(
        self,
        issuers: Callable[[], Sequence[Issuer]],
        keys: JwksCache,
        *,
        database: Database,
        writer: Writer,
        quotas: TenantQuotas,
        clock: Clock,
        ids: Ids,
    ) -> None:
        """Create the service. `issuers`: returns the issuers in force; called at each login."""
        self._issuers = issuers
        self._keys = keys
        self._database = database
        self._writer = writer
        self._quotas = quotas
        self._clock = clock
        self._ids = ids
        self._trail = AuditTrail(clock)

    @property
    def issuers(self) -> Sequence[Issuer]:
        """The issuers in force."""
        return self._issuers()

    def log_in(self, token: str, *, again: bool = False) -> LoginResult:
        """Return the token's principal. Creates it at its first login, and sets its roles to those of the token.

        `again`: recheck a token that was accepted before. Writes nothing, and keeps roles that a later token may have
        set.

        Raises:
            LoginRefused: the token is invalid, the principal is disabled, or the tenant is suspended.
            Forbidden: the token is valid but maps to no tenant or no role.
            KeysUnavailable: the token can't be verified now.
        """
        verified = verify_token(token, self.issuers, self._keys, self._clock.now().timestamp())
        tenant, roles = _tenant(verified), _roles(verified)
        with self._database.read() as connection:
            known = store.find(connection, verified.issuer.issuer, verified.subject, tenant)
        if again and known is None:
            raise LoginRefused("Whoever this token was made for is not known here.")
        if known is None or (not again and not known.barred and set(known.principal.roles) != set(roles)):
            known = self._writer.run(lambda unit: self._provision(unit, verified, tenant, roles))
        if known.barred:
            raise LoginRefused("Whoever this token was made for may not do anything here any more.")
        return LoginResult(principal=known.principal, session_id=known.session_id, wish=verified.issuer.session)

    def session(self, unit: Unit, principal: Principal) -> SessionId | None:
        """Return the last session opened for it, if usable. Locks the tenant, so that no other is opened meanwhile."""
        self._quotas.lock_tenant(unit, principal.tenant_id)
        found = store.session_of(unit.connection, principal.id)
        # Read in the unit, because another request in the same group of commits may have opened one.
        return found if found and tenancy_store.subject_in(unit.connection, found, principal.id) else None

    def keep_session(self, unit: Unit, principal: Principal, session: SessionId) -> None:
        """Record the session as the principal's last one."""
        store.keep_session(unit.connection, principal.id, session)

    def _provision(
        self, unit: Unit, verified: VerifiedToken, tenant: str, roles: tuple[Role, ...]
    ) -> store.LoginRecord:
        """Create the principal, or update its roles."""
        id_ = tenancy_store.tenant_named(unit.connection, tenant)
        if id_ is None:
            _log.error("logins of %s map to the tenant %s, which does not exist", verified.issuer.issuer, tenant)
            raise Forbidden("This login maps to a tenant that does not exist.", advice="Ask an operator.")
        self._quotas.lock_tenant(unit, id_)  # otherwise two logins at once could both create it
        found = tenancy_store.tenant(unit.connection, id_)
        if found is None or found.suspended_at is not None:
            raise LoginRefused("The tenant of this login is suspended.")
        where = (verified.issuer.issuer, verified.subject)
        known = store.find(unit.connection, *where, tenant)
        if known is None:
            made = self._create_principal(unit, verified, id_, roles)
            return store.LoginRecord(principal=made, barred=False, session_id=None)
        if known.barred or set(known.principal.roles) == set(roles):
            return known
        store.set_roles(unit.connection, known.principal.id, roles)
        self._audit(unit, AuditAction.PRINCIPAL_ROLES_SET, known.principal, roles=[role.value for role in roles])
        return known.model_copy(update={"principal": known.principal.model_copy(update={"roles": roles})})

    def _create_principal(
        self, unit: Unit, verified: VerifiedToken, tenant: TenantId, roles: tuple[Role, ...]
    ) -> Principal:
        name = _name(verified)
        if tenancy_store.principal_named(unit.connection, tenant, name) is not None:
            name = f"{name[:100]} {_hash(verified)}"  # a name chosen at an issuer must not impersonate a principal
        made = Principal(id=PrincipalId(self._ids.new(IdKind.PRINCIPAL)), tenant_id=tenant, name=name, roles=roles)
        now = self._clock.now().timestamp()
        tenancy_store.insert_principal(unit.connection, made, now)
        store.insert(unit.connection, verified.issuer.issuer, verified.subject, made, now)
        known: dict[str, Any] = {"issuer": verified.issuer.issuer, "subject": verified.subject}
        self._audit(unit, AuditAction.PRINCIPAL_CREATED, made, name=name, roles=[role.value for role in roles], **known)
        return made

    def _audit(self, unit: Unit, act: AuditAction, principal: Principal, **details: Any) -> None:
        self._trail.record(unit, principal.tenant_id, act, actor=LOGIN_ACTOR, target=principal.id, **details)


def _tenant(verified: VerifiedToken) -> str:
    issuer = verified.issuer
    if issuer.tenants is None:
        assert issuer.tenant is not None  # noqa: S101 (the file's check)
        return issuer.tenant
    named = [value for value in _values(verified, issuer.tenants.claim) if value in issuer.tenants.values]
    if len(named) != 1:
        raise Forbidden(
            "This login belongs to no tenant of this installation, or to several.", advice="Ask an operator."
        )
    return issuer.tenants.values[named[0]]


def _roles(verified: VerifiedToken) -> tuple[Role, ...]:
    found = set(verified.issuer.roles)
    if mapped := verified.issuer.roles_from:
        found.update(role for value in _values(verified, mapped.claim) for role in mapped.values.get(value, ()))
    if not found:
        raise Forbidden("This login has none of the roles of this installation.", advice="Ask an operator.")
    return tuple(sorted(found))


def _values(verified: VerifiedToken, claim: Any) -> Iterable[str]:
    """Yield the strings of a claim that holds one value or a list."""
    found = claim_at(verified.claims, claim)
    given = found if isinstance(found, list) else [found]
    return dict.fromkeys(value for value in given if isinstance(value, str))


def _name(verified: VerifiedToken) -> str:
    given = claim_at(verified.claims, verified.issuer.name) if verified.issuer.name is not None else None
    try:
        return _NAME_ADAPTER.validate_python(given)
    except ValidationError:
        return f"login {_hash(verified)}"


def _hash(verified: VerifiedToken) -> str:
    return hashlib.sha256(f"{verified.issuer.issuer}\n{verified.subject}".encode()).hexdigest()[:12]
