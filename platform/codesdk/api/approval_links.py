"""Links to approval pages for agents' clients: one per approval and person, however often it's requested."""

from __future__ import annotations

import threading

from codesdk.approvals import Approval
from codesdk.domain.subjects import Subject
from codesdk.storage.writer import Writer
from codesdk.webhooks.one_time_link_service import OneTimeLinkService

MAX_LINKS = 1000
"""Maximum number of cached links; the oldest is dropped first. A dropped link costs another row."""


class ApprovalLinks:
    """Creates and caches links to approval pages. Safe to use from any thread."""

    def __init__(self, tickets: OneTimeLinkService, writer: Writer, base_url: str, *, look_only: bool) -> None:
        """Create the object. `base_url`: without a trailing slash. `look_only`: links only show the approval."""
        self._tickets = tickets
        self._writer = writer
        self._base_url = base_url
        self._look_only = look_only
        self._guard = threading.Lock()
        self._made: dict[tuple[str, str], str] = {}

    def __call__(self, approval: Approval, subject: Subject) -> str | None:
        """Return the link to the approval's page for the session's user. None if the public URL is unknown."""
        if not self._base_url:
            return None
        key = (approval.id, subject.principal_id)
        with self._guard:
            if (known := self._made.get(key)) is not None:
                return known
        ticket = self._writer.run(
            lambda unit: self._tickets.mint(
                unit,
                tenant=approval.tenant_id,
                session=approval.session_id,
                approval=approval.id,
                principal=subject.principal_id,
                digest=approval.digest,
                expires_at=approval.expires_at,
                look_only=self._look_only,
            )
        )
        page = self._tickets.page(ticket, self._base_url)
        with self._guard:
            self._made[key] = page
            while len(self._made) > MAX_LINKS:
                del self._made[next(iter(self._made))]
        return page
