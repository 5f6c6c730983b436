"""`codesdk audit`: lists, seals and verifies the audit trail, directly on the database."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rich.text import Text

from codesdk.bootstrap.maintenance import MaintenanceServices, open_maintenance_services
from codesdk.cli.console.terminal import Printer, pluralize, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode, Fault
from codesdk.eventlog.audit import INSTALLATION, store
from codesdk.eventlog.audit.log_sealing import Sealer
from codesdk.eventlog.audit.verification import verify_audit as verify_chains
from codesdk.eventlog.log import PAGE_SIZE
from codesdk.tenancy import store as tenancy_store
from codesdk.tenancy.tenant import TenantUnknown

_CHAIN_HEAD = re.compile(r"(?P<chain>[^:]+):(?P<end>[0-9]+:sha256:[0-9a-f]{64})")

_INSTALLATION_HINT = " Entries about all tenants are in another chain: --tenant installation."


class HeadUnreadable(Fault):
    """A `--head` is not a chain head."""

    code = "HEAD_UNREADABLE"
    exit_code = ExitCode.USAGE


def show(tenant: str, *, after: int, data_dir: Path | None, as_json: bool) -> None:
    """Print a chain's entries.

    Raises:
        TenantUnknown: there is none of that name or id.
    """
    printer = Printer(as_json=as_json)
    with open_maintenance_services(load_settings(data_dir)) as record:
        chain = _resolve_chain(record, tenant)
        while True:
            with record.database.read() as connection:
                page = store.after(connection, chain, after, PAGE_SIZE)
            for entry in page:
                after = entry.number
                if as_json:
                    printer.emit(entry)
                    continue
                details = sanitize(json.dumps(entry.details, ensure_ascii=False))
                parts = f"{entry.number:>5} {entry.time[:19]}Z {entry.act:<20} {sanitize(entry.target)}"
                printer.out.print(Text(f"{parts}  by {sanitize(entry.actor)}  {details}"), soft_wrap=True)
            if len(page) < PAGE_SIZE:
                break
    if not after and not as_json:
        printer.out.print(f"The chain of {tenant} is empty.{'' if tenant == INSTALLATION else _INSTALLATION_HINT}")


def seal(*, data_dir: Path | None, as_json: bool) -> None:
    """Seal new events of session logs."""
    with open_maintenance_services(load_settings(data_dir)) as record:
        done = Sealer(record.database, record.writer, record.clock).seal()
    text = f"Sealed the log{'' if done == 1 else 's'} of {pluralize(done, 'session')}."
    Printer(as_json=as_json).answer({"sessions": done}, text)


def verify(heads: tuple[str, ...], *, data_dir: Path | None, as_json: bool) -> int:
    """Verify all chains; the exit code is 1 if anything was changed.

    Raises:
        HeadUnreadable: a `--head` doesn't have the format that this command prints.
    """
    printer = Printer(as_json=as_json)
    expected = dict(_parse_head(head) for head in heads)
    with open_maintenance_services(load_settings(data_dir)) as record:
        found = verify_chains(record.database, expected)
    if as_json:
        printer.emit(found)
    else:
        for each in found.findings:
            printer.out.print(Text(sanitize(f"{each.chain}: {each.where}: {each.what}."), style="red"), soft_wrap=True)
        counts = f"{pluralize(found.entries, 'entry', 'entries')} and {pluralize(found.sealed_events, 'sealed event')}"
        printer.out.print(f"Hashed again: {counts}; {'something' if found.findings else 'nothing'} was changed.")
        for chain, end in found.heads.items():
            printer.out.print(Text(f"{chain}:{end}", style="dim"), soft_wrap=True)
    return ExitCode.FAILED if found.findings else ExitCode.OK


def _parse_head(head: str) -> tuple[str, str]:
    match = _CHAIN_HEAD.fullmatch(head)
    if match is None:
        raise HeadUnreadable(
            f"{head!r} is not a chain head.", advice="Pass a head as `codesdk audit verify` prints it."
        )
    return match["chain"], match["end"]


def _resolve_chain(record: MaintenanceServices, tenant: str) -> str:
    if tenant == INSTALLATION:
        return tenant
    with record.database.read() as connection:
        named = tenancy_store.tenant_named(connection, tenant)
        if named is None and tenancy_store.tenant(connection, tenant) is None:
            raise TenantUnknown(f"There is no tenant {tenant}.", advice="See `codesdk tenants list`.")
    return named or tenant
