"""`codesdk grants`: lists and revokes grants."""

from __future__ import annotations

import time
from pathlib import Path

from rich.text import Text

from codesdk.approvals import Grant, GrantState
from codesdk.cli.api_client import connect
from codesdk.cli.console.printer import Printer
from codesdk.cli.console.table import ResponsiveTable
from codesdk.cli.console.text import sanitize
from codesdk.cli.effective_settings import load_settings


def show(*, every: bool, session: str | None, data_dir: Path | None, as_json: bool) -> None:
    """List grants."""
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.grants(session, active=not every)
    if as_json:
        printer.emit({"grants": [grant.model_dump(mode="json") for grant in found]})
    elif not found:
        printer.out.print("Nothing is granted.")
    else:
        printer.rows(table(found, time.time()))


def revoke(grant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Revoke a grant."""
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        ended = daemon.revoke_grant(grant)
    if as_json:
        printer.emit(ended.model_dump(mode="json"))
    else:
        printer.out.print(Text(f"{ended.id} lets nothing through any more: {sanitize(ended.ended_why or '')}"))


def table(grants: list[Grant], now: float) -> ResponsiveTable:
    """Return a table with one row per grant. `now`: seconds since the epoch."""
    shown = ResponsiveTable("grant", "state", "left", "uses", "what", "whose", "by", "why", folds=("what", "why"))
    for grant in grants:
        left = f"{grant.expires_at - now:.0f} s" if grant.state is GrantState.ACTIVE else ""
        narrowed = " this input" if grant.input_hash else ""
        what = f"{grant.tool} ({', '.join(grant.rules)}){narrowed} under {grant.profile or 'no profile'}"
        whose = grant.session_id or grant.principal_id
        why = grant.ended_why or grant.reason
        uses = f"{grant.uses}/{grant.max_uses}" if grant.max_uses else str(grant.uses)
        told = (sanitize(what), whose, grant.granted_by, sanitize(why))
        shown.add_row(grant.id, grant.state.value, left, uses, *map(Text, told))
    return shown
