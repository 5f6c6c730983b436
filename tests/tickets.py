"""A ticket for an approval, as in a delivery."""

from __future__ import annotations

from codesdk.approvals import Approval
from codesdk.storage.writer import Writer
from codesdk.tenancy.principal import Principal
from codesdk.webhooks import OneTimeLinkService
from codesdk.webhooks.one_time_link import OneTimeLink


def minted(
    writer: Writer,
    tickets: OneTimeLinkService,
    asked: Approval,
    principal: Principal,
    tenant: str | None = None,
    *,
    look_only: bool = False,
) -> OneTimeLink:
    """One that answers `asked` as that principal, or only shows it; `tenant`: where not the approval's own."""
    return writer.run(
        lambda unit: tickets.mint(
            unit,
            tenant=tenant or asked.tenant_id,
            session=asked.session_id,
            approval=asked.id,
            principal=principal.id,
            digest=asked.digest,
            expires_at=asked.expires_at,
            look_only=look_only,
        )
    )
