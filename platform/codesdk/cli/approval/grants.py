"""`codesdk grants`: lists and revokes grants."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from codesdk.approvals import Grant, GrantState
from codesdk.cli.api_client import connect
from codesdk.cli.console.terminal import Printer, ResponsiveTable, sanitize
from codesdk.cli.effective_settings import load_settings


def show(*, every: bool, session: str | None, data_dir: Path | None, as_json: bool) -> None:
    """List grants."""
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.grants(session, active=not every)
    Printer(as_json=as_json).listing("grants", found, partial(table, now=time.time()), "There is no grant.")


def revoke(grant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Revoke a grant."""
    with connect(load_settings(data_dir)) as daemon:
        ended = daemon.revoke_grant(grant)
    text = f"{ended.id} approves no further calls: {sanitize(ended.ended_why or '')}"
    Printer(as_json=as_json).answer(ended, text)


def table(grants: Sequence[Grant], now: float) -> ResponsiveTable:
    """Return a table with one row per grant. `now`: seconds since the epoch."""
    shown = ResponsiveTable("grant", "state", "left", "uses", "what", "whose", "by", "why", folds=("what", "why"))
    for grant in grants:
        left = f"{grant.expires_at - now:.0f} s" if grant.state is GrantState.ACTIVE else ""
        narrowed = " this input" if grant.input_hash else ""
        what = f"{grant.tool} ({', '.join(grant.rules)}){narrowed} under {grant.profile or 'no profile'}"
        whose = grant.session_id or grant.principal_id
        why = grant.ended_why or grant.reason
        uses = f"{grant.uses}/{grant.max_uses}" if grant.max_uses else str(grant.uses)
        shown.add_row(grant.id, grant.state.value, left, uses, what, whose, grant.granted_by, why)
    return shown
