"""Ends every session of an installation that stops: a sandbox without a worker would be a container without a use."""

from __future__ import annotations

import time

from codesdk.bootstrap import Services
from codesdk.errors import Fault
from codesdk.provision.command import Say
from codesdk.sandbox import store
from codesdk.sandbox.store import SandboxState
from codesdk.sessions import Session
from codesdk.tenancy.directory import DEFAULT_TENANT
from codesdk.tenancy.store import tenant_named

REMOVED_S = 20.0
"""Seconds for the worker to remove the containers: about a second each, two at a time."""
POLL_S = 0.05


def close_all(services: Services, say: Say) -> None:
    """Close them and wait until their sandboxes are gone; what cannot be done is said and left to the next start."""
    try:
        closed = [session for session in _open(services) if services.sessions.close(session.tenant_id, session.id)]
        left = _wait_gone(services, closed)
    except Fault as fault:
        say(f"Sessions could not be closed: {fault} The next `codesdk up` takes them up.")
        return
    if closed:
        say(
            f"Closed {len(closed)} session{'s' * (len(closed) != 1)} and removed {len(closed) - left} of their sandboxes"
        )
    if left:
        say(f"{left} sandboxes could not be removed now; the next `codesdk up` removes them.")


def _open(services: Services) -> list[Session]:
    with services.database.read() as connection:
        tenant = tenant_named(connection, DEFAULT_TENANT)
    return [s for s in services.sessions.listing(tenant, limit=10_000) if s.state == "open"] if tenant else []


def _wait_gone(services: Services, closed: list[Session]) -> int:
    until = time.monotonic() + REMOVED_S
    while left := sum(not _gone(services, session) for session in closed):
        if time.monotonic() > until:
            break
        time.sleep(POLL_S)
    return left


def _gone(services: Services, session: Session) -> bool:
    with services.database.read() as connection:
        row = store.of_session(connection, session.id)
    return row is None or row.state is SandboxState.GONE
