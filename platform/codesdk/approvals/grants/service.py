"""Issues, finds, uses and revokes grants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from codesdk.approvals.approval import Approval
from codesdk.approvals.grants import store
from codesdk.approvals.grants.grant import Grant, GrantNotOffered, GrantRequest, GrantState, GrantUnknown, SkippedGrant
from codesdk.domain.calls import ToolCall
from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import GrantKind
from codesdk.domain.ids import GrantId, IdKind, Ids, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit


class GrantContext(FrozenModel):
    """The facts of a call that a grant must match."""

    call: ToolCall
    subject: Subject
    rules: Mapping[str, str]
    """Id and hash of each rule that asks."""
    behaviour_hash: str
    image: str
    profile: Mapping[str, Any]
    """The whole sandbox profile of the session."""

    @property
    def profile_hash(self) -> str:
        """`sha256:` over the profile."""
        return content_hash(dict(self.profile))


class GrantCoverage(NamedTuple):
    """Result of a grant lookup."""

    grant: Grant | None
    """The grant that covers the call."""
    passed: tuple[SkippedGrant, ...]
    """If none covers it, the grants for its tool and why each does not."""


NO_COVERAGE = GrantCoverage(None, ())


class GrantService:
    """The grants of one database."""

    def __init__(self, database: Database, ids: Ids) -> None:
        self._database = database
        self._ids = ids

    def issue(
        self, unit: Unit, wish: GrantRequest, asked: GrantContext, approval: Approval, *, by: PrincipalId, reason: str
    ) -> Grant:
        """Issue a grant, in the transaction of the vote.

        Raises:
            GrantNotOffered: the request exceeds the offer.
        """
        offer = approval.grant
        ttl_s = wish.ttl_s or (offer.max_ttl_s if offer else 0)
        most = offer.max_uses if offer else None
        uses = wish.max_uses or most
        if offer is None or wish.kind not in offer.offer:
            offered = ", ".join(offer.offer) if offer else GrantKind.ONCE.value
            raise GrantNotOffered(f"The rules that ask don't offer a `{wish.kind}` grant, only: {offered}.")
        if ttl_s > offer.max_ttl_s or (most is not None and uses is not None and uses > most):
            raise GrantNotOffered(
                f"The rules that ask offer at most {offer.max_ttl_s} s and {most or 'any number of'} uses.",
                details={"max_ttl_s": offer.max_ttl_s, "max_uses": most},
            )
        subject = asked.subject
        return store.insert(
            unit.connection,
            GrantId(self._ids.new(IdKind.GRANT)),
            float(ttl_s),
            tenant_id=subject.tenant_id,
            principal_id=subject.principal_id,
            session_id=subject.session_id if wish.kind is GrantKind.SESSION else None,
            approval_id=approval.id,
            tool=asked.call.name,
            rules=dict(asked.rules),
            input_hash=asked.call.identity.input_hash if wish.same_input else None,
            behaviour_hash=asked.behaviour_hash,
            image=asked.image,
            profile=str(asked.profile.get("name", "")),
            profile_hash=asked.profile_hash,
            granted_by=by,
            reason=reason,
            max_uses=uses,
        )

    def find_covering(self, unit: Unit, asked: GrantContext) -> GrantCoverage:
        """A grant that covers the call, or why none does. Voids grants whose tool has changed."""
        subject, call = asked.subject, asked.call
        found = store.find_covering(
            unit.connection,
            tenant=subject.tenant_id,
            principal=subject.principal_id,
            session=subject.session_id,
            tool=call.name,
            input_hash=call.identity.input_hash,
        )
        passed = []
        for grant in found:
            if (because := self._mismatch(unit, grant, asked)) is None:
                return GrantCoverage(grant, ())
            passed.append(SkippedGrant(grant_id=grant.id, because=because))
        return GrantCoverage(None, tuple(passed))

    def use(self, unit: Unit, grant: GrantId, asked: GrantContext) -> bool:
        """Count a use, if the grant still covers the call. False: it does not, and nothing was counted."""
        found = store.find(unit.connection, asked.subject.tenant_id, grant)
        holds = found is not None and found.state is GrantState.ACTIVE and self._mismatch(unit, found, asked) is None
        return holds and store.use(unit.connection, grant)

    def revoke(self, unit: Unit, tenant: TenantId, grant: str, *, by: PrincipalId, why: str) -> Grant:
        """Revoke a grant at once. A grant that has already ended is unchanged.

        Raises:
            GrantUnknown: not there, or another tenant's.
        """
        if store.find(unit.connection, tenant, grant) is not None:
            store.end(unit.connection, grant, why, by)
        return _require(store.find(unit.connection, tenant, grant), grant)

    def find(self, tenant: TenantId, grant: str) -> Grant:
        """One.

        Raises:
            GrantUnknown: not there, or another tenant's.
        """
        with self._database.read() as connection:
            return _require(store.find(connection, tenant, grant), grant)

    def listing(self, tenant: TenantId, session: str | None = None, *, active: bool = False) -> list[Grant]:
        """The tenant's grants, newest first."""
        with self._database.read() as connection:
            return store.listing(connection, tenant, session, active=active)

    @staticmethod
    def _mismatch(unit: Unit, grant: Grant, asked: GrantContext) -> Literal["tool", "image", "profile", "rules"] | None:
        """What differs between an active grant and this call. None: the grant covers it."""
        if grant.behaviour_hash != asked.behaviour_hash:
            # The tool is the same for every call, so the grant can never apply again.
            store.end(unit.connection, grant.id, "The tool has changed since.", None)
            return "tool"
        if grant.image != asked.image:
            return "image"
        if grant.profile_hash != asked.profile_hash:
            return "profile"
        # Every rule that asks now must have asked then, unchanged: a rule may have been added or edited.
        return None if asked.rules.items() <= grant.rules.items() else "rules"


def _require(found: Grant | None, grant: str) -> Grant:
    if found is None:
        raise GrantUnknown(f"There is no grant {grant}.", advice="`codesdk grants list` shows them.")
    return found
