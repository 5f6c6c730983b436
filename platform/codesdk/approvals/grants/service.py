"""Where grants are given, looked for, used and ended."""

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
    """What a grant must be about to let a call through."""

    call: ToolCall
    subject: Subject
    rules: Mapping[str, str]
    """Id and hash of each rule that asks."""
    behaviour_hash: str
    image: str
    profile: Mapping[str, Any]
    """All that the session's profile says."""

    @property
    def profile_hash(self) -> str:
        """`sha256:` over it."""
        return content_hash(dict(self.profile))


class GrantCoverage(NamedTuple):
    """What grants do for a call."""

    grant: Grant | None
    """Lets it through."""
    passed: tuple[SkippedGrant, ...]
    """Those of its tool that do not, where none does."""


NO_COVERAGE = GrantCoverage(None, ())


class GrantService:
    """The grants of one database."""

    def __init__(self, database: Database, ids: Ids) -> None:
        self._database = database
        self._ids = ids

    def issue(
        self, unit: Unit, wish: GrantRequest, asked: GrantContext, approval: Approval, *, by: PrincipalId, reason: str
    ) -> Grant:
        """A new grant, in the transaction of the vote that gives it.

        Raises:
            GrantNotOffered: it is more than the rule offers.
        """
        offer = approval.grant
        ttl_s = wish.ttl_s or (offer.max_ttl_s if offer else 0)
        most = offer.max_uses if offer else None
        uses = wish.max_uses or most
        if offer is None or wish.kind not in offer.offer:
            offered = ", ".join(offer.offer) if offer else GrantKind.ONCE.value
            raise GrantNotOffered(f"The rules that ask offer no grant `{wish.kind}`, only: {offered}.")
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
        """A grant that lets this call through, or why none does; one whose tool has changed is voided on the way."""
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
        """Count a use, if the grant still lets the call through. False: it does not, and nothing was counted."""
        found = store.find(unit.connection, asked.subject.tenant_id, grant)
        holds = found is not None and found.state is GrantState.ACTIVE and self._mismatch(unit, found, asked) is None
        return holds and store.use(unit.connection, grant)

    def revoke(self, unit: Unit, tenant: TenantId, grant: str, *, by: PrincipalId, why: str) -> Grant:
        """End it, at once; one that has ended stays as it is.

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
        """What of an active grant is another one in this call. None: nothing, it lets it through."""
        if grant.behaviour_hash != asked.behaviour_hash:
            # What a tool does is the same for everybody, so nothing is left that it could be for.
            store.end(unit.connection, grant.id, "The tool has changed since.", None)
            return "tool"
        if grant.image != asked.image:
            return "image"
        if grant.profile_hash != asked.profile_hash:
            return "profile"
        # Every rule that asks must be one that asked then, word for word: another may have been added, or changed.
        return None if asked.rules.items() <= grant.rules.items() else "rules"


def _require(found: Grant | None, grant: str) -> Grant:
    if found is None:
        raise GrantUnknown(f"There is no grant {grant}.", advice="`codesdk grants list` shows them.")
    return found
